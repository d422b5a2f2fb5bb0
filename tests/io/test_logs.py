"""Messages go through logging; a call that asks for it prints its own, and only these."""

import logging
import threading

import numpy as np
import pytest

from momentous import accelerate, minimize
from momentous.io.logs import has_reader, notify, say, shown

NAME = "momentous.test_logs"
LOGGER = logging.getLogger(NAME)


def square(x):
    return float(x @ x), 2 * x


def test_nothing_is_shown_unless_somebody_asks(capsys):
    minimize(square, np.ones(2), jac=True)
    LOGGER.warning("nobody reads this")  # the handler of "momentous" takes it
    assert capsys.readouterr() == ("", "")


def test_a_call_that_asks_prints_its_messages_and_leaves_no_trace(capsys):
    handlers, level = list(LOGGER.handlers), LOGGER.level
    with shown(NAME, logging.INFO):
        say(LOGGER, logging.INFO, "one")
        say(LOGGER, logging.DEBUG, "too fine")
        with shown(NAME, logging.INFO):  # a call within it: once is enough
            say(LOGGER, logging.INFO, "two")
    say(LOGGER, logging.INFO, "three")
    assert capsys.readouterr().out == "one\ntwo\n"
    assert (LOGGER.handlers, LOGGER.filters, LOGGER.level) == (handlers, [], level)


def test_other_threads_are_not_shown(capsys):
    def aside():
        with shown(NAME, logging.INFO):
            say(LOGGER, logging.INFO, "aside")

    with shown(NAME, logging.INFO):
        silent = threading.Thread(target=lambda: say(LOGGER, logging.INFO, "silent"))
        loud = threading.Thread(target=aside)
        for thread in (silent, loud):
            thread.start()
            thread.join()
        say(LOGGER, logging.INFO, "here")
    assert capsys.readouterr().out == "aside\nhere\n"


def test_where_logging_shows_it_anyway_it_is_not_printed_twice(capsys):
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    top = logging.getLogger("momentous")
    top.addHandler(handler)
    top.setLevel(logging.INFO)
    try:
        assert has_reader(NAME, logging.INFO)
        assert not has_reader(NAME, logging.DEBUG)
        with shown(NAME, logging.INFO):
            say(LOGGER, logging.INFO, "once")
        notify(LOGGER, "noted", always=True)
        result = minimize(square, np.ones(2), jac=True, options={"disp": True})
    finally:
        top.removeHandler(handler)
        top.setLevel(logging.NOTSET)
    assert capsys.readouterr() == ("", "")
    said = [record.getMessage() for record in records]
    assert said[:2] == ["once", "noted"]
    assert said[2].startswith(result.message)
    assert records[2].name == "momentous.minimize"


def test_a_handler_for_warnings_gets_nothing_more_while_a_call_prints(capsys):
    records = []
    handler = logging.Handler()  # of any level, as basicConfig makes it
    handler.emit = records.append
    top = logging.getLogger("momentous")
    top.addHandler(handler)
    top.setLevel(logging.WARNING)
    try:
        with shown(NAME, logging.DEBUG):
            say(LOGGER, logging.INFO, "printed alone")
            say(LOGGER, logging.WARNING, "logged alone")
        top.setLevel(logging.INFO)
        with shown(NAME, logging.DEBUG):
            say(LOGGER, logging.DEBUG, "printed, too")
            say(LOGGER, logging.INFO, "logged, too")
    finally:
        top.removeHandler(handler)
        top.setLevel(logging.NOTSET)
    assert capsys.readouterr().out == "printed alone\nprinted, too\n"
    assert [record.getMessage() for record in records] == ["logged alone", "logged, too"]


def test_a_notice_reaches_those_who_look_on(capsys, monkeypatch):
    notify(LOGGER, "to nobody")
    assert capsys.readouterr().err == ""
    notify(LOGGER, "to all", always=True)
    assert capsys.readouterr().err == "momentous: to all\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    notify(LOGGER, "to a person")
    assert capsys.readouterr().err == "momentous: to a person\n"


def test_verbose_says_more_than_disp(capsys):
    given = {"jac": True, "method": "gd", "max_iterations": 3, "tol": 0}

    def bowl(x):
        return float(x**2 @ [1.0, 30.0]), 2 * x * [1.0, 30.0]

    with pytest.warns(RuntimeWarning, match="Maximum number of iterations"):
        minimize(bowl, np.ones(2), verbose=2, **given)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[:3]] == [f"<iteration {k}" for k in (1, 2, 3)]
    assert lines[3].startswith("3 iterations, the limit")


def test_the_ending_is_logged_and_shown_of_maps_and_of_interrupted_runs(capsys, caplog):
    result = accelerate(lambda x: x / 2, np.ones(2), lambda x: float(x @ x), disp=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == result.message
    assert lines[-1] == f"    Maps: {result.njev}"

    def interrupt(x):
        raise KeyboardInterrupt

    with caplog.at_level(logging.INFO, "momentous"):
        accelerate(lambda x: x / 2, np.ones(2), lambda x: float(x @ x))
        with pytest.raises(KeyboardInterrupt):
            minimize(square, np.ones(2), jac=True, callback=interrupt)
    said = [record.getMessage().partition("\n")[0] for record in caplog.records]
    assert said[0] == result.message
    assert said[1].startswith("interrupted after iteration 1")


def test_a_bar_of_maps_tells_their_residual(capsys):
    accelerate(lambda x: x / 2, np.ones(2), lambda x: float(x @ x), progress=True)
    told = capsys.readouterr().err
    assert "residual norm" in told
    assert "gradient" not in told


def test_what_is_no_volume_is_refused():
    with pytest.raises(TypeError, match="disp='loud' must be True, False or a number"):
        minimize(square, np.ones(2), jac=True, disp="loud")
