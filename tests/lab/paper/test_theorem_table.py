"""The theorem table and the growth study: measured by runs, checked against naive references."""

import dataclasses
import json
import math

import numpy as np
import pytest

from momentous import RAGD, RHB, AdaRAGD, AdaRHB, PerturbedRAGD, Status, testbed
from momentous.lab.paper import bounds as theorems
from momentous.lab.paper import exponents, theorem_table
from momentous.lab.paper.bounds import Case, run_epochs
from momentous.lab.paper.folder import StudyFolder
from momentous.lab.paper.results import Bound, Growth
from momentous.lab.report.figures import plot_growth
from momentous.methods.restarted.fixed_radius import ESCAPING_NESTEROV
from momentous.version import __version__
from reference import COSINES, Theory, restarted, started

pytestmark = pytest.mark.slow

CHAIN = testbed.nested_chain(2, 0.1)
PAPERS = ("RAGD", "RHB", "AdaRAGD", "AdaRHB")


def quick_parts():
    """Fewer functions, shorter epochs (larger eps) and fewer seeds than the table has."""
    parts_of, losses = theorem_table.parts_of, theorem_table.sum_of_losses(30)
    chain, fixed, adaptive = CHAIN, theorems.check_fixed, theorems.check_adaptive
    return [
        *parts_of("Theorem 1", fixed, RAGD, [(chain, 8), (losses, 8), (losses, 3.5)]),
        *parts_of("Theorem 2", adaptive, AdaRAGD, [(chain, 8), (losses, 8)]),
        *theorem_table.escapes([(testbed.saddle(2, 2), 0.05)], seeds=5),
        *parts_of("Theorem 4", fixed, RHB, [(chain, 10), (losses, 10), (losses, 12.6)]),
        *parts_of("Theorem 5", adaptive, AdaRHB, [(chain, 10), (losses, 10)]),
        *parts_of("Remark 2", theorems.check_guessed, AdaRAGD, [(chain, 8), (losses, 8)]),
    ]


@pytest.fixture(scope="module")
def table():
    return theorem_table.theorem_table(measure for _, measure in quick_parts())


@pytest.fixture(scope="module")
def growths():
    return exponents.growth_with_difficulty(
        run for _, run in exponents.growth_parts(1, (0.0025, 0.001))
    )


def rows_like(bounds, text):
    return [bound for bound in bounds if text in bound.quantity]


def too_small(problem, *, L=1.0, rho=1.0):
    """The problem with constants declared so many times too small."""
    return dataclasses.replace(
        problem,
        gradient_lipschitz=problem.gradient_lipschitz / L,
        hessian_lipschitz=problem.hessian_lipschitz / rho,
    )


# --- the table ------------------------------------------------------------------------------------


def test_every_bound_holds(table):
    assert [bound for bound in table if not bound.holds] == []
    assert all(math.isfinite(bound.measured) for bound in table)


def test_every_theorem_is_measured_in_all_that_it_bounds(table):
    said = {
        theorem: [bound for bound in table if bound.theorem == theorem]
        for theorem in (*(f"Theorem {n}" for n in range(1, 6)), "Remark 2")
    }
    for rows in said.values():
        assert rows_like(rows, "gradients")
        assert rows_like(rows, "gradient norm at the output")
    for theorem in said.keys() - {"Theorem 3"}:
        assert rows_like(said[theorem], "decrease required")
        assert len({row.function for row in said[theorem]}) >= 2
    assert rows_like(said["Theorem 3"], "negative curvature")
    assert rows_like(said["Theorem 3"], "share of 5 seeds")
    assert rows_like(said["Theorem 2"], "values")


def test_the_bounds_of_theorems_1_and_4_are_the_printed_ones():
    L, rho, gap = 4 + 181 * 0.1, CHAIN.hessian_lipschitz, CHAIN.value(CHAIN.start)
    for theorem, method, K, factor, times, promise in (
        ("Theorem 1", RAGD, 8, 7 / 8, 2, 82),
        ("Theorem 4", RHB, 10, 1, 5, 242),
    ):
        eps = L**2 / ((625 if method is RHB else 16) * rho * K**4)
        assert theorem_table.eps_for(method, CHAIN, K) == pytest.approx(eps, rel=1e-12)
        rows = theorems.check_fixed(theorem, method, CHAIN, eps)
        D = gap * math.sqrt(rho) / eps**1.5
        printed, provable = rows_like(rows, "gradients")
        # K = (L^2/(eps rho))^(1/4)/2, or a fifth of it: the printed number is 2 D K, or 5 D K.
        assert printed.bound == pytest.approx(times * D * K, rel=1e-9)
        assert provable.bound == (math.floor(D / factor) + 1) * K
        at_output = rows_like(rows, "gradient norm")[0]
        assert at_output.bound == pytest.approx(promise * eps, rel=1e-12)


@pytest.mark.parametrize(("method", "K"), [(RAGD, 8), (RHB, 10)])
def test_the_measured_numbers_are_those_of_the_algorithm_as_it_is_printed(method, K):
    theory = Theory.with_integer_length(COSINES, K, method is RHB)
    history = restarted(
        COSINES.gradient,
        COSINES.start,
        eta=theory.eta,
        theta=theory.theta,
        B=theory.B,
        K=K,
        heavy_ball=method is RHB,
    )
    before = [COSINES.value(epoch.x[0]) for epoch in history.epochs]
    rows = theorems.check_fixed("Theorem", method, COSINES, theory.eps)
    (decrease,) = rows_like(rows, "decrease")
    # Values are of the size 10, decreases of 1e-6: rounding leaves about eight digits.
    least = min(-np.diff(before))
    assert decrease.measured == pytest.approx(theory.decrease / least, rel=1e-5)
    assert {row.measured for row in rows_like(rows, "gradients")} == {len(history.points)}
    assert rows_like(rows, "restarts")[0].measured == len(history.epochs) - 1
    norm = np.linalg.norm(COSINES.gradient(history.output))
    assert rows_like(rows, "gradient norm")[0].measured == pytest.approx(norm, rel=1e-6)


def test_eighty_two_eps_is_claimed_for_whole_epochs_only():
    whole, cut = (
        theorems.check_fixed(
            "Theorem 1", RAGD, COSINES, theorem_table.eps_for(RAGD, COSINES, inverse)
        )
        for inverse in (4, 4.5)
    )
    assert any("82 eps" in row.formula for row in whole)
    assert not any("82 eps" in row.formula for row in cut)
    assert rows_like(cut, "gradient norm")[0].holds


def test_guesses_of_remark_2_are_wrong_and_corrected_within_its_bounds(table):
    rows = [bound for bound in table if bound.theorem == "Remark 2"]
    assert all(1 <= row.measured <= row.bound for row in rows_like(rows, "discarded epochs"))
    for row in rows_like(rows, "1/eta"):  # it begins at bound/32, and falls by powers of 2
        assert math.log2(row.bound / row.measured) in (0, 1, 2, 3, 4)
    for row in rows_like(rows, "rho'"):
        assert math.log2(row.bound / row.measured) in (0, 2, 4, 6, 8)


def test_every_bound_that_rests_on_a_lower_bound_of_f_says_so():
    """Among them those that rest on it through the number of accepted epochs."""
    bounded = dataclasses.replace(CHAIN, minimum_is_exact=False)
    eps = theorem_table.eps_for(RAGD, CHAIN, 8)
    rows = [
        *theorems.check_fixed("Theorem 1", RAGD, bounded, eps),
        *theorems.check_adaptive("Theorem 2", AdaRAGD, bounded, eps),
    ]
    lowered = [
        *theorems.check_fixed("Theorem 1", RAGD, lower(bounded), eps),
        *theorems.check_adaptive("Theorem 2", AdaRAGD, lower(bounded), eps),
    ]
    said = ["Delta_f from a lower bound on f" in row.formula for row in rows]
    moved = [row.bound != other.bound for row, other in zip(rows, lowered, strict=True)]
    assert said == moved
    assert sum(said) == 6  # gradients twice, restarts; accepted epochs, gradients, values
    exact = theorems.check_fixed("Theorem 1", RAGD, CHAIN, eps)
    assert not any("lower bound" in row.formula for row in exact)
    saddle = dataclasses.replace(testbed.saddle(2, 2), minimum_is_exact=False)
    told = [row for row in theorems.second_order(saddle, 0.05, 1) if "lower" in row.formula]
    assert [row.quantity for row in told] == ["gradients, most of 1 seeds"]


def lower(problem):
    return dataclasses.replace(problem, minimum=problem.minimum - 1.0)


@pytest.mark.parametrize(
    ("problem", "eps"), [(testbed.saddle(2, 2), 0.05), (testbed.flat_saddle(3, 2), 0.05)],
    ids=lambda it: getattr(it, "name", ""),
)  # fmt: skip
def test_an_epoch_of_theorem_3_lowers_f_as_told_with_k_rounded_up(problem, eps):
    """Lemma 4 less what a displacement takes back, with the numbers that the method uses."""
    L, rho = problem.gradient_lipschitz, problem.hessian_lipschitz
    method = PerturbedRAGD(
        L, rho, eps, setting="theory", failure_probability=theorems.FAILURE_PROBABILITY
    )
    p = method.resolved(0.0, problem.dimension)
    eta, theta, B, K = p.step_size, p.theta, p.radius, p.epoch_length
    chi = math.sqrt(math.sqrt(eps / rho) / (288 * B))
    assert chi > 12
    assert 1 <= K * theta / (2 * chi) < 1.05
    r = method.displacement(p)
    fall = (
        3 * theta * B**2 / (8 * eta * K) - 10 * eta * rho**2 * B**4 * K / theta - 4.5 * rho * B**3
    )
    back = 5 / 4 * B / eta * r + L / 2 * r**2  # the gradient at x^K is at most 5/4 of that at y
    large = B**2 / (4 * eta)  # Lemma 1: an epoch that ends with a large gradient
    assert min(fall - back, large) >= eps**1.5 / math.sqrt(rho) / (theorems.DECREASE * chi**5)


# --- what the table notices -----------------------------------------------------------------------


def test_a_rho_far_too_small_is_noticed():
    """The radius is so wide that an epoch runs through while it still swings from side to side."""
    chain = started(testbed.second_order_chain(3, 1.0), spread=2.0)
    eps = theorem_table.eps_for(RAGD, chain, 3)
    assert all(row.holds for row in theorems.check_fixed("Theorem 1", RAGD, chain, eps))
    wrong = too_small(chain, rho=1e6)
    rows = theorems.check_fixed("Theorem 1", RAGD, wrong, eps)
    assert not all(row.holds for row in rows_like(rows, "gradient norm"))
    method = RAGD(wrong.gradient_lipschitz, wrong.hessian_lipschitz, eps)
    assert run_epochs(wrong, method).result.status is Status.PROMISE_BROKEN


def test_an_l_too_small_is_noticed():
    eps = theorem_table.eps_for(RAGD, COSINES, 8)
    wrong = too_small(COSINES, L=20.0)
    fixed = theorems.check_fixed("Theorem 1", RAGD, wrong, eps, max_iterations=2000)
    assert not any(row.holds for row in rows_like(fixed, "decrease"))
    adaptive = theorems.check_adaptive("Theorem 2", AdaRAGD, wrong, eps, max_iterations=2000)
    assert not all(row.holds for row in adaptive)


def test_a_run_that_was_cut_meets_no_bound_on_gradients():
    eps = theorem_table.eps_for(RAGD, CHAIN, 8)
    rows = theorems.check_fixed("Theorem 1", RAGD, CHAIN, eps, max_iterations=20)
    for row in (*rows_like(rows, "gradients"), *rows_like(rows, "gradient norm")):
        assert row.measured == math.inf
        assert not row.holds


def test_a_saddle_as_output_breaks_theorem_3():
    saddle = testbed.saddle(2, 2)
    case = Case("Theorem 3", saddle, ESCAPING_NESTEROV, 0.05)
    still = run_epochs(saddle, PerturbedRAGD(1.0, 1.0, 0.05, setting="theory", perturbation=1e-300))
    assert theorems.smallest_eigenvalue(case, still.result) == pytest.approx(-1.0, abs=1e-6)
    method = PerturbedRAGD(1.0, 1.0, 0.05, setting="theory")
    rows = theorems.second_order_rows(case, method, [still])
    broken = [row for row in rows if not row.holds]
    assert rows_like(broken, "negative curvature")
    assert rows_like(broken, "share")
    assert len(broken) == 2


def test_slack_is_how_many_times_the_bound_is_larger():
    bound = Bound("Theorem 1", "gradients", "f", "(N + 1) K", 10.0, 4.0)
    assert bound.slack == 2.5
    assert dataclasses.replace(bound, measured=0.0).slack == math.inf
    assert not dataclasses.replace(bound, measured=10.1).holds


# --- growth ---------------------------------------------------------------------------------------


def test_gradient_descent_pays_a_higher_power_than_the_papers_methods(growths):
    powers = {growth.method: growth.exponent for growth in growths}
    descent = min(power for name, power in powers.items() if name.startswith("GD"))
    papers = [power for name, power in powers.items() if name.split(",")[0] in PAPERS]
    assert len(papers) == 6
    assert descent >= 0.9
    assert max(papers) <= 0.65


def test_all_methods_get_there_and_harder_chains_cost_by_theory_more(growths):
    for growth in growths:
        assert len(growth.gradients) == len(growth.inverse_mu)
        assert np.all(np.isfinite(growth.gradients))
    for growth in growths:
        if "given" in growth.method or growth.method in ("RAGD", "RHB"):
            assert np.all(np.diff(growth.gradients) > 0)


def test_exponents_are_fitted_in_logarithms():
    x = [10.0, 100.0, 1000.0, 4000.0]
    assert exponents.fitted_exponent(x, [3 * t**0.7 for t in x]) == pytest.approx(0.7)
    missing = [3 * x[0] ** 0.7, math.nan, 3 * x[2] ** 0.7, math.nan]
    assert exponents.fitted_exponent(x, missing) == pytest.approx(0.7)
    assert math.isnan(exponents.fitted_exponent(x, [1.0, math.nan, math.nan, math.nan]))


def test_nobody_gets_by_with_fewer_gradients_than_the_chain_demands():
    problem = testbed.nested_chain(3, 0.01)  # bridges of 5 variables: 12 gradients at least
    slow = {"ragd", "rhb", "gd"}  # far above it
    methods = exponents.growth_methods(problem).values()
    assert slow < {method.name for method in methods}
    quick = [method for method in methods if method.name not in slow]
    assert len(quick) == 6
    for method in quick:
        assert exponents.gradients_to(problem, method, 0.01 / 4) >= 12


def test_a_run_that_does_not_get_there_is_no_number(monkeypatch):
    monkeypatch.setattr(exponents, "MOST_ITERATIONS", 5)
    assert math.isnan(exponents.gradients_to(CHAIN, RAGD(22.1, 31.4), 1e-6))


def test_the_picture_has_the_kind_that_its_suffix_says(growths, tmp_path):
    plot_growth(growths, tmp_path / "new" / "growth.png")
    assert (tmp_path / "new" / "growth.png").read_bytes().startswith(b"\x89PNG")
    plot_growth(growths, tmp_path / "growth.pdf")
    assert (tmp_path / "growth.pdf").read_bytes().startswith(b"%PDF")


# --- the file -------------------------------------------------------------------------------------


def test_findings_come_back_from_the_file(table, growths, tmp_path):
    endless = Bound("Theorem 1", "gradients", "f", "K", 8.0, math.inf)
    lost = Growth("slow", [1.0, 2.0], [3.0, math.nan], math.nan)
    folder = StudyFolder(tmp_path / "folder")
    assert folder.load_findings() == ([], [])
    folder.save_findings([*table, endless], [*growths, lost])
    bounds, loaded = folder.load_findings()
    assert bounds == [*table, endless]
    assert loaded[:-1] == growths
    assert repr(loaded[-1]) == repr(lost)  # NaN is not equal to itself
    content = json.loads(folder.findings.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert content["version"] == __version__
    assert "Python" in content["setup"]


def test_a_failed_write_leaves_the_old_file(table, tmp_path):
    folder = StudyFolder(tmp_path)
    folder.save_findings(table, [])
    with pytest.raises(TypeError):
        folder.save_findings([], [Growth("odd", [1.0], [object()], 0.0)])
    assert folder.load_findings() == (table, [])
    assert [p.name for p in tmp_path.iterdir()] == ["theorems.json"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"rows": []}', "not of the kind 'momentous findings'"),
        ("rows: []", "is no JSON"),
        ('{"kind": "momentous findings", "bounds": [{}], "growths": []}', "is damaged"),
        ('{"kind": "momentous findings", "bounds": 3, "growths": []}', "is damaged"),
    ],
)
def test_other_files_are_refused_by_name(text, words, tmp_path):
    folder = StudyFolder(tmp_path)
    folder.findings.write_text(text)
    with pytest.raises(ValueError, match=rf"theorems\.json.*{words}"):
        folder.load_findings()
