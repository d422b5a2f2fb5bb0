"""Backends: every one gives what NumPy's gives; the compiled one is exact, shared out, optional."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from momentous.lowrank import LowRankObjective, Ratings, find_backend
from momentous.lowrank.backends import RowStep
from momentous.lowrank.losses import LOSSES, Implicit, Logistic, Squared, find_loss

pytest.importorskip("numba")
from momentous.lowrank.backends.numba import compiler, elementary, simd

OTHERS = ["numba"]  # beside NumPy's; a new backend is put here


def some_ratings(m, n, count, rng=0, loss="squared"):
    rng = np.random.default_rng(rng)
    chosen = rng.choice(m * n, count, replace=False)
    values = rng.integers(1, 6, count).astype(np.float64)
    ratings = Ratings(chosen // n, chosen % n, values, (m, n))
    return ratings.signs() if loss == "logistic" else ratings


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("backend", OTHERS)
def test_every_call_to_a_side_gives_what_numpy_gives(backend, loss, dtype):
    ratings = some_ratings(90, 60, 2500, loss=loss).astype(dtype)
    rng = np.random.default_rng(1)
    left, right, current = (rng.standard_normal((k, 5)).astype(dtype) for k in (90, 60, 90))
    weights, offsets = np.full((90, 5), 0.7, dtype), rng.standard_normal(60).astype(dtype)
    accuracy = 1e-11 if dtype == np.float64 else 1e-4
    found = []
    for name in (backend, "numpy"):
        side = find_backend(name).side(ratings.by_row, find_loss(loss), 2)
        gradients = np.ones_like(left), np.ones_like(right)
        values = [side.value(left, right), side.add_gradient(left, right, 0.3, *gradients)]
        arrays = [*gradients]
        for step in (
            RowStep(weights, right),
            RowStep(weights, right, offsets),
            RowStep(weights, right, offsets, current),
        ):
            rows, value = side.solve_rows(step)
            assert rows.dtype == dtype
            arrays.append(rows)
            values.append(value)
        found.append((values, arrays))
    (values, arrays), (expected, others) = found
    assert values == pytest.approx(expected, rel=accuracy)
    for one, other in zip(arrays, others, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=accuracy * np.abs(other).max())


def test_kernels_are_loaded_once_per_loss_and_cached_by_its_formula():
    @dataclass(frozen=True)
    class Mine(Squared):
        name = "mine"

    class Other(Mine):
        @staticmethod
        def entry(z, x, parameters):
            return 0.25 * np.square(z - x), 0.5 * (z - x), 0.5

    kernels = [compiler.kernels_for(loss) for loss in (Squared, Implicit, Mine, Other)]
    assert kernels[0] is compiler.kernels_for(Squared)
    assert all(type(k.add_groups._cache).__name__ != "NullCache" for k in kernels)
    names = [k.add_groups.py_func.__qualname__ for k in kernels]
    assert len(set(names)) == 4  # or numba would mix up their files


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rank", [1, 2, 7, 10, 70])
def test_compiled_and_plain_agree_to_rounding_at_every_rank(loss, rank):
    ratings = some_ratings(90, 80, 5000)
    ratings = ratings.signs() if loss == "logistic" else ratings
    fast = LowRankObjective(ratings, rank, loss, backend="numba")
    slow = LowRankObjective(ratings, rank, loss, backend="numpy")
    assert (fast.backend.name, slow.backend.name) == ("numba", "numpy")
    x = 0.5 * np.random.default_rng(3).standard_normal(fast.dimension)
    (f, g), (F, G) = fast.value_and_gradient(x), slow.value_and_gradient(x)
    assert f == pytest.approx(F, rel=1e-13)
    assert np.linalg.norm(g - G) <= 1e-13 * np.linalg.norm(G)


def test_rows_are_cut_into_powers_of_two_that_cover_them():
    assert list(simd.piece_lengths(10)) == [8, 2]
    for rank in (*range(1, 70), 200, 333):
        assert sum(simd.piece_lengths(rank)) == rank
        assert all(length & (length - 1) == 0 for length in simd.piece_lengths(rank))


def test_compiled_exp_and_log1p_are_exact_to_the_last_digits_and_know_their_limits():
    x = np.concatenate([np.linspace(-708, 709, 4001), np.linspace(-2, 2, 4001), [1e-300, -1e-9]])
    found = np.array([elementary.exp(one) for one in x])
    assert np.max(np.abs(found / np.exp(x.astype(np.longdouble)) - 1)) < 1e-15
    x = np.concatenate([np.linspace(-1 + 1e-9, 3, 8001), np.logspace(-300, 300, 4001)])
    x = x[x != 0.0]
    found = np.array([elementary.log1p(one) for one in x])
    assert np.max(np.abs(found / np.log1p(x.astype(np.longdouble)) - 1)) < 1e-15
    assert [elementary.exp(one) for one in (710.0, np.inf)] == [np.inf, np.inf]
    assert elementary.exp(-np.inf) < 1e-300
    assert [elementary.log1p(one) for one in (0.0, -1.0, np.inf)] == [0.0, -np.inf, np.inf]
    assert all(np.isnan(one) for one in (elementary.exp(np.nan), elementary.log1p(np.nan)))
    assert elementary.log1p(-2.0) == -np.inf


def test_the_compiled_logistic_loss_is_exact_to_the_last_digits():
    margins = np.concatenate(
        [np.linspace(-708, 708, 4001), np.linspace(-40, 40, 20_001), [0.0, 1e-300, -1e-9]]
    )
    labels = np.where(np.arange(margins.size) % 2, 1.0, -1.0)
    entry = compiler.compiled_entry(Logistic)
    pairs = [
        entry(y * t, labels, k, ()) for k, (y, t) in enumerate(zip(labels, margins, strict=True))
    ]
    losses, slopes = (np.array([pair[k] for pair in pairs]) for k in (0, 1))
    t = margins.astype(np.longdouble)
    expected = np.maximum(-t, 0) + np.log1p(np.exp(-np.abs(t)))
    assert np.max(np.abs(losses / expected - 1)) < 1e-15
    assert np.max(np.abs(slopes * -labels * (1 + np.exp(t)) - 1)) < 1e-15


def test_threads_get_ranges_of_equal_work_and_few_entries_get_few_threads():
    large = some_ratings(600, 100, 41_000)
    work = LowRankObjective(large, 2, threads=3).side(0)
    counts = [int(large.by_row.starts[b] - large.by_row.starts[a]) for a, b in work.ranges]
    assert sum(counts) == large.nnz
    assert max(counts) - min(counts) <= 2 * np.diff(large.by_row.starts).max()
    assert LowRankObjective(some_ratings(30, 20, 250), 3, threads=8).threads == 1


def test_without_numba_the_plain_pass_is_taken_and_the_compiled_one_says_what_to_install():
    code = """if True:
        import sys
        sys.modules["numba"] = None
        from momentous.lowrank import LowRankObjective, Ratings
        ratings = Ratings([0, 1, 2], [0, 1, 1], [1.0, 2.0, 3.0])
        problem = LowRankObjective(ratings, 1)
        assert problem.backend.name == "numpy"
        problem.value_and_gradient(problem.start())
        try:
            LowRankObjective(ratings, 1, backend="numba")
        except ImportError as error:
            print(error)
    """
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert 'pip install "momentous[app]"' in told.stdout


def test_a_numba_that_cannot_be_used_is_done_without_and_told(tmp_path):
    pytest.importorskip("sklearn")
    (tmp_path / "numba.py").write_text("raise ImportError('not for this NumPy')")
    code = f"""if True:
        import sys, warnings
        sys.path.insert(0, {str(tmp_path)!r})
        from momentous.lowrank import LowRankObjective, MatrixCompletion, Ratings
        ratings = Ratings([0, 1, 2], [0, 1, 1], [1.0, 2.0, 3.0])
        for fit in (lambda: LowRankObjective(ratings, 1), MatrixCompletion(1).fit(ratings).fit):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                fit() if fit.__name__ != "fit" else fit(ratings)
            print({{str(one.message) for one in told}})
    """
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = told.stdout.splitlines()
    assert len(lines) == 2
    assert all("numba cannot be used (not for this NumPy)" in line for line in lines)


def test_importing_the_room_does_not_import_numba():
    code = "import sys, momentous.lowrank; print('numba' in sys.modules)"
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "False"


@pytest.mark.parametrize("weight", [0.5, 0.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_row_solves_are_ridge_regressions_compiled_or_plain(weight, dtype, loss):
    pytest.importorskip("numba")
    rng = np.random.default_rng(2)
    values = rng.random(8) if loss == "squared" else rng.choice([-1.0, 1.0], 8)
    rows, cols = [0, 0, 0, 0, 2, 2, 2, 3], [0, 1, 3, 4, 0, 1, 2, 4]
    groups = Ratings(rows, cols, values.astype(dtype), (4, 6)).by_row
    features, offsets = rng.standard_normal((6, 3)).astype(dtype), rng.random(6).astype(dtype)
    current = None if loss == "squared" else rng.standard_normal((4, 3)).astype(dtype)
    weights = weight * (1.0 + np.arange(12).reshape(4, 3))
    step = RowStep(weights, features, offsets, current)

    def solved(backend, threads):
        return find_backend(backend).side(groups, find_loss(loss), threads).solve_rows(step)

    plain, told = solved("numpy", 1)
    # Without a penalty a system may be all but singular.
    accuracy = 1e-4 if dtype == np.float32 else 1e-10 if weight else 1e-6
    for threads in (1, 2):
        fast, same = solved("numba", threads)
        np.testing.assert_allclose(fast, plain, rtol=accuracy, atol=accuracy)
        assert same == pytest.approx(told, rel=accuracy, abs=accuracy)
    assert np.all(plain[1] == 0)
    mine, targets = features[cols[:4]].astype(float), values[:4] - offsets[cols[:4]]
    if loss == "logistic":
        # Newton's step, no further than where it is known to lower the loss.
        likely = 1 / (1 + np.exp(values[:4] * (mine @ current[0] + offsets[cols[:4]])))
        hessian = (mine.T * (likely * (1 - likely))) @ mine + np.diag(weights[0])
        step = np.linalg.solve(hessian, mine.T @ (values[:4] * likely) - weights[0] * current[0])
        reach = np.abs(mine @ step).max()
        expected = current[0] + step * (np.log1p(reach) / reach if reach > 1.79 else 1.0)
    else:
        expected = np.linalg.solve(mine.T @ mine + np.diag(weights[0]), mine.T @ targets)
    np.testing.assert_allclose(plain[0], expected, rtol=1e-4)


@pytest.mark.parametrize("loss", ["squared", "weighted", "logistic"])
def test_rows_with_fewer_entries_than_parameters_are_solved_by_systems_of_these(loss):
    pytest.importorskip("numba")
    rng, counts, rank = np.random.default_rng(4), np.arange(8), 5
    rows = np.repeat(np.arange(8), counts)
    cols = np.concatenate([rng.permutation(9)[:count] for count in counts])
    values = rng.choice([-1.0, 1.0], rows.size)
    shares = rng.random(rows.size) if loss == "weighted" else None
    groups = Ratings(rows, cols, values, (8, 9), weights=shares).by_row
    kind = find_loss("logistic" if loss == "logistic" else "squared")
    kind = kind.of(groups.values)
    weights, features = rng.random((8, rank)), rng.standard_normal((9, rank))
    weights[2], weights[3] = 1e-7, 1e12  # too small for it, and features that are held
    current = rng.standard_normal((8, rank))
    current[3] = 0.0
    step = RowStep(weights, features, rng.random(9), current)
    side, plain = (find_backend(name).side(groups, kind, 1) for name in ("numba", "numpy"))
    expected, told = plain.solve_rows(step)
    found, value = side.solve_rows(step)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)
    assert value == pytest.approx(told, rel=1e-9)
    done, alone, row_values = np.zeros(8, bool), np.zeros((8, rank)), np.zeros(8)
    side._kernels.solve_short_rows(
        side.entries, side._arrays_of(step, features), False, side._lengths(features), 0, 0, 8,
        kind.parameters, alone, row_values, done,
    )  # fmt: skip
    assert np.flatnonzero(done).tolist() == [1, 3, 4]
    assert np.array_equal(alone[done], found[done])
