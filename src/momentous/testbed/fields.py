"""Functions of values on a grid, as they come from differential equations: smooth, sparse, stiff.

Sums over the grid are written with slices, so that a call costs a few passes over the variables.
"""

import math

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of

from momentous.testbed.problem import Array, Constants, Problem, Rng


def van_der_pol(steps: int = 100, penalty: float = 10.0) -> Problem:
    """Optimal control of Van der Pol's oscillator from (1, 0), over 5 seconds, by collocation.

    Variables are the states a, b and the control u after each of ``steps`` steps of length h.
    ``f = (h/2) sum (a^2 + b^2 + u^2) + (penalty/2h) sum |defect|^2``, where a defect is what the
    states miss of an implicit Euler step of ``a' = b, b' = (1 - a^2) b - a + u``.
    The lower bound 0 is not attained.
    """
    _check(steps >= 2 and penalty > 0.0, f"steps >= 2 and penalty > 0, not {steps} and {penalty}")
    h = 5.0 / steps

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        xp = array_namespace(x)
        a, b, u = x[:steps], x[steps : 2 * steps], x[2 * steps :]
        one, zero = xp.ones_like(a[:1]), xp.zeros_like(a[:1])
        bend = 1.0 - a**2
        miss_a = a - xp.concat([one, a[:-1]]) - h * b
        miss_b = b - xp.concat([zero, b[:-1]]) - h * (bend * b - a + u)
        f = 0.5 * h * xp.sum(x**2) + 0.5 * penalty / h * (xp.sum(miss_a**2) + xp.sum(miss_b**2))
        p, q = penalty / h * miss_a, penalty / h * miss_b
        for_a = p - xp.concat([p[1:], zero]) + h * q * (2.0 * a * b + 1.0)
        for_b = q - xp.concat([q[1:], zero]) - h * p - h * q * bend
        return f, h * x + xp.concat([for_a, for_b, -h * q])

    return Problem(
        name=f"van-der-pol-{steps}",
        start=np.zeros(3 * steps),
        value_and_gradient=value_and_gradient,
        minimum=0.0,
    )


def minimal_surface(points: int = 24) -> Problem:
    """Area of a surface over the unit square, whose height is given on the boundary.

    The heights of ``points`` x ``points`` inner points are sought; every cell of the grid is cut
    into two triangles. On the boundary the height is ``sin(2 pi x) - sin(2 pi y)``.
    The lower bound 1, the area of the square, is not attained.
    """
    _check(points >= 1, f"points >= 1, not {points}")
    nodes, cell = points + 2, 1.0 / (points + 1)
    grid = np.sin(2.0 * np.pi * np.linspace(0.0, 1.0, nodes))
    frame = grid[:, None] - grid[None, :]
    frame[1:-1, 1:-1] = 0.0
    data = Constants(frame)

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        xp = array_namespace(x)
        (frame,) = data.like(x)
        z = frame + _put(xp.reshape(x, (points, points)), (1, 1), nodes)
        down, right = (z[1:, :] - z[:-1, :]) / cell, (z[:, 1:] - z[:, :-1]) / cell
        # Each triangle has one of the steps down and one of those to the right.
        lower = xp.sqrt(1.0 + down[:, :-1] ** 2 + right[1:, :] ** 2)
        upper = xp.sqrt(1.0 + down[:, 1:] ** 2 + right[:-1, :] ** 2)
        f = 0.5 * cell**2 * (xp.sum(lower) + xp.sum(upper))
        by_down = _put(down[:, :-1] / lower, (0, 0), (nodes - 1, nodes))
        by_down = by_down + _put(down[:, 1:] / upper, (0, 1), (nodes - 1, nodes))
        by_right = _put(right[1:, :] / lower, (1, 0), (nodes, nodes - 1))
        by_right = by_right + _put(right[:-1, :] / upper, (0, 0), (nodes, nodes - 1))
        g = _put(by_down, (1, 0), nodes) - _put(by_down, (0, 0), nodes)
        g = g + _put(by_right, (0, 1), nodes) - _put(by_right, (0, 0), nodes)
        return f, 0.5 * cell * xp.reshape(g[1:-1, 1:-1], (-1,))

    return Problem(
        name=f"minimal-surface-{points}",
        start=np.zeros(points**2),
        value_and_gradient=value_and_gradient,
        minimum=1.0,
        minimum_is_exact=False,
    )


def bratu(points: int = 30, strength: float = 5.0) -> Problem:
    """Energy of Bratu's problem on the unit square, u = 0 on its boundary.

    ``f(u) = 1/2 sum (differences of neighbours)^2 - strength h^2 sum exp(u)`` over
    ``points`` x ``points`` inner points, h apart: a solid fuel before it ignites.
    Below a strength of about 6.8 there is a minimum near 0; f is not bounded from below.
    """
    _check(
        points >= 1 and strength > 0.0, f"points >= 1 and strength > 0, not {points}, {strength}"
    )
    weight = strength / (points + 1) ** 2

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        xp = array_namespace(x)
        u = _put(xp.reshape(x, (points, points)), (1, 1), points + 2)
        down, right = u[1:, 1:-1] - u[:-1, 1:-1], u[1:-1, 1:] - u[1:-1, :-1]
        source = weight * xp.exp(x)
        f = 0.5 * (xp.sum(down**2) + xp.sum(right**2)) - xp.sum(source)
        g = down[:-1, :] - down[1:, :] + right[:, :-1] - right[:, 1:]
        return f, xp.reshape(g, (-1,)) - source

    return Problem(
        name=f"bratu-{points}",
        start=np.zeros(points**2),
        value_and_gradient=value_and_gradient,
    )


def ginzburg_landau(
    points: int = 16, vortices: int = 4, coherence: float = 3.0, rng: Rng = 0
) -> Problem:
    """Energy of a superconductor with a given magnetic field, on a periodic grid.

    ``f(psi) = 1/2 sum over links |psi_j - e^(ia) psi_i|^2 + (1/4 coherence^2) sum (1 - |psi|^2)^2``
    for a complex psi on ``points`` x ``points`` places; the phases a are those of a constant field
    through which ``vortices`` flux quanta pass. Variables are the real parts, then the imaginary
    ones. The lower bound 0 is not attained. Minima differ by a phase, and by where the vortices
    are, of which f knows little: the Hessian is nearly singular there.
    """
    _check(points >= 2, f"points >= 2, not {points}")
    places = np.arange(points)
    flux = 2.0 * math.pi * vortices / points**2
    # Links to the next row carry a phase in the last row alone, links to the next column in all.
    to_row = np.where(places[:, None] == points - 1, -flux * points * places[None, :], 0.0)
    to_column = np.broadcast_to(flux * places[:, None], (points, points))
    data = Constants(np.cos(to_row), np.sin(to_row), np.cos(to_column), np.sin(to_column))
    weight = 1.0 / coherence**2

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        xp = array_namespace(x)
        row_cos, row_sin, column_cos, column_sin = data.like(x)
        psi = xp.reshape(x, (2, points, points))
        excess = psi[0, :, :] ** 2 + psi[1, :, :] ** 2 - 1.0
        f, g = 0.25 * weight * xp.sum(excess**2), weight * excess * psi
        for axis, c, s in ((1, row_cos, row_sin), (2, column_cos, column_sin)):
            u, v = psi[0, :, :], psi[1, :, :]
            turned = xp.stack([c * u - s * v, s * u + c * v])
            miss = xp.roll(psi, -1, axis=axis) - turned
            f = f + 0.5 * xp.sum(miss**2)
            p, q = miss[0, :, :], miss[1, :, :]
            g = g + xp.roll(miss, 1, axis=axis) - xp.stack([c * p + s * q, c * q - s * p])
        return f, xp.reshape(g, (-1,))

    return Problem(
        name=f"ginzburg-landau-{points}",
        start=0.5 * np.random.default_rng(rng).standard_normal(2 * points**2),
        value_and_gradient=value_and_gradient,
        minimum=0.0,
    )


def _put(part: Array, corner: tuple[int, int], shape: int | tuple[int, int]) -> Array:
    """Zeros of this shape with the part in them, its first entry at the corner."""
    xp, device = array_namespace(part), device_of(part)
    for axis, size in enumerate((shape, shape) if isinstance(shape, int) else shape):
        before = corner[axis]
        after = size - before - part.shape[axis]

        def zeros(count: int, axis: int = axis, part: Array = part) -> Array:
            sizes = tuple(count if k == axis else n for k, n in enumerate(part.shape))
            return xp.zeros(sizes, dtype=part.dtype, device=device)

        part = xp.concat([zeros(before), part, zeros(after)], axis=axis)
    return part


def _check(holds: bool, needs: str) -> None:
    if not holds:
        raise ValueError(f"need {needs}")
