"""The scoreboard: all methods on the suite, its table, and its page.

Every number and every sentence of the page is computed from the table.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from momentous.io.atomic import write_text
from momentous.lab.compare.profiles import plot_profiles
from momentous.lab.compare.runner import compare
from momentous.lab.compare.solvers import OUTSIDE_SOLVERS, as_solvers
from momentous.lab.compare.table import Comparison, Row, made_with, merged
from momentous.lab.compare.verdicts import LARGE, Duel, duel, heuristics, median, summaries
from momentous.lab.text import counted, folded, listed, markdown_table, ratio, seconds, share
from momentous.methods import REGISTRY, method_class
from momentous.testbed.suite import Entry

OURS, BASELINE = "auto", "scipy:l-bfgs-b"
TABLE = "scoreboard.parquet"
# The second run is for counts, which say little new where evaluations are expensive.
SEPARATE_UP_TO = 10_000  # variables
NOT_SEPARATE = "cutest"
# Problems held back that were looked at once, and what is to be said of it.
LOOKED_AT = ("HEART6LS", "POWELLBSLS", "STREG", "YATP2CLS")


def scoreboard_methods() -> list[str]:
    """``auto``, every other registered method, and the outside solvers."""
    ours = [name for name, cls in REGISTRY.items() if cls is not method_class(OURS)]
    return [OURS, *ours, *OUTSIDE_SOLVERS]


def run_scoreboard(
    entries: Sequence[Entry],
    out: str | os.PathLike[str],
    *,
    methods: Sequence[str] | None = None,
    separate: bool = True,
    update: bool = False,
    work: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Comparison:
    """Run the methods, by default all, and write ``scoreboard.parquet``, the page and its picture.

    With ``update`` only the rows of these methods on these problems are new: the others stay as
    they are in the table that is there, which must have been made to the same tolerance and limits.

    With ``separate`` the problems with up to 10,000 variables, without those of CUTEst, are run a
    second time with value and gradient apart, for the counts of values.  ``work`` is the folder for
    finished runs: a scoreboard that was killed goes on from there.  ``options`` are `compare`'s.
    """
    names = list(methods or scoreboard_methods())
    as_solvers(names)  # a misspelt name is refused before hours of work
    old = Comparison.load(Path(out) / TABLE).rows if update else []
    rows: list[Row] = []
    interrupted = False
    small = [e for e in entries if e.dimension <= SEPARATE_UP_TO and e.family != NOT_SEPARATE]
    for second in (False, True) if separate else (False,):
        found = compare(
            small if second else entries,
            names,
            separate=second,
            repeats=1 if second else 3,  # of the second run only the counts are used
            traces=False,
            folder=work,
            **options,
        )
        rows += found.rows
        interrupted |= found.interrupted
        if interrupted:
            break
    if old and rows:
        _require_same_rules(old[0], rows[0])
        rows = merged(old, rows, ("problem", "method", "separate"))
    comparison = Comparison(rows, interrupted=interrupted)
    if rows and not interrupted:
        out = Path(out)
        out.mkdir(parents=True, exist_ok=True)
        comparison.save(out / TABLE)
        write_scoreboard(out / TABLE, out)
    return comparison


def _require_same_rules(old: Row, new: Row) -> None:
    for name in ("rtol", "max_evaluations", "max_time"):
        before, now = getattr(old, name), getattr(new, name)
        if before != now:
            raise ValueError(
                f"the table to update was made with {name}={before!r}, these runs with {now!r}: "
                "give the same limits, or run all of it again"
            )


def write_scoreboard(table: str | os.PathLike[str], out: str | os.PathLike[str]) -> None:
    """Make ``scoreboard.md`` and its picture from a table, and from nothing else."""
    rows, out = Comparison.load(table).rows, Path(out)
    picture = "scoreboard-profiles.png"
    fused, separate = fused_rows(rows), [row for row in rows if row.separate]
    plot_profiles(fused, out / picture, evaluations_from=separate or None)
    write_text(out / "scoreboard.md", page(rows, picture))


# --- the page -------------------------------------------------------------------------------------


def page(rows: Sequence[Row], picture: str) -> str:
    """The scoreboard in Markdown."""
    fused = fused_rows(rows)
    parts = [
        "# Scoreboard",
        _three_sentences(fused),
        f"![performance profiles]({picture})",
        _short_table(fused),
        "## How it was made",
        _how_it_was_made(rows),
        "## All methods",
        _summary(fused),
        *_ours_against_others(fused),
        "## Problem by problem",
        *_per_problem(rows),
    ]
    return "\n\n".join(parts) + "\n"


def fused_rows(rows: Sequence[Row]) -> list[Row]:
    """Time and gradients are compared where all have value and gradient from one call."""
    return [row for row in rows if not row.separate] or list(rows)


def _three_sentences(rows: list[Row]) -> str:
    """What most readers want to know."""
    found = {it.method: it for it in summaries(rows)}
    problems = {row.problem: row.dimension for row in rows}
    where = (
        f"On {counted(len(problems), 'problem')} with {min(problems.values()):,} to "
        f"{max(problems.values()):,} variables"
    )
    if OURS not in found:
        most = max(found.values(), key=lambda it: it.solved)
        return f"{where} `{most.method}` solves the most, {most.solved}."
    theirs = f", `{BASELINE}` {found[BASELINE].solved}" if BASELINE in found else ""
    sentences = [f"{where} `{OURS}` solves {found[OURS].solved}{theirs}."]
    if theirs:
        against = duel(rows, OURS, [BASELINE])
        if against.worst is not None:
            name, worst = against.worst
            sentences.append(
                f"Where both do, `{OURS}` needs {_two_digits(median(against.gradients))} times its "
                f"gradients and {_two_digits(median(against.time))} times its time in the median, "
                f"and at worst {_two_digits(worst)} times its gradients ({name})."
            )
    others = [it for it in found.values() if it.method != OURS]
    if others:
        most = max(others, key=lambda it: it.solved)
        sentences.append(
            f"Of all others `{most.method}` solves the most, {most.solved}; nobody needs fewer "
            f"gradients than `{OURS}` on {len(found[OURS].best_gradients)} problems."
        )
    return " ".join(sentences)


def _two_digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _short_table(rows: list[Row]) -> str:
    """The methods that solve half of the problems or more, the most first."""
    chosen = [it for it in summaries(rows) if 2 * it.solved >= it.problems]
    lines: list[tuple[str, ...]] = []
    for it in sorted(chosen, key=lambda it: -it.solved):
        against = duel(rows, it.method, [BASELINE])
        mine = it.method == BASELINE
        lines.append(
            (
                f"`{it.method}`",
                f"{it.solved} of {it.problems}",
                "1" if mine else ratio(median(against.gradients)),
                "1" if mine else ratio(median(against.time)),
                "-" if it.overhead is None else _microseconds(it.overhead),
            )
        )
    headings = ["method", "solved", "gradients", "time", "overhead"]
    text = (
        f"Gradients and time: the median ratio to `{BASELINE}` over the problems that both solved."
    )
    if any(it.overhead is not None for it in chosen):
        text += f" {OVERHEAD}"
    else:  # a table from before it was measured
        headings, lines = headings[:-1], [line[:-1] for line in lines]
    if len(chosen) < len(summaries(rows)):
        text += " Methods that solve less than half of the problems are in the table of all below."
    return f"{markdown_table(headings, lines, left=1)}\n\n{text}"


OVERHEAD = "Overhead: the median CPU time per gradient outside the function."


def _microseconds(time: float) -> str:
    return f"{1e6 * time:,.0f} us"


def _how_it_was_made(rows: Sequence[Row]) -> str:
    problems = {row.problem: row for row in rows}
    held_back = sum(row.held_back for row in problems.values())
    sizes = [row.dimension for row in problems.values()]
    first = rows[0]
    goal = f"{first.rtol or 0:g} times the gradient norm at the start"
    if first.rtol is None:
        goal = f"{first.tol:g}"
    again = {row.problem: row.dimension for row in rows if row.separate}
    second_run = ""
    if again and not all(row.separate for row in rows):
        second_run = (
            f" Values plus gradients come from a second run of {len(again)} problems, with up to "
            f"{max(again.values()):,} variables, in which they are two functions, so that methods "
            "that need few values show it."
        )
    return (
        "`momentous scoreboard` made this page; every number and every sentence on it is computed "
        "from `scoreboard.parquet`.\n\n"
        f"{counted(len(problems), 'problem')} with {min(sizes):,} to {max(sizes):,} variables, "
        f"{len(problems) - held_back} of them for choosing defaults by and {held_back} held back "
        "from that. "
        "A problem is solved at the first iterate (of an outside solver: the first evaluation) "
        f"whose gradient norm is at most {goal} and whose value is not above that of the start; "
        "what counts is what had been spent by then. "
        f"A run may take {first.max_evaluations:,} values plus gradients and "
        f"{first.max_time:g} s. All methods get value and gradient from one call, which counts as "
        f"one of each.{second_run} Methods run with their defaults; those that need Lipschitz "
        f"constants get them where the problem has global ones.{_looked_at(problems)}\n\n"
        f"{made_with(rows)}"
    )


def _looked_at(problems: Mapping[str, Row]) -> str:
    """What held-back problems were used for, other than to report on them."""
    seen = [name for name in LOOKED_AT if name in problems and problems[name].held_back]
    if not seen:
        return ""
    return (
        f" Of those held back, {listed(seen)} were looked at to see why an earlier `{OURS}` needed "
        "far more gradients than others on them; what was changed then was chosen on random "
        "problems of such kinds and on the half for choosing."
    )


def _summary(rows: list[Row]) -> str:
    lines = []
    for it in summaries(rows):
        against = duel(rows, it.method, [BASELINE])
        applicable = "" if it.applicable == it.problems else f" (of {it.applicable} applicable)"
        lines.append(
            (
                f"`{it.method}`",
                f"{it.solved} of {it.problems}{applicable}",
                "1" if it.method == BASELINE else ratio(median(against.gradients)),
                "1" if it.method == BASELINE else ratio(median(against.time)),
                share(len(it.best_gradients), it.problems),
                share(len(it.best_time), it.problems),
                str(it.higher),
                "-" if it.overhead is None else _microseconds(it.overhead),
            )
        )
    headings = ("method", "solved", "gradients", "time", "fewest gradients", "least time", "higher",
                "overhead")  # fmt: skip
    winners = [
        f"- `{it.method}`, {len(it.best_gradients)}: {listed(it.best_gradients)}."
        for it in sorted(summaries(rows), key=lambda it: -len(it.best_gradients))
        if it.best_gradients
    ]
    return (
        markdown_table(headings, lines, left=1)
        + f"\n\nGradients and time: the median ratio to `{BASELINE}` over the problems that both "
        "solved (below 1: less). Fewest gradients, least time: the share of problems where nobody "
        "needs less; ties count for each. Higher: solved, but at a value above the lowest that "
        f"another method found, by more than a thousandth of the decrease. {OVERHEAD}\n\n"
        "<details><summary>Who needs the fewest gradients, and where</summary>\n\n"
        + "\n".join(winners)
        + "\n\n</details>"
    )


# --- `auto` against the others --------------------------------------------------------------


def _ours_against_others(rows: list[Row]) -> Iterator[str]:
    methods = {row.method for row in rows}
    if OURS not in methods:
        return
    if BASELINE in methods:
        yield f"## `{OURS}` against `{BASELINE}`"
        yield _duel_table(rows, [BASELINE])
        yield _who_wins(duel(rows, OURS, [BASELINE]), f"`{BASELINE}`")
    others = [name for name in heuristics(rows) if name != OURS]
    if others:
        yield f"## `{OURS}` against the best heuristic"
        named = listed([f"`{name}`" for name in others])
        yield f"On every problem the cheapest of those that guarantee nothing: {named}."
        yield _duel_table(rows, others)
        yield _who_wins(duel(rows, OURS, others), "the best heuristic")
    yield _turns([row for row in rows if row.method == OURS])


def _duel_table(rows: list[Row], opponents: list[str]) -> str:
    halves = {
        "for choosing": [row for row in rows if not row.held_back],
        "held back": [row for row in rows if row.held_back],
        "all": rows,
    }
    lines = []
    for name, part in halves.items():
        found = duel(part, OURS, opponents)
        worst = "-" if found.worst is None else f"{found.worst[0]}: {ratio(found.worst[1])}"
        large = ratio(median(found.time_large))
        if found.time_large:
            large += f" ({counted(len(found.time_large), 'problem')})"
        lines.append(
            (
                name,
                str(found.both),
                str(len(found.only_method)),
                str(len(found.only_others)),
                str(found.neither),
                ratio(median(found.gradients)),
                ratio(found.geometric_mean),
                worst,
                ratio(median(found.time)),
                large,
            )
        )
    headings = ("problems", "both solved", f"only `{OURS}`", "only the other", "neither",
                "gradients, median ratio", "geometric mean", "worst problem", "time, median ratio",
                f"time, {LARGE:,} variables or more")  # fmt: skip
    return markdown_table(headings, lines, left=1)


def _who_wins(found: Duel, they: str) -> str:
    more, less = found.needs_more(), found.needs_less()
    close = len(found.gradients) - len(more) - len(less)
    sentences = [
        f"Of the {counted(len(found.gradients), 'problem')} that both solve, {they} needs fewer "
        f"gradients than `{OURS}` by more than 10 % on {len(more)}, `{OURS}` fewer than "
        f"it on {len(less)}, and {close} are within 10 %."
    ]
    if more:
        sentences.append(f"Where {they} wins (`{OURS}`'s multiple): {_with_ratios(more)}.")
    if less:
        sentences.append(f"Where `{OURS}` wins (its multiple): {_with_ratios(less)}.")
    if found.only_others:
        sentences.append(f"Solved by {they} only: {listed(found.only_others)}.")
    if found.only_method:
        sentences.append(f"Solved by `{OURS}` only: {listed(found.only_method)}.")
    return "\n\n".join(sentences)


def _with_ratios(ratios: dict[str, float]) -> str:
    return listed([f"{name} ({ratio(value)})" for name, value in ratios.items()])


def _turns(rows: list[Row]) -> str:
    """How often the guaranteed part of `auto` was needed."""
    turns = {row.problem: row.guaranteed_turns for row in rows if row.guaranteed_turns}
    most = [f"{name} ({turns[name]})" for name in sorted(turns, key=lambda name: -turns[name])]
    where = f" problems: {listed(most)}." if most else " problems."
    return f"The guaranteed part of `{OURS}` had a turn on {len(most)} of {len(rows)}{where}"


# --- problem by problem ---------------------------------------------------------------------------

MARKS = {
    "max evaluations": "e", "max time": "t", "gave up": "g", "failed": "f", "not applicable": "n",
    "no progress": "p", "objective rose": "r", "non finite": "i", "above tolerance": "a",
}  # fmt: skip


def _per_problem(rows: Sequence[Row]) -> Iterator[str]:
    fused, separate = fused_rows(rows), [row for row in rows if row.separate]
    yield from folded("Gradients to the tolerance", _grid(fused, lambda row: f"{row.njev:,}"))
    if separate:
        grid = _grid(separate, lambda row: f"{row.nfev:,} + {row.njev:,}")
        yield from folded("Values + gradients to the tolerance, where they are apart", grid)
    yield from folded("Time to the tolerance", _grid(fused, lambda row: seconds(row.time)))
    yield _legend(rows)


def _grid(rows: Sequence[Row], cell: Callable[[Row], str]) -> str:
    methods = list(dict.fromkeys(row.method for row in rows))
    pairs = {(row.problem, row.method): row for row in rows}
    turns = any(row.method == OURS and row.guaranteed_turns for row in rows)
    first = {row.problem: row for row in reversed(rows)}
    lines = []
    for problem in dict.fromkeys(row.problem for row in rows):
        cells = [_cell(pairs.get((problem, method)), cell) for method in methods]
        if turns:
            ours = pairs.get((problem, OURS))
            cells.append(str(ours.guaranteed_turns or "") if ours else "")
        star = " *" if first[problem].held_back else ""
        lines.append([f"{problem}{star}", f"{first[problem].dimension:,}", *cells])
    headings = ["problem", "variables", *(f"`{method}`" for method in methods)]
    return markdown_table([*headings, "turns"] if turns else headings, lines, left=1)


def _cell(row: Row | None, cell: Callable[[Row], str]) -> str:
    if row is None:
        return ""
    return cell(row) if row.reached else f"- {MARKS.get(row.status, row.status)}"


def _legend(rows: Sequence[Row]) -> str:
    unsolved = [row for row in rows if not row.reached]
    seen = dict.fromkeys(row.status for row in unsolved if row.status in MARKS)
    marks = [f"{MARKS[status]}: {status}" for status in seen]
    text = "A star: held back. A dash: not reached"
    text += f" ({'; '.join(marks)})." if marks else "."
    gave_up = dict.fromkeys(
        f"`{row.method}`: {row.message}"
        for row in unsolved
        if row.status in ("gave up", "failed") and row.message
    )
    if gave_up:
        text += "\n\nMessages of the solvers that gave up or failed:\n\n"
        text += "\n".join(f"- {line}" for line in gave_up)
    return text
