"""Sweeps solve what they say, never raise the objective, and end where its gradient is zero."""

from importlib.util import find_spec

import numpy as np
import pytest

from momentous import Status
from momentous.api import accelerate
from momentous.lowrank import ALSSweep, LowRankObjective, MMSweep, Ratings
from momentous.lowrank.backends.sums import DAMPING

RANK = 3


def new_rows(sweep, V, U=None):
    """U after half a step from (U, V), by default from U = 0, and F: for a quadratic loss that
    after the step, for others that before it."""
    return _half_step(sweep, 0, V, U)


def new_columns(sweep, U, V=None):
    """The same for V."""
    return _half_step(sweep, 1, U, V)


def _half_step(sweep, which, fixed, before):
    objective = sweep.objective
    fixed, before = (
        None if one is None else objective.backend.asarray(one, objective.dtype)
        for one in (fixed, before)
    )
    factor, losses = objective.half_sweep(which, before, fixed)
    value = losses / objective.weight + objective.penalty_of(fixed, 1 - which)
    if before is not None and not objective.loss.quadratic:
        value += objective.penalty_of(before, which)
    return factor, value


def random_ratings(m=60, n=40, share=0.4, seed=0, rank=RANK, noise=0.3):
    """A matrix of low rank with noise, seen in part; row 5 and column 7 are not seen at all, and
    row 6 and column 8 are seen in one place."""
    random = np.random.default_rng(seed)
    matrix = random.standard_normal((m, rank)) @ random.standard_normal((n, rank)).T
    matrix += noise * random.standard_normal((m, n))
    seen = random.random((m, n)) < share
    seen[5:7], seen[:, 7:9] = False, False
    seen[6, 8] = True
    rows, cols = np.nonzero(seen)
    return Ratings(rows, cols, matrix[seen], (m, n))


RATINGS = random_ratings()
LABELS = RATINGS.signs()
V = np.random.default_rng(1).standard_normal((40, RANK))
X = np.random.default_rng(2).standard_normal(100 * RANK)

needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")
BACKENDS = pytest.mark.parametrize("backend", ["numpy", pytest.param("numba", marks=needs_numba)])


def dense(ratings, i):
    """The columns seen in row i, and what was seen there."""
    here = slice(*ratings.by_row.starts[i : i + 2])
    return ratings.by_row.others[here], ratings.by_row.values[here].astype(np.float64)


# --- half steps ---------------------------------------------------------------------------------


@BACKENDS
@pytest.mark.parametrize("rank", [RANK, 6])
@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_half_steps_are_least_squares_row_by_row(ridge, rank, backend):
    """Also where a row has fewer entries than the rank: then the shortest solution."""
    ratings = random_ratings(share=0.2, rank=rank)
    sweep = ALSSweep(ratings, rank, ridge, backend=backend)
    V = np.random.default_rng(1).standard_normal((40, rank))
    U, value = new_rows(sweep, V)
    for i in range(60):
        cols, values = dense(ratings, i)
        system = np.vstack([V[cols], np.sqrt(ridge) * np.eye(rank)])
        targets = np.concatenate([values, np.zeros(rank)])
        expected = np.linalg.lstsq(system, targets, rcond=1e-12)[0]
        # Where there is no ridge the row is damped a little; one of these is nearly singular.
        atol = 1e-9 if ridge else 1e-4 if rank == 6 else 1e-6
        assert np.allclose(U[i], expected, rtol=0, atol=atol * max(1.0, abs(expected).max())), i
        least = np.sum((system @ expected - targets) ** 2)
        assert np.sum((system @ U[i] - targets) ** 2) <= least + 1e-6 * np.sum(values**2)
    assert not U[5].any()
    F = LowRankObjective(ratings, rank, balance=0.0, ridge=ridge, backend="numpy")
    assert value == pytest.approx(F.value(F.join(U, V)), rel=1e-12)


@BACKENDS
def test_the_other_half_step_is_that_of_the_transposed_matrix(backend):
    turned = Ratings(RATINGS.cols, RATINGS.rows, RATINGS.values, (40, 60))
    U = np.random.default_rng(3).standard_normal((60, RANK))
    ours, value = new_columns(ALSSweep(RATINGS, RANK, 0.1, backend=backend), U)
    theirs, expected = new_rows(ALSSweep(turned, RANK, 0.1, backend=backend), U)
    assert np.array_equal(ours, theirs)
    assert value == expected


@BACKENDS
@pytest.mark.parametrize("size", [0.3, 3.0])
def test_the_logistic_half_step_is_one_of_newton_s_cut_short_where_it_goes_far(size, backend):
    """Gradient and Hessian of a row's part of F by differences; with large factors steps go far."""
    ridge = 0.2
    sweep = MMSweep(LABELS, RANK, ridge, backend=backend)
    U, V = sweep.objective.split(size * X)
    U_next, value = new_rows(sweep, V, U)
    F = LowRankObjective(LABELS, RANK, "logistic", 0.0, ridge, backend="numpy")
    assert value == pytest.approx(F.value(size * X), rel=1e-13)
    cut = 0
    for i in set(range(60)) - {5}:
        cols, y = dense(LABELS, i)

        def part(u, v=V[cols], y=y):
            return np.sum(np.logaddexp(0.0, -y * (v @ u))) + ridge / 2 * u @ u

        H, g, h = np.empty((RANK, RANK)), np.empty(RANK), 1e-4 * np.eye(RANK)
        for p in range(RANK):
            g[p] = (part(U[i] + h[p]) - part(U[i] - h[p])) / 2e-4
            for q in range(RANK):
                corners = [
                    part(U[i] + a * h[p] + b * h[q]) * a * b for a in (1, -1) for b in (1, -1)
                ]
                H[p, q] = sum(corners) / 4e-8
        step = np.linalg.solve(H, -g)
        reach = np.abs(V[cols] @ step).max()
        t = np.log1p(reach) / reach if reach > 1.79 else 1.0
        cut += t < 1.0
        assert np.allclose(U_next[i] - U[i], t * step, rtol=2e-3, atol=1e-5), i
        assert part(U_next[i]) <= part(U[i])
    assert 0 < cut < 59 / 2 if size < 1.0 else cut > 59 / 2
    assert not U_next[5].any()


@BACKENDS
@pytest.mark.parametrize("ridge", [0.0, 0.01])
def test_no_logistic_half_step_raises_the_loss_of_a_row_from_anywhere(ridge, backend):
    """From points where the whole of Newton's step would raise it, too."""
    for seed, size in enumerate((0.1, 1.0, 3.0, 10.0, 100.0)):
        sweep = MMSweep(LABELS, RANK, ridge, backend=backend)
        x = size * np.random.default_rng(seed).standard_normal(100 * RANK)
        U, V = sweep.objective.split(x)
        (U_next, _), (V_next, _) = new_rows(sweep, V, U), new_columns(sweep, U, V)
        rows, cols, y = LABELS.rows, LABELS.cols, LABELS.values
        for own, new, other, mine, others in (
            (U, U_next, V, rows, cols),
            (V, V_next, U, cols, rows),
        ):
            before, after = (
                np.bincount(
                    mine,
                    np.logaddexp(0.0, -y * np.sum(factor[mine] * other[others], axis=1)),
                    len(own),
                )
                + ridge / 2 * np.sum(factor**2, axis=1)
                for factor in (own, new)
            )
            assert np.all(after <= before * (1 + 1e-12))


@BACKENDS
def test_dependent_columns_are_no_harm(backend):
    """Systems that are singular though there are entries enough; and a factor of zeros."""
    sweep = ALSSweep(RATINGS, RANK, backend=backend)
    twice = np.column_stack([V[:, 0], V[:, 0], V[:, 1]])
    U, value = new_rows(sweep, twice)
    fewer = new_rows(ALSSweep(RATINGS, 2, backend="numpy"), V[:, :2])
    assert np.isfinite(U).all()
    assert value == pytest.approx(fewer[1], rel=1e-9)
    several = np.arange(60) != 6  # one entry there: the shortest solutions differ
    assert np.allclose((U @ twice.T)[several], (fewer[0] @ V[:, :2].T)[several], atol=1e-6)
    zero, value = new_rows(sweep, np.zeros((40, RANK)))
    assert not zero.any()
    assert value == pytest.approx(np.mean(RATINGS.values**2) / 2)


@BACKENDS
@pytest.mark.parametrize("ridge", [1e-20, 1e-14])
def test_a_ridge_too_small_for_the_systems_is_as_good_as_none(ridge, backend):
    """Three entries a row or column, rank 6: so small a ridge is lost in the sums."""
    random = np.random.default_rng(6)
    rows = np.repeat(np.arange(20), 3)
    cols = (rows + np.tile([0, 1, 2], 20)) % 20
    ratings = Ratings(rows, cols, random.standard_normal(60), (20, 20))
    U, V = (5.0 * random.standard_normal((20, 6)) for _ in range(2))
    sweep = ALSSweep(ratings, 6, ridge, backend=backend)
    for current in (None, U):
        found, value = new_rows(sweep, V, current)
        expected, least = new_rows(ALSSweep(ratings, 6, backend=backend), V, current)
        assert np.allclose(found, expected, rtol=0, atol=1e-4)  # rounding over damping
        assert value == pytest.approx(least, abs=1e-10)
        truth = sweep.objective.value(sweep.objective.join(found, V))
        assert value == pytest.approx(truth, abs=1e-10)
    newton = MMSweep(ratings.signs(), 6, ridge, backend=backend)
    found, _ = new_rows(newton, V, U)
    expected, _ = new_rows(MMSweep(ratings.signs(), 6, backend=backend), V, U)
    assert np.allclose(found, expected, rtol=0, atol=1e-3)  # curvatures are small besides


@BACKENDS
@pytest.mark.parametrize("size", [0.0, 1e-161])
def test_rows_that_see_factors_of_nothing_become_zero(size, backend):
    """From where they are, too; no harm is done where squares of factors are too small a number."""
    found, value = new_rows(
        ALSSweep(RATINGS, RANK, backend=backend), np.full((40, RANK), size), np.ones((60, RANK))
    )
    assert np.isfinite(found).all() if size else not found.any()
    assert value == pytest.approx(np.mean(RATINGS.values**2) / 2)


@BACKENDS
def test_half_steps_of_least_squares_do_not_depend_on_where_a_row_is(backend):
    """Nor those of a row that its entries do not determine: it is the shortest one."""
    sweep = ALSSweep(RATINGS, RANK, backend=backend)
    near, value = new_rows(sweep, V, np.random.default_rng(4).standard_normal((60, RANK)))
    far, expected = new_rows(sweep, V)
    assert np.allclose(near, far, atol=1e-6)
    assert value == pytest.approx(expected, rel=1e-9)


@BACKENDS
def test_a_row_is_no_worse_than_where_it_is_though_factors_are_nearly_dependent(backend):
    """Rows that fit well, but are long: from 0 the damping does not let them get there."""
    random = np.random.default_rng(5)
    twins = np.column_stack([V[:, 0], V[:, 0] + 1e-7 * V[:, 1], V[:, 2]])
    U = np.column_stack([-1e7 * np.ones(60), 1e7 * np.ones(60), random.standard_normal(60)])
    rows, cols = RATINGS.rows, RATINGS.cols
    values = np.sum(U[rows] * twins[cols], axis=1) + 0.1 * random.standard_normal(RATINGS.nnz)
    ratings = Ratings(rows, cols, values, (60, 40))
    sweep = ALSSweep(ratings, RANK, backend=backend)
    here = sweep.objective.value(sweep.objective.join(U, twins))
    assert new_rows(sweep, twins, U)[1] <= here < new_rows(sweep, twins)[1]


@BACKENDS
def test_two_entries_with_equal_factors_get_the_mean(backend):
    """Fewer entries than the rank, and yet no solution that meets them all."""
    ratings = Ratings([0, 0, 1, 2], [0, 1, 2, 3], [1.0, 3.0, 1.0, 1.0])
    V = np.vstack([np.ones((2, 3)), np.eye(3)[:2]])
    U, _ = new_rows(ALSSweep(ratings, 3, backend=backend), V)
    assert V[0] @ U[0] == pytest.approx(2.0)


@needs_numba
@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("rank", [RANK, 6])
def test_compiled_and_plain_agree(rank, ridge):
    """Row by row; from factors of one size, as the start of a part of its own is rounding only."""
    ratings = random_ratings(300, 200, 0.9, rank=rank)  # rows of more than one piece
    start = np.random.default_rng(2).standard_normal(500 * rank)
    accuracy = np.full((500, 1), 1e-10)
    if not ridge:  # one entry does not determine a row: its system has a condition of 1/DAMPING
        accuracy[[6, 300 + 8]] = 4 * rank * np.finfo(float).eps / DAMPING
    for kind, data in ((ALSSweep, ratings), (MMSweep, ratings.signs())):
        plain, compiled = (kind(data, rank, ridge, backend=b) for b in ("numpy", "numba"))
        (ours, value), (theirs, expected) = compiled(start), plain(start)
        ours, theirs = (state.reshape(500, rank) for state in (ours, theirs))
        lengths = np.abs(theirs).max(axis=1, keepdims=True)
        assert np.all(np.abs(ours - theirs) <= accuracy * lengths)
        assert value == pytest.approx(expected, rel=1e-11)


@needs_numba
def test_the_number_of_threads_makes_no_difference_to_a_bit():
    ratings = random_ratings(400, 300, 0.5)  # enough entries for several threads
    for kind, data in ((ALSSweep, ratings), (MMSweep, ratings.signs())):
        start = kind(data, RANK).start()
        one, other = (kind(data, RANK, threads=threads) for threads in (1, 4))
        assert (one.objective.threads, other.objective.threads) == (1, 4)
        for _ in range(3):
            (ours, value), (theirs, expected) = one(start), other(start)
            assert ours.tobytes() == theirs.tobytes()
            assert value == expected
            start = ours


# --- sweeps -------------------------------------------------------------------------------------


def sweeps(backend, ridge=0.1):
    return [
        ALSSweep(RATINGS, RANK, ridge, state="V", backend=backend),
        ALSSweep(RATINGS, RANK, ridge, state="U", backend=backend),
        MMSweep(LABELS, RANK, ridge, backend=backend),
    ]


@BACKENDS
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_no_sweep_raises_the_objective(ridge, backend):
    for sweep in sweeps(backend, ridge):
        x, values = sweep.start(), []
        for _ in range(30):
            x, value = sweep(x)
            values.append(value)
        assert np.all(np.diff(values) <= 1e-14)
        assert values[-1] < values[0]


@BACKENDS
@pytest.mark.parametrize("state", ["U", "V"])
@pytest.mark.parametrize("seed", range(4))
def test_nearly_dependent_factors_do_not_make_a_sweep_rise(seed, state, backend):
    """Noise seen in few places: without a ridge factors grow, and become more and more alike."""
    random = np.random.default_rng(seed)
    seen = random.random((30, 20)) < 0.4
    ratings = Ratings(*np.nonzero(seen), random.standard_normal(seen.sum()), (30, 20))
    sweep = ALSSweep(ratings, 5, state=state, backend=backend)
    result = accelerate(sweep, sweep.start(), True, tol=0, max_iterations=600)
    assert result.status is not Status.OBJECTIVE_ROSE
    assert sweep.objective.value(sweep.objective.join(*sweep.factors(result.x))) <= (
        result.fun + 1e-9
    )


@BACKENDS
def test_where_sweeps_end_the_gradient_of_the_objective_is_zero(backend):
    """By the objective, whose gradient is checked elsewhere, and by differences of its values."""
    for sweep, loss in zip(sweeps(backend), ("squared", "squared", "logistic"), strict=True):
        result = accelerate(sweep, sweep.start(), True, tol=1e-9, max_iterations=5000)
        assert result.status is Status.CONVERGED
        objective = LowRankObjective(
            LABELS if loss == "logistic" else RATINGS, RANK, loss, ridge=0.1, backend="numpy"
        )  # with the balance term: balanced factors are stationary for it, too
        x = objective.join(*sweep.factors(result.x))
        assert objective.value(x) == pytest.approx(result.fun, rel=1e-10)
        assert np.linalg.norm(objective.gradient(x)) <= 1e-7
        for k in (0, 50, 200, 299):
            h = 1e-4 * np.eye(1, x.size, k)[0]
            assert abs(objective.value(x + h) - objective.value(x - h)) <= 1e-10


@pytest.mark.parametrize("rule", ["either", "function", "gradient", "distance"])
def test_momentum_halves_the_sweeps(rule):
    ratings = random_ratings(200, 150, 0.1, noise=0.5)
    for sweep in (ALSSweep(ratings, RANK, 0.1), MMSweep(ratings.signs(), RANK, 0.03)):
        plain = accelerate(sweep, sweep.start(), True, restart="always", tol=0, max_iterations=60)
        fast = accelerate(
            sweep, sweep.start(), True, restart=rule, tol=0, max_iterations=60, target=plain.fun
        )
        assert fast.status is Status.TARGET_REACHED
        assert fast.njev <= 30


def test_the_state_is_the_factor_that_its_entries_determine():
    random = np.random.default_rng(0)
    rows = np.repeat(np.arange(50), 12)
    cols = np.concatenate([random.choice(100, 12, replace=False) for _ in range(50)])
    ratings = Ratings(rows, cols, random.random(600), (50, 100))
    assert ALSSweep(ratings, 5).state == "U"  # 12 entries a row, but 6 a column
    assert ALSSweep(ratings, 5, state="V").state == "V"
    turned = Ratings(cols, rows, ratings.values, (100, 50))
    assert ALSSweep(turned, 5).state == "V"


@BACKENDS
def test_momentum_is_in_one_factor_of_least_squares(backend):
    """The other one, where it is determined, makes no difference to the map."""
    for state in ("U", "V"):
        sweep = ALSSweep(RATINGS, RANK, 0.1, state=state, backend=backend)
        U, V = sweep.objective.split(X)
        other = sweep.objective.join(U, V + 1.0) if state == "U" else sweep.objective.join(U + 1, V)
        (ours, value), (theirs, expected) = sweep(X), sweep(other)
        assert np.allclose(ours, theirs, atol=1e-10)
        assert value == pytest.approx(expected, rel=1e-12)


def test_a_sweep_can_begin_at_any_columns():
    sweep = ALSSweep(RATINGS, RANK, 0.1)
    U, columns = sweep.objective.split(sweep.start(V))
    assert np.array_equal(columns, V)
    assert np.array_equal(U, new_rows(sweep, V)[0])


@BACKENDS
def test_float32_factors_stay_float32_and_come_close(backend):
    for kind, data in ((ALSSweep, RATINGS), (MMSweep, LABELS)):
        double = kind(data, RANK, 0.1, backend=backend)
        single = kind(data, RANK, 0.1, dtype=np.float32, backend=backend)
        start = double.start()
        (x, value), (expected, at) = single(start.astype(np.float32)), double(start)
        assert x.dtype == np.float32
        assert np.allclose(x, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
        assert value == pytest.approx(at, rel=1e-5)
        result = accelerate(single, single.start(), True, tol=1e-3)
        assert result.success


@BACKENDS
def test_factors_are_balanced_and_predict_the_same(backend):
    for sweep in sweeps(backend):
        x, _ = sweep(sweep.start())
        U, V = sweep.factors(x)
        assert np.allclose(U.T @ U, V.T @ V, atol=1e-10)
        if isinstance(sweep, MMSweep):
            left, right = sweep.objective.split(x)
        elif sweep.state == "V":
            right = sweep.objective.split(x)[1]
            left = new_rows(sweep, right)[0]
        else:
            left = sweep.objective.split(x)[0]
            right = new_columns(sweep, left)[0]
        assert np.allclose(U @ V.T, left @ right.T, atol=1e-10)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: ALSSweep(RATINGS, 0), "rank"),
        (lambda: ALSSweep(RATINGS, RANK, -1.0), "ridge"),
        (lambda: ALSSweep(RATINGS, RANK, threads=0), "threads"),
        (lambda: ALSSweep(RATINGS, RANK, state="W"), "state='W'"),
        (lambda: MMSweep(RATINGS, RANK), r"ratings.signs\(\)"),
        (
            lambda: ALSSweep(RATINGS, RANK).start(V.T),
            r"V must be of shape \(40, 3\), not \(3, 40\)",
        ),
    ],
)
def test_wrong_arguments_are_refused_by_name(make, told):
    with pytest.raises(ValueError, match=told):
        make()
