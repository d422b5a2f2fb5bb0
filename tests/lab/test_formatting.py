"""Numbers, lists and tables are written as people read them; pictures say what they need."""

import subprocess
import sys

import pytest

from momentous.lab.text import Table, and_list, count_of, number, ratio, seconds

TIMES = [
    (0.0, "0.0 ms"),
    (0.00123, "1.2 ms"),
    (0.0996, "100 ms"),
    (0.5, "500 ms"),
    (1.0, "1 s"),
    (61.54, "61.5 s"),
    (999.4, "999 s"),
    (999.6, "16.7 min"),
    (2100.0, "35 min"),
    (5999.0, "100 min"),
    (6000.0, "1.67 h"),
    (5400.0, "90 min"),
    (86400.0, "24 h"),
    (3600.0 * 12345, "12,345 h"),
]


@pytest.mark.parametrize(("time", "text"), TIMES)
def test_a_time_has_the_unit_that_suits_it(time, text):
    assert seconds(time) == text


def test_no_time_has_an_exponent():
    assert not any("e" in seconds(1.07**k / 1000) for k in range(400))


def test_counts_lists_and_ratios():
    assert [count_of(n, "problem") for n in (0, 1, 1234)] == [
        "0 problems", "1 problem", "1,234 problems"
    ]  # fmt: skip
    assert [and_list(items) for items in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "none", "a", "a and b", "a, b and c"
    ]  # fmt: skip
    assert [ratio(value) for value in (None, float("nan"), 0.12345)] == ["-", "-", "0.123"]
    assert [number(value) for value in (None, 1234, 1234.0, 0.123456)] == [
        "-", "1,234", "1,234", "0.1235"
    ]  # fmt: skip


def test_a_table_aligns_numbers_to_the_right_and_escapes_bars():
    lines = [["a | b", "1,234", "-", "12 of 13"], ["c\nd", "-", "-", "all"]]
    table = Table.of("counts", ["name", "count", "none", "solved"], lines, ["solved"])
    assert table.markdown.splitlines() == [
        "| name | count | solved |",
        "| --- | ---: | --- |",
        "| a \\| b | 1,234 | 12 of 13 |",
        "| c d | - | all |",
    ]
    assert table.only("name", "solved").lines == [["a | b", "12 of 13"], ["c\nd", "all"]]


def test_without_matplotlib_a_picture_says_what_to_install():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from momentous.lab.style import new_figure\n"
        "try: new_figure(1, 1)\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "matplotlib" in done.stdout
    assert 'pip install "momentous[app]"' in done.stdout
