"""What section 5 of the paper says, held against groups of recorded runs."""

from __future__ import annotations

from collections.abc import Iterable

from momentous.reproduce.comparison_claims import COMPARISON_STATEMENTS
from momentous.reproduce.long_run_claims import LONG_RUN_STATEMENTS
from momentous.reproduce.study import Claim, Group

STATEMENTS = (*COMPARISON_STATEMENTS, *LONG_RUN_STATEMENTS)


def judge(groups: Iterable[Group]) -> list[Claim]:
    """Every statement of section 5 on every group that it is about, statement by statement."""
    groups = list(groups)
    return [
        statement.judged(group)
        for statement in STATEMENTS
        for group in groups
        if group.figure in statement.figures
    ]
