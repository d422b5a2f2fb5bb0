"""The memory of L-BFGS: all kinds of storage are one recursion, and none disturbs an older one."""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from momentous import LBFGS, iterate, minimize, testbed
from momentous.core.box import HostBox
from momentous.core.machine import Host
from momentous.core.oracle import Sample
from momentous.core.space import Space
from momentous.methods.classical.curvature import correction, is_of_use
from momentous.methods.classical.matrix import Matrix
from momentous.methods.classical.pairs import ListedRows, Pairs, StackedRows, StoredPairs


def two_loops(g, pairs):
    """-H g by the recursion of Nocedal (1980)."""
    q, alphas = g.copy(), []
    for s, y in reversed(pairs):
        alphas.append((s @ q) / (s @ y))
        q -= alphas[-1] * y
    s, y = pairs[-1]
    q *= (s @ y) / (y @ y)
    for (s, y), alpha in zip(pairs, reversed(alphas), strict=True):
        q += (alpha - (y @ q) / (s @ y)) * s
    return -q


def walk(d, count, seed=0):
    """Samples along a walk over a convex quadratic, values left out so that nothing is corrected:
    the differences are the pairs."""
    rng = np.random.default_rng(seed)
    weights = np.logspace(-2, 1, d)
    points = np.cumsum(rng.standard_normal((count, d)), axis=0)
    samples = [Sample(x, 0.0, weights * x, float(np.linalg.norm(weights * x))) for x in points]
    pairs = [(b.point - a.point, b.gradient - a.gradient) for a, b in itertools.pairwise(samples)]
    return samples, pairs


def empty_pairs(kind, d, most):
    pairs = Pairs.unknown(Host.of(Space(np.empty(d))), most)
    assert type(pairs.rows) is StackedRows
    if kind == "listed":
        pairs.rows = ListedRows((None,) * (2 * most))
    return pairs


KINDS = {kind: functools.partial(empty_pairs, kind) for kind in ("stacked", "listed")}
NOISY = np.inf  # no value says anything


def extend(curvature, m, here, there, noise=NOISY):
    return curvature.after(m, True, False, here, there, lambda: noise)


def extended(curvature, space, samples, noise=NOISY):
    for here, there in itertools.pairwise(samples):
        curvature = extend(curvature, Host.of(space), here, there, noise)
    return curvature


def empty_matrix(d):
    return Matrix.unknown(Host.of(Space(np.empty(d))))


@pytest.mark.parametrize("d", [7, 300, 2_000, 20_000])  # each way to multiply by the rows
@pytest.mark.parametrize("kind", KINDS)
def test_the_compact_form_is_the_two_loop_recursion(kind, d):
    samples, pairs = walk(d, 14)
    space = Space(samples[0].point)
    for count in (1, 3, 6, 13):  # the memory of 6 is not full, is full, has been moved
        curvature = extended(KINDS[kind](d, 6), space, samples[: count + 1])
        assert len(curvature) == min(count, 6)
        g = samples[count].gradient
        wanted = two_loops(g, pairs[:count][-6:])
        found = curvature.descent(Host.of(space), g)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-10 * np.abs(wanted).max())


def test_the_whole_matrix_is_the_recursion_with_all_pairs():
    samples, pairs = walk(9, 30)
    space = Space(samples[0].point)
    curvature = extended(empty_matrix(9), space, samples)
    wanted = two_loops(samples[-1].gradient, pairs)
    np.testing.assert_allclose(
        curvature.descent(Host.of(space), samples[-1].gradient), wanted, rtol=1e-7, atol=1e-9
    )


@pytest.mark.parametrize("kind", [*KINDS, "whole"])
@pytest.mark.parametrize("held", [2, 5, 9])
def test_the_model_is_least_on_a_face(kind, held):
    """In every store, with fewer and with more variables held than K has rows."""
    d, noise = 12, 1e-12
    samples, _ = walk(d, 9)
    samples = [Sample(a.point, float(a.point @ a.gradient) ** 1.1, a.gradient) for a in samples]
    space = Space(samples[0].point)
    space.box = HostBox(np.full(d, -np.inf), np.full(d, np.inf))
    m = Host.of(space)
    curvature = empty_matrix(d) if kind == "whole" else KINDS[kind](d, 2)
    curvature = extended(curvature, space, samples, noise)
    H = -np.array([curvature.at(m, Sample(e, 0.0, e)).descent(m, e) for e in np.eye(d)])
    np.testing.assert_allclose(curvature.inverse(None)(np.eye(d)), H, rtol=1e-9, atol=1e-10)
    mask = np.arange(d) < held
    r, g = np.where(mask, np.linspace(1, 2, d), 0.0), samples[-1].gradient
    p = curvature.held_step(m, mask.astype(float), r, g)
    z = np.where(mask, (r - p) / curvature.gamma, 0.0)
    p = np.where(mask, r, p)
    B = np.linalg.inv(H)
    np.testing.assert_allclose(B @ p + g, z, rtol=1e-7, atol=1e-7 * np.abs(g).max())
    # The operator of a result has the inverse of what B says of the free variables.
    found = curvature.inverse(mask)(np.diag(1.0 - mask))[~mask][:, ~mask]
    np.testing.assert_allclose(found, np.linalg.inv(B[~mask][:, ~mask]), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", [*KINDS, "whole"])
def test_a_stored_memory_has_the_same_bits(kind):
    d = 11
    samples, _ = walk(d, 13)
    spread = (lambda sums: sums) if kind.startswith("listed") else None
    space = Space(samples[0].point, spread)  # pairs of a vector that is spread are listed
    curvature = empty_matrix(d) if kind == "whole" else KINDS[kind](d, 4)
    for k in (0, 2, 12):
        there = samples[k]
        old = extended(curvature, space, samples[: k + 1]) if k else curvature
        new = old.packed().unpacked(space)
        assert type(new) is type(old)
        assert type(getattr(new, "rows", None)) is type(getattr(old, "rows", None))
        assert len(new) == len(old)
        for _ in range(2):
            directions = [c.descent(Host.of(space), there.gradient).tobytes() for c in (old, new)]
            assert directions[0] == directions[1]
            old, new = (extend(c, Host.of(space), there, samples[-1]) for c in (old, new))
            there = samples[-1]


@pytest.mark.parametrize("count", [3, 7])  # not full, and full
def test_pairs_of_a_checkpoint_of_the_last_release_are_read(count):
    """There they stand in the order of age, s_1, y_1, s_2, ..., with the triangles of products."""
    samples, pairs = walk(9, count + 1)
    space, pairs = Space(samples[0].point), pairs[-5:]
    S, Y = (np.array(rows) for rows in zip(*pairs, strict=True))
    g = samples[-1].gradient
    triangles = [tuple(np.triu(a @ Y.T).ravel().tolist()) for a in (S, Y)]
    vectors = tuple(v for pair in pairs for v in pair)
    s, y = pairs[-1]
    stored = StoredPairs(
        5, vectors, float(s @ y / (y @ y)), *triangles, tuple(np.vecdot(S, Y).tolist()),
        tuple(float(v @ g) for v in vectors),
    )  # fmt: skip
    found = stored.unpacked(space).descent(Host.of(space), g)
    np.testing.assert_allclose(found, two_loops(g, pairs), rtol=1e-9)


def test_a_pair_without_curvature_is_not_taken():
    assert is_of_use(1.0, 1.0, 1.0)
    for products in ((1.0, 0.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1e-11, 1.0), (0.0, 0.0, 0.0)):
        assert not is_of_use(*products)
    samples, _ = walk(6, 5)
    space = Space(samples[0].point)
    flat = Sample(samples[4].point + 1.0, 0.0, samples[4].gradient, samples[4].grad_norm)
    for kind in KINDS.values():
        before = extended(kind(6, 3), space, samples)
        after = extend(before, Host.of(space), samples[4], flat)
        g = samples[4].gradient
        assert np.array_equal(after.descent(Host.of(space), g), before.descent(Host.of(space), g))


@pytest.mark.parametrize("h", [0.5, -0.3])
def test_the_correction_finds_the_curvature_at_the_end_of_the_step(h):
    # Along f = x^2 + x^3 / 5 from 1 to 1 + h the corrected <s, y> is h f''(1 + h) h.
    def f(x):
        return x**2 + x**3 / 5

    def slope(x):
        return 2 * x + 3 * x**2 / 5

    sy = h * (slope(1 + h) - slope(1))
    factor = correction(f(1) - f(1 + h), h * slope(1), sy, 1e-16)
    assert factor * sy == pytest.approx(h * h * (2 + 6 * (1 + h) / 5), rel=1e-12)


def test_the_correction_keeps_to_its_bounds_and_to_what_values_can_tell():
    assert correction(1.0, 0.0, 1.0, 0.0) == 2.0
    assert correction(-1.0, 0.0, 1.0, 0.0) == 0.5
    assert correction(0.01, 0.0, 1e-9, 1.0) == 1.0
    assert correction(np.nan, 0.0, 1.0, 1.0) == 1.0


@pytest.mark.parametrize("d", [30, 200])
def test_other_libraries_go_the_same_way(d):
    torch = pytest.importorskip("torch")
    problem = testbed.rosenbrock(d)
    ways = []
    for start in (problem.start, torch.tensor(problem.start)):
        run = iterate(problem.value, start, jac=problem.gradient, method=LBFGS(), tol=0)
        ways.append([np.asarray(step.x) for step, _ in zip(run, range(15), strict=False)])
    np.testing.assert_allclose(*ways, rtol=1e-7, atol=1e-9)


def test_a_run_does_not_depend_on_the_shape_of_x():
    problem = testbed.rosenbrock(300)

    def both(x):
        value, gradient = problem.value_and_gradient(x.reshape(-1))
        return value, gradient.reshape(x.shape)

    options = {"jac": True, "method": LBFGS(memory=5), "max_iterations": 20}
    flat = minimize(both, problem.start, **options)
    table = minimize(both, problem.start.reshape(20, 15), **options)
    np.testing.assert_allclose(table.x.reshape(-1), flat.x, rtol=1e-10)


def test_directions_do_not_depend_on_the_number_of_threads():
    code = (
        "import numpy as np; from momentous import LBFGS, minimize, testbed\n"
        "for d in (100, 400, 9_000, 30_000):\n"
        "    p = testbed.rosenbrock(d)\n"
        "    r = minimize(p.value_and_gradient, p.start, jac=True, method='lbfgs',\n"
        "                 max_iterations=12)\n"
        "    print(r.grad_norm)"
    )
    outputs = set()
    for threads in ("1", "2"):
        chosen = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), threads)
        command = [sys.executable, "-c", code]
        ran = subprocess.run(
            command, env=os.environ | chosen, capture_output=True, text=True, check=True
        )
        outputs.add(ran.stdout)
    assert len(outputs) == 1
