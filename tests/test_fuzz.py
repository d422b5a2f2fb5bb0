"""Every reader ends in a result or in its own error, whatever the file: the first fuzz cases.

``python tests/fuzz.py`` runs as many more as you like, in processes that may hang or crash.
"""

import random

import pytest

from fuzz_targets import TARGETS, one_database

CRAFTED, RANDOM = 100, 80  # per target


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr("momentous.lowrank.data.read.open_database", one_database)


@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_any_file_is_accepted_or_refused(target, tmp_path):
    path = tmp_path / f"case{target.ending}"
    for good in target.good:
        path.write_bytes(good)
        assert target.attempt(path) == "accepted"
    crafted = range(len(target.crafted))
    chosen = random.Random(0).sample(crafted, min(len(crafted), CRAFTED))
    refused = 0
    for number in (*chosen, *range(len(crafted), len(crafted) + RANDOM)):
        path.write_bytes(target.case(0, number))
        refused += target.attempt(path) == "refused"
    assert refused > 0.2 * (len(chosen) + RANDOM)  # most damage is seen
