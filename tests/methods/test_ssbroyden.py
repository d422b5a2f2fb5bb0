"""Self-scaled Broyden methods: the formulas, the failures of searches, and where the matrix is."""

from __future__ import annotations

import dataclasses
import types

import numpy as np
import pytest

import momentous
from momentous import LBFGS, SelfScaledBroyden, Status, iterate, minimize, testbed
from momentous.core.checkpoint import Plain
from momentous.core.machine import Host
from momentous.core.oracle import Sample
from momentous.core.space import Space
from momentous.methods.classical import dense
from momentous.methods.classical.dense import Dense
from momentous.methods.classical.pairs import ListedRows, Pairs
from momentous.methods.classical.self_scaling import UPDATES, SelfScaling
from momentous.methods.classical.ssbroyden import fast_for_costly_gradients
from reference import self_scaled_update

D = 9
WEIGHTS = np.logspace(-1, 1, D)


def sample(x, space=None):
    """Of a function whose curvature changes."""
    y = np.asarray(x, float)
    g = WEIGHTS * y + 0.3 * np.sin(3 * y)
    there = Sample(y, float(WEIGHTS @ y**2 / 2 - 0.1 * np.cos(3 * y).sum()), g, np.linalg.norm(g))
    if space is None:
        return there
    point, gradient = (space.from_numpy(a) for a in (y, g))
    return Sample(point, there.value, gradient, there.grad_norm)


def on_a_device(monkeypatch):
    """PyTorch's tensors in the memory of the host, handled like those of a GPU."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(dense, "array_name", lambda space: "torch")
    monkeypatch.setattr(dense, "device_memory", lambda space: 1e9)
    return Space(torch.zeros(D, dtype=torch.float64))


def entries(a):
    return np.asarray(a, float)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("place", ["host", "device"])
def test_every_update_is_that_of_the_formulas(update, place, monkeypatch):
    space = Space(np.zeros(D)) if place == "host" else on_a_device(monkeypatch)
    m, scaling = Host.of(space), SelfScaling(update, 2)
    here, store, scaled = sample(np.linspace(1, 2, D), space), Dense.unknown(m), 0
    H = np.eye(D)
    for k, t in enumerate([0.1, 1.0, 0.5, 2.0, 0.7, 0.3, 1.5, 1.0, 0.8, 1.2]):
        d = store.line(m, here).direction
        np.testing.assert_allclose(entries(d), -H @ entries(here.gradient), rtol=1e-9)
        there = sample(entries(here.point) + t * entries(d), space)
        s, y = (entries(b) - entries(a) for a, b in ((here.point, there.point),
                                                     (here.gradient, there.gradient)))  # fmt: skip
        if k == 0:
            H = s @ y / (y @ y) * np.eye(D)
        wanted = self_scaled_update(H, s, y, update, scales=k >= 2)
        scaled += not np.allclose(wanted, self_scaled_update(H, s, y, "bfgs"))
        store = store.after(m, True, False, here, there, lambda: 0.0, scaling)
        here, H = there, store.inverse(None)(np.eye(D))
        np.testing.assert_allclose(H, wanted, rtol=0, atol=1e-10 * np.abs(wanted).max())
        np.testing.assert_allclose(H @ y, s, rtol=0, atol=1e-12 * np.abs(s).max())
        assert np.linalg.eigvalsh((H + H.T) / 2).min() > 0
    assert len(store) == 10
    assert (scaled > 3) is (update != "bfgs")
    again = store.packed().unpacked(space)
    assert type(again.matrix) is type(store.matrix)
    kept = [np.triu(each.matrix.on_host()) for each in (again, store)]
    np.testing.assert_array_equal(*kept)
    stored = store.packed()
    assert len(stored.triangle.array) == D * (D + 1) // 2
    for name, wrong in {"triangle": Plain(np.zeros(7)), "product": Plain(H), "recovery": 9}.items():
        with pytest.raises(ValueError, match=r"no triangle|a product of|recovery is 9"):
            dataclasses.replace(stored, **{name: wrong}).unpacked(space)


def test_an_update_in_single_precision_is_finite():
    """Where B says 3e8 times too much of a step, 1 + theta a is 0 to seven digits."""
    names = ("where", "minimum", "maximum", "sqrt", "power")
    m = types.SimpleNamespace(**{name: getattr(np, name) for name in names})
    b, h = np.float32(3e8), np.float32(1e3 / 3e8)
    tau, phi = SelfScaling("ssbroyden", 0).factors(m, 50, b, h)
    assert tau.dtype == np.float32
    assert tau > 0
    assert 0 < phi < np.inf


def test_with_tau_and_phi_of_1_it_is_bfgs():
    s, y = np.array([1.0, 0.2, 0.0]), np.array([2.0, -0.3, 0.4])
    H = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 1.5]])
    V = np.eye(3) - np.outer(y, s) / (s @ y)
    wanted = V.T @ H @ V + np.outer(s, s) / (s @ y)
    np.testing.assert_allclose(self_scaled_update(H, s, y, "bfgs"), wanted, rtol=1e-13)


@pytest.mark.parametrize("kind", ["stacked", "listed"])
def test_self_scaled_pairs_are_self_scaled_bfgs(kind):
    """With all pairs in the memory, from the matrix of plain L-BFGS on."""
    space, scaling, scaled = Space(np.zeros(D)), SelfScaling("ssbfgs", 3), 0
    m, here = Host.of(space), sample(np.linspace(1, 2, D))
    store = Pairs.unknown(m, 20)
    if kind == "listed":
        store.rows = ListedRows((None,) * 40)
    for k, t in enumerate([0.1, 1.0, 0.5, 0.3, 0.4, 0.2, 1.5, 1.0, 0.8, 1.2]):
        H = store.inverse(None)(np.eye(D)) if k else np.eye(D)
        there = sample(here.point + t * store.line(m, here).direction)
        s, y = there.point - here.point, there.gradient - here.gradient
        store = store.after(m, True, False, here, there, lambda: np.inf, scaling)
        here = there
        if k >= 3:
            wanted = self_scaled_update(H, s, y, "ssbfgs")
            scaled += not np.allclose(wanted, self_scaled_update(H, s, y, "bfgs"))
            found = store.inverse(None)(np.eye(D))
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9 * np.abs(wanted).max())
    assert scaled > 3


def test_failed_searches_keep_the_matrix_then_rescale_it_and_drop_it_last():
    m, scaling = Host.of(Space(np.zeros(D))), SelfScaling("ssbroyden", 0)
    here, store = sample(np.linspace(1, 2, D)), Dense.unknown(m)

    def fail():
        assert store.can_recover
        return store.after(m, False, True, here, here, lambda: 0.0, scaling)

    def step(t):
        there = sample(here.point + t * store.line(m, here).direction)
        return there, store.after(m, True, False, here, there, lambda: 0.0, scaling)

    for t in (0.1, 1.0, 0.6):
        here, store = step(t)
    assert not store.forgets
    for failures in (1, 2):
        H, store = store.inverse(None)(np.eye(D)), fail()
        np.testing.assert_array_equal(store.inverse(None)(np.eye(D)), H)
        d = store.line(m, here).direction
        np.testing.assert_allclose(d, -store.gamma * here.gradient, rtol=1e-13)
        assert not store.can_recover  # a search along the gradient that fails is the end
        before = here
        here, store = step(1.0)
        s, y = here.point - before.point, here.gradient - before.gradient
        if failures == 2:
            H = H * (s @ y) / (y @ H @ y)
        wanted = self_scaled_update(H, s, y, "bfgs")
        np.testing.assert_allclose(store.inverse(None)(np.eye(D)), wanted, rtol=1e-9, atol=1e-12)
    assert len(store) == 5
    assert store.forgets
    store = fail()
    assert len(store) == 0
    np.testing.assert_allclose(store.line(m, here).direction, -here.gradient, rtol=1e-13)


def test_in_single_precision_the_matrix_is_double_and_outlives_a_search_that_fails():
    problem, calls = testbed.rosenbrock(10), []

    def fun(x):
        calls.append(x)
        is_spoilt = 25 <= len(calls) < 28  # all trials of one search
        return np.float32(np.nan if is_spoilt else problem.value(x)), problem.gradient(x)

    def run_of(method):
        calls.clear()
        run = iterate(fun, problem.start.astype(np.float32), jac=True, method=method, tol=1e-3)
        stages = [step.memory.curvature.recovery for step in run if step.nit <= 40]
        return run, stages

    run, stages = run_of(SelfScaledBroyden(plain_pairs=5, max_trials=3))
    assert run.result.x.dtype == np.float32
    assert run.result.status is Status.CONVERGED
    assert {0, 1, 2} == set(stages)
    assert stages[-1] == 0
    assert run.result.restarts == 0
    curvature = run.memory.curvature
    assert curvature.matrix.upper.dtype == np.float64
    assert len(curvature) == run.result.nit - 1  # in one iteration the search has failed


@pytest.mark.parametrize("update", UPDATES)
def test_it_reaches_small_gradients_and_never_climbs(update):
    for problem in (testbed.rosenbrock(20), testbed.robust_regression(), testbed.dixon_price(10)):
        result = minimize(
            problem.value_and_gradient, problem.start, jac=True, tol=1e-6,
            method=SelfScaledBroyden(update, plain_pairs=5),
        )  # fmt: skip
        assert result.status is Status.CONVERGED, result.message
        values = result.trace["fun"]
        assert np.all(np.diff(values) <= 1e-12 * np.abs(values[:-1]) + 1e-14)


def test_parameters_are_checked():
    with pytest.raises(ValueError, match=r"update='dfp' must be one of ssbroyden, ssbfgs, bfgs"):
        SelfScaledBroyden("dfp")
    with pytest.raises(ValueError, match=r"plain_pairs=-1 must be a whole number >= 0"):
        SelfScaledBroyden(plain_pairs=-1)
    with pytest.raises(ValueError, match=r"SelfScaledBroyden: sufficient_decrease=0.7"):
        SelfScaledBroyden(sufficient_decrease=0.7)
    with pytest.raises(ValueError, match=r"scaling='yes' must be None or 'self'"):
        LBFGS(scaling="yes")


@pytest.mark.parametrize("by_system", [False, True])
def test_a_matrix_that_does_not_fit_names_its_bytes_and_the_way_out(by_system, monkeypatch):
    def refuse(*args, **options):
        raise MemoryError("Unable to allocate")

    if by_system:
        monkeypatch.setattr(np, "eye", refuse)
    else:
        monkeypatch.setattr(dense, "host_memory", lambda: 1e5)
    words = r"in 200 variables takes 320,000 bytes, .*: take LBFGS\(scaling='self'\)"
    with pytest.raises(MemoryError, match=words):
        minimize(lambda x: (x @ x, 2 * x), np.ones(200), jac=True, method="ssbroyden")


def test_what_networks_get_depends_on_their_size_and_the_room_alone():
    def chosen(dimension, room=8 * 30_000**2):
        return fast_for_costly_gradients(dimension, 8 * dimension, room)

    assert chosen(128) == LBFGS()
    assert chosen(129) == chosen(30_000) == SelfScaledBroyden()
    assert chosen(30_001) == chosen(200_000) == LBFGS(memory=300, scaling="self")
    assert chosen(5_000, 8 * 4096**2) == LBFGS(memory=300, scaling="self")
    assert chosen(300_000) == LBFGS(memory=100)  # 300 pairs do not fit into 1 GiB
    assert chosen(5_000, 0) == LBFGS(memory=100)  # no matrix is wanted
    auto = momentous.Safeguarded().for_costly_gradients(1000, 8000, 1e9)
    assert auto.fast == SelfScaledBroyden()
    own = momentous.Safeguarded(fast=LBFGS(memory=7))
    assert own.for_costly_gradients(1000, 8000, 1e9) == own


@pytest.mark.slow
def test_a_run_with_a_large_matrix_goes_on_bit_for_bit(tmp_path):
    problem, file = testbed.rosenbrock(3000), tmp_path / "run.npz"
    options = {"jac": True, "method": "ssbroyden", "tol": 0.0}
    whole = minimize(problem.value_and_gradient, problem.start, max_iterations=70, **options)
    minimize(
        problem.value_and_gradient, problem.start, max_iterations=55, checkpoint=file, **options
    )
    assert file.stat().st_size < 40e6  # one triangle
    rest = minimize(
        problem.value_and_gradient, problem.start, max_iterations=70, resume=file, **options
    )
    assert rest.nit == 70
    np.testing.assert_array_equal(rest.x, whole.x)
