"""The page of the descent maps: three sentences, a picture, a table, and all numbers behind it.

Every number and every sentence is computed from the table of the runs.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence

from momentous.lab.compare.page import extent, fewest, grid
from momentous.lab.compare.table import Row, setup_note
from momentous.lab.compare.verdicts import (
    Duel,
    Summary,
    duel,
    halves,
    median,
    methods_of,
    shares,
    summaries,
)
from momentous.lab.record import Ended
from momentous.lab.text import and_list, details, ratio, seconds, table_of

OURS, PLAIN = "accelerate", "plain"
LONG = 1e-3  # seconds from which on a map is what takes the time

SOURCES = {
    "anderson": "Anderson acceleration (D. Anderson 1965, in the form of Walker and Ni 2011) with "
    "windows of 3 to 20, guarded by the objective as in Peng et al. (2018)",
    "squarem": "SQUAREM with step S3 (Varadhan and Roland 2008)",
    "daarem": "DAAREM (Henderson and Varadhan 2019)",
    "conjugate": "nonlinear conjugate gradients around the map (De Sterck and Winlaw 2015), with "
    "three values per line",
}


def page(rows: Sequence[Row], picture: str) -> str:
    """The page in Markdown."""
    parts = [
        "# Descent maps: `accelerate` and other accelerations",
        _three_sentences(rows),
        f"![performance profiles]({picture})",
        _summary(rows),
        "## How it was made",
        _how_it_was_made(rows),
        "## Problems for choosing, problems held back",
        _halves(rows),
        "## Who wins where",
        *_who_wins(rows),
        "## Problem by problem",
        *_per_problem(rows),
    ]
    return "\n\n".join(parts) + "\n"


def _of_plain(rows: Iterable[Row], measure: str, method: str) -> dict[str, float]:
    """The share of the plain map's cost, by problem."""
    return shares(rows, measure, method, PLAIN)


def _median(rows: Iterable[Row], method: str, measure: str = "gradients") -> float:
    found = median(_of_plain(rows, measure, method))
    return math.nan if found is None else found


def _share(rows: Iterable[Row], method: str, measure: str = "gradients") -> str:
    return ratio(_median(rows, method, measure))


def _worst(ratios: dict[str, float]) -> str:
    if not ratios:
        return "-"
    name, value = max(ratios.items(), key=lambda item: item[1])
    return f"unsolved ({name})" if math.isinf(value) else f"{ratio(value)} ({name})"


# --- the top --------------------------------------------------------------------------------------


def _three_sentences(rows: Sequence[Row]) -> str:
    others = [name for name in methods_of(rows) if name not in (OURS, PLAIN)]
    first = (
        f"On {extent(rows, 'descent map')} `{OURS}` comes to where the plain map comes in "
        f"{_share(rows, OURS)} of its maps, in the median; the worst is "
        f"{_worst(_of_plain(rows, 'gradients', OURS))}."
    )
    if not others:
        return first
    best = min(others, key=lambda name: _median(rows, name))
    second = (
        f"The next is `{best}` with {_share(rows, best)} in the median and "
        f"{_worst(_of_plain(rows, 'gradients', best))} at worst."
    )
    quickest = min((OURS, *others), key=lambda name: _median(rows, name, "time"))
    third = f"It has the least CPU time as well, {_share(rows, OURS, 'time')} of the plain map's."
    if quickest != OURS:
        third = (
            f"In CPU time `{quickest}` is ahead, {_share(rows, quickest, 'time')} of the plain "
            f"map's against {_share(rows, OURS, 'time')}"
        )
        if long := _long(rows):
            third += (
                f"; on the {len({row.problem for row in long})} maps that take more than "
                f"{seconds(LONG)} each it is {_share(long, quickest, 'time')} against "
                f"{_share(long, OURS, 'time')}"
            )
        third += "."
    return f"{first} {second} {third}"


def _long(rows: Sequence[Row]) -> list[Row]:
    """The rows of maps that take so long that what is done in between hardly counts."""
    slow = {row.problem for row in rows if row.method == PLAIN and row.time >= LONG * row.njev}
    return [row for row in rows if row.problem in slow]


def _summary(rows: Sequence[Row]) -> str:
    elsewhere = [row.method for row in rows if row.status is Ended.ELSEWHERE]

    def geometric(it: Summary) -> float | None:
        known = [value for value in maps(it).values() if value < math.inf]
        return statistics.geometric_mean(known) if known else None

    def maps(it: Summary) -> dict[str, float]:
        return _of_plain(rows, "gradients", it.method)

    ranked = sorted(summaries(rows), key=lambda it: _median(rows, it.method))
    columns: dict[str, Callable[[Summary], str]] = {
        "solved": lambda it: f"{it.solved} of {it.problems}",
        "maps, median": lambda it: _share(rows, it.method),
        "geometric mean": lambda it: ratio(geometric(it)),
        "worst": lambda it: _worst(maps(it)),
        "maps + values": lambda it: _share(rows, it.method, "evaluations"),
        "time": lambda it: _share(rows, it.method, "time"),
        "fewest maps": lambda it: str(len(it.best_gradients)),
        "elsewhere": lambda it: str(elsewhere.count(it.method)),
    }
    return (
        table_of("solver", {f"`{it.method}`": it for it in ranked}, columns)
        + "\n\nMaps, maps + values and CPU time are shares of what the plain map takes; the "
        "geometric mean is over the solved ones. Fewest maps: on so many maps nobody needs fewer, "
        "ties count for each. Elsewhere: solved, but at a fixed point above the goal."
    )


# --- behind it ------------------------------------------------------------------------------------


def _how_it_was_made(rows: Sequence[Row]) -> str:
    families = dict.fromkeys(row.family for row in rows)
    free = {row.problem for row in rows if not row.separate}
    named = [
        text for key, text in SOURCES.items() if any(m.startswith(key) for m in methods_of(rows))
    ]
    return (
        "`momentous scoreboard --maps` made this page; every number and every sentence on it is "
        f"computed from `map-scoreboard.parquet`. The maps belong to {len(families)} families: "
        f"{and_list(list(families))}.\n\n"
        "The goal is the objective that the plain map comes to in as many steps as the tables say; "
        "there it was stopped by a limit, or because its residual |x - T(x)| was 1e-6 of the "
        "first one. A map counts as solved at the first image with that objective, to ten digits "
        "of the decrease, or at a residual of 1e-6 of the first one (another fixed point). This is "
        "looked at after every map, for all solvers alike, off the clock and uncounted. A run may "
        "take twice the maps of the plain one.\n\n"
        f"A value that a solver asks for is counted. On {len(free)} of the maps it comes with the "
        "map (an EM step knows the likelihood where it begins): there both are one call, and a "
        "point that is discarded for its value costs a map.\n\n"
        f"The others are written from their papers: {'; '.join(named)}. They have their authors' "
        "defaults, but no point of theirs may raise the objective, which serves them better here."
        f"\n\n{setup_note(rows)}"
    )


def _halves(rows: Sequence[Row]) -> str:
    def column(method: str) -> Callable[[list[Row]], str]:
        return lambda part: _share(part, method)

    columns: dict[str, Callable[[list[Row]], str]] = {
        "maps": lambda part: str(len({row.problem for row in part})),
        **{f"`{method}`": column(method) for method in methods_of(rows)},
    }
    return (
        table_of("", halves(rows), columns)
        + f"\n\nThe median share of the plain map's maps. Where `{OURS}` tries its secants was "
        "chosen on the first half only."
    )


def _wins(found: Duel) -> int:
    return len(found.needs_less()) + len(found.only_method)


def _losses(found: Duel) -> list[str]:
    """The maps where it needs fewer, the worst first, with our multiple."""
    unsolved = [f"{name} (unsolved)" for name in found.only_others]
    return unsolved + [f"{name} ({ratio(value)})" for name, value in found.needs_more().items()]


def _who_wins(rows: Sequence[Row]) -> Iterator[str]:
    others = [name for name in methods_of(rows) if name not in (OURS, PLAIN)]
    if others:
        against = duel(rows, OURS, others)
        more, less = len(_losses(against)), _wins(against)
        close = against.both + len(against.only_method) + len(against.only_others) - more - less
        yield (
            f"Against the best of the others on each map, chosen afterwards, `{OURS}` needs fewer "
            f"maps by more than 10 % on {less}, more on {more}, and about as many on {close}."
        )
        columns: dict[str, Callable[[Duel], str]] = {
            f"`{OURS}` needs fewer maps": lambda it: str(_wins(it)),
            "it needs fewer maps": lambda it: str(len(_losses(it))),
            f"where (`{OURS}`'s multiple)": lambda it: ", ".join(_losses(it)),
        }
        yield table_of("solver", {f"`{m}`": duel(rows, OURS, [m]) for m in others}, columns)
    yield f"The fewest maps:\n\n{fewest(rows)}"


def _per_problem(rows: Sequence[Row]) -> Iterator[str]:
    maps = _grid(rows, lambda row: f"{row.njev:,}{'*' if row.status is Ended.ELSEWHERE else ''}")
    yield from details("Maps to the goal", maps)
    apart = [row for row in rows if row.separate]
    if apart:
        both = _grid(apart, lambda row: f"{row.njev:,} + {row.nfev:,}")
        yield from details("Maps + values, where a value does not come with the map", both)
    yield from details("CPU time to the goal", _grid(rows, lambda row: seconds(row.time)))
    unsolved = dict.fromkeys(row.status for row in rows if not row.reached)
    legend = "H: held back. *: at another fixed point, above the goal."
    if unsolved:
        legend += f" A dash: not solved ({', '.join(unsolved)})."
    yield legend


def _grid(rows: Sequence[Row], cell: Callable[[Row], str]) -> str:
    return grid(rows, "map", " H", lambda row: cell(row) if row.reached else "-", {})
