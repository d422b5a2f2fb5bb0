"""What commands run: the paper's experiments and the demonstration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from momentous.lab.paper.baselines import QUASI_NEWTON, SWEEPS, run_quasi_newton, run_sweeps
from momentous.lab.paper.exponents import growth_parts, growth_with_difficulty
from momentous.lab.paper.folder import StudyFolder
from momentous.lab.paper.methods import PAPER_METHODS, select_methods
from momentous.lab.paper.plan import FIGURES, Figure, Settings, run_figures
from momentous.lab.paper.problems import PROBLEMS, DataSet, PaperProblem
from momentous.lab.paper.results import RunSet, Study
from momentous.lab.paper.theorem_table import all_parts, theorem_table
from momentous.lab.paper.tuning import tune as tune_method
from momentous.lab.progress import StudyProgress
from momentous.lab.report.documents import write_report
from momentous.lab.text import Table, number

TRIAL_ITERATIONS, SWEEP_COUNT = 50, 60  # of the demonstration
DEMO_TITLE = "momentous: the demonstration"
DEMO_LEAD = (
    "The experiments of Li and Lin (JMLR 2023) in small: seven methods on the synthetic twin of "
    "MovieLens 100K, each with a tuned step size, and beside them SciPy's L-BFGS-B and sweeps "
    "under restarted momentum. Click a name to hide its curve, change the axes above the plot. "
    "Most of what the paper says is about longer runs on other data: these runs are no test of it."
)


def reproduce(
    parts: Sequence[str], out: Path, data: list[DataSet] | None, settings: Settings, *,
    report: bool = True,
) -> tuple[StudyFolder, Study | None]:  # fmt: skip
    """Run what is not there yet, and write pictures and page, unless no report is wanted.

    The parts are names of FIGURES, and "theorems"; without any only the page is written.  Data sets
    take the place of the figures' own.  A second process in the folder is refused.
    """
    folder = StudyFolder(out)
    with folder.locked(), StudyProgress() as progress:
        figures = [figure for name, figure in FIGURES.items() if name in parts]
        run_figures(figures, data, settings, folder, progress)
        if "theorems" in parts:
            _check_theorems(folder, progress)
        return folder, write_report(folder) if report else None


def _check_theorems(folder: StudyFolder, progress: StudyProgress) -> None:
    """The theorem table and the exponents, as far as they are not there."""
    bounds, growths = folder.load_findings()
    if not bounds:
        bounds = theorem_table(progress.each(all_parts()))
        folder.save_findings(bounds, growths)
    if not growths:
        growths = growth_with_difficulty(progress.each(growth_parts()))
        folder.save_findings(bounds, growths)


def tune(
    out: Path, data: list[DataSet] | None, problems: Sequence[str], settings: Settings, *,
    iterations: int,
) -> Table:  # fmt: skip
    """Search the step size of each method on each problem; trials are kept in the folder.

    By default on the twin of MovieLens 10M, and on both problems.
    """
    chosen = select_methods(settings.methods)
    searched = [method for method in chosen if not method.step_of]
    if not searched:
        other = PAPER_METHODS[chosen[0].step_of].name
        raise ValueError(f"{chosen[0].name} takes the step size of {other}: tune that one")
    places = [(each, name) for each in data or [DataSet("ml-10m")] for name in problems or PROBLEMS]
    title = "{0.name}, {1}, {2.label}".format
    headings = ["data", "problem", "method", "step size", "objective"]
    costs: list[str] = []
    lines = []
    folder = StudyFolder(out)
    with folder.locked(), StudyProgress() as progress:
        progress.plan({title(*where, method): 1.0 for where in places for method in searched})
        for where in places:
            problem = settings.problem(*where)
            for method in searched:
                progress.begin(title(*where, method))
                found, run = tune_method(
                    method, problem, folder, iterations=iterations,
                    trial_iterations=settings.trial_iterations, on_iteration=progress.on_iteration,
                )  # fmt: skip
                progress.end(run)
                cost = {key: cell for key, cell in found.summary.items() if key != "unstable"}
                costs = list(cost)
                steps = ", ".join(f"{trial.step_size:.4g}" for trial in found.unstable)
                objective = f"{run.fun[min(iterations, len(run) - 1)]:.6g}"
                lines.append([
                    run.info.data_name, run.info.problem, method.label, f"{found.step_size:.4g}",
                    objective, *map(number, cost.values()), steps or "-",
                ])  # fmt: skip
    return Table.of("step sizes", [*headings, *costs, "unstable"], lines, headings[:3])


def run_demo(out: Path, iterations: int) -> tuple[StudyFolder, Study]:
    """Tune, run and write the page; of the paper's methods, what is there is not run again."""
    folder, data = StudyFolder(out), DataSet("ml-100k")
    figure = Figure("demo", tuple(PROBLEMS), iterations, iterations)
    settings = Settings(trial_iterations=min(TRIAL_ITERATIONS, iterations))
    with folder.locked(), StudyProgress() as progress:
        run_figures([figure], [data], settings, folder, progress)
        for run_set in [each for each in folder.run_sets() if each.figure == figure.name]:
            progress.begin(f"{QUASI_NEWTON} and {SWEEPS}: {run_set.title}")
            problem = PaperProblem(data, run_set.problem)
            baselines = [
                run_quasi_newton(problem, 2 * iterations),
                run_sweeps(problem, min(SWEEP_COUNT, iterations)),
            ]
            kept = [run.save(folder.runs / _name(run.info.method, problem)) for run in baselines]
            folder.add(RunSet("demo", [*run_set.runs, *kept], iterations))
        return folder, write_report(folder, title=DEMO_TITLE, lead=DEMO_LEAD)


def _name(method: str, problem: PaperProblem) -> str:
    return f"{problem.data.name}--{problem.name}--{method.replace(' ', '_')}.parquet"


def what_to_look_at(study: Study) -> str:
    """One sentence, with the numbers of this run."""
    run_set = study.run_sets[0]
    plain, ours, sweeps = (run_set.by_method[name] for name in ("GD", "Ada-RHB-NC", SWEEPS))
    shown = run_set.shown
    return (
        "Look at gradient descent and Ada-RHB-NC, whose restarts are the circles: after "
        f"{run_set.plotted} iterations of one gradient each they are at "
        f"{plain.fun[shown(plain)][-1]:.4f} and {ours.fun[shown(ours)][-1]:.4f}; then switch the "
        f"axis to time, and look at the sweeps: {sweeps.fun[shown(sweeps)][-1]:.4f} after "
        f"{run_set.time(sweeps)[-1]:.2f} s."
    )
