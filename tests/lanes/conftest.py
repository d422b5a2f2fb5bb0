"""Batches of tests are small: here they run in lanes even so."""

import pytest

from momentous.lanes import many


@pytest.fixture(autouse=True)
def _lanes_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "FEW", 0)
