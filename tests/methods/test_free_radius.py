"""AdaRAGD and AdaRHB with nothing given: the rule itself, what it costs, and what it reaches."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import momentous
from helpers import Waves
from momentous import AdaRAGD, AdaRHB, EventKind, Goal, Status, testbed
from momentous.methods.restarted import free_radius as rule
from reference import Watched

each_method = pytest.mark.parametrize("method", [AdaRAGD(), AdaRHB()], ids=lambda m: m.name)


class Sech:
    """The sum of 1 - sech over 60 rotated coordinates with curvatures from 1 to 9."""

    def __init__(self, dimension=60):
        random = np.random.default_rng(0)
        self.turn = np.linalg.qr(random.standard_normal((dimension, dimension)))[0]
        self.scales = np.linspace(1.0, 3.0, dimension)
        self.start = self.turn.T @ (1.5 * random.standard_normal(dimension))

    def both(self, x):
        z = self.scales * (self.turn @ x)
        sech = 1 / np.cosh(z)
        return float(np.sum(1 - sech)), self.turn.T @ (self.scales * sech * np.tanh(z))

    def value(self, x):
        return self.both(x)[0]

    def gradient(self, x):
        return self.both(x)[1]


PROBLEMS = {
    "waves": Waves(),
    "sech": Sech(),
    "rosenbrock": testbed.rosenbrock(10),
    "qing": testbed.qing(20),
    "regression": testbed.robust_regression(),
    "chain": testbed.nested_chain(4, 0.03),
}


def naive(problem, heavy_ball, most, shortest):
    """The rule as docs/adaptive.md states it, in one loop: the points asked for a gradient."""
    asked = []

    def gradient(x):
        asked.append(x)
        return problem.gradient(x)

    f, norm = problem.value, np.linalg.norm
    x0, g0 = problem.start, gradient(problem.start)
    t = math.sqrt(2.0**-53) * max(1.0, norm(x0))
    other = x0 - t / norm(g0) * g0
    mantissa, exponent = math.frexp(norm(gradient(other) - g0) / norm(other - x0))
    eta = 1 / math.ldexp(round(2**13 * mantissa), exponent - 13)  # a quarter of the digits
    q, widest, mark, unpaid, longest_since_paid = 1 / norm(g0), math.inf, norm(g0), 0, eta
    known = g0  # the gradient at x0, where it has been taken

    def change_step(new):
        nonlocal eta, q, longest_since_paid
        q *= (min(new, longest_since_paid) / eta) ** 2
        eta, longest_since_paid = new, max(new, longest_since_paid)

    def ease():
        nonlocal q, longest_since_paid
        q, longest_since_paid = q / 3, eta

    def is_granted(end):
        nonlocal unpaid, mark
        fall = f(x0) - f(end)
        if fall < 0.05 * S / (used * k):
            return False
        if fall / k >= 0.05 * 64**2 * eta / q**2 / k**7:
            ease()
        elif unpaid + k <= 500:
            unpaid += k
        elif norm(gradient(end)) <= mark / 2:
            mark = norm(problem.gradient(end))
        else:
            return False
        return True

    while len(asked) < most:
        x = before = end = x0
        points, lengths, weights = [], [], []
        k, S, mean_due, early_due, last, why = 0, 0.0, 4, 1, None, ""
        longest = eta
        while not why and len(asked) < most:
            e = x + k / (k + 1) * (x - before)
            y = x if heavy_ball else e
            g = known if k == 0 and known is not None else gradient(y)
            if k == 0:
                known = g
            if last is not None:
                bend = eta * norm(g - last[1]) / norm(y - last[0])
                roomy, growth = (0.05, 1.2) if heavy_ball else (0.25, 1.2)
                if heavy_ball and k == 1:
                    roomy, growth = 0.5, 10.0
                if bend > 1 and k == 1:
                    why = "too long"
                    break
                if bend > 1:
                    change_step(eta * 0.7 * max(1 / bend, 0.5))
                    if eta < longest * shortest:
                        why = "far too long"
                        break
                elif bend < roomy:
                    change_step(max(eta, min(min(growth, 0.7 / bend) * eta, widest)))
                    longest = max(longest, eta)
            x_next, used = e - eta * g, eta
            v = x_next - x
            k, S = k + 1, S + v @ v
            points.append(y)
            weights.append(k * eta)
            lengths.append(0.0 if last is None else lengths[-1] + norm(y - last[0]))
            if k**2.5 * q * math.sqrt(S) > 64 * eta:
                why, end = "full", x_next
            elif k >= early_due and g @ v > 0:
                end = x_next
                if heavy_ball:
                    fall, climb = last[1] @ (x - before), g @ (x - before)
                    share = fall / (fall - climb) if fall < 0 else 0.0
                    end = x if share >= 0.7 else before + share * (x - before)
                why = "early" if is_granted(end) else ""
                early_due = math.ceil(1.5 * k)
            elif k >= mean_due and (v @ v) * k <= 4 * S:
                mean_due = 4 * k
                W, mean = sum(weights), np.average(points, axis=0, weights=weights)
                centre = np.average(lengths, weights=weights)
                spread = np.average((np.array(lengths) - centre) ** 2, weights=weights)
                noise = 32 * 2.0**-53 * norm(mean) / eta
                gap = norm(gradient(mean)) - k * norm(v) / W - noise
                q = max(q, 2 * gap * eta**2 / spread)
            before, x, last = x, x_next, (y, g)
        if why in ("too long", "far too long"):
            end = x
        fall = f(x0) - f(end)
        falls = fall >= 0.05 * S / (used * k)
        if why == "too long":
            change_step(eta / 2)
        elif why == "far too long" and is_granted(x):
            falls = True
        elif falls and why != "far too long":
            widest *= 2
            if why == "full":
                ease()
        else:
            falls = False
            if why == "far too long":
                change_step(longest / 4)
            elif k == 1 or longest > eta:
                change_step(eta / 2)
            widest = eta
            q = max(2 * q, 64 * eta / ((k / 2) ** 2.5 * math.sqrt(S)) if k > 2 else 0.0)
        if falls:
            # The heavy ball has taken its last gradient there, unless the epoch was full.
            there = heavy_ball and ("long" in why or (why == "early" and end is before))
            x0, known = end, g if there else None
    return asked


@each_method
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("shortest", [1 / 64, 0.5], ids=["as it is", "often too long"])
def test_it_asks_where_the_naive_rule_asks(method, name, shortest, monkeypatch):
    constants = dataclasses.replace(method.free.constants, shortest=shortest)
    own = dataclasses.replace(method.free, constants=constants)
    monkeypatch.setattr(type(method), "free", own)
    method, problem = type(method)(), PROBLEMS[name]
    seen = Watched(problem)
    momentous.minimize(
        seen.value, problem.start, jac=seen.gradient, method=method, tol=1e-7, max_iterations=90
    )
    wanted = naive(problem, isinstance(method, AdaRHB), len(seen.gradients), shortest)
    assert len(seen.gradients) > 30
    for found, point in zip(seen.gradients[:60], wanted, strict=False):
        np.testing.assert_allclose(found, point, rtol=1e-6, atol=1e-9)


@each_method
def test_the_mean_of_the_gradients_is_known_from_the_last_step(method):
    """sum of (t + 1) eta_t grad f(y^t) = -k (x^k - x^{k-1}), whatever the steps are."""
    problem, total, longest = PROBLEMS["rosenbrock"], 0.0, 0
    run = momentous.iterate(problem.value, problem.start, jac=problem.gradient, method=method)
    for _, step in zip(range(200), run, strict=False):
        epoch = step.memory.epoch
        if epoch.k == 0:
            total = 0.0
            continue
        total = total + epoch.k * step.memory.learned.step_size * epoch.gradient
        v = epoch.x - epoch.x_prev
        np.testing.assert_allclose(total, -epoch.k * v, atol=1e-9 * np.linalg.norm(total))
        longest = max(longest, epoch.k)
    assert longest > 10


@each_method
def test_what_the_mean_proves_of_rho_is_no_more_than_rho(method):
    raised = 0
    for problem in (testbed.second_order_chain(8, 0.1), testbed.robust_regression()):
        run = momentous.iterate(
            problem.value, problem.start, jac=problem.gradient, method=method, tol=1e-9
        )
        before = None
        for _, step in zip(range(300), run, strict=False):
            now = step.memory.learned
            same_epoch = step.memory.epoch.k > 1
            if same_epoch and before is not None and now.sharpness > before.sharpness:
                raised += 1
                rho = now.sharpness / now.step_size**2
                assert rho <= problem.hessian_lipschitz * (1 + 1e-6)
            before = now
    assert raised > 0


@each_method
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_accepted_epoch_has_lowered_the_objective(method, name):
    problem = PROBLEMS[name]
    run = momentous.iterate(problem.value, problem.start, jac=problem.gradient, method=method)
    start = None
    for _, step in zip(range(300), run, strict=False):
        accepted = step.memory.start
        if start is not None and accepted.point is not start.point:
            assert accepted.value <= start.value + 1e-14 * abs(start.value)
        start = accepted


@each_method
def test_one_gradient_per_iteration_and_few_values(method):
    problem = testbed.rosenbrock(100)
    result = momentous.minimize(
        problem.value, problem.start, jac=problem.gradient, method=method, tol=1e-6
    )
    assert result.status is Status.CONVERGED
    assert result.njev <= 1.25 * result.nit
    assert result.nfev <= 0.1 * result.nit


@each_method
def test_a_well_conditioned_bowl_takes_a_few_hundred_evaluations(method):
    problem = PROBLEMS["sech"]
    result = momentous.minimize(
        problem.value, problem.start, jac=problem.gradient, method=method, tol=1e-6
    )
    assert result.status is Status.CONVERGED
    assert result.nfev + result.njev <= 1500


@pytest.mark.slow
@each_method
def test_the_work_grows_like_the_square_root_of_the_difficulty(method):
    """Gradients to mu/4 on the nested chain, mu down to 1e-5: exponent 1/2 is what theory gives."""
    mus, counts = (1e-3, 1e-5), []
    for mu in mus:
        problem = testbed.nested_chain(8, mu)
        result = momentous.minimize(
            problem.value_and_gradient,
            problem.start,
            jac=True,
            method=method,
            tol=mu / 4,
            max_iterations=60_000,
            trace=False,
        )
        assert result.status is Status.CONVERGED
        counts.append(result.njev)
    assert math.log(counts[1] / counts[0]) / math.log(mus[0] / mus[1]) <= 0.6


@each_method
@pytest.mark.parametrize("problem", [testbed.nested_chain(4, 1e-3), testbed.rosenbrock(10)])
def test_only_epochs_that_are_kept_lower_q_at_the_longest_step(method, problem):
    """Q = rho' (longest eta since an epoch has paid)^2 falls at restarts alone; with the same eta
    in it before and after, by a third at most."""
    run = momentous.iterate(problem.value_and_gradient, problem.start, jac=True, method=method)
    longest, before = run.memory.learned.longest_since_paid, math.nan
    for _, step in zip(range(800), run, strict=False):
        now = step.memory.learned
        rho = now.sharpness / now.step_size**2
        restarts = any(event.kind is EventKind.RESTART for event in step.report.events)
        assert restarts or now.longest_since_paid >= longest
        sharpest = rho * max(longest, now.longest_since_paid) ** 2
        assert not sharpest < before / (rule.Constants().eased if restarts else 1) * (1 - 1e-9)
        longest, before = now.longest_since_paid, rho * now.longest_since_paid**2


@each_method
def test_a_discard_halves_the_step_only_if_it_was_shown_to_be_too_long(method):
    """A gradient that points uphill and does not change: a single step shows it, longer epochs
    may have had too small a rho'."""
    run = momentous.iterate(lambda x: float(x[0]), [0.0], jac=lambda x: -np.ones(1), method=method)
    before, lengths = run.memory.learned.step_size, set()
    for _, step in zip(range(60), run, strict=False):
        after = step.memory.learned.step_size
        for event in step.report.events:
            if event.kind is EventKind.ROLLBACK:
                lengths.add(event.value)
                assert after == before / 2 if event.value == 1 else after >= before
        before = after
    assert 1 in lengths
    assert max(lengths) > 1


@each_method
def test_torch_takes_the_same_way(method):
    torch = pytest.importorskip("torch")
    problem = PROBLEMS["waves"]
    options = {"method": method, "tol": 1e-5, "max_iterations": 60}
    plain = momentous.minimize(problem.value, problem.start, jac=problem.gradient, **options)
    result = momentous.minimize(
        lambda x: problem.value(x.numpy()),
        torch.tensor(problem.start),
        jac=lambda x: torch.tensor(problem.gradient(x.numpy())),
        **options,
    )
    assert (result.nit, result.nfev, result.njev) == (plain.nit, plain.nfev, plain.njev)
    np.testing.assert_allclose(result.x.numpy(), plain.x, rtol=1e-9, atol=1e-12)


@each_method
def test_what_was_learned_goes_along_to_another_point(method):
    problem = PROBLEMS["rosenbrock"]
    run = momentous.iterate(problem.value, problem.start, jac=problem.gradient, method=method)
    steps = [step for _, step in zip(range(50), run, strict=False)]
    step, oracle = steps[-1], run.oracle
    there = oracle.gradient(problem.start + 0.1)
    oracle.learn(there)
    moved = method.move(method.machine(oracle), step.memory, there, Goal(None))
    for name in ("step_size", "most", "sharpness", "norm_at_last_halving", "iterations_unpaid"):
        assert getattr(moved.learned, name) == getattr(step.memory.learned, name)
    assert moved.start.value == problem.value(there.point)
    assert moved.epoch.k == 0


@each_method
def test_a_wall_of_infinities_is_met_and_left(method):
    def value(x):
        return math.inf if x[0] > 1.0 else float(-x[0] + x @ x)

    def gradient(x):
        return np.full(2, np.nan) if x[0] > 1.0 else 2 * x - [1.0, 0.0]

    result = momentous.minimize(value, np.array([0.99, 5.0]), jac=gradient, method=method, tol=1e-8)
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.x, [0.5, 0.0], atol=1e-8)


def test_nothing_given_is_the_free_rule_and_anything_given_the_papers():
    assert AdaRAGD().is_free
    assert not AdaRAGD.paper().is_free
    assert not AdaRHB(growth=1.1).is_free
    assert AdaRHB.paper(step_size=0.1) == AdaRHB(step_size=0.1, by_paper=True)
    kinds = {}
    for chosen in (AdaRAGD(), AdaRAGD.paper()):
        problem = PROBLEMS["waves"]
        run = momentous.iterate(problem.value, problem.start, jac=problem.gradient, method=chosen)
        kinds[chosen.is_free] = type(run.memory)
    assert kinds[True] is rule.FreeMemory
    assert kinds[False] is not rule.FreeMemory


@each_method
def test_where_the_gradient_points_uphill_nothing_is_accepted(method):
    """f rises along every step."""
    result = momentous.minimize(
        lambda x: float(x[0]), [0.0], jac=lambda x: -np.ones(1), method=method, max_iterations=60
    )
    assert result.trace.when(EventKind.ROLLBACK)
    assert not result.trace.when(EventKind.RESTART)
    assert not result.success
