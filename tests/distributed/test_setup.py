"""The set-up of ranks: it waits for seconds, says for what, can be ended, and knows releases."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from launch import LIMIT, environment, launch, torch_environment

from momentous.distributed import find
from momentous.distributed.torch_setup import VARIABLES


def start_fit(tmp_path, rank, **settings):
    """``momentous fit`` with the variables of a launcher that is gone."""
    pytest.importorskip("torch")
    ratings = tmp_path / "ratings.csv"
    ratings.write_text("user,item,rating\na,x,1\na,y,2\nb,x,3\n")
    words = ["-m", "momentous", "fit", str(ratings), "--out", str(tmp_path / "model.npz")]
    variables = torch_environment(2)[rank] | settings
    return subprocess.Popen(
        [sys.executable, *words], env=environment() | variables, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rank", "missing"), [(0, "rank 1 of 2 to begin"), (1, "rank 0 of 2 at 127.0.0.1:")]
)
def test_variables_of_a_launcher_that_is_gone_end_in_a_sentence(rank, missing, tmp_path):
    process = start_fit(tmp_path, rank, MOMENTOUS_SETUP_TIMEOUT="1")
    message = process.communicate(timeout=LIMIT)[1]
    assert process.returncode == 1
    assert message.startswith(f"Error: rank {rank} has waited 1 s for {missing}")
    assert f"RANK={rank}, WORLD_SIZE=2, MASTER_ADDR=127.0.0.1, MASTER_PORT=" in message
    assert f"unset {' '.join(VARIABLES)}" in message
    assert "allow more seconds: MOMENTOUS_SETUP_TIMEOUT=600" in message
    assert message.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "number"), [(0, signal.SIGINT), (1, signal.SIGTERM)])
def test_the_wait_for_other_ranks_says_so_and_can_be_interrupted(rank, number, tmp_path):
    process = start_fit(tmp_path, rank, MOMENTOUS_SETUP_TIMEOUT=str(10 * LIMIT))
    notice = process.stderr.readline()
    assert f"rank {rank} waits up to {10 * LIMIT:.0f} s for rank {1 - rank} of 2" in notice
    process.send_signal(number)
    message = process.communicate(timeout=LIMIT)[1]
    assert process.returncode == 130
    assert message == "interrupted\n"


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("WORLD_SIZE", "two", "the variable WORLD_SIZE is 'two', not a whole number"),
        ("RANK", "-1", "the variable RANK is '-1', not a whole number"),
        ("MASTER_ADDR", "", "the variable MASTER_ADDR is not set"),
        ("MASTER_PORT", None, "the variable MASTER_PORT is not set"),
        ("MOMENTOUS_SETUP_TIMEOUT", "soon", "MOMENTOUS_SETUP_TIMEOUT='soon' is not a number"),
    ],
)
def test_variables_that_say_nothing_are_named(name, value, sentence, monkeypatch):
    pytest.importorskip("torch")
    for each, text in torch_environment(2)[0].items():
        monkeypatch.setenv(each, text)
    if value is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=sentence):
        find()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch", "mpi"])
def test_ranks_of_two_releases_are_told_so(engine, tmp_path):
    output = launch(engine, 2, "releases_program.py", tmp_path)
    for rank in range(2):
        file = tmp_path / f"{rank}.json"
        assert file.exists(), output[-4000:]
        message = json.loads(file.read_text())
        assert message.startswith("rank 1 runs momentous 0.0.1 with NumPy ")
        assert "but rank 0 runs momentous " in message


@pytest.mark.slow
def test_a_rank_that_hangs_is_not_taken_for_one_that_was_killed(tmp_path):
    output = launch("torch", 2, "hung_program.py", tmp_path)
    assert (tmp_path / "0.json").exists(), output[-4000:]
    ours, of_the_program = json.loads((tmp_path / "0.json").read_text())
    assert ours.startswith("rank 0 has waited 1 s in all_reduce for the other ranks: one of them")
    assert of_the_program.startswith("rank 0 has waited the group's own timeout in all_reduce")
