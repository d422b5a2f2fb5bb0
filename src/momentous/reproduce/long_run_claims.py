"""What section 5.3 of the paper says of the adaptive methods in the long run."""

from __future__ import annotations

import math

import numpy as np

from momentous.comparison.words import counted, listed
from momentous.reproduce.contenders import ADAPTIVE
from momentous.reproduce.judging import Field, Statement, Told

LONG = 100_000  # iterations of section 5.3
SELDOM_DISCARDED = 0.001  # of the iterations: for line 11
SUBSTANTIAL = 2.0  # a factor
PERIODS = {"completion": (16, 10), "one-bit": (4, 3)}  # in the order of ADAPTIVE
LEFT = ("completed", "above tolerance", "promise broken")  # how the while loop ends
WHOLE = "max iterations"  # how a run ends that could have gone on


def _unless_contradicted(field: Field, contradicted: bool, told: str) -> Told:
    """What would have to be seen in the long run: one that is cut can only contradict it."""
    cut = _cut(field)
    if cut:
        told += f"; but {listed(list(cut.values()))}, not {LONG:,} iterations"
        return (False if contradicted else None), told
    return not contradicted, told


def _cut(field: Field) -> dict[str, str]:
    """The runs that are shorter than those of the paper, or that ended by themselves, in words."""
    return {
        name: f"{name} has {counted(field.iterations(run), 'iteration')} ({run.about.status})"
        for name, run in field.runs.items()
        if field.iterations(run) < LONG or run.about.status != WHOLE
    }


def _line_11_seldom(field: Field) -> Told:
    often, told = False, []
    for name, run in field.runs.items():
        rows = field.rows(run, "ROLLBACK")
        often |= len(rows) > max(1, SELDOM_DISCARDED * field.iterations(run))
        later = ["later"] if len(rows) > 5 else []
        when = f" (iteration {listed([f'{row:,}' for row in rows[:5]] + later)})" if rows else ""
        times = ("never", "once", f"{len(rows):,} times")[min(len(rows), 2)]
        told.append(f"{name} {times}{when}")
    return _unless_contradicted(field, often, listed(told))


def _rises_before_line_11(field: Field) -> Told:
    """In the epoch that is discarded, against its first point."""
    risen, told = True, []
    for name, run in field.runs.items():
        for row, kind, length in run.history.events:
            if kind != "ROLLBACK" or row > field.iterations(run):
                continue
            epoch = slice(max(row - round(length) + 1, 0), row + 1)
            error, norm = (_growth(c[epoch]) for c in (field.error(run), field.norm(run)))
            risen &= min(error, norm) >= SUBSTANTIAL
            told.append(f"{name} at {row:,}: error times {error:.3g}, norm times {norm:.3g}")
    more = f"; and {len(told) - 6:,} more" if len(told) > 6 else ""
    return (risen, "; ".join(told[:6]) + more) if told else (None, "line 11 is never invoked")


def _growth(column: np.ndarray) -> float:
    first, most = float(column[0]), float(column.max())
    return most / first if first > 0 else math.inf


def _restarts_often(field: Field) -> Told:
    """Mean distance of restarts from where B0 <= B, within a factor of the paper's."""
    alike: bool | None = True
    told = []
    for name, run in field.runs.items():
        rows = np.array(field.rows(run, "RESTART", "ROLLBACK"))
        reached = field.rows(run, "RADIUS_REACHED")[:1]
        if not reached:
            alike = None if alike else alike
            told.append(f"{name}: B0 > B to the end, {_period(rows)}")
            continue
        before, after = rows[rows <= reached[0]], rows[rows >= reached[0]]
        told.append(
            f"{name}: B0 <= B from iteration {reached[0]:,} on; {_period(before)} before, "
            f"{_period(after)} after"
        )
        paper = PERIODS[run.about.problem][ADAPTIVE.index(name)]
        if len(after) < 10:
            alike = None if alike else alike
        elif not 1 / SUBSTANTIAL <= np.diff(after).mean() / paper <= SUBSTANTIAL:
            alike = False
    return alike, "; ".join(told)


def _period(rows: np.ndarray) -> str:
    if len(rows) < 2:
        return counted(len(rows), "restart")
    period = np.diff(rows).mean()
    return f"{len(rows):,} restarts, every {period:{',.0f' if period >= 100 else '.3g'}}"


def _radius_reached(field: Field) -> Told:
    first = {name: field.rows(run, "RADIUS_REACHED")[:1] for name, run in field.runs.items()}
    told = listed([f"{n} at {rows[0]:,}" if rows else f"{n} never" for n, rows in first.items()])
    never = [name for name, rows in first.items() if not rows]
    if not never:
        return True, told
    cut = _cut(field)
    if all(name in cut for name in never):
        told += f"; but {listed([cut[name] for name in never])}, not {LONG:,} iterations"
        return None, told
    return False, f"{told} in {LONG:,} iterations"


def _loop_goes_on(field: Field) -> Told:
    left, told = False, []
    for name, run in field.runs.items():
        left |= run.about.status in LEFT
        told.append(f"{name} {run.about.status} after {field.iterations(run):,}")
    return _unless_contradicted(field, left, f"how they ended: {listed(told)}")


_ON = ("fig3",)
_5_3 = "section 5.3"

LONG_RUN_STATEMENTS = (
    Statement(
        _ON, _5_3, "line 11 is seldom invoked (in the paper: once by each method; here: at most "
        f"once in {1 / SELDOM_DISCARDED:,.0f} iterations)", _line_11_seldom, ADAPTIVE,
    ),
    Statement(
        _ON, _5_3, "where line 11 is invoked, objective error and gradient norm have increased "
        "substantially (here: doubled)", _rises_before_line_11, ADAPTIVE,
    ),
    Statement(_ON, _5_3, "B0 decreases to B", _radius_reached, ADAPTIVE),
    Statement(
        _ON, _5_3, "once B0 <= B, both restart frequently: every 16 (Ada-RAGD-NC) and 10 "
        "(Ada-RHB-NC) iterations in matrix completion, every 4 and 3 in one-bit matrix completion "
        "(here: within a factor of two of that)", _restarts_often, ADAPTIVE,
    ),
    Statement(
        _ON, _5_3, "it takes extremely long to leave the while loop: nobody does",
        _loop_goes_on, ADAPTIVE,
    ),
)  # fmt: skip
"""In the order of the paper."""
