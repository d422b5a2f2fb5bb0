"""What the theorems promise, on functions whose Lipschitz constants are known.

eps is chosen such that 1/theta is the integer K (unless a test says otherwise), so that the
theorems apply word for word.  The iterates come from outside: from where gradients were asked for.
"""

import math
from functools import cache

import numpy as np
import pytest

import momentous
from momentous import RAGD, RHB, AdaRAGD, AdaRHB, EventKind, PerturbedRAGD, Status, testbed
from momentous.core.machine import NUMBERS
from momentous.methods.restarted.schedule import Schedule
from reference import CHAIN, COSINES, FUNCTIONS, SADDLE, Theory, epoch_length, watched_run

LENGTHS = [(RAGD, 1), (RAGD, 2), (RAGD, 3), (RAGD, 8), (RAGD, 20), (RHB, 10), (RHB, 12), (RHB, 20)]
HEAVY_BALLS = (RHB, AdaRHB)

each_function = pytest.mark.parametrize("problem", FUNCTIONS, ids=lambda p: p.name)
each_length = pytest.mark.parametrize(
    ("method", "K"), LENGTHS, ids=[f"{method.name}-{K}" for method, K in LENGTHS]
)
each_fixed = pytest.mark.parametrize("method", [RAGD, RHB])
each_adaptive = pytest.mark.parametrize("method", [AdaRAGD, AdaRHB])
each_by_theory = pytest.mark.parametrize("method", [RAGD, RHB, AdaRAGD, AdaRHB])


def constants(problem):
    return {
        "gradient_lipschitz": problem.gradient_lipschitz,
        "hessian_lipschitz": problem.hessian_lipschitz,
    }


@cache
def theory_and_run(problem, method, K):
    theory = Theory.with_integer_length(problem, K, method in HEAVY_BALLS)
    chosen = method(**constants(problem), eps=theory.eps)
    return theory, *watched_run(problem, problem.start, chosen)


def first_memory(problem, method, **options):
    return momentous.iterate(
        problem.value, problem.start, jac=problem.gradient, method=method, **options
    ).memory


def numbers(memory):
    """(eta, theta, B, K) of the epoch under way."""
    p = memory.schedule if hasattr(memory, "schedule") else memory.parameters
    return p.step_size, p.theta, p.radius, p.epoch_length


# --- Theorems 1 and 4 -----------------------------------------------------------------------------


@pytest.mark.slow
@each_function
@each_length
def test_every_restarted_epoch_lowers_the_objective_by_what_the_corollary_says(problem, method, K):
    theory, epochs, _, _ = theory_and_run(problem, method, K)
    restarted = [epoch for epoch in epochs if epoch.end == "restart"]
    assert len(restarted) >= 2, "this run shows nothing"
    for epoch in restarted:
        before, after = problem.value(epoch.x[0]), problem.value(epoch.next_start)
        assert after - before <= -theory.decrease + 1e-15 * abs(before)


@each_function
@each_length
def test_restarts_and_gradients_stay_within_their_bounds(problem, method, K):
    theory, epochs, result, seen = theory_and_run(problem, method, K)
    most = theory.most_restarts(problem.value(problem.start) - problem.minimum)
    assert result.restarts == len(epochs) - 1 <= most
    assert result.nit <= (most + 1) * K
    # The gradient at the output comes on top; for K = 1 the output is the last point evaluated.
    assert result.njev == len(seen.gradients) == result.nit + (K > 1)
    assert all(epoch.k <= K for epoch in epochs)


@each_function
@each_length
def test_the_output_gradient_is_within_the_promise(problem, method, K):
    theory, epochs, result, _ = theory_and_run(problem, method, K)
    assert result.status is Status.COMPLETED
    assert epochs[-1].end == "complete"
    assert epochs[-1].k == K
    norm = np.linalg.norm(problem.gradient(result.x))
    assert norm == pytest.approx(result.grad_norm, rel=1e-12)
    assert norm <= theory.sharp_gradient_bound <= theory.gradient_bound
    assert result.numbers["promise"] == pytest.approx(theory.sharp_gradient_bound, rel=1e-9)


@pytest.mark.slow
@each_function
@each_length
def test_epochs_stay_within_the_radius_until_they_restart(problem, method, K):
    theory, epochs, _, _ = theory_and_run(problem, method, K)
    B = theory.B * (1 + 1e-9)
    for epoch in epochs:
        x, y = np.array(epoch.x), np.array(epoch.y)
        squares = np.sum(np.diff(x, axis=0) ** 2, axis=1)
        criterion = np.arange(1, epoch.k + 1) * np.cumsum(squares)
        stayed = epoch.k if epoch.end == "complete" else epoch.k - 1
        assert np.all(criterion[:stayed] <= B**2)
        assert np.all(np.linalg.norm(x[: stayed + 1] - x[0], axis=1) <= B)
        assert np.all(np.linalg.norm(y - x[0], axis=1) <= (B if method is RHB else 2 * B))
        if epoch.end == "restart":
            assert criterion[-1] * (1 + 1e-9) >= theory.B**2


@each_function
@each_length
def test_an_epoch_restarts_at_once_iff_its_first_step_is_longer_than_the_radius(problem, method, K):
    theory, epochs, _, _ = theory_and_run(problem, method, K)
    for epoch in epochs:
        first_step = theory.eta * np.linalg.norm(epoch.g[0])
        assert (epoch.k == 1 and epoch.end == "restart") == (first_step > theory.B)


@each_function
@each_length
def test_the_steps_of_the_last_epoch_certify_the_output(problem, method, K):
    """The mean of the gradients up to K0 telescopes, and is close to the gradient of the mean."""
    theory, epochs, result, _ = theory_and_run(problem, method, K)
    last = epochs[-1]
    k0, x = last.shortest(), last.x
    mean = np.mean(last.g[: k0 + 1], axis=0)
    telescoped = -((x[k0 + 1] - x[k0]) + theory.theta * (x[k0] - x[0])) / (theory.eta * (k0 + 1))
    np.testing.assert_allclose(mean, telescoped, rtol=0, atol=1e-6 * theory.eps)
    assert np.linalg.norm(result.jac - mean) <= theory.averaging_error
    # The same for the points: of all iterates the average needs the sum of the x only.
    ahead = 0 if method is RHB else (1 - theory.theta) * (x[k0] - x[0])
    np.testing.assert_allclose(
        result.x, (sum(x[: k0 + 1]) + ahead) / (k0 + 1), rtol=0, atol=1e-10 * theory.B
    )


@each_fixed
@pytest.mark.parametrize("inverse_theta", [1.01, 1.4, 1.99, 2.7, 3.5, 12.6, 19.99])
def test_fractional_epochs_are_cut_and_the_promise_knows(method, inverse_theta):
    """K = floor(1/theta): the decrease is kept, the gradient bound is the sharp one for that K."""
    heavy_ball = method is RHB
    inverse_theta += 10 if heavy_ball else 0
    for problem in (COSINES, SADDLE):
        theory = Theory.with_integer_length(problem, inverse_theta, heavy_ball)
        assert math.floor(inverse_theta) == theory.K
        chosen = method(**constants(problem), eps=theory.eps)
        epochs, result, _ = watched_run(problem, problem.start, chosen)
        assert epochs[-1].k == theory.K
        assert result.grad_norm <= theory.sharp_gradient_bound
        assert result.numbers["promise"] == pytest.approx(theory.sharp_gradient_bound, rel=1e-9)
        for epoch in epochs[:-1]:
            change = problem.value(epoch.next_start) - problem.value(epoch.x[0])
            assert change <= -theory.decrease


def test_one_iteration_epochs_return_their_start():
    theory, epochs, result, _ = theory_and_run(COSINES, RAGD, 1)
    assert theory.theta == pytest.approx(1.0)
    np.testing.assert_array_equal(result.x, epochs[-1].x[0])


# --- parameters -----------------------------------------------------------------------------------


@each_function
@each_by_theory
@pytest.mark.parametrize("fraction", [1.0, 0.3, 1e-3, 1e-6])
def test_the_class_finds_the_parameters_of_its_theorem(problem, method, fraction):
    heavy_ball = method in HEAVY_BALLS
    largest = (1.6e-7 if heavy_ball else 1 / 16) / problem.hessian_lipschitz
    largest *= problem.gradient_lipschitz**2
    theory = Theory(*constants(problem).values(), fraction * largest, heavy_ball)
    memory = first_memory(problem, method(**constants(problem), eps=theory.eps))
    expected = (theory.eta, theory.theta, theory.B, theory.K)
    assert numbers(memory) == pytest.approx(expected, rel=1e-12)
    if fraction == 1.0:
        assert numbers(memory)[-1] == (10 if heavy_ball else 1)


@each_by_theory
def test_eps_follows_from_the_tolerance(method):
    heavy_ball = method in HEAVY_BALLS
    theory = Theory.with_integer_length(COSINES, 12, heavy_ball)
    by_tol = first_memory(COSINES, method(**constants(COSINES)), tol=theory.gradient_bound)
    by_eps = first_memory(COSINES, method(**constants(COSINES), eps=theory.eps))
    assert numbers(by_tol) == pytest.approx(numbers(by_eps), rel=1e-12)


@each_by_theory
def test_an_inadmissible_eps_is_refused_and_a_loose_tolerance_clipped(method):
    heavy_ball = method in HEAVY_BALLS
    longest = 10 if heavy_ball else 1
    largest = Theory.with_integer_length(COSINES, longest, heavy_ball)
    with pytest.raises(ValueError, match="above"):
        first_memory(COSINES, method(**constants(COSINES), eps=1.001 * largest.eps))
    clipped = first_memory(COSINES, method(**constants(COSINES)), tol=1e3 * largest.gradient_bound)
    expected = (largest.eta, 1 / longest, largest.B, longest)
    assert numbers(clipped) == pytest.approx(expected, rel=1e-12)


@each_fixed
@pytest.mark.parametrize("problem", [COSINES, SADDLE], ids=lambda p: p.name)
def test_a_tolerance_is_reached_by_theory_alone(method, problem):
    """eps from the tolerance, but no stop at it: the last epoch leads there all the same."""
    tol = Theory.with_integer_length(problem, 15, method is RHB).gradient_bound
    p = first_memory(problem, method(**constants(problem)), tol=tol).parameters
    by_hand = method(
        step_size=p.step_size, momentum=1 - p.theta, radius=p.radius, epoch_length=p.epoch_length
    )
    result = momentous.minimize(problem.value, problem.start, jac=problem.gradient, method=by_hand)
    assert result.status is Status.COMPLETED
    assert result.grad_norm <= tol


# --- Theorems 2 and 5 -----------------------------------------------------------------------------

GAMMA = 0.5
ADAPTIVE_LENGTHS = [(AdaRAGD, 2), (AdaRAGD, 8), (AdaRAGD, 20), (AdaRHB, 10)]


@cache
def adaptive_theory_and_run(problem, method, K):
    theory = Theory.with_integer_length(problem, K, method is AdaRHB)
    chosen = method(
        **constants(problem),
        eps=theory.eps,
        decrease=GAMMA,
        initial_radius=1e4 * theory.B,
        radius_shrink=1.5,
    )
    return theory, *watched_run(problem, problem.start, chosen)


each_adaptive_length = pytest.mark.parametrize(
    ("method", "K"), ADAPTIVE_LENGTHS, ids=[f"{method.name}-{K}" for method, K in ADAPTIVE_LENGTHS]
)


@pytest.mark.slow
@each_function
@each_adaptive_length
def test_the_adaptive_output_is_within_the_promise(problem, method, K):
    theory, epochs, result, _ = adaptive_theory_and_run(problem, method, K)
    assert result.status is Status.COMPLETED
    assert result.numbers["promise"] == pytest.approx(theory.sharp_gradient_bound, rel=1e-9)
    assert result.grad_norm <= theory.sharp_gradient_bound <= theory.gradient_bound
    last = epochs[-1]
    assert last.B0 <= last.B
    assert last.k == K
    norms = [np.linalg.norm(problem.gradient(x)) for x in (last.x[K], last.average())]
    assert result.grad_norm == pytest.approx(min(norms), rel=1e-6)


@each_function
@each_adaptive_length
def test_the_adaptive_counts_are_those_of_the_theorem(problem, method, K):
    theory, epochs, result, seen = adaptive_theory_and_run(problem, method, K)
    gap = problem.value(problem.start) - problem.minimum
    accepted = sum(epoch.end == "restart" for epoch in epochs)
    discarded = sum(epoch.end == "rollback" for epoch in epochs)
    assert accepted <= gap / (GAMMA * theory.unit)
    assert discarded <= math.log(1e4) / math.log(1.5)  # as many restarts bring B0 down to B
    assert all(epoch.k <= (K + 1 if epoch.B0 > epoch.B else K) for epoch in epochs)
    # One value at the start, one a restart, one at the output; a gradient an iteration, and two to
    # choose the output.
    assert result.restarts == accepted + discarded
    assert result.nfev == len(seen.values) == 1 + result.restarts + 1
    assert result.njev == len(seen.gradients) == result.nit + 2


@each_function
@each_adaptive_length
def test_nothing_is_discarded_once_the_radius_is_that_of_the_theorem(problem, method, K):
    theory, epochs, _, _ = adaptive_theory_and_run(problem, method, K)
    for epoch in epochs:
        if epoch.B0 <= epoch.B:
            assert epoch.end in ("restart", "complete")
        if epoch.end == "restart":
            change = problem.value(epoch.next_start) - problem.value(epoch.x[0])
            assert change <= -(theory.decrease if epoch.B0 <= epoch.B else GAMMA * theory.unit)


@each_adaptive
@pytest.mark.parametrize("problem", [SADDLE, CHAIN], ids=lambda p: p.name)
def test_guessed_constants_are_corrected_by_discarded_epochs(method, problem):
    """Theorem 6: the caps bind together, so theta and K stay; a completed epoch ends the run."""
    heavy_ball = method is AdaRHB
    theory = Theory.with_integer_length(problem, 12, heavy_ball)
    guess = Theory(theory.L / 20, theory.rho / 400, theory.eps, heavy_ball)
    chosen = method(
        gradient_lipschitz=guess.L,
        hessian_lipschitz=guess.rho,
        eps=guess.eps,
        initial_radius=1e3 * guess.B,
        backoff=2.0,
        step_size_min=guess.eta / 32,
        hessian_lipschitz_max=1024 * guess.rho,
    )
    epochs, result, _ = watched_run(problem, problem.start, chosen)
    assert result.status is Status.COMPLETED
    assert any(epoch.end == "rollback" for epoch in epochs)
    assert {epoch.K for epoch in epochs} == {12}
    last = epochs[-1]
    # The corollary with the last eta and B = sqrt(eps/rho'), while the function has its own rho.
    first = 2 * math.sqrt(2) * last.B / (last.eta * last.K**2)
    second = 2 * last.theta * last.B / (last.eta * last.K)
    assert result.grad_norm <= first + second + (1 if heavy_ball else 4) * theory.rho * last.B**2


def test_an_epoch_without_decrease_is_discarded_even_if_f_is_the_same_to_the_last_bit():
    """A step of 2/L turns x into -x for ever; Remark 2 halves it, which leads to the minimum."""
    chosen = AdaRAGD(step_size=2.0, hessian_lipschitz=1.0, eps=1e-4, initial_radius=1.0)
    result = momentous.minimize(
        lambda x: (float(x @ x) / 2, x.copy()),
        [30.0],
        jac=True,
        method=chosen,
        tol=1e-8,
        max_iterations=1000,
    )
    assert result.status is Status.CONVERGED
    assert result.trace.when(EventKind.ROLLBACK)


def test_a_completed_epoch_is_never_run_again():
    """With L declared too small an epoch may climb and yet complete: that is the end, or at least
    something must change, for the same epoch would complete again."""
    chosen = AdaRAGD(gradient_lipschitz=0.1, hessian_lipschitz=1e-4, eps=1e-3, initial_radius=1e-9)
    result = momentous.minimize(
        lambda x: (float(x @ x) / 2, x.copy()),
        [1e-6],
        jac=True,
        method=chosen,
        tol=0,
        max_iterations=1000,
    )
    assert result.status is not Status.MAX_ITERATIONS


def test_theta_after_a_failure_comes_from_its_value_before_the_cap():
    """rho' is capped, so theta falls with eta^(1/2); it was 0.03 before it was cut to 0.01."""
    now = Schedule(1.0, 1.0, 1e-4, 0.01, 0.03, epoch_length=100, radius=1.0, wide_radius=10.0)
    method, thetas = AdaRAGD(step_size=1.0, hessian_lipschitz_max=1.0), []
    for _ in range(5):
        now = method._after_failure(NUMBERS, now)
        thetas.append(now.theta)
        assert now.epoch_length == epoch_length(now.theta)
    wanted = [min(0.01, 0.03 / math.sqrt(2) ** n) for n in range(1, 6)]
    assert wanted[2] == 0.01 > wanted[3]
    assert thetas == pytest.approx(wanted, rel=1e-12)


@each_adaptive
def test_the_first_theta_is_known_before_its_cap(method):
    chosen = method(step_size=1.0, hessian_lipschitz=16.0, eps=1.0)
    schedule = first_memory(SADDLE, chosen).schedule
    assert (schedule.theta, schedule.uncapped_theta) == (0.01, 2.0)


@each_adaptive
@pytest.mark.parametrize(("eps", "kind"), [(1.0, "rollback"), (1e-3, "restart")])
def test_rounding_excuses_no_epoch_that_had_to_lower_f_by_more(method, eps, kind):
    """f falls by less than its rounding, 9e-7; required are 1e-5, or 3e-10."""
    chosen = method(
        step_size=0.1, momentum=0.5, hessian_lipschitz=1.0, eps=eps, epoch_length=3,
        radius=1e-9, initial_radius=1.0,
    )  # fmt: skip
    result = momentous.minimize(
        lambda x: 1e9 + float(x @ x) / 2,
        [1e-4],
        jac=lambda x: x.copy(),
        method=chosen,
        tol=1e-12,
        max_iterations=4,
    )
    assert [str(event.kind) for _, event in result.trace.events] == [kind]


@each_by_theory
def test_without_a_tolerance_there_is_no_eps_to_take_from_it(method):
    with pytest.raises(ValueError, match=r"takes eps from tol, and tol=0 is none; give eps="):
        momentous.minimize(
            SADDLE.value,
            SADDLE.start,
            jac=SADDLE.gradient,
            method=method(gradient_lipschitz=1.0, hessian_lipschitz=1.0),
            tol=0,
        )


# --- Theorem 3 ------------------------------------------------------------------------------------


def test_the_perturbed_method_has_the_parameters_of_its_theorem():
    L, rho, eps, chi = 3.0, 0.5, 1e-3, 4.0
    chosen = PerturbedRAGD(L, rho, eps, setting="theory", log_factor=chi)
    p = first_memory(SADDLE, chosen).parameters
    theta = (eps * rho / L**2) ** (1 / 4) / 2
    B, K = math.sqrt(eps / rho) / (288 * chi**2), math.ceil(2 * chi / theta)
    assert (p.step_size, p.theta, p.radius) == pytest.approx((1 / (4 * L), theta, B), rel=1e-12)
    assert p.epoch_length == K > epoch_length(theta)
    r = min(B / 2, theta * B / (20 * K), math.sqrt(theta * B**2 / (2 * K)))
    assert chosen.displacement(p) == pytest.approx(r, rel=1e-12)


@pytest.mark.parametrize("setting", ["practical", "theory"])
def test_the_perturbed_method_promises_eps_itself(setting):
    for eps in (1e-2, 1e-3, 1e-4):
        p = first_memory(SADDLE, PerturbedRAGD(1.0, 1.0, eps, setting=setting)).parameters
        assert p.promise <= eps


def test_restarts_are_perturbed_iff_the_last_gradient_was_small():
    chosen = PerturbedRAGD(**constants(SADDLE), eps=3e-2, perturbation=1e-3)
    run = momentous.iterate(SADDLE.value, 3 * SADDLE.start, jac=SADDLE.gradient, method=chosen)
    p, ahead = run.memory.parameters, run.memory.epoch.ahead
    perturbed = {True: 0, False: 0}
    for step in run:
        kinds = [event.kind for event in step.events]
        if EventKind.RESTART in kinds:
            small = step.grad_norm <= p.radius / p.step_size
            assert (EventKind.PERTURBED in kinds) == small
            end = ahead - p.step_size * step.jac
            jump = np.linalg.norm(step.memory.epoch.start - end)
            assert (0 < jump <= 1e-3 * (1 + 1e-9)) if small else jump <= 1e-12
            perturbed[small] += 1
        ahead = step.memory.epoch.ahead
    assert min(perturbed.values()) >= 3


def test_the_perturbed_method_leaves_a_saddle_that_the_others_stay_on():
    saddle = testbed.saddle(3, 2)
    options = {"jac": saddle.gradient, "tol": 1e-3}
    stays = momentous.minimize(saddle.value, saddle.start, method=RAGD(1.0, 1.0), **options)
    np.testing.assert_array_equal(stays.x, saddle.start)
    leaves = momentous.minimize(
        saddle.value, saddle.start, method=PerturbedRAGD(1.0, 1.0), **options
    )
    assert leaves.status is Status.COMPLETED
    assert leaves.grad_norm <= 1e-3
    assert leaves.fun < 1e-3


def test_eps_is_not_read_off_a_radius_given_by_hand():
    problem = testbed.saddle(2, 2)
    chosen = AdaRAGD(gradient_lipschitz=1.0, hessian_lipschitz=1.0, radius=10.0)
    run = momentous.iterate(
        problem.value, np.ones(4), jac=problem.gradient, method=chosen, tol=1e-3
    )
    assert run.memory.schedule.radius == 10.0
    assert run.memory.schedule.eps <= 1e-3 / 82


def test_the_largest_eps_matters_only_where_theta_comes_from_it():
    with pytest.raises(ValueError, match="largest"):
        RAGD(1.0, 1.0, eps=0.5).resolved(0.0, 3)
    assert RAGD(1.0, 1.0, eps=0.5, momentum=0.5).resolved(0.0, 3).theta == 0.5


def test_a_tolerance_is_promised_even_if_one_over_theta_is_not_whole():
    for tol in np.geomspace(1e-6, 1e2, 40):
        assert RAGD(1.0, 1.0).resolved(float(tol), 3).promise <= tol * (1 + 1e-9)
        assert RHB(1.0, 1.0).resolved(float(tol), 3).promise <= tol * (1 + 1e-9)
