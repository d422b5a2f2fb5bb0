"""Kernels for all ranks: they give what NumPy gives, and a new rank compiles nothing."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest

from momentous.lowrank import Ratings, find_backend
from momentous.lowrank.backends import RowStep
from momentous.lowrank.losses import LOSSES, Squared, find_loss

pytest.importorskip("numba")
from momentous.lowrank.backends.numba import announce, compiler
from momentous.lowrank.backends.numba.simd import STRIP

RANKS = (1, 5, 8, 12, 17, 31, 33, 50, 64, 127)
ROWS, COLS = 30, 40


def some_groups(loss, dtype):
    rng = np.random.default_rng(4)
    # Long rows and short ones: several pieces, parts of one, fewer entries than the rank, none.
    counts = np.minimum(COLS, np.r_[0, 1, 2, rng.integers(3, COLS, ROWS - 4), COLS])
    rows = np.repeat(np.arange(ROWS), counts)
    cols = np.concatenate([rng.choice(COLS, count, replace=False) for count in counts])
    values = rng.integers(1, 6, rows.size).astype(dtype)
    ratings = Ratings(rows, cols, values, (ROWS, COLS))
    return (ratings.signs() if loss == "logistic" else ratings).by_row


def difference(one, other):
    return np.abs(one - other).max() / np.abs(other).max()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("loss", LOSSES)
def test_half_sweeps_and_passes_agree_with_numpy_at_every_rank(loss, dtype):
    groups, rng = some_groups(loss, dtype), np.random.default_rng(5)
    accuracy = 1e-11 if dtype == np.float64 else 2e-5
    fast, slow = (
        find_backend(name).side(groups, find_loss(loss), 2) for name in ("numba", "numpy")
    )
    for rank in RANKS:
        F, u = (rng.standard_normal((n, rank)).astype(dtype) / rank for n in (COLS, ROWS))
        weights = (0.05 + rng.random((ROWS, rank))).astype(dtype)
        offsets = rng.standard_normal(COLS).astype(dtype)
        for step in (RowStep(weights, F), RowStep(weights, F, offsets, u)):
            (rows, value), (expected, least) = fast.solve_rows(step), slow.solve_rows(step)
            assert difference(rows, expected) < accuracy, rank
            assert value == pytest.approx(least, rel=accuracy)
        if rank <= STRIP:  # the gradient has versions of its own: test_backends.py
            continue
        found = []
        for side in (fast, slow):
            gradients = np.zeros_like(u), np.zeros_like(F)
            value = side.add_gradient(u, F, 0.5, *gradients)
            assert side.value(u, F) == pytest.approx(value, rel=1e-6)
            found.append((value, *gradients))
        assert found[0][0] == pytest.approx(found[1][0], rel=accuracy)
        assert max(map(difference, found[0][1:], found[1][1:])) < accuracy


@pytest.mark.parametrize("loss", ["squared", "implicit"])
def test_single_precision_is_left_where_the_penalty_is_too_small_for_it(loss):
    groups, rng = some_groups(loss, np.float32), np.random.default_rng(6)
    fast, slow = (
        find_backend(name).side(groups, find_loss(loss), 1) for name in ("numba", "numpy")
    )
    # Columns of very different sizes: with a Gram matrix in single precision no digit is right.
    F = (rng.standard_normal((COLS, 12)) * np.logspace(0, -3, 12)).astype(np.float32)
    step = RowStep(np.full((ROWS, 12), 1e-7, np.float32), F)
    (rows, value), (expected, least) = fast.solve_rows(step), slow.solve_rows(step)
    assert difference(rows, expected) < 1e-5
    assert value == pytest.approx(least, rel=1e-6)


def test_long_rows_in_single_precision_have_sums_in_higher_precision():
    count = 200_000
    groups = Ratings(np.zeros(count, int), np.arange(count), np.full(count, 0.1, np.float32)).by_row
    F = np.full((count, 1), 0.3, np.float32)
    side = find_backend("numba").side(groups, Squared(), 1)
    (((found,),), value) = side.solve_rows(RowStep(np.full((1, 1), 100.0, np.float32), F))
    f, x = float(F[0, 0]), float(np.float32(0.1))
    best = count * f * x / (count * f * f + 100.0)
    assert found == pytest.approx(best, rel=1e-6)
    assert value == pytest.approx(0.5 * (count * x * x - count * f * x * best), rel=1e-3)


def test_a_new_rank_compiles_nothing(caplog):
    groups = some_groups("squared", np.float64)
    side, rng = find_backend("numba").side(groups, Squared(), 1), np.random.default_rng(7)

    def use(rank):
        F = rng.standard_normal((COLS, rank))
        u, _ = side.solve_rows(RowStep(np.ones((ROWS, rank)), F))
        side.value(u, F)
        side.add_gradient(u, F, 1.0, np.zeros_like(u), np.zeros_like(F))

    use(STRIP + 1)
    kernels = compiler.kernels_for(Squared)
    before = [len(one.signatures) for one in (kernels.sum_rows, kernels.add_groups)]
    with caplog.at_level(logging.INFO, "momentous.lowrank"):
        use(23)
        use(40)
    assert [len(one.signatures) for one in (kernels.sum_rows, kernels.add_groups)] == before
    assert not caplog.records


def test_a_compilation_is_announced_once_with_its_time(caplog):
    @compiler.compiled_kernel(cached=False)
    def inner(x):
        return x + 1.0

    @compiler.compiled_kernel(cached=False)
    def outer(x):
        return inner(x) * 2.0

    for function in (inner, outer):
        function.py_func.__module__ = compiler.__name__
    with caplog.at_level(logging.INFO, "momentous.lowrank"):
        assert outer(1.0) == 4.0
        assert outer(2.0) == 6.0
    begins, ends = [record.getMessage() for record in caplog.records]
    assert begins == "compiling kernels for sweeps: some seconds, again in every process"
    assert re.fullmatch(r"compiled in \d+\.\d CPU seconds", ends)
    assert announce.LOGGER.name == "momentous.lowrank"
