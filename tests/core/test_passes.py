"""Passes: the same numbers in every library, in one go, also over ranks."""

from __future__ import annotations

import re
from typing import Any

import array_api_compat
import numpy as np
import pytest

from helpers import Library
from momentous import LBFGS, AdaRAGD, AdaRHB, Method, minimize
from momentous.core import cuda_passes, loop, passes
from momentous.core.admission import Admission
from momentous.core.blocks import BLOCK
from momentous.core.machine import Host
from momentous.core.oracle import Sample
from momentous.core.space import Space
from momentous.methods.classical import pairs
from momentous.methods.classical.constants import Constants
from momentous.methods.classical.curvature import FusedLine
from momentous.methods.classical.pairs import ListedRows, Pairs

# A pass, and how many vectors and numbers it takes.
PASSES = [
    (passes.INNER, 2, 0), (passes.DISTANCE, 2, 0), (passes.ADD, 2, 1),
    (passes.ADD_DIFFERENCE, 3, 1), (passes.STEPPED, 3, 1), (passes.GRADIENT, 1, 0),
    (passes.GRADIENT_ALONG, 2, 0), (passes.MOMENTUM, 3, 2),
    (passes.FREE_NESTEROV, 4, 3), (passes.FREE_HEAVY_BALL, 4, 3),
    (passes.inners(4), 5, 0), (passes.weighted_sum(4), 4, 4), (passes.direction(5), 6, 5),
    (passes.new_pair(4), 7, 0),
]  # fmt: skip
GIVEN = {"step_size": 0.05, "hessian_lipschitz": 1.0, "eps": 1e-6}
SCALES = np.geomspace(1.0, 10.0, 300)


@pytest.mark.parametrize("size", [7, BLOCK + 3])
def test_a_pass_is_its_formula_in_every_library(library: Library, size: int) -> None:
    random = np.random.default_rng(0)
    for work, count, numbers in PASSES if size == 7 else [PASSES[1], PASSES[7]]:
        vectors = [random.standard_normal(size).astype(np.float32) for _ in range(count)]
        weights = [0.5 + 0.25 * i for i in range(numbers)]
        given = [library.array(vector, "float32") for vector in vectors]
        made, sums, value = Space(given[0]).compute(work, given, weights, 3.5)
        expected, products = work.formula(*vectors, *weights)
        assert work.made == len(made) == len(expected)
        assert value == 3.5
        for mine, other in zip(made, expected, strict=True):
            assert isinstance(mine, library.array_type)
            np.testing.assert_allclose(library.numpy(mine), other, rtol=1e-5, atol=1e-5)
        exact = [float(a.astype(float) @ b.astype(float)) for a, b in products]
        np.testing.assert_allclose(sums, exact, rtol=1e-5, atol=1e-4)


def test_a_direction_is_the_step_to_the_next_point(library: Library) -> None:
    random = np.random.default_rng(1)
    x, *rows = (library.array(random.standard_normal(50) * 10.0**i, "float32") for i in range(5))
    d, end, along = Space(x).direction(x, [0.1, 2.0, -0.3, 0.5], rows)
    slope, square = along()
    step = np.float32(library.numpy(end)) - np.float32(library.numpy(x))
    assert np.array_equal(step, library.numpy(d))
    exact = library.numpy(d).astype(float)
    assert square == pytest.approx(exact @ exact, rel=1e-6)
    assert slope == pytest.approx(library.numpy(rows[0]).astype(float) @ exact, rel=1e-6)


def test_more_vectors_than_a_pass_takes_are_cut_into_groups(library: Library) -> None:
    random, count = np.random.default_rng(2), 2 * passes.MOST + 5
    vectors = [random.standard_normal(11).astype(np.float32) for _ in range(count)]
    weights = random.standard_normal(count)
    given = [library.array(vector, "float32") for vector in vectors]
    space, total = Space(given[0]), weights @ np.array(vectors)
    added = library.numpy(space.weighted_sum(weights.tolist(), given))
    np.testing.assert_allclose(added, total, atol=1e-4)
    along = library.numpy(space.direction(given[1], weights.tolist(), given)[0])
    np.testing.assert_allclose(along, total, atol=1e-4)
    products = np.array(vectors) @ vectors[3]
    np.testing.assert_allclose(space.inners(given, given[3]), products, atol=1e-4)


@pytest.mark.parametrize(
    ("work", "count", "numbers"), PASSES, ids=lambda item: getattr(item, "name", "")
)
def test_the_lines_of_cuda_are_the_formula(work: passes.Pass, count: int, numbers: int) -> None:
    text, sums = cuda_passes.source(work, count, numbers, "float64")
    body = text[text.index("const long long k") :]
    random = np.random.default_rng(3)
    vectors, weights = random.standard_normal((count, 1)), random.standard_normal(numbers)
    names: dict[str, Any] = {f"a{i}_": vector for i, vector in enumerate(vectors)}
    names |= {f"w{i}": weight for i, weight in enumerate(weights)} | {"k": 0, "double": float}
    names |= {f"z{i}_": np.zeros(1) for i in range(work.made)} | {"sums": np.zeros(sums)}
    for line in re.findall(r"(?:const T )?((?:\w+|sums\[\d+\]|z\d_\[k\]) \+?= [^;]*);", body):
        if re.match(r"[atz]\d|sums", line):
            exec(line, names)
    made, products = work.formula(*vectors, *weights)
    assert [names[f"z{i}_"][0] for i in range(work.made)] == [float(a[0]) for a in made]
    assert names["sums"].tolist() == [float(a[0]) * float(b[0]) for a, b in products]


def both(x: Any) -> Any:
    xp = array_api_compat.array_namespace(x)
    a = xp.asarray(SCALES, dtype=x.dtype)
    return xp.sum(a * x * x) / 2, a * x


@pytest.mark.parametrize(
    "method", [AdaRAGD(**GIVEN), AdaRHB(**GIVEN), AdaRAGD(), AdaRHB(), LBFGS(memory=3)], ids=repr
)
def test_sums_are_added_up_over_ranks_in_one_go(
    method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one rank of two, the other holding the same numbers, the run is that of the whole."""
    monkeypatch.setattr(pairs, "LBFGS_CONSTANTS", Constants(stacked_entries=0))
    calls: list[int] = []

    def total(sums: np.ndarray) -> np.ndarray:
        calls.append(len(sums))
        return 2 * sums

    monkeypatch.setattr(loop, "Space", lambda x: Space(x, total))
    shard = minimize(lambda x: (2 * both(x)[0], both(x)[1]), np.ones(300), jac=True, method=method,
                     tol=1e-4, max_iterations=30)  # fmt: skip
    monkeypatch.setattr(loop, "Space", Space)

    def doubled(x: np.ndarray) -> Any:
        halves = both(x[:300]), both(x[300:])
        return halves[0][0] + halves[1][0], np.concatenate([halves[0][1], halves[1][1]])

    whole = minimize(doubled, np.ones(600), jac=True, method=method, tol=1e-4, max_iterations=30)
    assert (shard.nit, shard.restarts) == (whole.nit, whole.restarts)
    np.testing.assert_allclose(np.tile(shard.x, 2), whole.x, atol=1e-9)
    if method.name == "lbfgs":
        assert len(calls) <= 2 * shard.nit + 12
    elif method.is_free:  # with the gradient, with the step, and where an epoch ends
        assert len(calls) <= 2 * shard.nit + 4 * shard.restarts + 8
    else:
        assert len(calls) <= shard.nit + 2 * shard.restarts + 8


def test_pairs_of_passes_are_those_of_single_operations() -> None:
    random = np.random.default_rng(4)
    space, alone = Space(np.ones(40), total=lambda sums: sums), Space(np.ones(40))
    hessian = np.diag(np.linspace(1, 5, 40))
    here = Sample(random.standard_normal(40))
    here.gradient = hessian @ here.point
    m, apart = Host.of(space), Host.of(alone)
    fused, listed = Pairs.unknown(m, 3), Pairs.unknown(apart, 3)
    listed.rows = ListedRows((None,) * 6)
    fused, listed = fused.at(m, here), listed.at(apart, here)

    def extend(pairs: Pairs, m: Host, here: Sample, there: Sample) -> Any:
        return pairs.after(m, True, False, here, there, lambda: 0.0)

    for _ in range(6):
        there = Sample(here.point + 0.1 * random.standard_normal(40))
        there.gradient = hessian @ there.point
        fused, listed = extend(fused, m, here, there), extend(listed, apart, here, there)
        line, d = fused.line(m, there), fused.line(m, there).direction
        other = listed.descent(apart, there.gradient)
        np.testing.assert_allclose(d, other, atol=1e-9)
        assert line.slope == pytest.approx(there.gradient @ other)
        assert isinstance(line, FusedLine)
        end = line.end
        assert np.array_equal(end, there.point + d)
        # A step that ends there takes its direction as it is.
        here = Sample(end, gradient=hessian @ end)
        fused, listed = extend(fused, m, there, here), extend(listed, apart, there, here)
    assert any(vector is d for vector in fused.rows.vectors())
    again = fused.packed().unpacked(space)
    d = fused.line(m, here).direction
    assert np.array_equal(again.line(m, here).direction, d)
    assert np.allclose(fused.packed().unpacked(alone).descent(apart, here.gradient), d)


# --- gradients are taken as they are where nobody else has them ----------------------------------


def test_fresh_tensors_are_taken_and_others_copied() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(5)
    buffer, kept = torch.ones(5), []

    def keeps(array: Any) -> Any:
        kept.append(array)
        return array

    def viewed() -> Any:
        fresh = x * 2
        kept.append(fresh.view(5))
        return fresh

    answers = {
        "fresh": (lambda: x * 2, True),
        "a buffer": (lambda: buffer, False),
        "a view of a buffer": (lambda: buffer[:], False),
        "detached from a buffer": (lambda: buffer.detach(), False),
        "x itself": (lambda: x, False),
        "kept by the user": (lambda: keeps(x * 2), False),
        "viewed by the user": (viewed, False),
        "a part of something longer": (lambda: torch.ones(10)[:5], False),
        "memory of NumPy": (lambda: torch.from_numpy(np.ones(5, np.float32)), False),
    }
    admission = Admission(Space(x))
    for name, (answer, taken) in answers.items():
        parts = [answer()]
        memory = parts[0].data_ptr()
        admitted = admission.admit(parts.pop(), "jac")  # nothing else may refer to it
        assert (admitted.data_ptr() == memory) is taken, name


def test_jitted_objectives_that_answer_wrongly_are_refused_as_others_are() -> None:
    jax = pytest.importorskip("jax")
    x0 = jax.numpy.ones(3)
    for fun, error in (
        (lambda x: (x, x), ValueError),
        (lambda x: (x.sum(), x[:2]), ValueError),
        (lambda x: x.sum(), TypeError),
    ):
        with pytest.raises(error, match="return"):
            minimize(jax.jit(fun), x0, jac=True, max_iterations=3)
