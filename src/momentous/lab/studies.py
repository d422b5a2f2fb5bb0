"""The demonstration: the paper's comparison in small, with two more that the paper leaves out."""

from __future__ import annotations

from pathlib import Path

from momentous.comparison.report import new_console
from momentous.lab.paper.baselines import QUASI_NEWTON, SWEEPS, run_quasi_newton, run_sweeps
from momentous.lab.paper.problems import DataSet
from momentous.lab.paper.progress import StudyProgress
from momentous.lab.paper.folder import StudyFolder
from momentous.lab.paper.plan import Figure, Settings, run_figures
from momentous.lab.paper.problems import PaperProblem
from momentous.lab.paper.runs import PROBLEMS
from momentous.lab.report.documents import print_results, write_report
from momentous.lab.paper.results import RunSet, Study

ITERATIONS, TRIAL_ITERATIONS, SWEEP_COUNT = 500, 50, 60


def run_demo(out: Path, iterations: int = ITERATIONS) -> Study:
    """Tune, run, print the table, write the page; of the seven, what is there is not run again."""
    console = new_console()
    console.print(
        "The synthetic twin of MovieLens 100K, rank 10, both problems of the paper.  Each of its "
        "seven methods gets the step size that suits it best; then they run, and beside them "
        "SciPy's L-BFGS-B and this library's sweeps."
    )
    folder, data = StudyFolder(out), DataSet("ml-100k")
    figure = Figure("demo", tuple(PROBLEMS), iterations, iterations)
    settings = Settings(trial_iterations=min(TRIAL_ITERATIONS, iterations))
    with StudyProgress() as display:
        run_figures([figure], [data], settings, folder, display)
        for group in [each for each in folder.groups() if each.figure == figure.name]:
            display.begin(f"{QUASI_NEWTON} and {SWEEPS}: {group.title}")
            problem = PaperProblem(data, group.runs[0].info.problem)
            beside = [
                run_quasi_newton(problem, 2 * iterations),
                run_sweeps(problem, min(SWEEP_COUNT, iterations)),
            ]
            kept = [run.save(folder.runs / _name(run.info.method, problem)) for run in beside]
            folder.note(RunSet("demo", [*group.runs, *kept], iterations))
    study = write_report(
        folder,
        title="momentous: the demonstration",
        lead="The experiments of Li and Lin (JMLR 2023) in small: seven methods on the synthetic "
        "twin of MovieLens 100K, each with a tuned step size, and beside them SciPy's L-BFGS-B "
        "and sweeps under restarted momentum. Tap a name to hide its curve, change the axes above "
        "the plot.",
    )
    print_results(study, verdicts=False)
    console.print(f"The report is [bold]{folder.page}[/bold].  {_what_to_look_at(study)}")
    return study


def _name(method: str, problem: PaperProblem) -> str:
    return f"{problem.data.name}--{problem.name}--{method.replace(' ', '_')}.parquet"


def _what_to_look_at(study: Study) -> str:
    """One sentence, with the numbers of this run."""
    group = study.groups[0]
    found = {}
    for run in group.runs:
        last = group.shown(run).stop - 1
        found[run.info.method] = (run.fun[last], run.time[last])
    plain, ours, sweeps = found["GD"], found["Ada-RHB-NC"], found[SWEEPS]
    return (
        "Look at gradient descent and Ada-RHB-NC, whose restarts are the circles: after "
        f"{group.plotted} iterations of one gradient each they are at {plain[0]:.4f} and "
        f"{ours[0]:.4f}; then switch the axis to time, and look at the sweeps: {sweeps[0]:.4f} "
        f"after {sweeps[1]:.2f} s."
    )
