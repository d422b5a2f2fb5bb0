"""Checkpoints that cannot be written, were damaged, or belong to another function."""

import copy
import errno
import json
import math
import os
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import momentous
from momentous import Checkpoint, CheckpointError, accelerate, minimize
from momentous.core.checkpoint import load

START = np.array([-1.2, 1.0, 0.3])


def rosenbrock(x):
    a, b = x[:-1], x[1:]
    gradient = np.zeros_like(x)
    gradient[:-1] += -400 * a * (b - a * a) - 2 * (1 - a)
    gradient[1:] += 200 * (b - a * a)
    return float(np.sum(100 * (b - a * a) ** 2 + (1 - a) ** 2)), gradient


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.npz"


# --- a checkpoint that cannot be written ----------------------------------------------------------


@pytest.mark.parametrize("call", ["fsync", "open", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_full_or_read_only_disk_costs_one_warning_and_nothing_else(
    call, number, path, monkeypatch
):
    wanted = minimize(rosenbrock, START, jac=True)
    original = getattr(os, call)

    def failing(name, *args, **options):
        if call == "fsync" or str(name).endswith("partial"):
            raise OSError(number, os.strerror(number))
        return original(name, *args, **options)

    monkeypatch.setattr(os, call, failing)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        often = Checkpoint(path, every_iterations=1)
        found = minimize(rosenbrock, START, jac=True, checkpoint=often)
    assert found.success
    assert np.array_equal(found.x, wanted.x)
    assert found.nfev == wanted.nfev
    (told,) = [str(one.message) for one in heard if one.category is RuntimeWarning]
    assert str(path) in told
    assert os.strerror(number) in told
    assert "make room" in told
    assert not list(path.parent.iterdir())


def test_after_a_fault_the_next_checkpoint_is_written(path, monkeypatch):
    original, calls = os.fsync, []

    def now_and_then(descriptor):
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(descriptor)

    monkeypatch.setattr(os, "fsync", now_and_then)
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        done = minimize(rosenbrock, START, jac=True, checkpoint=Checkpoint(path, 1e6, 1))
    assert minimize(rosenbrock, START, jac=True, resume=path).nfev == done.nfev


WRITER = """
import sys
import numpy as np
from momentous import Checkpoint, minimize

def half(x):
    return 0.5 * float(x @ x), x

minimize(half, np.full(5000, float(sys.argv[2])), jac=True, method="gd", tol=0, step_size=0.01,
         max_iterations=40, checkpoint=Checkpoint(sys.argv[1], every_iterations=1))
"""


@pytest.mark.slow
def test_two_processes_with_one_checkpoint_do_not_damage_it(path):
    environment = os.environ | {"PYTHONPATH": str(Path(momentous.__file__).parents[1])}
    both = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), start], env=environment)
        for start in ("1", "2")
    ]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    for file in (path, Path(f"{path}.previous")):
        load(file)
    assert {file.name for file in path.parent.iterdir()} == {path.name, f"{path.name}.previous"}


# --- a checkpoint that was damaged ----------------------------------------------------------------

WRONG = [
    None, -1, 2**70, 1e308, math.nan, True, "x", [], {}, 0, {"enum": "Status", "value": 99},
    {"array": 0}, {"array": 10**6}, {"plain": 0}, {"record": "os.system", "fields": {}},
]  # fmt: skip


def read(path):
    with np.load(path) as archive:
        arrays = dict(archive)
    return json.loads(arrays.pop("header").tobytes()), arrays


def write(path, header, arrays):
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with open(path, "wb") as file:
        np.savez(file, header=text, **arrays)


def places(tree, here=()):
    """Where everything stands in a tree of JSON."""
    if isinstance(tree, dict | list):
        for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield (*here, key)
            yield from places(part, (*here, key))


def resumed(path):
    return minimize(rosenbrock, START, jac=True, resume=path, tol=1e-9, max_iterations=60)


def refused_or_true(path):
    """Every error is a CheckpointError, and no success is false."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            result = resumed(path)
    except CheckpointError:
        return "refused"
    assert not result.success or np.linalg.norm(rosenbrock(result.x)[1]) <= 1.01e-9
    return "taken"


@pytest.mark.parametrize("method", ["auto", "ada-ragd", "cg", "universal-hb"])
def test_a_damaged_header_is_refused_or_harmless(method, path):
    minimize(rosenbrock, START, jac=True, method=method, checkpoint=path, max_iterations=7)
    header, arrays = read(path)
    found, rng = [], np.random.default_rng(0)
    cases = [(place, wrong) for place in places(header["content"]) for wrong in WRONG]
    for i in rng.permutation(len(cases))[:150]:
        (*way, key), wrong = cases[i]
        changed = copy.deepcopy(header)
        tree = changed["content"]
        for step in way:
            tree = tree[step]
        tree[key] = wrong
        write(path, changed, arrays)
        found.append(refused_or_true(path))
    assert found.count("refused") > 140


@pytest.mark.parametrize(
    "damage",
    [
        lambda a: None,
        lambda a: a[:-1],
        lambda a: a[None],
        lambda a: np.concatenate([a, a]),
        lambda a: a.astype(complex),
        lambda a: a.astype(np.float32),
        lambda a: a.astype(np.int64),
        lambda a: np.full_like(a, np.nan),
        lambda a: a + 1.0,
    ],
)
def test_a_damaged_array_is_refused(damage, path):
    minimize(rosenbrock, START, jac=True, method="ada-ragd", checkpoint=path, max_iterations=7)
    header, arrays = read(path)
    for name, array in arrays.items():
        changed = {other: kept for other, kept in arrays.items() if other != name}
        if (new := damage(array)) is not None:
            changed[name] = new
        write(path, header, changed)
        assert refused_or_true(path) == "refused", name


def test_an_error_of_the_user_s_function_in_a_resumed_run_passes_unchanged(path):
    minimize(rosenbrock, START, jac=True, checkpoint=path, max_iterations=7)
    calls = []

    def fails(x):
        calls.append(x)
        if len(calls) == 5:
            raise ZeroDivisionError("of the user")
        return rosenbrock(x)

    with pytest.raises(ZeroDivisionError, match="of the user"):
        minimize(fails, START, jac=True, resume=path)


def test_a_damaged_method_of_a_map_is_refused(path):
    def halved(x):
        return 0.5 * x

    accelerate(halved, np.ones(3), checkpoint=path, max_iterations=3)
    header, arrays = read(path)
    described = header["content"]["fields"]["method"]["dict"]
    kept = described["parameters"]
    for wrong in (None, "x", {"dict": {"restart": 3}}, {"dict": {"no such option": 1}}):
        described["parameters"] = wrong
        write(path, header, arrays)
        with pytest.raises(CheckpointError):
            accelerate(halved, np.ones(3), resume=path)
    described["parameters"] = kept
    write(path, header, arrays)
    assert accelerate(halved, np.ones(3), resume=path).success


# --- another function -----------------------------------------------------------------------------

TILT = np.array([17.3, 0.0, 0.0])
CHANGES = {
    "shifted": lambda x: rosenbrock(x - 0.5),
    "scaled": lambda x: tuple(1000 * part for part in rosenbrock(x)),
    "tilted": lambda x: (rosenbrock(x)[0] + float(TILT @ x), rosenbrock(x)[1] + TILT),
    "raised": lambda x: (rosenbrock(x)[0] + 5.0, rosenbrock(x)[1]),
    "not finite": lambda x: (math.nan, x * math.nan),
}


@pytest.mark.parametrize("how", ["fused", "separate"])
@pytest.mark.parametrize("limit", [5, 5000])  # cut off, and ended
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_function_is_refused_after_one_look(change, limit, how, path):
    minimize(rosenbrock, START, jac=True, checkpoint=path, max_iterations=limit, tol=1e-6)
    other, calls = CHANGES[change], []

    def heard(x):
        calls.append(x)
        return other(x) if how == "fused" else other(x)[0]

    jac = True if how == "fused" else lambda x: other(x)[1]
    with pytest.raises(CheckpointError, match=r"another function.*start again"):
        minimize(heard, START, jac=jac, resume=path)
    assert len(calls) == 1


def test_the_look_is_not_counted_and_rounding_is_excused(path):
    minimize(rosenbrock, START, jac=True, checkpoint=path, max_iterations=9)
    wanted = minimize(rosenbrock, START, jac=True)

    def on_another_machine(x):
        value, gradient = rosenbrock(x)
        return value * (1 + 4e-16), gradient * (1 + 4e-16)

    again = minimize(rosenbrock, START, jac=True, resume=path)
    assert (again.nfev, again.njev) == (wanted.nfev, wanted.njev)
    assert minimize(on_another_machine, START, jac=True, resume=path).success


def test_a_changed_map_is_refused(path):
    rates = np.array([0.9, 0.5, 0.99])

    def value(x):
        return float(x @ x)

    accelerate(lambda x: rates * x, np.ones(3), value, checkpoint=path, max_iterations=5)
    accelerate(lambda x: rates * x, np.ones(3), value, resume=path)
    with pytest.raises(CheckpointError, match=r"another function.*residual"):
        accelerate(lambda x: 0.9 * rates * x, np.ones(3), value, resume=path)
    with pytest.raises(CheckpointError, match=r"another function.*fun"):
        accelerate(lambda x: rates * x, np.ones(3), lambda x: 1 + value(x), resume=path)


def test_saving_removes_old_shards_and_nothing_else(tmp_path):
    """Whose whole name is that of a shard of this file."""
    others = ["run.shard-list.txt", "run.shard-b", "run.shard-0000000007-0.npz", "run.shard-7-0",
              "other.shard-0000000007-0", "run.shard-0000000007-x"]  # fmt: skip
    for name in (*others, "run.shard-0000000007-0", "run.shard-00000000ff-12"):
        (tmp_path / name).write_text("mine")
    minimize(rosenbrock, START, jac=True, checkpoint=tmp_path / "run", max_iterations=3)
    assert {one.name for one in tmp_path.iterdir()} == {*others, "run"}


def test_a_folder_that_cannot_be_listed_takes_checkpoints(tmp_path, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # "cannot be written", though it was
        minimize(rosenbrock, START, jac=True, checkpoint=tmp_path / "run", max_iterations=3)
    minimize(rosenbrock, START, jac=True, resume=tmp_path / "run", max_iterations=4)


@pytest.mark.skipif(os.name != "posix", reason="permissions")
def test_a_checkpoint_keeps_its_permissions(tmp_path):
    path = tmp_path / "run"
    for _ in range(2):
        minimize(rosenbrock, START, jac=True, checkpoint=path, max_iterations=3)
        path.chmod(0o600)
    minimize(rosenbrock, START, jac=True, checkpoint=path, max_iterations=3)
    modes = [stat.S_IMODE(one.stat().st_mode) for one in (path, tmp_path / "run.previous")]
    assert modes == [0o600, 0o600]
