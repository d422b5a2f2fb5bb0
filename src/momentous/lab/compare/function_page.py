"""The page of the functions: three sentences, a picture, a table, and all numbers behind it.

Every number and every sentence is computed from the table of the runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from momentous.lab.compare.page import Line, extent, fewest, grid
from momentous.lab.compare.table import Row, setup_note
from momentous.lab.compare.verdicts import (
    LARGE,
    Duel,
    Summary,
    by_run,
    duel,
    halves,
    heuristics,
    median,
    summaries,
)
from momentous.lab.record import Ended
from momentous.lab.text import and_list, count_of, details, ratio, seconds, share, table_of

OURS, BASELINE = "auto", "scipy:l-bfgs-b"
# Problems held back that were looked at once, and what is to be said of it.
LOOKED_AT = ("HEART6LS", "POWELLBSLS", "STREG", "YATP2CLS")


def page(rows: Sequence[Row], picture: str) -> str:
    """The scoreboard in Markdown."""
    fused, _ = by_run(rows)
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


def _three_sentences(rows: list[Row]) -> str:
    """What most readers want to know."""
    found = {it.method: it for it in summaries(rows)}
    where = f"On {extent(rows)}"
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


def _columns(rows: list[Row]) -> dict[str, Callable[[Summary], str]]:
    """What tables say of a method."""

    def against_baseline(it: Summary) -> tuple[str, str]:
        if it.method == BASELINE:
            return "1", "1"
        against = duel(rows, it.method, [BASELINE])
        return ratio(median(against.gradients)), ratio(median(against.time))

    return {
        "solved": lambda it: f"{it.solved} of {it.problems}",
        "gradients": lambda it: against_baseline(it)[0],
        "time": lambda it: against_baseline(it)[1],
        "overhead": lambda it: "-" if it.overhead is None else f"{1e6 * it.overhead:,.0f} us",
    }


def _short_table(rows: list[Row]) -> str:
    """The methods that solve half of the problems or more, the most first."""
    chosen = [it for it in summaries(rows) if 2 * it.solved >= it.problems]
    columns = _columns(rows)
    text = (
        f"Gradients and time: the median ratio to `{BASELINE}` over the problems that both solved."
    )
    if any(it.overhead is not None for it in chosen):
        text += f" {OVERHEAD}"
    else:  # a table from before it was measured
        del columns["overhead"]
    if len(chosen) < len(summaries(rows)):
        text += " Methods that solve less than half of the problems are in the table of all below."
    lines = {f"`{it.method}`": it for it in sorted(chosen, key=lambda it: -it.solved)}
    return f"{table_of('method', lines, columns)}\n\n{text}"


OVERHEAD = "Overhead: the median CPU time per gradient outside the function."


def _how_it_was_made(rows: Sequence[Row]) -> str:
    problems = {row.problem: row for row in rows}
    held_back = sum(row.held_back for row in problems.values())
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
        f"{extent(rows)}, {len(problems) - held_back} of them for choosing defaults by and "
        f"{held_back} held back from that. "
        "A problem is solved at the first iterate (of an outside solver: the first evaluation) "
        f"whose gradient norm is at most {goal} and whose value is not above that of the start; "
        "what counts is what had been spent by then. "
        f"A run may take {first.max_evaluations:,} values plus gradients and "
        f"{first.max_time:g} s. All methods get value and gradient from one call, which counts as "
        f"one of each.{second_run} Methods run with their defaults; those that need Lipschitz "
        f"constants get them where the problem has global ones.{_looked_at(problems)}\n\n"
        f"{setup_note(rows)}"
    )


def _looked_at(problems: Mapping[str, Row]) -> str:
    """What held-back problems were used for, other than to report on them."""
    seen = [name for name in LOOKED_AT if name in problems and problems[name].held_back]
    if not seen:
        return ""
    return (
        f" Of those held back, {and_list(seen)} were looked at to see why an earlier `{OURS}` "
        "needed far more gradients than others on them; what was changed then was chosen on random "
        "problems of such kinds and on the half for choosing."
    )


def _summary(rows: list[Row]) -> str:
    found, plain = {f"`{it.method}`": it for it in summaries(rows)}, _columns(rows)

    def solved(it: Summary) -> str:
        applicable = "" if it.applicable == it.problems else f" (of {it.applicable} applicable)"
        return plain["solved"](it) + applicable

    columns = {
        **plain,
        "solved": solved,
        "fewest gradients": lambda it: share(len(it.best_gradients), it.problems),
        "least time": lambda it: share(len(it.best_time), it.problems),
        "higher": lambda it: str(it.higher),
    }
    columns["overhead"] = columns.pop("overhead")  # the last one
    return (
        table_of("method", found, columns)
        + f"\n\nGradients and time: the median ratio to `{BASELINE}` over the problems that both "
        "solved (below 1: less). Fewest gradients, least time: the share of problems where nobody "
        "needs less; ties count for each. Higher: solved, but at a value above the lowest that "
        f"another method found, by more than a thousandth of the decrease. {OVERHEAD}\n\n"
        "<details><summary>Who needs the fewest gradients, and where</summary>\n\n"
        f"{fewest(rows)}\n\n</details>"
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
        named = and_list([f"`{name}`" for name in others])
        yield f"On every problem the cheapest of those that guarantee nothing: {named}."
        yield _duel_table(rows, others)
        yield _who_wins(duel(rows, OURS, others), "the best heuristic")
    yield _turns([row for row in rows if row.method == OURS])


def _duel_table(rows: list[Row], opponents: list[str]) -> str:
    def large(found: Duel) -> str:
        count = f" ({count_of(len(found.time_large), 'problem')})" if found.time_large else ""
        return ratio(median(found.time_large)) + count

    parts = {**halves(rows), "all": rows}
    duels = {name: duel(part, OURS, opponents) for name, part in parts.items()}
    columns: dict[str, Callable[[Duel], str]] = {
        "both solved": lambda it: str(it.both),
        f"only `{OURS}`": lambda it: str(len(it.only_method)),
        "only the other": lambda it: str(len(it.only_others)),
        "neither": lambda it: str(it.neither),
        "gradients, median ratio": lambda it: ratio(median(it.gradients)),
        "geometric mean": lambda it: ratio(it.geometric_mean),
        "worst problem": lambda it: f"{it.worst[0]}: {ratio(it.worst[1])}" if it.worst else "-",
        "time, median ratio": lambda it: ratio(median(it.time)),
        f"time, {LARGE:,} variables or more": large,
    }
    return table_of("problems", duels, columns)


def _who_wins(found: Duel, they: str) -> str:
    more, less = found.needs_more(), found.needs_less()
    close = len(found.gradients) - len(more) - len(less)
    sentences = [
        f"Of the {count_of(len(found.gradients), 'problem')} that both solve, {they} needs fewer "
        f"gradients than `{OURS}` by more than 10 % on {len(more)}, `{OURS}` fewer than "
        f"it on {len(less)}, and {close} are within 10 %."
    ]
    if more:
        sentences.append(f"Where {they} wins (`{OURS}`'s multiple): {_with_ratios(more)}.")
    if less:
        sentences.append(f"Where `{OURS}` wins (its multiple): {_with_ratios(less)}.")
    if found.only_others:
        sentences.append(f"Solved by {they} only: {and_list(found.only_others)}.")
    if found.only_method:
        sentences.append(f"Solved by `{OURS}` only: {and_list(found.only_method)}.")
    return "\n\n".join(sentences)


def _with_ratios(ratios: dict[str, float]) -> str:
    return and_list([f"{name} ({ratio(value)})" for name, value in ratios.items()])


def _turns(rows: list[Row]) -> str:
    """How often the guaranteed part of `auto` was needed."""
    turns = {row.problem: row.guaranteed_turns for row in rows if row.guaranteed_turns}
    most = [f"{name} ({turns[name]})" for name in sorted(turns, key=lambda name: -turns[name])]
    where = f" problems: {and_list(most)}." if most else " problems."
    return f"The guaranteed part of `{OURS}` had a turn on {len(most)} of {len(rows)}{where}"


# --- problem by problem ---------------------------------------------------------------------------

MARKS = {
    Ended.MAX_EVALUATIONS: "e", Ended.MAX_TIME: "t", Ended.GAVE_UP: "g", Ended.FAILED: "f",
    Ended.NOT_APPLICABLE: "n", Ended.NO_PROGRESS: "p", Ended.OBJECTIVE_ROSE: "r",
    Ended.NON_FINITE: "i", Ended.ABOVE_TOLERANCE: "a",
}  # fmt: skip


def _per_problem(rows: Sequence[Row]) -> Iterator[str]:
    fused, separate = by_run(rows)
    yield from details("Gradients to the tolerance", _grid(fused, lambda row: f"{row.njev:,}"))
    if separate:
        grid = _grid(separate, lambda row: f"{row.nfev:,} + {row.njev:,}")
        yield from details("Values + gradients to the tolerance, where they are apart", grid)
    yield from details("Time to the tolerance", _grid(fused, lambda row: seconds(row.time)))
    yield _legend(rows)


def _grid(rows: Sequence[Row], cell: Callable[[Row], str]) -> str:
    def mark(row: Row) -> str:
        return cell(row) if row.reached else f"- {MARKS.get(row.status, row.status)}"

    def turns(line: Line) -> str:
        return str(line[OURS].guaranteed_turns or "") if OURS in line else ""

    needed = any(row.method == OURS and row.guaranteed_turns for row in rows)
    return grid(rows, "problem", " *", mark, {"turns": turns} if needed else {})


def _legend(rows: Sequence[Row]) -> str:
    unsolved = [row for row in rows if not row.reached]
    seen = dict.fromkeys(row.status for row in unsolved if row.status in MARKS)
    marks = [f"{MARKS[status]}: {status}" for status in seen]
    text = "A star: held back. A dash: not reached"
    text += f" ({'; '.join(marks)})." if marks else "."
    gave_up = dict.fromkeys(
        f"`{row.method}`: {row.message}"
        for row in unsolved
        if row.status in (Ended.GAVE_UP, Ended.FAILED) and row.message
    )
    if gave_up:
        text += "\n\nMessages of the solvers that gave up or failed:\n\n"
        text += "\n".join(f"- {line}" for line in gave_up)
    return text
