"""Who wins where, as numbers: duels of one method with others, and the summary of each."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from momentous.lab.compare.profiles import costs
from momentous.lab.compare.table import Row
from momentous.lab.record import Ended

LARGE = 100_000  # variables from which on time is looked at apart
CLEARLY = 1.1  # a factor in gradients that counts as a win


@dataclass(frozen=True)
class Duel:
    """One method against another, or against the best of several problem by problem.

    Ratios are its cost over theirs on the problems that both solved: below 1 it needs less.
    """

    both: int
    only_method: list[str]
    only_others: list[str]
    neither: int
    gradients: dict[str, float]  # ratios by problem
    time: dict[str, float]
    time_large: dict[str, float]  # those with at least LARGE variables

    @property
    def worst(self) -> tuple[str, float] | None:
        """The problem on which it needs the largest multiple of their gradients."""
        return max(self.gradients.items(), key=lambda item: item[1], default=None)

    @property
    def geometric_mean(self) -> float | None:
        """Of the ratios of gradients."""
        return statistics.geometric_mean(self.gradients.values()) if self.gradients else None

    def needs_more(self) -> dict[str, float]:
        """Problems where it needs more gradients by more than 10 %, worst first."""
        ranked = sorted(self.gradients.items(), key=lambda item: -item[1])
        return {name: value for name, value in ranked if value > CLEARLY}

    def needs_less(self) -> dict[str, float]:
        """Problems where they need more gradients by more than 10 %, best first."""
        ranked = sorted(self.gradients.items(), key=lambda item: item[1])
        return {name: value for name, value in ranked if value * CLEARLY < 1}


def duel(rows: Sequence[Row], method: str, opponents: Sequence[str]) -> Duel:
    """The method against, on every problem, the cheapest of the opponents."""
    large = {row.problem for row in rows if row.dimension >= LARGE}
    gradients = _pairs(rows, "gradients", method, opponents)
    time = _ratios(_pairs(rows, "time", method, opponents))
    ours = {problem for problem, (mine, _) in gradients.items() if math.isfinite(mine)}
    others = {problem for problem, (_, theirs) in gradients.items() if math.isfinite(theirs)}
    return Duel(
        both=len(ours & others),
        only_method=[problem for problem in gradients if problem in ours - others],
        only_others=[problem for problem in gradients if problem in others - ours],
        neither=len(gradients.keys() - ours - others),
        gradients=_ratios(gradients),
        time=time,
        time_large={problem: value for problem, value in time.items() if problem in large},
    )


def _pairs(
    rows: Iterable[Row], measure: str, method: str, opponents: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """(its cost, the smallest of theirs) on every problem where both stand in the table."""
    found = {}
    for problem, line in costs(rows, measure).items():
        theirs = [line[name] for name in opponents if name in line and name != method]
        if method in line and theirs:
            found[problem] = (line[method], min(theirs))
    return found


def _ratios(pairs: dict[str, tuple[float, float]]) -> dict[str, float]:
    return {
        problem: mine / theirs
        for problem, (mine, theirs) in pairs.items()
        if math.isfinite(mine) and math.isfinite(theirs) and theirs > 0
    }


def by_run(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """The rows with value and gradient from one call, and those of a second run, from two.

    Time and gradients are compared on the first.  Maps are run once, as they are.
    """
    rows = list(rows)
    apart = [row for row in rows if row.separate and row.goal is None]
    return [row for row in rows if not row.separate or row.goal is not None] or rows, apart


def halves(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of the problems for choosing defaults by, and of those held back from that."""
    rows = list(rows)
    return {
        "for choosing": [row for row in rows if not row.held_back],
        "held back": [row for row in rows if row.held_back],
    }


def median(ratios: dict[str, float]) -> float | None:
    """None where there is nothing to take it of."""
    return statistics.median(ratios.values()) if ratios else None


@dataclass(frozen=True)
class Summary:
    """One method over all problems."""

    method: str
    problems: int
    applicable: int
    solved: int
    best_gradients: list[str]  # problems on which nobody needs fewer
    best_time: list[str]
    higher: int  # solved, but at a clearly higher value than somebody else
    overhead: float | None  # median CPU seconds per gradient outside the function


def summaries(rows: Sequence[Row]) -> list[Summary]:
    """Of every method, in the order of the table."""
    gradients, time = costs(rows, "gradients"), costs(rows, "time")
    lowest: dict[str, float] = {}
    for row in (row for row in rows if row.reached):
        lowest[row.problem] = min(row.fun, lowest.get(row.problem, math.inf))
    found = []
    for method in methods_of(rows):
        mine = [row for row in rows if row.method == method]
        found.append(
            Summary(
                method=method,
                problems=len(mine),
                applicable=sum(row.status is not Ended.NOT_APPLICABLE for row in mine),
                solved=sum(row.reached for row in mine),
                best_gradients=_best_on(gradients, method),
                best_time=_best_on(time, method),
                higher=sum(row.reached and _is_higher(row, lowest[row.problem]) for row in mine),
                overhead=median({r.problem: r.overhead for r in mine if r.overhead is not None}),
            )
        )
    return found


def _best_on(table: dict[str, dict[str, float]], method: str) -> list[str]:
    """The problems that no other method solved at a smaller cost; ties count for each."""
    return [
        problem
        for problem, line in table.items()
        if line.get(method, math.inf) <= min(line.values()) < math.inf
    ]


def _is_higher(row: Row, lowest: float) -> bool:
    """Another stationary point: by more than a thousandth of what the best one gained."""
    return row.fun - lowest > 1e-3 * max(row.start_fun - lowest, 0.0)


def methods_of(rows: Iterable[Row]) -> list[str]:
    """Their names, in the order of the table."""
    return list(dict.fromkeys(row.method for row in rows))


def heuristics(rows: Iterable[Row]) -> list[str]:
    """The methods of the table that guarantee nothing, outside solvers among them."""
    return methods_of(row for row in rows if row.guarantee == "none")
