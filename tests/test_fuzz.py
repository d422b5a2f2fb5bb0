"""Every reader ends in a result or in its own error, whatever the file: the first fuzz cases.

``python tests/fuzz.py`` runs as many more as you like, in processes that may hang or crash.
"""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import FINDINGS, TargetRun
from fuzz_targets import ENTRIES, TARGETS

CRAFTED, RANDOM = 100, 80  # per target


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_any_file_is_accepted_or_refused(target, tmp_path):
    if target.group == "states":
        pytest.importorskip("torch")
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
    # Much of the damage is seen; of files whose bad lines are left out, little is refused.
    assert refused > 0.15 * (len(chosen) + RANDOM)


@pytest.mark.slow
@pytest.mark.parametrize("target", ENTRIES, ids=[target.name for target in ENTRIES])
def test_no_model_ends_the_process(target, tmp_path):
    """160 crafted models, in a child process: the signal that ends it would be seen here."""
    run = TargetRun(target, 0, 0, 60.0, tmp_path)
    run.finish()
    assert run.counts.total() == 160
    assert not [run.counts[kind] for kind in FINDINGS if run.counts[kind]], run.told


def test_the_command_counts_and_keeps_what_it_finds(tmp_path):
    script = Path(__file__).with_name("fuzz.py")
    words = ["--target", "self-test", "--cases", "0", "--seconds", "60"]
    done = subprocess.run(
        [sys.executable, script, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    counts = done.stdout.splitlines()[1].split()[:7]
    assert counts == ["self-test", "5", "2", "1", "1", "0", "1"], done.stderr
    kept = {path.read_bytes() for path in (tmp_path / "fuzz-findings").iterdir()}
    assert kept == {b"traceback", b"crash"}
