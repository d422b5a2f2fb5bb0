"""Methods on problems, counted alike: run them, keep the table, look at the outcome.

`compare` runs ours and outside solvers and gives a `Comparison`; `performance_profile` and
`convergence` turn it into curves, `momentous.comparison.plots` into pictures, and
`momentous.comparison.scoreboard` into a page.
"""

from momentous.comparison.history import History
from momentous.comparison.profiles import (
    MEASURES,
    Curve,
    Profile,
    convergence,
    performance_profile,
)
from momentous.comparison.rivals import RIVALS
from momentous.comparison.runner import compare
from momentous.comparison.table import Comparison, Row

__all__ = [
    "MEASURES",
    "RIVALS",
    "Comparison",
    "Curve",
    "History",
    "Profile",
    "Row",
    "compare",
    "convergence",
    "performance_profile",
]
