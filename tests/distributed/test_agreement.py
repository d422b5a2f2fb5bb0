"""What travels with sums over ranks, seen from one rank of two that are alike."""

from __future__ import annotations

import numpy as np
import pytest

from momentous import LBFGS
from momentous.core.blocks import BLOCK
from momentous.core.oracle import Oracle
from momentous.core.sources import function_source
from momentous.core.space import Space
from momentous.distributed import Alone
from momentous.distributed.agreement import Agreement, checksum, checksum_on_device
from momentous.distributed.driver import PartsOracle, SummedSource


class Twins(Alone):
    """Two ranks that say the same."""

    def _all_reduce(self, a, operation):
        return 2 * a if operation == "sum" else a


def test_a_value_travels_with_the_first_sum_only():
    agreement = Agreement(Twins())

    def two_sums():
        agreement.total(np.array([1.0]))
        return agreement.total(np.array([3.0]))[0]

    assert agreement.with_value(7.0, two_sums) == (6.0, 14.0)


class Noting(Alone):
    """One rank that notes how many numbers it sends."""

    def __init__(self):
        super().__init__()
        self.sent: list[int] = []

    def _all_reduce(self, a, operation):
        self.sent.append(len(a))
        return a.copy()


def test_without_news_a_sum_is_one_message_of_as_many_numbers():
    agreement = Agreement(Noting())
    assert agreement.total(np.array([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert agreement.sum_of_values(3.0, at=np.ones(3)) == 3.0
    assert agreement.ranks.sent == [2, 2]  # with the checksum of x


def test_a_sum_that_is_not_a_number_is_asked_about_and_stays_so():
    agreement = Agreement(Noting())
    found = agreement.total(np.array([np.nan, 2.0]))
    assert np.isnan(found[0])
    assert found[1] == 2.0
    assert agreement.ranks.sent == [2, 2]


def test_ctrl_c_travels_as_a_sum_that_is_not_a_number():
    agreement = Agreement(Noting())
    agreement.interrupts.pending = True
    with pytest.raises(KeyboardInterrupt):
        agreement.total(np.array([1.0, 2.0, 3.0]))
    assert agreement.interrupted
    assert agreement.ranks.sent == [3, 2]
    assert agreement.total(np.array([1.0])).tolist() == [1.0]  # once


def test_an_exception_of_user_code_travels_in_the_place_of_the_value():
    agreement = Agreement(Noting())
    with pytest.raises(ZeroDivisionError):
        agreement.sum_of_local(lambda: 1 / 0, at=np.ones(3))
    assert agreement.ranks.sent[:2] == [2, 2]


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_value_that_is_not_finite_is_none(value):
    assert np.isnan(Agreement(Alone()).same_value(value))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_checksum_tells_points_apart_that_differ_in_one_bit_or_in_order(dtype):
    """As 32 bits, whatever computes it: the host, or integers on a GPU."""
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal(1000).astype(dtype)
    moved, swapped = x.copy(), x.copy()
    moved[500] = np.nextafter(x[500], dtype(9.0))
    swapped[[3, 4]] = x[[4, 3]]
    for made in (checksum, lambda a: checksum_on_device(torch.from_numpy(a))):
        sums = [float(made(each)) for each in (x, x.copy(), moved, swapped)]
        assert sums[0] == sums[1]
        assert len(set(sums)) == 3
        assert all(0 <= each < 2**32 and each.is_integer() for each in sums)


@pytest.mark.parametrize("jac", ["2-point", "3-point"])
def test_differences_are_refused_where_variables_are_spread(jac):
    x0 = np.ones(3)
    oracle = PartsOracle(
        function_source(lambda x: float(x @ x), jac, (), Space(x0)), Agreement(Twins())
    )
    with pytest.raises(ValueError, match="differences of fun do not work with ranks='variables'"):
        oracle.gradient(x0)


@pytest.mark.parametrize("count", [1, 6, 40])
def test_long_parts_and_short_ones_send_as_many_sums(count):
    sent = []
    for size in (10, 4 * BLOCK + 1):
        lengths: list[int] = []
        x = np.ones(size)
        space = Space(x, total=lambda sums, lengths=lengths: lengths.append(len(sums)) or sums)
        found = space.inners([x * (i + 1) for i in range(count)], x)
        assert found == pytest.approx([size * (i + 1.0) for i in range(count)])
        sent.append(lengths)
    assert sent[0] == sent[1] == [count]


def test_a_jitted_function_of_jax_is_summed_before_anything_is_done_with_it():
    jax = pytest.importorskip("jax")
    x0 = jax.numpy.ones(3)
    fun = jax.jit(lambda x: (x**2).sum())
    oracle = Oracle(
        SummedSource(function_source(fun, "autodiff", (), Space(x0)), Agreement(Twins()))
    )
    sample = oracle.gradient(x0)
    assert (float(sample.value), np.asarray(sample.gradient).tolist()) == (6.0, [4.0] * 3)
    assert sample.grad_norm == pytest.approx(4 * np.sqrt(3))


def test_a_rank_whose_function_fails_makes_no_more_sums():
    """Others do not wait for them: they would take such a sum for another one."""
    jnp = pytest.importorskip("jax.numpy")
    agreement, calls = Agreement(Noting()), []

    def fun(x):
        calls.append(len(agreement.ranks.sent))
        if len(calls) == 6:
            raise RuntimeError("on this rank alone")
        return float(jnp.sum(x**4 + x**2)), 4 * x**3 + 2 * x

    x0 = jnp.linspace(-1.0, 1.0, 600)
    oracle = PartsOracle(
        function_source(fun, True, (), Space(x0, total=agreement.total)), agreement
    )
    method = LBFGS(memory=4)

    def steps():
        step = method.start(oracle, x0, 1e-8, 0)
        while True:
            step = method.step(oracle, step.memory)

    with pytest.raises(RuntimeError, match="alone"):
        steps()
    assert len(agreement.ranks.sent) == calls[-1]
