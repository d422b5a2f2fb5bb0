"""The tables of a study as plain text in cells, for the page, the account and the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from momentous.core.status import RESTARTS, EventKind
from momentous.lab.paper.results import EARLY, Bound, Growth, RunSet
from momentous.lab.paper.runs import PaperRun
from momentous.lab.paper.tuning import RISE_ALLOWED
from momentous.lab.text import NOTHING, Table, number, ratio, seconds

TUNING_NOTE = (
    "A run is unstable if it ends before its time, climbs above its start (but in an epoch that "
    "the method itself discards), or ends above its lowest value by more than "
    f"{100 * RISE_ALLOWED:g} % of the decrease that it has made; then the next smaller step is "
    "run, and that is shown."
)


def results_table(run_set: RunSet) -> Table:
    """What every run of a set took and reached, in the iterations that are shown."""
    headings = ["method", "step size", "chosen", "iterations", "values", "gradients", "time",
                "restarts", "line 11", f"f - f* at {EARLY:,}", f"norm at {EARLY:,}",
                "f - f* at the end", "norm at the end", "ended"]  # fmt: skip
    lines = [_result_cells(run_set, run) for run in run_set.runs]
    return Table.of(f"results, {run_set.title}", headings, lines, ["chosen", "ended"])


def _result_cells(run_set: RunSet, run: PaperRun) -> list[str]:
    name, last = run.info.method, run_set.iterations(run)
    step = "its own" if run.info.step_size is None else f"{run.info.step_size:.4g}"
    chosen = NOTHING if run.info.step_size is None else run.info.step_from
    if last < 0:
        return [name, step, chosen, *[NOTHING] * 10, run.status]
    restarts, discarded = (len(run_set.rows(run, *k)) for k in (RESTARTS, (EventKind.ROLLBACK,)))
    return [
        name, step, chosen, f"{last:,}", f"{run.nfev[last]:,}", f"{run.njev[last]:,}",
        seconds(float(run.time[last])),
        f"{restarts:,}" if restarts else NOTHING,
        f"{discarded:,}" if discarded else NOTHING,
        *_error_and_norm(run_set, run, run_set.early(run)),
        *_error_and_norm(run_set, run, last),
        run.status,
    ]  # fmt: skip


def _error_and_norm(run_set: RunSet, run: PaperRun, row: int | None) -> tuple[str, str]:
    if row is None:
        return NOTHING, NOTHING
    error, norm = float(run.fun[row]) - run_set.lowest[0], float(run.grad_norm[row])
    return (
        "0" if error == 0 else f"{error:.2e}" if math.isfinite(error) else NOTHING,
        f"{norm:.2e}" if math.isfinite(norm) else NOTHING,
    )


def tuning_table(run_sets: Sequence[RunSet]) -> Table | None:
    """What the search for step sizes cost, and which larger steps were unstable."""
    tuned = [(each, run) for each in run_sets for run in each.runs if run.info.tuning]
    if not tuned:
        return None
    keys = list(dict.fromkeys(key for _, run in tuned for key in run.info.tuning))
    keys = [key for key in keys if key != "unstable"]
    lines = [
        [
            run.info.method,
            run_set.title,
            value_text(run.info.step_size),
            *(number(run.info.tuning.get(key)) for key in keys),
            _unstable(run.info.tuning.get("unstable")),
        ]
        for run_set, run in tuned
    ]
    headings = ["method", "on", "step size", *keys, "unstable steps"]
    return Table.of("search for step sizes", headings, lines, ["on", "unstable steps"])


def _unstable(steps: object) -> str:
    if not isinstance(steps, list) or not steps:
        return NOTHING
    return "; ".join(
        f"{value_text(each.get('step_size'))}: {each.get('reason')}"
        for each in steps
        if isinstance(each, Mapping)
    )


def parameters_table(run_sets: Sequence[RunSet]) -> Table:
    """Runs that differ in their step size and data alone share a line."""
    where: dict[tuple[str, str, str], list[str]] = {}
    for run_set in run_sets:
        for run in run_set.runs:
            parameters = {**run.info.parameters, "step_size": None}
            given = {name: value for name, value in parameters.items() if value is not None}
            line = (run.info.method, run.info.profile, value_text(given) or "none")
            where.setdefault(line, []).append(run_set.title)
    lines = [
        [*line, "all" if len(set(on)) == len(run_sets) > 1 else "; ".join(dict.fromkeys(on))]
        for line, on in where.items()
    ]
    headings = ["method", "whose", "parameters", "on"]
    return Table.of("parameters", headings, lines, headings)


def data_table(run_sets: Sequence[RunSet]) -> Table:
    """Which data, how large, and how many iterations of which methods."""
    headings = ["figure", "data", "problem", "users", "items", "ratings", "rank", "parameters",
                "device", "iterations run", "shown", "methods", "fingerprint"]  # fmt: skip
    lines = []
    for run_set in run_sets:
        info = run_set.runs[0].info
        lines.append([
            run_set.figure_name, info.data_name, info.problem_name, f"{info.shape[0]:,}",
            f"{info.shape[1]:,}", f"{info.entries:,}", str(info.rank), info.profile,
            info.device, f"{max(run.info.iterations for run in run_set.runs):,}",
            f"{shown_iterations(run_set):,}", str(len(run_set.runs)), info.fingerprint,
        ])  # fmt: skip
    words = ["data", "problem", "parameters", "device", "fingerprint"]
    return Table.of("data", headings, lines, words)


def shown_iterations(run_set: RunSet) -> int:
    """How many iterations are shown of the longest run."""
    return min(run_set.plotted, max(len(run) - 1 for run in run_set.runs))


def bounds_table(bounds: Sequence[Bound]) -> Table:
    """Every bound beside what was measured."""
    headings = ["theorem", "quantity", "function", "bound", "measured", "slack", "verdict",
                "formula"]  # fmt: skip
    lines = [
        [
            bound.theorem, bound.quantity, bound.function, number(bound.bound),
            number(bound.measured), ratio(bound.slack),
            "holds" if bound.holds else "does not hold", bound.formula,
        ]
        for bound in bounds
    ]  # fmt: skip
    words = ["quantity", "function", "verdict", "formula"]
    return Table.of("bounds of the theorems", headings, lines, words)


def tightest_bounds_table(bounds: Sequence[Bound]) -> Table:
    """Of each bound the function on which least room is left."""
    alike: dict[tuple[str, str, str], list[Bound]] = {}
    for bound in bounds:
        formula = bound.formula.partition(";")[0]
        alike.setdefault((bound.theorem, bound.quantity, formula), []).append(bound)
    lines = []
    for (theorem, quantity, formula), several in alike.items():
        least = min(several, key=lambda bound: bound.slack)
        failed = sum(not bound.holds for bound in several)
        verdict = f"{failed} of {len(several)} do not" if failed else f"all {len(several)}"
        lines.append(
            [theorem, quantity, formula, verdict, least.function, number(least.bound),
             number(least.measured), ratio(least.slack)]
        )  # fmt: skip
    headings = ["theorem", "quantity", "bound", "hold", "tightest on", "its value", "measured",
                "bound / measured"]  # fmt: skip
    return Table.of("tightest bounds", headings, lines, headings[1:5])


def growth_table(growths: Sequence[Growth]) -> Table:
    """Gradients against 1/mu, with the fitted exponent."""
    lines = [
        [
            growth.method, ", ".join(map(number, growth.inverse_mu)),
            ", ".join(map(number, growth.gradients)), f"{growth.exponent:.3f}",
        ]
        for growth in growths
    ]  # fmt: skip
    return Table.of("growth", ["method", "1/mu", "gradients", "exponent"], lines)


def value_text(value: object) -> str:
    """A parameter in words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {value_text(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return "(" + ", ".join(value_text(inner) for inner in value) + ")"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
