"""Write the tables of docs/reproduction.md from the two accounts in benchmarks/results.

    python docs/make_reproduction.py

An account is what `momentous reproduce report --account` made.  CPU and GPU become columns.
"""

from __future__ import annotations

import re
from pathlib import Path

from make_methods import between_marks

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "reproduction.md"
ACCOUNTS = REPOSITORY / "benchmarks" / "results"
# The columns: heading, account, and what the account calls the set of runs after the problem.
COLUMNS = (
    ("ML-10M twin, CPU", "reproduction-cpu.md", "ml-10m twin, {}"),
    ("ML-10M twin, H200", "reproduction-gpu.md", "ml-10m twin, {}, NVIDIA H200"),
    ("Netflix twin, H200", "reproduction-gpu.md", "netflix twin, {}, NVIDIA H200"),
)
PROBLEMS = ("matrix completion", "one-bit matrix completion")
HEADINGS = [heading for heading, _, _ in COLUMNS]


def read(name: str) -> str:
    return (ACCOUNTS / name).read_text(encoding="utf-8")


def markdown(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def results(account: str, run_set: str) -> dict[str, dict[str, str]]:
    """The first table under a set of runs: its rows by method, their cells by heading."""
    table = re.search(rf"^### {re.escape(run_set)}\n.*?\n\n(\| method .*?)\n\n",
                      read(account), re.DOTALL | re.MULTILINE)  # fmt: skip
    assert table, f"{account} has no {run_set}"
    first, _, *rows = [line.strip("| ").split(" | ") for line in table[1].splitlines()]
    return {row[0]: dict(zip(first, row, strict=True)) for row in rows}


def figure(problem: str) -> str:
    """Objective error after 1,000 evaluations, and time of 1,000 iterations, by method."""
    found = [results(account, run_set.format(problem)) for _, account, run_set in COLUMNS]
    quantities = {"f - f* at 1,000": "error", "time": "time"}
    headings = [f"{name}, {at}" for name in quantities.values() for at in HEADINGS]
    rows = [
        [method, *(table[method][name] for name in quantities for table in found)]
        for method in found[0]
    ]
    return markdown(["method", *headings], rows)


def verdicts(account: str) -> dict[str, dict[str, str]]:
    """By statement: the verdict on each set of runs."""
    section = read(account).partition("## What the paper says")[2].partition("\n## ")[0]
    words = " ".join(section.split())
    found = {}
    for statement, rest in re.findall(r"\*\*(.+?)\*\* \(sections?[^)]*\)\.(.*?)(?=\*\*|$)", words):
        found[statement] = {
            run_set: verdict for verdict, run_set in re.findall(r"- \*(.+?)\* on (.+?): ", rest)
        }
    return found


def statements() -> str:
    """What each set of runs says to each statement of the paper; both problems in one cell."""
    found = {account: verdicts(account) for _, account, _ in COLUMNS}
    rows = []
    for statement in found["reproduction-gpu.md"]:
        cells = []
        for _, account, run_set in COLUMNS:
            known = found[account].get(statement, {})
            completion, one_bit = (known.get(run_set.format(problem)) for problem in PROBLEMS)
            both = (
                completion
                if one_bit in (None, completion)
                else f"{completion} (one-bit: {one_bit})"
            )
            cells.append("not run" if not known else both or "-")
        rows.append([re.sub(r" \(here: (.*)\)$", r". Here: \1", statement), *cells])
    return markdown(["statement", *HEADINGS], rows)


def page() -> str:
    """The page with the present tables."""
    text = between_marks(PAGE.read_text(encoding="utf-8"), "statements", statements())
    for name, problem in zip(("figure 1", "figure 2"), PROBLEMS, strict=True):
        text = between_marks(text, name, figure(problem))
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
