"""The page of the descent maps: three sentences, a picture, a table, and all numbers behind it.

Every number and every sentence is computed from the table of the runs.
"""

import math
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from momentous.io.atomic import write_text
from momentous.lab.compare.maps.runs import MapRow
from momentous.lab.compare.profiles import MAP_MEASURES, costs, plot_profiles
from momentous.lab.compare.table import load_rows, made_with
from momentous.lab.compare.verdicts import CLEARLY
from momentous.lab.text import counted, folded, listed, markdown_table, ratio, seconds

OURS, PLAIN = "accelerate", "plain"
LONG = 1e-3  # seconds from which on a map is what takes the time
PAGE, PICTURE = "map-scoreboard.md", "map-scoreboard.png"

SOURCES = {
    "anderson": "Anderson acceleration (D. Anderson 1965, in the form of Walker and Ni 2011) with "
    "windows of 3 to 20, guarded by the objective as in Peng et al. (2018)",
    "squarem": "SQUAREM with step S3 (Varadhan and Roland 2008)",
    "daarem": "DAAREM (Henderson and Varadhan 2019)",
    "conjugate": "nonlinear conjugate gradients around the map (De Sterck and Winlaw 2015), with "
    "three values per line",
}


def write_map_page(table: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Make the page and its picture from a table, and from nothing else."""
    rows, out = load_rows(table, MapRow), Path(out)
    plot_profiles(rows, out / PICTURE, measures=tuple(MAP_MEASURES), ranked_by="maps", ours=OURS)
    write_text(out / PAGE, page(rows, PICTURE))
    return out / PAGE


def page(rows: Sequence[MapRow], picture: str) -> str:
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


def shares(rows: Iterable[MapRow], measure: str, method: str) -> dict[str, float]:
    """The cost of a method over that of the plain map, by problem; infinite where unsolved."""
    return {
        problem: line[method] / line[PLAIN]
        for problem, line in costs(rows, measure).items()
        if method in line and line.get(PLAIN, 0.0) > 0
    }


def _methods(rows: Iterable[MapRow]) -> list[str]:
    return list(dict.fromkeys(row.method for row in rows))


def _median(ratios: dict[str, float]) -> float:
    return statistics.median(ratios.values()) if ratios else math.nan


def _geometric(ratios: dict[str, float]) -> float:
    known = [math.log(value) for value in ratios.values() if 0 < value < math.inf]
    return math.exp(statistics.fmean(known)) if known else math.nan


def _worst(ratios: dict[str, float]) -> str:
    if not ratios:
        return "-"
    name, value = max(ratios.items(), key=lambda item: item[1])
    return f"unsolved ({name})" if math.isinf(value) else f"{ratio(value)} ({name})"


# --- the top --------------------------------------------------------------------------------------


def _three_sentences(rows: Sequence[MapRow]) -> str:
    problems = {row.problem: row for row in rows}
    sizes = [row.dimension for row in problems.values()]
    others = [name for name in _methods(rows) if name not in (OURS, PLAIN)]
    ours = shares(rows, "maps", OURS)
    first = (
        f"On {counted(len(problems), 'descent map')} with {min(sizes):,} to {max(sizes):,} "
        f"variables `{OURS}` comes to where the plain map comes in {ratio(_median(ours))} of its "
        f"maps, in the median; the worst is {_worst(ours)}."
    )
    if not others:
        return first
    best = min(others, key=lambda name: _median(shares(rows, "maps", name)))
    theirs = shares(rows, "maps", best)
    second = (
        f"The next is `{best}` with {ratio(_median(theirs))} in the median and "
        f"{_worst(theirs)} at worst."
    )
    quickest = min((OURS, *others), key=lambda name: _median(shares(rows, "time", name)))
    third = f"It has the least CPU time as well, {_share_of_time(rows, OURS)} of the plain map's."
    if quickest != OURS:
        third = (
            f"In CPU time `{quickest}` is ahead, {_share_of_time(rows, quickest)} of the plain "
            f"map's against {_share_of_time(rows, OURS)}"
        )
        if long := _long(rows):
            third += (
                f"; on the {len({row.problem for row in long})} maps that take more than "
                f"{seconds(LONG)} each it is {_share_of_time(long, quickest)} against "
                f"{_share_of_time(long, OURS)}"
            )
        third += "."
    return f"{first} {second} {third}"


def _share_of_time(rows: Iterable[MapRow], method: str) -> str:
    return ratio(_median(shares(rows, "time", method)))


def _long(rows: Sequence[MapRow]) -> list[MapRow]:
    """The rows of maps that take so long that what is done in between hardly counts."""
    slow = {row.problem for row in rows if row.method == PLAIN and row.time >= LONG * row.maps}
    return [row for row in rows if row.problem in slow]


def _summary(rows: Sequence[MapRow]) -> str:
    table = costs(rows, "maps")
    lines = []
    for method in sorted(_methods(rows), key=lambda name: _median(shares(rows, "maps", name))):
        mine = [row for row in rows if row.method == method]
        maps = shares(rows, "maps", method)
        fewest = sum(
            line.get(method, math.inf) <= min(line.values()) < math.inf for line in table.values()
        )
        lines.append(
            (
                f"`{method}`",
                f"{sum(row.reached for row in mine)} of {len(mine)}",
                ratio(_median(maps)),
                ratio(_geometric(maps)),
                _worst(maps),
                ratio(_median(shares(rows, "calls", method))),
                ratio(_median(shares(rows, "time", method))),
                str(fewest),
                str(sum(row.status == "elsewhere" for row in mine)),
            )
        )
    headings = ("solver", "solved", "maps, median", "geometric mean", "worst", "maps + values",
                "time", "fewest maps", "elsewhere")  # fmt: skip
    return (
        markdown_table(headings, lines, left=1)
        + "\n\nMaps, maps + values and CPU time are shares of what the plain map takes; the "
        "geometric mean is over the solved ones. Fewest maps: on so many maps nobody needs fewer, "
        "ties count for each. Elsewhere: solved, but at a fixed point above the goal."
    )


# --- behind it ------------------------------------------------------------------------------------


def _how_it_was_made(rows: Sequence[MapRow]) -> str:
    families = dict.fromkeys(row.family for row in rows)
    free = {row.problem for row in rows if row.free_value}
    named = [
        text for key, text in SOURCES.items() if any(m.startswith(key) for m in _methods(rows))
    ]
    return (
        "`momentous scoreboard --maps` made this page; every number and every sentence on it is "
        f"computed from `map-scoreboard.parquet`. The maps belong to {len(families)} families: "
        f"{listed(list(families))}.\n\n"
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
        f"\n\n{made_with(rows)}"
    )


def _halves(rows: Sequence[MapRow]) -> str:
    methods = _methods(rows)
    parts = {
        "for choosing": [row for row in rows if not row.held_back],
        "held back": [row for row in rows if row.held_back],
    }
    lines = [
        (
            name,
            str(len({row.problem for row in part})),
            *(ratio(_median(shares(part, "maps", method))) for method in methods),
        )
        for name, part in parts.items()
    ]
    return (
        markdown_table(["", "maps", *(f"`{method}`" for method in methods)], lines, left=1)
        + f"\n\nThe median share of the plain map's maps. Where `{OURS}` tries its secants was "
        "chosen on the first half only."
    )


def _against_the_best(rows: Sequence[MapRow], others: Sequence[str]) -> dict[str, float]:
    """Our maps over the fewest of the others, by problem."""
    found = {}
    for problem, line in costs(rows, "maps").items():
        best = min((line[name] for name in others if name in line), default=math.inf)
        mine = line.get(OURS, math.inf)
        if math.isfinite(best) or math.isfinite(mine):
            found[problem] = mine / best if math.isfinite(best) else 0.0
    return found


def _clearly(ratios: dict[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """(where we need more by more than 10 %, where less)."""
    ranked = sorted(ratios.items(), key=lambda item: -item[1])
    more = {name: value for name, value in ranked if value > CLEARLY}
    less = {name: value for name, value in reversed(ranked) if value * CLEARLY < 1}
    return more, less


def _who_wins(rows: Sequence[MapRow]) -> Iterator[str]:
    table = costs(rows, "maps")
    others = [name for name in _methods(rows) if name not in (OURS, PLAIN)]
    if others:
        against = _against_the_best(rows, others)
        more, less = _clearly(against)
        yield (
            f"Against the best of the others on each map, chosen afterwards, `{OURS}` needs fewer "
            f"maps by more than 10 % on {len(less)}, more on {len(more)}, and about as many on "
            f"{len(against) - len(more) - len(less)}."
        )
    lines = []
    for method in others:
        more, less = _clearly(_against_the_best(rows, [method]))
        lines.append((f"`{method}`", str(len(less)), str(len(more)), _with_ratios(more)))
    headings = (
        "solver",
        f"`{OURS}` needs fewer maps",
        "it needs fewer maps",
        f"where (`{OURS}`'s multiple)",
    )
    if lines:
        yield markdown_table(headings, lines, left=1)
    winners: dict[str, list[str]] = {}
    for problem, line in table.items():
        least = min(line.values())
        for method, cost in line.items():
            if cost == least < math.inf:
                winners.setdefault(method, []).append(problem)
    yield "The fewest maps:\n\n" + "\n".join(
        f"- `{method}`, {len(winners[method])}: {listed(winners[method])}."
        for method in sorted(winners, key=lambda name: -len(winners[name]))
    )


def _with_ratios(ratios: dict[str, float]) -> str:
    return ", ".join(
        f"{name} ({'unsolved' if math.isinf(value) else ratio(value)})"
        for name, value in ratios.items()
    )


def _per_problem(rows: Sequence[MapRow]) -> Iterator[str]:
    maps = _grid(rows, lambda row: f"{row.maps:,}{'*' if row.status == 'elsewhere' else ''}")
    yield from folded("Maps to the goal", maps)
    apart = [row for row in rows if not row.free_value]
    if apart:
        both = _grid(apart, lambda row: f"{row.maps:,} + {row.values:,}")
        yield from folded("Maps + values, where a value does not come with the map", both)
    yield from folded("CPU time to the goal", _grid(rows, lambda row: seconds(row.time)))
    unsolved = dict.fromkeys(row.status for row in rows if not row.reached)
    legend = "H: held back. *: at another fixed point, above the goal."
    if unsolved:
        legend += f" A dash: not solved ({', '.join(unsolved)})."
    yield legend


def _grid(rows: Sequence[MapRow], cell: Callable[[MapRow], str]) -> str:
    methods = _methods(rows)
    pairs = {(row.problem, row.method): row for row in rows}
    first = {row.problem: row for row in reversed(rows)}
    lines = []
    for problem in dict.fromkeys(row.problem for row in rows):
        found = [pairs.get((problem, method)) for method in methods]
        row = first[problem]
        lines.append(
            [
                f"{problem}{' H' if row.held_back else ''}",
                f"{row.dimension:,}",
                f"{row.plain_maps:,}",
                *("" if r is None else cell(r) if r.reached else "-" for r in found),
            ]
        )
    headings = ["map", "variables", "goal", *(f"`{method}`" for method in methods)]
    return markdown_table(headings, lines, left=1)
