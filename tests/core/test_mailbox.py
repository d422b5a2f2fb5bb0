"""Numbers of a kernel: nothing is read before it is there."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from momentous.core import mailbox
from momentous.core.mailbox import MARK, Mailbox


class Stream:
    """What a kernel does when it is waited for."""

    def __init__(self, places: np.ndarray, numbers: list[float]):
        self.places, self.numbers, self.waits = places, numbers, 0

    def __call__(self) -> Stream:
        return self

    def synchronize(self) -> None:
        self.waits += 1
        self.places[: len(self.numbers)] = self.numbers


def test_numbers_are_waited_for_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    places = np.zeros(4)
    monkeypatch.setattr(mailbox, "PATIENCE", 10**9)
    mail, stream = Mailbox(places), Stream(places, [])
    mail.clear(3, stream)

    def kernel() -> None:
        for i in (2, 0, 1):
            time.sleep(0.0005)
            places[i] = i + 0.5

    thread = threading.Thread(target=kernel)
    thread.start()
    found = mail.wait(stream)
    thread.join()
    assert found == [0.5, 1.5, 2.5]
    assert stream.waits == 0


def test_a_long_wait_is_left_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "PATIENCE", 10)
    places = np.zeros(3)
    mail, stream = Mailbox(places), Stream(places, [1.0, np.nan])
    mail.clear(2, stream)
    first, second = mail.wait(stream)
    assert (first, np.isnan(second), stream.waits) == (1.0, True, 1)


def test_a_wait_that_was_cut_short_is_made_up_for() -> None:
    places = np.zeros(2)
    mail, stream = Mailbox(places), Stream(places, [7.0])
    mail.clear(1, stream)  # and no wait
    mail.clear(1, stream)
    assert stream.waits == 1
    assert places.view(np.int64)[0] == MARK
