"""Numbers are told as people read them, and pictures say what they need."""

import subprocess
import sys

import pytest

from momentous.lab.text import seconds

TOLD = [
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


@pytest.mark.parametrize(("time", "told"), TOLD)
def test_a_time_is_told_in_the_unit_that_suits_it(time, told):
    assert seconds(time) == told


def test_no_time_is_told_with_an_exponent():
    assert not any("e" in seconds(1.07**k / 1000) for k in range(400))


def test_without_matplotlib_a_picture_says_what_to_install():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from momentous.lab.style import new_figure\n"
        "try: new_figure(1, 1)\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "matplotlib" in told.stdout
    assert 'pip install "momentous[app]"' in told.stdout
