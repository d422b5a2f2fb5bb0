"""Progress: a bar where people look on, lines elsewhere, nothing where it is not wanted."""

import sys
import types

import numpy as np
import pytest

from momentous import minimize
from momentous.io import progress
from momentous.io.progress import Bar, InNotebook, Lines, OnTerminal, bar_as_html, progress_bar


def square(x):
    return float(x**2 @ [1.0, 30.0]), 2 * x * [1.0, 30.0]


class FakeDisplay:
    """IPython's display, as far as a bar needs it: what is shown is kept."""

    def __init__(self):
        self.shown = []

    def HTML(self, text):  # noqa: N802
        return text

    def display(self, text, display_id):
        assert display_id
        self.shown.append(text)
        return types.SimpleNamespace(update=self.shown.append)


@pytest.fixture
def notebook(monkeypatch):
    """The kernel of a notebook: all that is looked at of it."""
    display = FakeDisplay()
    shell = types.SimpleNamespace(kernel=object())
    ipython = types.SimpleNamespace(get_ipython=lambda: shell, display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(progress, "PER_SECOND", 1e9)
    return display


def test_lines_become_fewer(capsys):
    with progress_bar() as bar:
        assert isinstance(bar, Lines)
        for k in range(1, 36):
            bar(f"step {k}", k / 35)
        bar.end("over")
    out, err = capsys.readouterr()
    assert out == ""
    expected = [f"step {k}" for k in [*range(1, 11), 20, 30]]
    assert err.splitlines() == [*expected, "over"]


def test_one_that_is_not_wanted_shows_nothing(capsys):
    with progress_bar(False) as bar:
        bar("silent")
        bar.end("silent")
    assert type(bar) is Bar
    minimize(square, np.ones(2), jac=True, progress=False)
    assert capsys.readouterr() == ("", "")


def test_minimize_shows_how_far_it_has_got(capsys):
    result = minimize(square, np.ones(2), jac=True, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == result.nit + 1
    assert lines[0].startswith("iteration 1, objective ")
    assert lines[-1] == result.message
    plain = minimize(square, np.ones(2), jac=True)
    assert np.array_equal(plain.x, result.x)


def test_a_terminal_has_a_bar_that_is_gone_at_the_end(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress_bar() as bar:
        assert isinstance(bar, OnTerminal)
        bar("how far nobody knows")
        bar("half [bold]done[/bold]", 0.5)
        bar.end("over")
    assert "[bold]" in capsys.readouterr().err  # text from files is no markup


def test_a_notebook_has_a_bar_that_is_replaced(notebook):
    result = minimize(square, np.ones(2), jac=True, progress=True)
    first, *_, last = notebook.shown
    assert "value" not in first
    assert 'value="1.000"' in last
    assert result.message.replace("'", "&#x27;") in last
    shares = [float(text.split('value="')[1][:5]) for text in notebook.shown[1:]]
    assert shares == sorted(shares)
    assert isinstance(progress_bar(), InNotebook)


def test_in_a_notebook_a_bar_stands_still_after_an_exception(notebook):
    def fails_later(x):
        if abs(x[0]) < 0.9:
            raise ZeroDivisionError
        return square(x)

    with pytest.raises(ZeroDivisionError):
        minimize(fails_later, np.ones(2), jac=True, method="gd", progress=True)
    assert "stopped by ZeroDivisionError" in notebook.shown[-1]
    assert "value=" in notebook.shown[-1]


def test_a_bar_escapes_its_text():
    assert bar_as_html("<b>&", None).endswith("</progress> &lt;b&gt;&amp;</div>")
    assert 'value="1.000"' in bar_as_html("", 7.0)
