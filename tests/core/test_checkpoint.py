"""A run that is cut, killed or interrupted goes on as if nothing had happened, bit for bit."""

import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import momentous
from helpers import METHODS, TRACE_WITHOUT_TIME, Bowl, Waves, counted, fingerprint
from momentous import (
    Checkpoint,
    CheckpointError,
    Method,
    Report,
    Status,
    Step,
    Trace,
    iterate,
    minimize,
)
from momentous.core import checkpoint as checkpoint_file
from momentous.core.blocks import BLOCK, ROW
from momentous.core.oracle import Sample
from momentous.core.record import record

WAVES, BOWL = Waves(), Bowl()


def run(method, how="separate", x0=WAVES.start, before=None, **options):
    """One eventful run of the method on the waves; an interrupt ends it, and is not passed on."""
    options = method.eventful | {"interrupts": "return"} | options
    return minimize(x0=x0, **counted(WAVES, before).given(how), **options)


def differences(where, result, wanted, library=None):
    """{where: what differs}, or nothing."""
    ours, theirs = fingerprint(result, library), fingerprint(wanted, library)
    differs = {name for name in theirs if ours.get(name) != theirs[name]}
    return {where: differs} if differs else {}


def assert_same(result, wanted, library=None):
    assert not differences("here", result, wanted, library)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.npz"


# --- cut by a budget ------------------------------------------------------------------------------


def test_a_run_cut_after_any_iteration_goes_on_bit_for_bit(method, how, path):
    whole = run(method, how)
    run(method, how, max_iterations=1, checkpoint=path)
    for k in range(2, whole.nit + 1):  # each cut goes on from the one before: work like k, not k^2
        cut = run(method, how, resume=path, checkpoint=path, max_iterations=k)
        rows = cut.trace["grad_norm"], whole.trace["grad_norm"][: k + 1]
        assert np.array_equal(*rows, equal_nan=True), k
    assert_same(run(method, how, resume=path), whole)


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(
    method=st.sampled_from(METHODS),
    how=st.sampled_from(["separate", "fused"]),
    cuts=st.lists(st.integers(1, 60), max_size=5),
    size=st.integers(1, 5),
    seed=st.integers(0, 2**63),
)
def test_a_run_may_be_cut_and_resumed_any_number_of_times(method, how, cuts, size, seed):
    problem = Waves(size)
    options = method.eventful | counted(problem).given(how)
    whole = minimize(x0=problem.start, rng=seed, **options)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run"
        minimize(x0=problem.start, rng=seed, checkpoint=file, max_iterations=1, **options)
        for cut in sorted(cuts):
            # The seed is part of what was saved: another one is not looked at.
            minimize(x0=problem.start, resume=file, checkpoint=file, max_iterations=cut, **options)
        assert_same(minimize(x0=problem.start, resume=file, **options), whole)


def test_scale_free_runs_go_on_bit_for_bit(adaptive, how, path):
    options = counted(BOWL).given(how) | {"x0": BOWL.start, "method": adaptive.name, "tol": 1e-7}
    whole = minimize(**options)
    for k in (1, 99, 100, 101, 102, 150, 203, whole.nit - 1, whole.nit):
        minimize(max_iterations=k, checkpoint=path, **options)
        assert_same(minimize(resume=path, **options), whole)


def test_theory_runs_go_on_bit_for_bit(fixed, path):
    eps = 1e-5 if fixed.name == "rhb" else 1e-2
    options = fixed.plain(WAVES) | {"jac": WAVES.gradient, "eps": eps}
    whole = minimize(WAVES.value, WAVES.start, **options)
    for k in (1, 7, 50, whole.nit // 2, whole.nit - 1):
        minimize(WAVES.value, WAVES.start, max_iterations=k, checkpoint=path, **options)
        assert_same(minimize(WAVES.value, WAVES.start, resume=path, **options), whole)


def test_every_array_library_and_dtype_goes_on_bit_for_bit(library_and_dtype, path):
    library, dtype = library_and_dtype
    x0 = library.array(WAVES.start.reshape(1, 3), dtype)
    for method in (METHODS[1], METHODS[4]):
        whole = run(method, "fused", x0, max_iterations=30)
        for k in (1, 3, 17):
            run(method, "fused", x0, max_iterations=k, checkpoint=path)
            again = run(method, "fused", x0, max_iterations=30, resume=path)
            assert_same(again, whole, library)
            assert isinstance(again.x, library.array_type)
            assert again.x.dtype == x0.dtype
            assert again.x.shape == x0.shape


def test_large_arrays_go_on_bit_for_bit(method, how, path):
    problem = Waves(BLOCK + 809)
    options = counted(problem).given(how) | method.plain(problem) | {"x0": problem.start}
    whole = minimize(max_iterations=25, **options)
    for k in (1, 9, 24):
        minimize(max_iterations=k, checkpoint=path, **options)
        assert_same(minimize(resume=path, max_iterations=25, **options), whole)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_numbers_as_parameters_go_on_bit_for_bit(method, dtype, path):
    x0 = WAVES.start.astype(dtype)
    parameters = {
        name: np.float64(value) if isinstance(value, float) else np.int64(value)
        for name, value in method.eventful_parameters.items()
    }
    whole = run(method, "fused", x0, max_iterations=40, **parameters)
    for k in (2, 15):
        run(method, "fused", x0, max_iterations=k, checkpoint=path, **parameters)
        again = run(method, "fused", x0, max_iterations=40, resume=path, **parameters)
        assert_same(again, whole)


def test_the_method_need_not_be_named_again(method, path):
    whole = run(method)
    run(method, max_iterations=10, checkpoint=path)
    again = minimize(WAVES.value, WAVES.start, jac=WAVES.gradient, tol=1e-6, resume=path)
    assert again.method == whole.method
    assert_same(again, whole)


def test_time_goes_on_from_where_it_was(path):
    first = run(METHODS[0], max_iterations=20, checkpoint=path)
    again = run(METHODS[0], max_iterations=20, resume=path)
    assert again.time >= first.trace["time"][-1] > 0
    assert np.array_equal(again.trace["time"], first.trace["time"])


@pytest.mark.parametrize(("first", "second"), [(False, True), (True, False), (False, False)])
def test_a_trace_may_be_kept_in_one_part_only(first, second, path):
    whole = run(METHODS[0])
    run(METHODS[0], max_iterations=10, checkpoint=path, trace=first)
    again = run(METHODS[0], resume=path, trace=second)
    assert np.array_equal(again.x, whole.x)
    assert (again.nit, again.nfev, again.njev) == (whole.nit, whole.nfev, whole.njev)
    if second:
        assert again.trace["nit"][-1] == whole.nit
        assert again.trace["grad_norm"][-1] == whole.trace["grad_norm"][-1]


def test_a_longer_budget_goes_on_and_a_spent_one_ends_at_once(method, path):
    first = run(method, max_iterations=10, checkpoint=path)
    same = run(method, max_iterations=10, resume=path)
    assert_same(same, first)
    assert run(method, max_iterations=11, resume=path).nit == 11


def test_a_run_that_had_ended_has_ended(method, path):
    whole = run(method, checkpoint=path)
    assert_same(run(method, resume=path), whole)


def test_a_tighter_tolerance_is_not_forgotten_after_resuming(method, path):
    """Success means the tolerance asked for now, not the one of the first part."""
    options = method.plain(WAVES) | {"jac": WAVES.gradient}
    minimize(WAVES.value, WAVES.start, tol=1e-2, checkpoint=path, **options)
    again = minimize(WAVES.value, WAVES.start, tol=1e-9, resume=path, **options)
    assert again.success == (again.grad_norm <= 1e-9), again.message


# --- when a checkpoint is written -----------------------------------------------------------------


@pytest.fixture
def saves(monkeypatch):
    """The iterations after which a checkpoint was written."""
    written, save = [], Checkpoint.save

    def noted(checkpoint, state):
        written.append(state.progress.nit)
        save(checkpoint, state)

    monkeypatch.setattr(Checkpoint, "save", noted)
    return written


def test_saves_come_every_so_many_iterations_and_at_the_end(path, saves):
    file = Checkpoint(path, every_iterations=7, every_seconds=None)
    run(METHODS[0], max_iterations=24, checkpoint=file)
    assert sorted(set(saves)) == [7, 14, 21, 24]


def test_saves_come_every_so_many_seconds(path, saves):
    run(METHODS[0], max_iterations=6, checkpoint=Checkpoint(path, every_seconds=0.0))
    assert set(saves) == {1, 2, 3, 4, 5, 6}
    saves.clear()
    run(METHODS[0], max_iterations=6, checkpoint=Checkpoint(path, every_seconds=1e6))
    assert set(saves) == {6}


def test_a_large_file_is_announced_and_saved_for_a_twentieth_of_the_time(path, monkeypatch, caplog):
    clock, write = [0.0], checkpoint_file.write_archive

    def slowly(*given, **options):
        clock[0] += 10.0
        write(*given, **options)

    monkeypatch.setattr(Checkpoint, "_now", lambda self: clock[0])
    monkeypatch.setattr(checkpoint_file, "write_archive", slowly)
    monkeypatch.setattr(checkpoint_file, "LARGE_BYTES", 10)
    with caplog.at_level("INFO", logger="momentous"):
        file = Checkpoint(path, every_seconds=1.0)
        run(METHODS[0], max_iterations=3, checkpoint=file)
    assert "takes" in caplog.text
    assert "MB" in caplog.text
    clock[0] += 189.0
    assert not file.is_due(4)
    clock[0] += 1.0
    assert file.is_due(4)


def test_a_path_alone_is_enough(path):
    run(METHODS[0], max_iterations=3, checkpoint=str(path))
    assert path.exists()


def test_a_run_that_ends_at_the_start_is_saved_too(path):
    first = run(METHODS[0], max_iterations=0, checkpoint=path)
    assert path.exists()
    assert_same(run(METHODS[0], max_iterations=0, resume=path), first)


def test_a_run_that_was_left_is_saved_when_its_result_is_asked_for(path):
    options = METHODS[0].eventful | {"jac": WAVES.gradient}
    steps = iterate(WAVES.value, WAVES.start, checkpoint=path, **options)
    for step in steps:
        if step.nit == 5:
            break
    assert steps.result.nit == 5
    assert path.exists()
    assert_same(run(METHODS[0], resume=path), run(METHODS[0]))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"every_seconds": -1.0}, r"every_seconds=-1\.0"),
        ({"every_seconds": float("nan")}, r"every_seconds=nan"),
        ({"every_iterations": 0}, r"every_iterations=0"),
    ],
)
def test_impossible_intervals_are_refused(arguments, words, path):
    with pytest.raises(ValueError, match=words):
        Checkpoint(path, **arguments)


def test_a_folder_that_does_not_exist_is_noticed_before_the_run(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.*does not exist"):
        minimize(pytest.fail, np.ones(3), jac=True, checkpoint=tmp_path / "nowhere" / "run")


def test_saving_without_a_file_is_refused():
    steps = iterate(WAVES.value, WAVES.start, jac=WAVES.gradient)
    with pytest.raises(ValueError, match="checkpoint=path"):
        steps.save()


# --- files that are not what they should be -------------------------------------------------------


def a_checkpoint(path):
    run(METHODS[0], max_iterations=10, checkpoint=path)
    return path


def changed_header(path, **changes):
    """The same checkpoint with other entries in its header."""
    with np.load(path) as archive:
        content = dict(archive)
    header = json.loads(content["header"].tobytes()) | changes
    content["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with open(path, "wb") as file:
        np.savez(file, **content)


def foreign(kind, path):
    if kind == "text":
        path.write_text("a shopping list\n")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "npy":
        with open(path, "wb") as file:
            np.save(file, np.arange(5.0))
    elif kind == "npz":
        with open(path, "wb") as file:
            np.savez(file, data=np.arange(5.0))
    elif kind == "npz with a header":
        with open(path, "wb") as file:
            np.savez(file, header=np.arange(5.0), data=np.arange(5.0))
    elif kind == "npz with a JSON header":
        header = np.frombuffer(b'{"format": "of somebody else"}', np.uint8)
        with open(path, "wb") as file:
            np.savez(file, header=header)
    elif kind == "npz with a JSON list":
        with open(path, "wb") as file:
            np.savez(file, header=np.frombuffer(b"[1, 2]", np.uint8))
    elif kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("readme.txt", "hello")
    elif kind == "pickle":
        path.write_bytes(pickle.dumps({"x": 1}))
    elif kind == "folder":
        path.mkdir()


FOREIGN = [
    "text", "empty", "npy", "npz", "npz with a header", "npz with a JSON header",
    "npz with a JSON list", "zip", "pickle", "folder",
]  # fmt: skip


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_is_refused_by_name(kind, path):
    foreign(kind, path)
    with pytest.raises(CheckpointError, match=r"run\.npz"):
        run(METHODS[0], resume=path)
    with pytest.raises(CheckpointError, match=r"run\.npz"):
        minimize(WAVES.value, WAVES.start, jac=WAVES.gradient, resume=path)


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_is_never_overwritten(kind, path):
    foreign(kind, path)
    before = None if kind == "folder" else path.read_bytes()
    with pytest.raises(CheckpointError, match=r"not overwritten"):
        run(METHODS[0], max_iterations=5, checkpoint=path)
    assert path.is_dir() if kind == "folder" else path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["run.npz"]


def test_a_checkpoint_error_is_a_value_error():
    assert issubclass(CheckpointError, ValueError)


def test_a_file_that_does_not_exist_is_called_that(path):
    with pytest.raises(FileNotFoundError, match=r"no checkpoint .*run\.npz"):
        run(METHODS[0], resume=path)


def test_a_file_cut_off_anywhere_is_refused(path):
    whole = a_checkpoint(path).read_bytes()
    for length in [*range(0, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"run\.npz is truncated"):
            run(METHODS[0], resume=path)


def test_a_file_with_a_flipped_bit_is_refused_or_harmless(path):
    wanted = run(METHODS[0])
    whole = a_checkpoint(path).read_bytes()
    for position in np.random.default_rng(0).integers(0, len(whole), 60):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        try:
            result = run(METHODS[0], resume=path)
        except CheckpointError:
            continue
        assert_same(result, wanted)


def test_the_error_names_the_checkpoint_before(path):
    a_checkpoint(path)
    a_checkpoint(path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(CheckpointError, match=r"the file before it is .*run\.npz\.previous"):
        run(METHODS[0], resume=path)
    assert_same(run(METHODS[0], resume=f"{path}.previous"), run(METHODS[0]))


@pytest.mark.parametrize("version", [1, 99, "2.0"])
def test_another_version_is_refused_with_the_remedy(version, path):
    changed_header(a_checkpoint(path), version=version)
    with pytest.raises(CheckpointError, match=rf"version {version!r}.*release that wrote it"):
        run(METHODS[0], resume=path)


@pytest.mark.parametrize(
    ("x0", "words"),
    [
        (np.ones(4), r"shape \(3,\).*x0 has \(4,\)"),
        (np.ones((1, 3)), r"shape \(3,\).*x0 has \(1, 3\)"),
        (np.ones(3, np.float32), r"float64.*float32"),
    ],
)
def test_a_checkpoint_of_another_problem_is_refused(x0, words, path):
    a_checkpoint(path)
    with pytest.raises(CheckpointError, match=rf"another problem.*{words}"):
        run(METHODS[0], x0=x0, resume=path)


def test_a_checkpoint_of_another_method_is_refused(path):
    a_checkpoint(path)
    with pytest.raises(CheckpointError, match=r"written by .*ada-ragd.*not by .*ada-rhb"):
        run(METHODS[1], resume=path)
    with pytest.raises(CheckpointError, match=r"leave method and parameters out"):
        run(METHODS[0], resume=path, decrease=1e-6)


# --- accidents while writing ----------------------------------------------------------------------


class DiskFullError(OSError):
    pass


def fail_at(monkeypatch, owner, name, call, after=lambda *args, **kwargs: None):
    """Let the n-th call of owner.name and all later ones fail."""
    original, calls = getattr(owner, name), []

    def failing(*args, **kwargs):
        calls.append(args)
        if len(calls) >= call:
            after(*args, **kwargs)
            raise DiskFullError("no space left on device")
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)
    return calls


def half_an_archive(file, **arrays):
    file.write(b"PK\x03\x04 this is as far as it got")


@pytest.mark.parametrize("accident", ["savez", "fsync", "replace"])
def test_an_accident_while_writing_leaves_the_checkpoint_before(accident, path, monkeypatch):
    whole = run(METHODS[0])
    every = Checkpoint(path, every_iterations=5, every_seconds=None)
    with monkeypatch.context() as patch:
        if accident == "savez":
            fail_at(patch, np, "savez", 3, half_an_archive)
        else:
            # Each save calls them several times: let some saves succeed first.
            fail_at(patch, os, accident, 5)
        with pytest.warns(RuntimeWarning, match=r"run\.npz cannot be written.*make room"):
            assert_same(run(METHODS[0], checkpoint=every), whole)
    assert path.exists()
    assert not list(path.parent.glob("*.partial"))
    assert_same(run(METHODS[0], resume=path), whole)
    # And the next run is not in the way of what is left over.
    assert_same(run(METHODS[0], resume=path, checkpoint=path), whole)
    assert_same(run(METHODS[0], resume=path), whole)


def test_an_accident_during_the_first_save_leaves_no_false_checkpoint(path, monkeypatch):
    with monkeypatch.context() as patch:
        fail_at(patch, np, "savez", 1, half_an_archive)
        with pytest.warns(RuntimeWarning, match=r"run\.npz cannot be written"):
            run(METHODS[0], checkpoint=path, max_iterations=3)
    assert not list(path.parent.iterdir())


def test_without_hard_links_the_checkpoint_is_still_written(path, monkeypatch):
    fail_at(monkeypatch, os, "link", 1)
    run(METHODS[0], max_iterations=4, checkpoint=path)
    run(METHODS[0], max_iterations=8, checkpoint=path)
    assert run(METHODS[0], max_iterations=8, resume=path).nit == 8


def test_nothing_is_left_behind_but_the_checkpoint_and_the_one_before(path):
    run(METHODS[0], checkpoint=Checkpoint(path, every_iterations=3))
    assert {p.name for p in path.parent.iterdir()} == {"run.npz", "run.npz.previous"}


# --- exceptions in the user's code ----------------------------------------------------------------


class UserError(Exception):
    pass


def raising_at(call, error):
    def before(number, x):
        if number == call:
            raise error

    return before


def observed(kind):
    if kind == "target":
        return {"target": -1.0}
    if kind == "values in the trace":
        return {"trace": Trace(values=True)}
    return {}


@pytest.mark.parametrize("observer", ["nobody", "target", "values in the trace"])
def test_an_exception_passes_unchanged_and_the_run_goes_on_from_before_it(
    method, how, observer, tmp_path
):
    limit = {"max_iterations": 14}
    wanted = run(method, how, **observed(observer), **limit)
    wrong, resumed = {}, 0
    for call in range(3, 30):
        error, file = UserError(call), tmp_path / f"{call}"
        options = limit | observed(observer) | {"checkpoint": file}
        try:
            run(method, how, before=raising_at(call, error), **options)
            break
        except UserError as caught:
            passed = caught
        assert passed is error
        if file.exists():  # not if it happened before the first iteration
            again = run(method, how, resume=file, **limit, **observed(observer))
            resumed += 1
            wrong |= differences(call, again, wanted)
    assert resumed >= 10
    assert not wrong


def test_an_exception_at_any_call_in_a_run_of_short_epochs(adaptive, how, tmp_path):
    """Where every step restarts, the sample at the restart point is part of the memory."""
    short = {"step_size": 0.005, "initial_radius": 1e-3, "radius": 1e-3, "max_iterations": 15}
    wanted, wrong = run(adaptive, how, **short), {}
    for call in range(3, 25):
        file = tmp_path / f"{call}"
        try:
            run(adaptive, how, before=raising_at(call, UserError()), checkpoint=file, **short)
        except UserError:
            wrong |= differences(call, run(adaptive, how, resume=file, **short), wanted)
    assert wanted.restarts == 15
    assert not wrong


def test_an_exception_in_the_callback_passes_unchanged(method, path):
    error = UserError()

    def callback(intermediate_result):
        step = intermediate_result
        if step.nit == 9:
            raise error

    with pytest.raises(UserError) as caught:
        run(method, callback=callback, checkpoint=path)
    assert caught.value is error
    assert_same(run(method, resume=path), run(method))


def test_a_failing_checkpoint_does_not_hide_the_user_s_exception(tmp_path):
    folder = tmp_path / "usb-stick"
    folder.mkdir()
    error = UserError()

    def before(number, x):
        if number == 10:
            folder.rmdir()
            raise error

    with pytest.raises(UserError) as caught:
        run(METHODS[0], before=before, checkpoint=folder / "run")
    assert caught.value is error


def test_an_exception_without_a_checkpoint_passes_unchanged(method, how):
    error = UserError()
    with pytest.raises(UserError) as caught:
        run(method, how, before=raising_at(7, error))
    assert caught.value is error


def test_an_exception_at_the_start_leaves_no_file(path):
    with pytest.raises(UserError):
        run(METHODS[0], before=raising_at(1, UserError()), checkpoint=path)
    assert not path.exists()


# --- Ctrl-C ---------------------------------------------------------------------------------------


def test_an_interrupt_in_user_code_gives_the_best_point(method, how, path):
    wanted, wrong = run(method, how, max_iterations=30), {}
    for call in (5, 6, 7, 8, 9, 12, 20):
        before = raising_at(call, KeyboardInterrupt())
        result = run(method, how, before=before, checkpoint=path, max_iterations=30)
        assert result.status is Status.INTERRUPTED
        assert not result.success
        assert "interrupted" in result.message
        assert result.nit < 30
        assert result.fun == WAVES.value(result.x)
        assert np.array_equal(result.jac, WAVES.gradient(result.x))
        assert result.fun <= WAVES.value(result.best_x)
        assert result.best_grad_norm <= result.trace["grad_norm"].min()
        again = run(method, how, resume=path, max_iterations=30)
        wrong |= differences(call, again, wanted)
    assert not wrong


def test_a_second_interrupt_still_gives_the_best_point(method):
    def before(number, x):
        if number >= 10:
            raise KeyboardInterrupt

    result = run(method, before=before)
    assert result.status is Status.INTERRUPTED
    assert np.array_equal(result.x, result.best_x)
    assert np.linalg.norm(WAVES.gradient(result.x)) == pytest.approx(result.grad_norm)


@pytest.mark.parametrize("ending", ["converged", "out of budget"])
def test_an_interrupt_while_the_result_is_put_together_is_called_that(method, ending):
    """The last calls only complete the result: f at a point whose gradient is known."""
    goal = {"target": 5.0} if method.name == "perturbed-ragd" else {"tol": 5.0}
    options = goal if ending == "converged" else {"max_iterations": 10}
    calm = run(method, **options)
    assert calm.nit > 2
    before = raising_at(calm.nfev + calm.njev, KeyboardInterrupt())
    result = run(method, before=before, **options)
    assert result.status in (calm.status, Status.INTERRUPTED), result.message
    assert np.linalg.norm(WAVES.gradient(result.x)) == pytest.approx(result.grad_norm)


def test_an_interrupt_during_the_last_save_changes_nothing_of_the_result(path, monkeypatch):
    options = {"method": "ragd", "gradient_lipschitz": 100.0, "hessian_lipschitz": 100.0}
    calm = minimize(WAVES.value, WAVES.start, jac=WAVES.gradient, **options)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    savez = np.savez

    def interrupted(*args, **arrays):
        savez(*args, **arrays)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(np, "savez", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt) as passed:
            minimize(WAVES.value, WAVES.start, jac=WAVES.gradient, checkpoint=path, **options)
    finally:
        signal.signal(signal.SIGINT, handler)
    result = passed.value.result
    assert calm.status is Status.CONVERGED
    assert result.status in (Status.CONVERGED, Status.INTERRUPTED), result.message
    assert np.linalg.norm(WAVES.gradient(result.x)) == pytest.approx(result.grad_norm)


def test_an_interrupt_in_the_callback_ends_the_run(method):
    def callback(intermediate_result):
        step = intermediate_result
        if step.nit == 4:
            raise KeyboardInterrupt

    result = run(method, callback=callback)
    assert (result.status, result.nit) == (Status.INTERRUPTED, 4)


def test_an_interrupt_is_passed_on_with_the_result():
    """A script with three runs must not go on with the second."""
    options = {"max_iterations": 30, "interrupts": "raise"}
    with pytest.raises(KeyboardInterrupt, match="interrupted after iteration") as passed:
        run(METHODS[0], before=raising_at(9, KeyboardInterrupt()), **options)
    assert passed.value.result.status is Status.INTERRUPTED
    result = run(METHODS[0], before=raising_at(9, KeyboardInterrupt()), max_iterations=30)
    assert np.array_equal(passed.value.result.x, result.x)
    with pytest.raises(ValueError, match="interrupts='hide' must be"):
        run(METHODS[0], interrupts="hide")


def test_an_interrupt_while_the_result_is_put_together_is_passed_on_too():
    calm = run(METHODS[0], max_iterations=10)
    before = raising_at(calm.nfev + calm.njev, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt) as passed:
        run(METHODS[0], before=before, max_iterations=10, interrupts="raise")
    assert passed.value.result.nit >= calm.nit - 1


def test_iterate_passes_an_interrupt_on_and_keeps_the_result():
    user = counted(WAVES, raising_at(9, KeyboardInterrupt()))
    steps = iterate(x0=WAVES.start, **user.given("separate"))
    with pytest.raises(KeyboardInterrupt) as passed:
        list(steps)
    assert passed.value.result is steps.result
    assert next(steps, None) is None


def test_iterate_yields_only_finished_steps_when_interrupted():
    user = counted(WAVES, raising_at(9, KeyboardInterrupt()))
    steps = iterate(x0=WAVES.start, interrupts="return", **user.given("separate"))
    seen = list(steps)
    assert steps.result.status is Status.INTERRUPTED
    assert all(step.x is not None for step in seen)
    assert [step.nit for step in seen] == list(range(1, len(seen) + 1))
    assert len(seen) == steps.result.nit


class InterruptAtLine:
    """Presses Ctrl-C at the n-th line of the library that is run: a real SIGINT, to ourselves."""

    folder = os.path.dirname(momentous.__file__)

    def __init__(self, n: int):
        self.left, self.where = n, None

    def __enter__(self):
        self.handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.trace = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *error):
        sys.settrace(self.trace)
        signal.signal(signal.SIGINT, self.handler)

    def _call(self, frame, event, arg):
        name = frame.f_code.co_filename
        return self._line if name.startswith(self.folder) else None

    def _line(self, frame, event, arg):
        if event == "line" and self.where is None:
            self.left -= 1
            if self.left <= 0:
                code = frame.f_code
                self.where = f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {code.co_name}"
                signal.raise_signal(signal.SIGINT)
        return self._line


def test_ctrl_c_between_any_two_lines_leaves_a_run_that_goes_on_bit_for_bit(method, tmp_path):
    limit = {"max_iterations": 14}
    wanted, wrong, interrupted = run(method, **limit), {}, 0
    for n in np.random.default_rng(5).integers(300, 1500, 60):
        file = tmp_path / str(n)
        alarm = InterruptAtLine(int(n))
        try:
            with alarm:
                result = run(method, checkpoint=file, **limit)
        except KeyboardInterrupt:
            continue  # before the first step, or after the last
        except Exception as error:
            wrong[alarm.where] = repr(error)
            continue
        if result.status is not Status.INTERRUPTED or result.jac is None:
            assert result.jac is not None or not file.exists()  # before there was anything to save
            continue
        interrupted += 1
        wrong |= differences(alarm.where, run(method, resume=file, **limit), wanted)
    assert interrupted > 20
    assert not wrong, f"{len(wrong)} places where an interrupt is not clean"


def test_ctrl_c_at_any_line_of_an_iteration_on_large_arrays(path):
    """Arrays are written to a block at a time: half an update must not be kept."""
    problem = Waves(ROW + 809)
    options = METHODS[2].eventful | {"jac": problem.gradient, "radius": 1e3, "epoch_length": 8}
    options["interrupts"] = "return"

    def lines_of(limit):
        with InterruptAtLine(sys.maxsize) as counter:
            minimize(problem.value, problem.start, max_iterations=limit, **options)
        return sys.maxsize - counter.left

    wanted, wrong = minimize(problem.value, problem.start, **options), {}
    assert wanted.nit == 8
    # The runs that were counted also closed their results; an iteration more is the difference.
    first = lines_of(5) - (lines_of(6) - lines_of(5)) // 2
    for n in range(first, first + lines_of(6) - lines_of(5), 3):
        with InterruptAtLine(n) as alarm:
            result = minimize(problem.value, problem.start, checkpoint=path, **options)
        if result.status is Status.INTERRUPTED:
            again = minimize(problem.value, problem.start, resume=path, **options)
            wrong |= differences(alarm.where, again, wanted)
    assert not wrong


# --- processes that die ---------------------------------------------------------------------------

CHILD = """
import os, pickle, random, signal, sys, time
sys.path.insert(0, {tests!r})
from helpers import METHODS, Waves
from momentous import Checkpoint, minimize

WAVES = Waves()

def slowly(x):
    time.sleep(0.0005)
    return WAVES.gradient(x)

def work(method, path):
    return minimize(
        WAVES.value, WAVES.start, jac=slowly,
        checkpoint=Checkpoint(path, every_iterations=2), interrupts="return", **method.eventful,
    )

def seconds(method, path):
    started = time.monotonic()
    work(method, path)
    return time.monotonic() - started

signal.signal(signal.SIGINT, signal.default_int_handler)
rng = random.Random({seed})
for i in range({times}):
    method = METHODS[i % len(METHODS)]
    path = f"{{i}}"
    duration = seconds(method, f"{{i}}.timing")
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(tell, b"!")
        try:
            result = work(method, path)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            outcome = result.status.name, result.best_grad_norm, result.nit
        except KeyboardInterrupt:  # before the first step, or after the last
            outcome = "TOO EARLY OR TOO LATE", 0.0, 0
        with open(f"{{i}}.result", "wb") as file:
            pickle.dump(outcome, file)
        os._exit(0)
    os.read(ready, 1)
    time.sleep(rng.uniform(0.1, 0.9) * duration)
    os.kill(child, signal.{signal})
    _, status = os.waitpid(child, 0)
    print(i, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)
"""


def in_another_process(folder, times, name, seed=1):
    """Runs that are sent a signal at random moments; what became of them."""
    tests = os.path.dirname(os.path.dirname(__file__))
    source = os.path.dirname(os.path.dirname(momentous.__file__))
    code = CHILD.format(tests=tests, times=times, signal=name, seed=seed)
    outcome = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    return [tuple(map(int, line.split())) for line in outcome.splitlines()]


posix = pytest.mark.skipif(os.name != "posix", reason="needs fork and signals")


@posix
@pytest.mark.slow
def test_twenty_runs_killed_at_random_moments_end_with_the_same_bits(tmp_path):
    wanted = [run(method) for method in METHODS]
    outcomes = in_another_process(tmp_path, 20, "SIGKILL")
    assert len(outcomes) == 20
    cut = set()
    for i, died_of in outcomes:
        method, file = METHODS[i % len(METHODS)], tmp_path / f"{i}"
        if died_of == signal.SIGKILL and file.exists():
            cut.add(run(method, resume=file, max_iterations=0).nit)
        resume = {"resume": file} if file.exists() else {}  # killed before the first save
        assert_same(run(method, **resume), wanted[i % len(METHODS)])
    assert len(cut) >= 5, "the moments were not random enough"


@posix
@pytest.mark.slow
def test_runs_interrupted_at_random_moments_end_with_the_same_bits(tmp_path):
    wanted = [run(method) for method in METHODS]
    outcomes = in_another_process(tmp_path, 10, "SIGINT")
    interrupted, wrong = 0, {}
    for i, died_of in outcomes:
        assert died_of == 0, "an interrupt is no reason to die"
        method = METHODS[i % len(METHODS)]
        status, best, nit = pickle.loads((tmp_path / f"{i}.result").read_bytes())
        if not (tmp_path / f"{i}").exists():
            continue
        again = run(method, resume=tmp_path / f"{i}")
        if status == "INTERRUPTED":
            interrupted += 1
            assert best <= again.trace["grad_norm"][: nit + 1].min()
        differs = [
            column
            for column in TRACE_WITHOUT_TIME
            if again.trace[column].tobytes() != wanted[i % 5].trace[column].tobytes()
        ]
        if differs or not np.array_equal(again.x, wanted[i % 5].x):
            wrong[i] = differs
    assert interrupted >= 3
    assert not wrong


def test_the_tolerance_is_that_of_the_checkpoint_where_none_is_given(path):
    options = {"jac": WAVES.gradient, "method": "ada-ragd"}
    whole = minimize(WAVES.value, WAVES.start, tol=1e-9, **options)
    minimize(WAVES.value, WAVES.start, tol=1e-9, max_iterations=3, checkpoint=path, **options)
    resumed = minimize(WAVES.value, WAVES.start, resume=path, **options)
    assert whole.success
    assert resumed.grad_norm == whole.grad_norm <= 1e-9


def test_a_method_that_uses_its_last_sample_resumes_after_an_exception(path):
    @dataclasses.dataclass(frozen=True)
    class Plain(Method):
        name = "plain"

        def start(self, oracle, x0, tol, seed):
            sample = oracle.gradient(x0)
            return Step(sample, Report(sample, 0.005))

        def step(self, oracle, memory):
            x = oracle.space.combination(memory.point, -0.005, memory.gradient)
            sample = oracle.gradient(x)
            return Step(sample, Report(sample, 0.005))

    options = {"method": Plain(), "max_iterations": 12, "tol": 0.0}
    wanted = minimize(WAVES.value, WAVES.start, jac=WAVES.gradient, **options)
    user = counted(WAVES, raising_at(7, UserError()))
    with pytest.raises(UserError):
        minimize(x0=WAVES.start, checkpoint=path, **user.given("separate"), **options)
    again = minimize(WAVES.value, WAVES.start, jac=WAVES.gradient, resume=path, **options)
    assert_same(again, wanted)


# --- what is not given is that of the checkpoint --------------------------------------------------


def test_the_same_method_and_parameters_may_be_given_again(path):
    given = {"method": "lbfgs", "memory": 3, "jac": WAVES.gradient, "tol": 1e-9}
    whole = minimize(WAVES.value, WAVES.start, **given)
    minimize(WAVES.value, WAVES.start, checkpoint=path, max_iterations=4, **given)
    for again in ({}, {"method": "lbfgs"}, {"memory": 3}, {"method": "lbfgs", "memory": 3}):
        options = {"jac": WAVES.gradient, "resume": path} | again
        assert_same(minimize(WAVES.value, WAVES.start, **options), whole)
    for other in ({"method": "auto"}, {"memory": 4}, {"method": "gd"}):
        with pytest.raises(CheckpointError, match=r"written by .*lbfgs.* leave method"):
            minimize(WAVES.value, WAVES.start, jac=WAVES.gradient, resume=path, **other)


# --- records of a user ----------------------------------------------------------------------------


def a_method_of(memory):
    """Gradient descent that carries a memory of the user's."""

    @dataclasses.dataclass(frozen=True)
    class Own(Method):
        name = "own"

        def start(self, oracle, x0, tol, seed):
            sample = oracle.gradient(x0)
            return Step(memory(sample), Report(sample, 0.0))

        def step(self, oracle, memory):
            here = memory.here
            sample = oracle.gradient(oracle.space.combination(here.point, -0.1, here.gradient))
            return Step(dataclasses.replace(memory, here=sample), Report(sample, 0.1))

    return Own()


@record
class SignedMemory:
    here: Sample
    sign: int = -1


def test_a_negative_number_in_a_record_of_a_user_is_no_damage(path):
    options = {"jac": WAVES.gradient, "method": a_method_of(SignedMemory)}
    minimize(WAVES.value, WAVES.start, checkpoint=path, max_iterations=3, **options)
    again = iterate(WAVES.value, WAVES.start, resume=path, **options)
    assert again.memory.sign == -1


def test_a_record_whose_types_are_local_is_read(path):
    class Local:
        pass

    @record
    class LocalMemory:
        here: "Sample"
        other: "Local | None" = None

    options = {"jac": WAVES.gradient, "method": a_method_of(LocalMemory)}
    minimize(WAVES.value, WAVES.start, checkpoint=path, max_iterations=3, **options)
    assert minimize(WAVES.value, WAVES.start, resume=path, max_iterations=5, **options).nit == 5


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stopped", [True, False])
def test_a_run_that_the_caller_ends_is_saved_once(stopped, path, monkeypatch):
    saves = []
    real = Checkpoint.save
    monkeypatch.setattr(Checkpoint, "save", lambda *args: (saves.append(1), real(*args)))
    options = {"jac": WAVES.gradient, "checkpoint": Checkpoint(path, every_seconds=None)}
    going = iterate(WAVES.value, WAVES.start, **options)
    next(going)
    next(going)
    if stopped:
        going.stop()
    assert going.result.status is Status.STOPPED
    assert len(saves) == 1
    assert minimize(WAVES.value, WAVES.start, jac=WAVES.gradient, resume=path).nit > 2


def test_a_report_that_was_handed_out_keeps_its_sample():
    going = iterate(WAVES.value, WAVES.start, jac=WAVES.gradient)
    first = next(going)
    point = first.report.sample.point
    next(going)
    assert first.report.sample.point is point is first.x


def test_a_run_goes_on_from_its_state_in_memory(method):
    options = {"x0": WAVES.start, **counted(WAVES).given("fused"), **method.eventful}
    whole, part = minimize(**options), iterate(**options)
    for _ in range(5):
        next(part)
    assert_same(minimize(resume=part.state(), **options), whole)


def test_a_checkpoint_resumed_with_other_bounds_names_them(tmp_path):
    path, fun = tmp_path / "run.npz", lambda x: (float(np.sum(x**4)), 4 * x**3)
    minimize(fun, np.ones(3), jac=True, checkpoint=path, max_iterations=3)
    with pytest.raises(CheckpointError, match=r"give the bounds= or penalty= of its run"):
        minimize(fun, np.ones(3), jac=True, resume=path, bounds=(0, 2))
