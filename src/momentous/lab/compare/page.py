"""The page of a scoreboard: three sentences, a picture, a table, and all numbers behind it.

Functions and descent maps have the same page; a map counts as a gradient.  Every number and every
sentence is computed from the table of the runs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
    methods_of,
    summaries,
)
from momentous.lab.record import Ended, Json
from momentous.lab.text import Table, and_list, count_of, ratio, render, seconds

Line = dict[str, Row]
"""The rows of one problem, by method."""
# Problems held back that were looked at once; the page says why.
LOOKED_AT = ("HEART6LS", "POWELLBSLS", "STREG", "YATP2CLS")
MARKS = {
    Ended.MAX_EVALUATIONS: "e", Ended.MAX_TIME: "t", Ended.GAVE_UP: "g", Ended.FAILED: "f",
    Ended.NOT_APPLICABLE: "n", Ended.NO_PROGRESS: "p", Ended.OBJECTIVE_ROSE: "r",
    Ended.NON_FINITE: "i", Ended.ABOVE_TOLERANCE: "a", Ended.MAX_MAPS: "m", Ended.ELSEWHERE: "w",
}  # fmt: skip


@dataclass(frozen=True)
class Board:
    """What a page is about, and its words."""

    name: str  # of the table and the page, without suffixes
    title: str
    command: str
    picture: str
    ours: str
    baseline: str
    noun: str = "problem"
    cost: str = "gradients"


def page(board: Board, rows: Sequence[Row]) -> str:
    """The scoreboard in Markdown."""
    fused, _ = by_run(rows)
    found = {it.method: it for it in summaries(fused)}
    ours, baseline = found.get(board.ours), found.get(board.baseline)
    against = {name: duel(fused, name, [board.baseline]) for name in found}

    def rank(it: Summary) -> tuple[int, float]:
        """Those that solve the most first, the cheapest of them before the others."""
        return -it.solved, median(against[it.method].gradients) or 1.0

    problems = {row.problem: row for row in rows}
    held_back = [name for name, row in problems.items() if row.held_back]
    others = [it for it in found.values() if it is not ours]
    apart = [row for row in rows if row.separate]
    unsolved = [row for row in rows if not row.reached]
    return render(
        "scoreboard.md",
        board=board,
        and_list=and_list,
        row=rows[0],
        extent=_extent(rows, board.noun),
        ours=ours,
        baseline=baseline,
        needs=_needs(against[board.ours]) if ours and baseline else {},
        next=min(others, key=rank, default=None),
        quickest=_quickest(found.values(), against, board.ours) if ours and baseline else None,
        summary=_summary(board, fused, sorted(found.values(), key=rank), against),
        fewest=sorted(
            (it for it in found.values() if it.best_gradients),
            key=lambda it: -len(it.best_gradients),
        ),
        choosing=len(problems) - len(held_back),
        held_back=held_back,
        again={} if len(apart) == len(rows) else {row.problem: row.dimension for row in apart},
        fused=[name for name, row in problems.items() if not row.separate],
        families=list(dict.fromkeys(row.family for row in rows)),
        looked_at=[name for name in LOOKED_AT if name in held_back],
        setup_note=setup_note(rows),
        duels=list(_duels(board, fused)) if ours else [],
        turns=_turns([row for row in fused if row.method == board.ours]),
        grids=list(_grids(board, fused, apart)),
        marks=[
            f"{MARKS[status]}: {status}"
            for status in dict.fromkeys(row.status for row in rows)
            if status in MARKS
        ],
        gave_up=dict.fromkeys(
            f"`{row.method}`: {row.message}"
            for row in unsolved
            if row.status in (Ended.GAVE_UP, Ended.FAILED) and row.message
        ),
    )


def _extent(rows: Sequence[Row], noun: str) -> str:
    """How many problems there are, and of which sizes."""
    sizes = {row.problem: row.dimension for row in rows}
    smallest, largest = min(sizes.values()), max(sizes.values())
    return f"{count_of(len(sizes), noun)} with {smallest:,} to {largest:,} variables"


def _needs(found: Duel) -> Json:
    where, worst = found.worst or ("-", None)
    cost, time = median(found.gradients), median(found.time)
    return {
        "both": found.both, "cost": ratio(cost), "time": ratio(time), "worst": ratio(worst),
        "where": where,
    }  # fmt: skip


def _quickest(
    found: Iterable[Summary], against: Mapping[str, Duel], ours: str
) -> tuple[str, str] | None:
    """Who has the least time in the median, of those that solve at least half, unless it is we."""
    times = {
        it.method: time
        for it in found
        if 2 * it.solved >= it.problems and (time := median(against[it.method].time)) is not None
    }
    best = min(times, key=lambda name: times[name], default=ours)
    return None if best == ours else (best, ratio(times[best]))


def _summary(
    board: Board, rows: list[Row], ranked: Sequence[Summary], against: Mapping[str, Duel]
) -> Table:
    def solved(it: Summary) -> str:
        applicable = "" if it.applicable == it.problems else f" (of {it.applicable} applicable)"
        return f"{it.solved} of {it.problems}{applicable}"

    def against_baseline(of: Callable[[Duel], str]) -> Callable[[Summary], str]:
        return lambda it: "1" if it.method == board.baseline else of(against[it.method])

    def against_ours(of: Callable[[Duel], object]) -> Callable[[Summary], str]:
        return lambda it: str(of(duel(rows, board.ours, [it.method])))

    columns: dict[str, Callable[[Summary], str]] = {
        "solved": solved,
        board.cost: against_baseline(lambda it: ratio(median(it.gradients))),
        "time": against_baseline(lambda it: ratio(median(it.time))),
        "worst": against_baseline(_worst),
        "wins": against_ours(lambda it: len(it.needs_more()) + len(it.only_others)),
        "losses": against_ours(lambda it: len(it.needs_less()) + len(it.only_method)),
        f"fewest {board.cost}": lambda it: str(len(it.best_gradients)),
        "least time": lambda it: str(len(it.best_time)),
        "higher": lambda it: str(it.higher),
        "overhead": lambda it: "-" if it.overhead is None else f"{1e6 * it.overhead:,.0f} us",
    }
    return Table.of_items("method", {f"`{it.method}`": it for it in ranked}, columns)


def _worst(found: Duel) -> str:
    return f"{ratio(found.worst[1])} ({found.worst[0]})" if found.worst else "-"


def _duels(board: Board, rows: list[Row]) -> Iterator[Json]:
    """Against the baseline, and against the best of those that guarantee nothing."""
    others = [name for name in heuristics(rows) if name != board.ours]
    pairs = {f"`{board.baseline}`": [board.baseline], "the best heuristic": others}
    for they, opponents in pairs.items():
        if not set(opponents) & set(methods_of(rows)):
            continue
        found = duel(rows, board.ours, opponents)
        yield {
            "they": they,
            "named": and_list([f"`{name}`" for name in opponents]) if opponents is others else "",
            "found": found,
            "table": _duel_table(board, rows, opponents),
            "more": _with_ratios(found.needs_more()),
            "less": _with_ratios(found.needs_less()),
        }


def _duel_table(board: Board, rows: list[Row], opponents: list[str]) -> Table:
    def large(it: Duel) -> str:
        count = f" ({count_of(len(it.time_large), board.noun)})" if it.time_large else ""
        return ratio(median(it.time_large)) + count

    columns: dict[str, Callable[[Duel], str]] = {
        "both solved": lambda it: str(it.both),
        f"only `{board.ours}`": lambda it: str(len(it.only_method)),
        "only the other": lambda it: str(len(it.only_others)),
        "neither": lambda it: str(it.neither),
        f"{board.cost}, median ratio": lambda it: ratio(median(it.gradients)),
        "geometric mean": lambda it: ratio(it.geometric_mean),
        "worst": _worst,
        "time, median ratio": lambda it: ratio(median(it.time)),
        f"time, {LARGE:,} variables or more": large,
    }
    parts = {**halves(rows), "all": rows}
    duels = {name: duel(part, board.ours, opponents) for name, part in parts.items()}
    return Table.of_items("problems", duels, columns)


def _with_ratios(ratios: Mapping[str, float]) -> list[str]:
    return [f"{name} ({ratio(value)})" for name, value in ratios.items()]


def _turns(rows: Sequence[Row]) -> list[str]:
    """How often the guaranteed part of `auto` was needed, and where."""
    turns = {row.problem: row.guaranteed_turns for row in rows if row.guaranteed_turns}
    return [f"{name} ({turns[name]})" for name in sorted(turns, key=lambda name: -turns[name])]


def _grids(board: Board, fused: Sequence[Row], apart: Sequence[Row]) -> Iterator[tuple[str, Table]]:
    """Tables with a line per problem and a column per method."""
    cost = board.cost
    yield f"{cost.capitalize()} to the goal", _grid(fused, lambda row: f"{row.njev:,}")
    if apart:
        grid = _grid(apart, lambda row: f"{row.nfev:,} + {row.njev:,}")
        yield f"Values + {cost} to the goal, where they are apart", grid
    yield "Time to the goal", _grid(fused, lambda row: seconds(row.time))


def _grid(rows: Sequence[Row], cell: Callable[[Row], str]) -> Table:
    def first(line: Line) -> Row:
        return next(iter(line.values()))

    lines: dict[str, Line] = {}
    for row in rows:
        lines.setdefault(row.problem, {})[row.method] = row
    lines = {f"{name}{' *' * first(line).held_back}": line for name, line in lines.items()}

    def column(method: str) -> Callable[[Line], str]:
        def text(line: Line) -> str:
            row = line.get(method)
            shown = "" if row is None else cell(row) if row.reached else "-"
            return f"{shown} {MARKS.get(row.status, '')}".rstrip() if row else shown

        return text

    columns: dict[str, Callable[[Line], str]] = {
        "variables": lambda line: f"{first(line).dimension:,}",
        **{f"`{method}`": column(method) for method in methods_of(rows)},
    }
    return Table.of_items("problem", lines, columns)
