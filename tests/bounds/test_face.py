"""The variables that L-BFGS holds at bounds: the model is least in the box, and runs can be cut."""

import numpy as np
import pytest

from momentous import iterate, minimize
from momentous.core.box import HostBox
from momentous.core.machine import Host
from momentous.core.oracle import Sample
from momentous.core.space import Space
from momentous.methods.classical.box_model import model_step
from momentous.methods.classical.pairs import ListedRows, Pairs


def chain(size):
    """Ill-conditioned, nonconvex, with bounds that hold about a fifth of the variables."""
    a = np.geomspace(0.01, 10.0, size)

    def f(x):
        step, g = np.diff(x), a * x - 3 * np.sin(3 * x)
        g[1:] += 2 * step
        g[:-1] -= 2 * step
        return float(a @ (x * x) / 2 + np.cos(3 * x).sum() + step @ step), g

    return f, np.clip(np.random.default_rng(0).standard_normal(size), -0.8, 1.1)


@pytest.mark.parametrize("listed", [False, True])
def test_the_step_is_where_the_model_is_least_in_the_box(listed):
    """By the multipliers of the model, step after step, with few and with many held."""
    d, rng = 60, np.random.default_rng(1)
    space = Space(np.zeros(d))
    space.box = HostBox(np.full(d, -1.0), np.full(d, 1.0))
    m, root = Host.of(space), rng.standard_normal((d, d))
    hessian, b = root @ root.T + np.eye(d), 20 * rng.standard_normal(d)
    x = np.zeros(d)
    here = Sample(x, float(x @ (hessian @ x) / 2 - b @ x), hessian @ x - b, 1.0)
    pairs, most = Pairs.unknown(m, 5), 0
    if listed:
        pairs.rows = ListedRows((None,) * 10)
    for _ in range(25):
        lo, up = -1.0 - here.point, 1.0 - here.point
        p = model_step(m, here, pairs)
        assert (p >= lo - 1e-12).all()
        assert (p <= up + 1e-12).all()
        if pairs.count:
            multipliers = np.linalg.inv(pairs.inverse(None)(np.eye(d))) @ p + here.gradient
            small = 1e-7 * np.abs(here.gradient).max()
            assert (multipliers[p > lo + 1e-12] <= small).all()
            assert (multipliers[p < up - 1e-12] >= -small).all()
            most = max(most, int(((p <= lo) | (p >= up)).sum()))
        x = np.clip(here.point + rng.uniform(0.2, 1.0) * p, -1.0, 1.0)
        there = Sample(x, float(x @ (hessian @ x) / 2 - b @ x), hessian @ x - b, 1.0)
        pairs, here = pairs.after(m, True, False, here, there, lambda: np.inf), there
    assert most > d // 5


def test_a_run_with_held_variables_is_cut_between_any_two_steps(tmp_path):
    f, x0 = chain(300)
    options = {"jac": True, "method": "lbfgs", "bounds": (-0.8, 1.1), "tol": 1e-9}
    whole = [step.x.tobytes() for step in iterate(f, x0, max_iterations=40, **options)]
    for cut in (1, 3, 10, 25):
        path = tmp_path / f"{cut}"
        for _ in iterate(f, x0, checkpoint=path, max_iterations=cut, **options):
            pass
        rest = iterate(f, x0, resume=path, max_iterations=40, **options)
        assert [step.x.tobytes() for step in rest] == whole[cut:]


def test_a_run_with_many_held_variables_ends_at_a_minimum():
    f, x0 = chain(2_000)
    run = minimize(f, x0, jac=True, method="lbfgs", bounds=(-0.8, 1.1), tol=1e-7)
    assert run.success
    assert np.count_nonzero(run.active) > 300
