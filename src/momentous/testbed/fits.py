"""Fits of models with some hundred parameters: a kernel classifier, cameras and points."""

import numpy as np
from array_api_compat import array_namespace

from momentous.testbed.problem import Array, Constants, Problem, Rng

# The entries (row, column) of the matrix that a quaternion w, x, y, z stands for, as sums of
# products of two of its parts: R(q)_rc = sum of sign q_a q_b.
_ROTATION = (
    (0, 0, ((1, 0, 0), (1, 1, 1), (-1, 2, 2), (-1, 3, 3))),
    (0, 1, ((2, 1, 2), (-2, 0, 3))),
    (0, 2, ((2, 1, 3), (2, 0, 2))),
    (1, 0, ((2, 1, 2), (2, 0, 3))),
    (1, 1, ((1, 0, 0), (-1, 1, 1), (1, 2, 2), (-1, 3, 3))),
    (1, 2, ((2, 2, 3), (-2, 0, 1))),
    (2, 0, ((2, 1, 3), (-2, 0, 2))),
    (2, 1, ((2, 2, 3), (2, 0, 1))),
    (2, 2, ((1, 0, 0), (-1, 1, 1), (-1, 2, 2), (1, 3, 3))),
)


def kernel_logistic(samples: int = 300, ridge: float = 1e-3, rng: Rng = 0) -> Problem:
    """Logistic regression with a Gaussian kernel K, on two half-moons of points.

    ``f(a) = (1/m) sum log(1 + exp(-y_i (K a)_i)) + (ridge/2) a'K a``. Convex, and as badly
    conditioned as K. The lower bound 0 is not attained.
    """
    rng = np.random.default_rng(rng)
    angles, labels = np.pi * rng.random(samples), np.where(np.arange(samples) % 2, 1.0, -1.0)
    points = np.column_stack([labels * np.cos(angles), labels * np.sin(angles)])
    points += np.column_stack([0.5 * labels, -0.25 * labels]) + 0.2 * rng.standard_normal(
        (samples, 2)
    )
    distances = np.sum((points[:, None, :] - points[None, :, :]) ** 2, axis=2)
    data = Constants(np.exp(-2.0 * distances), labels)

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        xp = array_namespace(x)
        K, y = data.like(x)
        Kx = K @ x
        margin = y * Kx
        # log(1 + exp(-t)) without overflow
        loss = xp.log1p(xp.exp(-xp.abs(margin))) + 0.5 * (xp.abs(margin) - margin)
        slope = -y / (1.0 + xp.exp(xp.abs(margin)))
        slope = xp.where(margin > 0.0, slope, -y - slope) / samples
        return xp.sum(loss) / samples + 0.5 * ridge * xp.sum(x * Kx), K @ (slope + ridge * x)

    return Problem(
        name=f"kernel-logistic-{samples}",
        start=np.zeros(samples),
        value_and_gradient=value_and_gradient,
        minimum=0.0,
    )


def bundle_adjustment(
    cameras: int = 8, points: int = 40, noise: float = 1e-3, ridge: float = 1e-6, rng: Rng = 0
) -> Problem:
    """Positions of cameras and points from the pictures that all cameras took of all points.

    A camera is a quaternion q and a shift t, 7 numbers; it sees the point p at the first two
    entries of R(q) p + t over the third one.
    ``f = (1/2m) sum |seen - picture|^2 + (ridge/2)|x - start|^2`` over m pairs. Moving and scaling
    all together changes the ridge alone. Nonconvex; the start is off the truth by some percent.
    The lower bound 0 is not attained.
    """
    rng = np.random.default_rng(rng)
    world = rng.uniform(-1.0, 1.0, (points, 3))
    poses = np.zeros((cameras, 7))
    poses[:, 0], poses[:, 1:4] = 1.0, 0.2 * rng.standard_normal((cameras, 3))
    poses[:, 4:6], poses[:, 6] = 0.3 * rng.standard_normal((cameras, 2)), 4.0
    count, split = cameras * points, 7 * cameras

    def moved(poses: Array, world: Array) -> tuple[Array, Array]:
        """R(q), and R(q) p + t for all pairs."""
        xp = array_namespace(poses)
        q = [poses[:, k] for k in range(4)]
        entries = [sum(sign * q[a] * q[b] for sign, a, b in terms) for _, _, terms in _ROTATION]
        R = xp.reshape(xp.stack(entries, axis=-1), (-1, 3, 3))
        return R, world[None, :, :] @ xp.matrix_transpose(R) + poses[:, None, 4:]

    _, at = moved(poses, world)
    pictures = at[..., :2] / at[..., 2:] + noise * rng.standard_normal((cameras, points, 2))
    truth = np.concatenate([poses.ravel(), world.ravel()])
    start = truth + 0.05 * rng.standard_normal(truth.size)
    data = Constants(pictures, start)

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        xp = array_namespace(x)
        pictures, start = data.like(x)
        poses, world = xp.reshape(x[:split], (cameras, 7)), xp.reshape(x[split:], (points, 3))
        R, at = moved(poses, world)
        depth = at[:, :, 2:]
        seen = at[:, :, :2] / depth
        miss = seen - pictures
        f = 0.5 * xp.sum(miss**2) / count + 0.5 * ridge * xp.sum((x - start) ** 2)
        flat = miss / depth
        by_at = xp.concat([flat, -xp.sum(flat * seen, axis=2, keepdims=True)], axis=2) / count
        by_world = xp.sum(by_at @ R, axis=0)
        by_R = xp.matrix_transpose(by_at) @ world[None, :, :]
        by_q = [xp.zeros_like(poses[:, 0]) for _ in range(4)]
        for row, column, terms in _ROTATION:
            for sign, a, b in terms:
                by_q[a] = by_q[a] + sign * by_R[:, row, column] * poses[:, b]
                by_q[b] = by_q[b] + sign * by_R[:, row, column] * poses[:, a]
        by_poses = xp.concat([xp.stack(by_q, axis=-1), xp.sum(by_at, axis=1)], axis=1)
        g = xp.concat([xp.reshape(by_poses, (-1,)), xp.reshape(by_world, (-1,))])
        return f, g + ridge * (x - start)

    return Problem(
        name=f"bundle-adjustment-{cameras}x{points}",
        start=start,
        value_and_gradient=value_and_gradient,
        minimum=0.0,
    )
