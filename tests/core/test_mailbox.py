"""Numbers of a kernel: nothing is read before it is there."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from momentous.core import mailbox
from momentous.core.mailbox import LETTERS, MARK, Mailbox


class Stream:
    """What a kernel does when it is waited for."""

    def __init__(self, places: np.ndarray, numbers: list[float]):
        self.places, self.numbers, self.waits = places, numbers, 0

    def __call__(self) -> None:
        self.waits += 1
        self.places[: len(self.numbers)] = self.numbers


def test_numbers_are_waited_for_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    places = np.zeros(4 * LETTERS)
    monkeypatch.setattr(mailbox, "PATIENCE", 10**9)
    mail, stream = Mailbox(places), Stream(places, [])
    letter = mail.letter(3, stream)

    def kernel() -> None:
        for i in (2, 0, 1):
            time.sleep(0.0005)
            places[i] = i + 0.5

    thread = threading.Thread(target=kernel)
    thread.start()
    found = letter.read(stream)
    thread.join()
    assert found == [0.5, 1.5, 2.5]
    assert stream.waits == 0


def test_a_long_wait_is_left_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "PATIENCE", 10)
    places = np.zeros(3 * LETTERS)
    mail, stream = Mailbox(places), Stream(places, [1.0, np.nan])
    first, second = mail.letter(2, stream).read(stream)
    assert (first, np.isnan(second), stream.waits) == (1.0, True, 1)


def test_letters_under_way_at_once_have_places_of_their_own() -> None:
    places = np.zeros(3 * LETTERS)
    mail, stream = Mailbox(places), Stream(places, [])
    letters = [mail.letter(2, stream) for _ in range(LETTERS)]
    for i, letter in enumerate(letters):
        start = (letter.pointer - places.ctypes.data) // 8
        places[start : start + 2] = i, i + 0.5
    assert [letter.read(stream) for letter in letters] == [[i, i + 0.5] for i in range(LETTERS)]
    assert stream.waits == 0


def test_a_letter_that_nobody_has_read_is_made_up_for() -> None:
    places = np.zeros(2 * LETTERS)
    mail, stream = Mailbox(places), Stream(places, [7.0])
    left = [mail.letter(1, stream) for _ in range(LETTERS)]  # and no look
    again = mail.letter(1, stream)
    assert again is left[0]
    assert stream.waits == 1
    assert places.view(np.int64)[0] == MARK


def test_a_letter_under_way_is_not_given_out_again() -> None:
    places = np.zeros(2 * LETTERS)
    mail, stream = Mailbox(places), Stream(places, [])
    first = mail.letter(1, stream)
    for _ in range(3):
        other = mail.letter(1, stream)
        assert other is not first
        places[(other.pointer - places.ctypes.data) // 8] = 1.0
        other.read(stream)
