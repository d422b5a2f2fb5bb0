"""Runs on ranks: the same as in one process, the same end on all ranks, and nothing hangs."""

from __future__ import annotations

import numpy as np
import pytest
import run_cases as cases
from launch import launched
from run_cases import LAYOUTS, STEPS

from momentous import minimize
from momentous.distributed import Alone
from momentous.methods.registry import REGISTRY

pytestmark = pytest.mark.slow

ALONE = Alone()


@pytest.fixture(scope="module")
def by_mpi(tmp_path_factory):
    """All cases on four ranks of MPI, of which two and three also run on their own."""
    return launched("mpi", 4, tmp_path_factory)[1]


@pytest.fixture(scope="module")
def by_torch(tmp_path_factory):
    """The steps and the faults on three ranks of torch.distributed."""
    return launched("torch", 3, tmp_path_factory)[1]


@pytest.fixture(scope="module", params=["by_mpi", "by_torch"])
def everywhere(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def alone():
    """Every method in one process."""
    return cases.method_runs(ALONE)


def same(found, expected, rel=1e-10):
    """The same path, but for rounding."""
    assert found["fun"] == pytest.approx(expected["fun"], rel=rel)
    for name in ("nit", "nfev", "njev", "restarts", "status", "events"):
        assert found[name] == expected[name], name
    np.testing.assert_allclose(found["x"], expected["x"], rtol=1e-8, atol=1e-8)


# --- the same result ------------------------------------------------------------------------------


RUNS = [(name, layout) for name in REGISTRY for layout in LAYOUTS if cases.takes(name, layout)]


@pytest.mark.parametrize(
    ("name", "layout"), [(name, layout) for name, layout in RUNS if REGISTRY[name].takes_bounds]
)
def test_bounds_hold_on_any_number_of_ranks(by_mpi, alone, name, layout):
    key = f"{name} {layout} bounds"
    for count in (2, 3, 4):
        on_ranks = [each[f"methods {count}"][key] for each in by_mpi[:count]]
        assert all(each == on_ranks[0] for each in on_ranks)
        assert on_ranks[0]["inside"]
        assert on_ranks[0]["active"] == alone[key]["active"] > 0
        same(on_ranks[0], alone[key])


@pytest.mark.parametrize(("name", "layout"), RUNS)
def test_a_method_takes_the_same_path_on_any_number_of_ranks(by_mpi, alone, name, layout):
    for count in (2, 3, 4):
        on_ranks = [each[f"methods {count}"][f"{name} {layout}"] for each in by_mpi[:count]]
        assert all(each == on_ranks[0] for each in on_ranks)
        same(on_ranks[0], alone[f"{name} {layout}"])


def test_methods_draw_and_restart_in_these_runs(alone):
    events = {name: set(run["events"]) for name, run in alone.items()}
    assert "perturbed" in events["perturbed-ragd data"] & events["jin-agd data"]
    assert all("restart" in events[f"{name} data"] for name in ("ragd", "ada-ragd", "ada-rhb"))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["values", "none"])
def test_maps_are_accelerated_in_the_same_way(by_mpi, layout, kind):
    expected = cases.map_runs(ALONE)[f"{layout} {kind}"]
    for each in by_mpi[:3]:
        same(each["maps"][f"{layout} {kind}"], expected)


def test_simple_terms_take_the_same_path(by_mpi):
    expected = cases.term_runs(ALONE)
    for each in by_mpi[:3]:
        for name, found in expected.items():
            same(each["terms"][name], found, rel=1e-8)
            assert each["terms"][name]["penalty"] == pytest.approx(found["penalty"], rel=1e-8)
            assert each["terms"][name]["optimality"] == pytest.approx(found["optimality"], rel=1e-4)
        for name in ("Simplex", "GroupL2"):
            assert "takes more than this rank's part of x" in each["terms"][name]


def test_a_rank_may_have_no_part_of_x(everywhere):
    expected = cases.runs_with_an_empty_part(ALONE)
    for each in everywhere[:3]:
        assert each["empty part"] == pytest.approx(expected, rel=1e-9)


def test_certificates_say_the_same(by_mpi):
    expected = cases.certificates(ALONE)
    for each in by_mpi[:3]:
        for name, (verdict, smallest, norm, products) in each["certificates"].items():
            assert verdict == expected[name][0]
            # Where the shortest steps seem to disagree, by rounding, a variable takes 4 more.
            assert products == pytest.approx(expected[name][3], abs=4 * 9 if "9 " in name else 0)
            assert smallest == pytest.approx(expected[name][1], rel=1e-6)
            assert norm == pytest.approx(expected[name][2], rel=1e-10)


def test_iterate_and_gradients_of_all_kinds(everywhere):
    problem = cases.PROBLEM
    few = cases.Regression(8, 4)
    differences = minimize(lambda x: few.whole(x)[0], few.start, jac="2-point").fun
    for each in everywhere[:3]:
        data, variables = each["steps"]["data"], each["steps"]["variables"]
        assert len(data["norms"]) == 5
        assert data["norms"] == pytest.approx(variables["norms"], rel=1e-9)
        assert data["norms"][0] < np.linalg.norm(problem.whole(problem.start)[1]) * 2
        assert data["result"]["status"] == "STOPPED"
        assert data["differences"] == pytest.approx(differences, rel=1e-6)


def test_the_examples_of_the_page_run_alone_and_on_ranks(by_mpi):
    alone = cases.examples()
    assert len(alone) == 2
    for each in by_mpi:
        assert each["examples"] == pytest.approx(alone, rel=1e-9)


# --- ranks that do not compute alike --------------------------------------------------------------


@pytest.fixture(scope="module")
def unlike(tmp_path_factory):
    """Two ranks with other kernels of BLAS and NumPy, or with another prox on one of them."""
    return launched("torch", 2, tmp_path_factory, "unlike_program.py")[1]


@pytest.mark.parametrize("what", ["kernels", "last digits"])
def test_ranks_that_round_differently_find_the_minimum_together(unlike, what):
    first, second = (each[what] for each in unlike)
    for found in (first, second):
        assert found["end"] == "CONVERGED"
        assert found["residual"] < 1.001e-9
        assert (found["x"], found["nit"]) == (first["x"], first["nit"])
    assert second["warnings"] == []
    if what == "last digits":
        (warning,) = first["warnings"]
        assert warning.startswith("the ranks round differently: from here on x is sent")
        assert "OPENBLAS_CORETYPE" in warning


@pytest.mark.parametrize(
    ("what", "how"),
    [
        ("not a number", "with entries that are not finite"),
        ("elsewhere", " of its largest entry apart"),
        ("certify x", "0.01 of its largest entry apart"),
    ],
)
def test_another_x_on_one_rank_is_an_error_that_names_it(unlike, what, how):
    for each in unlike:
        assert each[what]["end"] == "RankError"
        assert each[what]["message"].startswith("rank 1 has another x than rank 0, ")
        assert how in each[what]["message"]


def test_certificates_of_unlike_ranks_are_of_one_point_and_one_eps(unlike):
    for each in unlike:
        assert each["certify"] == unlike[0]["certify"]
        assert each["certify by Lanczos"] == unlike[0]["certify by Lanczos"]
        assert each["certify eps"]["message"] == (
            "rank 1 was called with another eps than rank 0: 2000.0, not 1000.0; "
            "pass the same on all ranks"
        )


# --- what is sent ---------------------------------------------------------------------------------


def test_one_message_of_d_plus_2_numbers_per_evaluation_where_data_is_spread(by_mpi):
    """Gradient, value and the checksum of x."""
    for kind in ("fused", "separate"):
        sent = by_mpi[0]["traffic"][f"data {kind}"]
        assert sent == {"calls": 1, "evaluations": 1, "bytes": 8 * (1500 + 2)}


@pytest.mark.parametrize(("kind", "numbers"), [("fused", 3), ("separate", 2)])
def test_one_message_per_iteration_where_variables_are_spread(by_mpi, kind, numbers):
    """|g|^2 and |x' - x|^2, and f where it comes with the gradient; |x|^2 once in 32 iterations."""
    sent = by_mpi[0]["traffic"][f"variables {kind}"]
    assert sent == {"calls": 1 + 1 / 32, "evaluations": 1, "bytes": 8 * (numbers + 1 / 32)}
    assert sent["bytes"] == pytest.approx(8 * numbers, rel=0.02)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_clock_travels_only_where_there_is_a_time_limit(by_mpi, layout):
    found = by_mpi[0]["traffic"]
    timed, fused = found[f"{layout} timed"], found[f"{layout} fused"]
    assert timed["calls"] == fused["calls"] + 1
    assert timed["bytes"] == fused["bytes"] + 8


# --- faults ---------------------------------------------------------------------------------------


def ends(everywhere, case, layout):
    """How the case ended on each rank; a launch in which one hangs ends by its time limit."""
    return [each["faults"][f"{case} {layout}"] for each in everywhere]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_exception_on_one_rank_is_named_on_all(everywhere, layout):
    found = ends(everywhere, "failure", layout)
    assert found[1]["status"] == "ZeroDivisionError"
    for each in found[:1] + found[2:]:
        assert each["status"] == "RankError"
        assert each["message"] == "rank 1 failed: ZeroDivisionError: no such number"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_rank_that_hangs_in_its_function_ends_all(everywhere, layout):
    found = ends(everywhere, "hanging", layout)
    assert {each["status"] for each in found} == {"RankError"}
    for each in found:
        assert (
            "has waited 1 s in all_reduce for the other ranks: one of them hangs" in each["message"]
        )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_may_end_where_it_begins(everywhere, layout):
    assert {e["status"] for e in ends(everywhere, "nothing_to_do", layout)} == {"MAX_ITERATIONS"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ctrl_c_on_one_rank_ends_all_at_the_same_place(everywhere, layout):
    found = ends(everywhere, "interruption", layout)
    assert {each["status"] for each in found} == {"INTERRUPTED"}
    assert len({(each["message"], each["nit"]) for each in found}) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_value_that_is_not_a_number_is_so_on_all_ranks(everywhere, layout):
    found = ends(everywhere, "not_a_number", layout)
    assert len({(e["later"]["message"], e["later"]["nit"]) for e in found}) == 1
    assert {each["later"]["status"] for each in found} == {"NON_FINITE"}
    assert {each["at x0"]["message"] for each in found} == {
        "fun(x0) is nan; start where the objective is finite"
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_time_limit_of_one_rank_ends_all(everywhere, layout):
    found = ends(everywhere, "time_limit", layout)
    assert {each["status"] for each in found} == {"MAX_TIME"}
    assert len({(each["message"], each["nit"]) for each in found}) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("what", "nit"), [("callback", 5), ("one callback", 5), ("criterion", 6)])
def test_a_rank_that_asks_to_stop_ends_all(everywhere, layout, what, nit):
    found = [each[what] for each in ends(everywhere, "wishes", layout)]
    assert {each["status"] for each in found} == {"STOPPED"}
    assert {each["nit"] for each in found} == {nit}
    assert "rank 1 asked to stop" in found[0]["message"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ranks_that_are_called_with_different_arguments_say_so(everywhere, layout):
    for each in ends(everywhere, "different_arguments", layout):
        assert each["tol"]["message"] == (
            "rank 1 was called with another tol than rank 0: 0.001, not 0.0001; "
            "pass the same on all ranks"
        )
        assert "rank 1 was called with another x0 than rank 0" in each["x0"]["message"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ranks_with_different_terms_or_bounds_say_so(everywhere, layout):
    found = ends(everywhere, "different_terms", layout)
    assert all(each == found[0] for each in found)
    differ = "rank 1 was called with another penalty= or bounds= than rank 0: "
    for end in found[0].values():
        assert end["message"].startswith(differ), end
        assert end["message"].endswith("; pass the same on all ranks")
    words = {name: end["message"].removeprefix(differ) for name, end in found[0].items()}
    assert words["radius"].startswith("Ball(radius=5.0), not Ball(radius=3.0);")
    if layout == "data":
        assert words["certify weight"].startswith("L1(weight=0.5), not L1(weight=0.1);")
        assert words["own"].startswith("L1(weight=0.2), not Own;")
        assert words["bounds"].startswith("bounds from -0.5 to 1.0, not bounds from -0.1 to 1.0;")
    else:
        assert words["box"].startswith("bounds, not a sum over parts;")
        assert words["ridge"].startswith(
            "a sum over parts with ridge=0.3, not a sum over parts with ridge=0.1;"
        )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_after_an_error_that_all_ranks_make_they_can_go_on(everywhere, layout):
    for each in ends(everywhere, "different_arguments", layout):
        assert each["refused by all"]["status"] == "TypeError"
        assert each["after that"]["status"] == "MAX_ITERATIONS"


@pytest.mark.parametrize(("layout", "entry"), [("data", 3), ("variables", None)])
def test_a_wrong_gradient_on_one_rank_is_found_on_all(everywhere, layout, entry):
    count = len(everywhere)
    if entry is None:  # the third of the last rank
        entry = -(-150 // count) * (count - 1) + 3
    for each in ends(everywhere, "wrong_gradient", layout):
        assert each["status"] == "ValueError"
        assert f"its entry ({entry},)" in each["message"]


# --- checkpoints ----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_is_resumed_on_any_number_of_ranks(by_mpi, layout):
    for rank, each in enumerate(by_mpi[:3]):
        found = each["checkpoints"][layout]
        assert found["first"]["nit"] == 10
        assert found["undisturbed"]["nit"] == STEPS
        names = ["resumed", "from one", *(f"cut {when}" for when in range(3, 6))]
        names += ["on fewer"] if rank < 2 else []
        names += ["on one"] if rank < 1 else []
        for name in names:
            same(found[name], found["undisturbed"])


def test_a_checkpoint_and_the_one_before_it_keep_their_shards(by_mpi):
    files = by_mpi[0]["checkpoints"]["variables"]["files"]
    assert [name for name in files if "shard" not in name] == [
        "variables.ckpt", "variables.ckpt.previous",
    ]  # fmt: skip
    assert sum("shard" in name for name in files) == 2 * 3
    data = by_mpi[0]["checkpoints"]["data"]["files"]
    assert data == ["data.ckpt", "data.ckpt.previous"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_process_that_goes_on_leaves_no_shards(by_mpi, layout):
    files = by_mpi[0]["checkpoints"][layout]["files at last"]
    assert files == [f"{layout}.ckpt", f"{layout}.ckpt.previous"]


def test_a_full_disk_on_one_rank_leaves_the_checkpoint_before(by_mpi):
    for each in by_mpi[:3]:
        found = each["full disk"]
        assert found["nit"] == STEPS
        assert len(found["warnings"]) == 1
        assert "rank 1: [Errno 28] No space left on device" in found["warnings"][0]
        assert found["resumed at"] == 8
        assert len(found["files"]) == 1 + 3


# --- one process ----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_alone_it_is_the_same_call(layout):
    problem = cases.PROBLEM
    plain = minimize(problem.whole, problem.start, jac=True, max_iterations=10)
    run = minimize(problem.whole, problem.start, jac=True, max_iterations=10, ranks=layout)
    assert run.fun == plain.fun
    np.testing.assert_array_equal(run.x, plain.x)


def test_an_unknown_layout_is_refused():
    with pytest.raises(ValueError, match="ranks='rows' is not understood; pass 'data'"):
        minimize(cases.PROBLEM.whole, cases.PROBLEM.start, jac=True, ranks="rows")
