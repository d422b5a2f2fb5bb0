"""The oracle counts exactly, remembers by identity, checks what comes back, and guards x."""

import itertools

import numpy as np
import pytest

import momentous
from helpers import Waves, counted
from momentous import Status, Trace, minimize
from momentous.core.blocks import BLOCK
from momentous.core.oracle import Oracle, Sample
from momentous.core.sources import function_source
from momentous.core.space import Space

WAVES = Waves()
LARGE = BLOCK + 4_465  # above the size from which arrays are used again


# --- counters -----------------------------------------------------------------------------------


def assert_counted(result, user):
    assert (result.nfev, result.njev) == (user.values, user.gradients)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_iterations": 0},
        {"max_iterations": 23},
        {"max_evaluations": 31},
        {"target": 5.0},
        {"target": -1.0, "max_iterations": 30},
        {"tol": 0.5},
        {"callback": lambda intermediate_result: intermediate_result.nit == 9},
        {"stop": momentous.Stagnation(3)},
    ],
    ids=lambda options: "-".join(options) or "nothing",
)
def test_counters_equal_those_of_the_user(method, how, options):
    user = counted(WAVES)
    result = minimize(x0=WAVES.start, **user.given(how), **(method.eventful | options))
    assert_counted(result, user)


@pytest.mark.parametrize("jac", ["2-point", "3-point"])
def test_differences_are_counted_as_values(method, jac):
    user = counted(WAVES)
    result = minimize(user.fun, WAVES.start, jac=jac, **method.eventful)
    assert result.nfev == user.values
    assert result.njev >= result.nit


@pytest.mark.parametrize(("jac", "per_gradient"), [("2-point", 3), ("3-point", 6)])
def test_one_gradient_by_differences_is_one_gradient(jac, per_gradient):
    user = counted(WAVES)
    result = minimize(user.fun, WAVES.start, jac=jac, max_iterations=0, method=WELL_KNOWN)
    assert user.values == result.nfev == 1 + per_gradient
    assert result.njev == 1


WELL_KNOWN = momentous.RAGD(gradient_lipschitz=100.0, hessian_lipschitz=100.0)


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_autodiff_counts_one_of_each(name, method):
    library = pytest.importorskip(name)
    xp = library.numpy if name == "jax" else library
    user = counted(WAVES)
    options = method.eventful | {"max_iterations": 12}
    x0 = xp.asarray(WAVES.start, dtype=xp.float32)
    result = minimize(user.fun, x0, jac="autodiff", **options)
    # JAX calls it once, to compile it.
    assert result.nfev == result.njev == (user.values if name == "torch" else result.nfev)
    assert name == "torch" or user.values == 1


def test_rollbacks_are_counted(adaptive, how):
    """The first step is far too long: rejected epochs cost evaluations like any other."""
    user = counted(WAVES)
    options = adaptive.eventful | {"step_size": 10.0, "max_iterations": 60}
    result = minimize(x0=WAVES.start, **user.given(how), **options)
    assert len(result.trace.when("rollback")) >= 3
    assert_counted(result, user)


def test_resumed_runs_go_on_counting(method, how, tmp_path):
    user, path = counted(WAVES), tmp_path / "run"
    options = method.eventful | user.given(how) | {"x0": WAVES.start}
    first = minimize(max_iterations=9, checkpoint=path, **options)
    assert_counted(first, user)
    at_the_stop = user.values, user.gradients
    closing = (first.nfev - first.trace["nfev"][-1], first.njev - first.trace["njev"][-1])
    last = minimize(resume=path, **options)
    # What the first run evaluated only to close its result is not part of the run, and neither is
    # the look at the function before the second.
    assert 0 <= user.values - closing[0] - last.nfev <= 1
    assert user.gradients - closing[1] - last.njev == 1
    assert (last.nfev, last.njev) > at_the_stop


# --- evaluations that only a plot needs ---------------------------------------------------------


def test_values_for_the_trace_are_not_counted_and_change_nothing(method, how):
    user = counted(WAVES)
    options = method.eventful | user.given(how) | {"x0": WAVES.start}
    plain = minimize(**options)
    before = user.values
    watched = minimize(trace=Trace(values=True), **options)
    assert user.values - before > before or how == "fused", "the observer did evaluate"
    assert (watched.nfev, watched.njev) == (plain.nfev, plain.njev)
    assert np.array_equal(watched.x, plain.x)
    assert np.array_equal(watched.trace["grad_norm"], plain.trace["grad_norm"])
    assert not np.any(np.isnan(watched.trace["fun"]))


def test_values_for_the_trace_belong_to_its_points(method, how):
    points = [WAVES.start]
    result = minimize(
        x0=WAVES.start,
        trace=Trace(values=True),
        callback=lambda intermediate_result: points.append(intermediate_result.x),
        **counted(WAVES).given(how),
        **method.eventful,
    )
    assert list(result.trace["fun"]) == [WAVES.value(x) for x in points]


def test_values_for_the_eye_are_not_timed(clock):
    def sleepy(x):
        clock.sleep(4)
        return WAVES.value(x)

    peeked = []
    result = minimize(
        sleepy,
        WAVES.start,
        jac=WAVES.gradient,
        method=WELL_KNOWN,
        trace=Trace(values=True),
        callback=lambda intermediate_result: peeked.append(intermediate_result.peek()),
        max_iterations=50,
    )
    assert len(peeked) == 50
    assert result.nfev <= 4
    assert result.time == 4 * result.nfev, "100 values more were for the eye only"
    assert result.trace["time"][-1] <= result.time


def test_peek_gives_the_value_and_disturbs_nothing(method, how):
    def look(intermediate_result):
        step = intermediate_result
        assert step.peek() == WAVES.value(step.x)

    user = counted(WAVES)
    options = method.eventful | {"x0": WAVES.start}
    plain = minimize(**options, **counted(WAVES).given(how))
    watched = minimize(callback=look, **options, **user.given(how))
    assert (watched.nfev, watched.njev) == (plain.nfev, plain.njev)
    assert np.array_equal(watched.x, plain.x)
    assert np.array_equal(watched.jac, plain.jac)


# --- memory of the last point -------------------------------------------------------------------


def an_oracle(user, how, start=WAVES.start):
    given = user.given(how)
    return Oracle(function_source(given["fun"], given["jac"], (), Space(start)))


def test_what_is_known_costs_nothing():
    user = counted(WAVES)
    oracle = an_oracle(user, "separate")
    x = WAVES.start.copy()
    assert oracle.value(x) == oracle.value(x) == WAVES.value(x)
    sample = oracle.gradient(x)
    assert oracle.gradient(x) is sample
    assert sample.value == WAVES.value(x)
    assert (user.values, user.gradients) == (oracle.nfev, oracle.njev) == (1, 1)


def test_a_fused_call_brings_both():
    user = counted(WAVES)
    oracle = an_oracle(user, "fused")
    x = WAVES.start.copy()
    oracle.value(x)
    assert oracle.gradient(x).value == oracle.value(x) == WAVES.value(x)
    assert (oracle.nfev, oracle.njev) == (1, 1)
    assert oracle.fused


def test_memory_goes_by_identity_not_by_content(how):
    user = counted(WAVES)
    oracle = an_oracle(user, how)
    x = WAVES.start.copy()
    oracle.gradient(x)
    oracle.gradient(x.copy())
    assert oracle.njev == user.gradients == 2


def test_peek_neither_counts_nor_forgets(how):
    user = counted(WAVES)
    oracle = an_oracle(user, how)
    x, y = WAVES.start.copy(), WAVES.start + 1.0
    gradient = oracle.gradient(x).gradient.copy()
    assert oracle.peek(y) == WAVES.value(y)
    before = oracle.nfev, oracle.njev
    assert np.array_equal(oracle.gradient(x).gradient, gradient)
    assert (oracle.nfev, oracle.njev) == before


def test_a_bare_sample_learns_its_value(how):
    oracle = an_oracle(counted(WAVES), how)
    x, y = WAVES.start.copy(), WAVES.start + 1.0
    known, sample = oracle.gradient(x), Sample(y)
    oracle.learn(sample)
    assert sample.value == WAVES.value(y)
    assert sample.evaluated == (how == "fused")
    assert oracle.last is known


def test_a_failure_while_a_value_is_learned_forgets_nothing():
    def fails(x):
        if x[0] > WAVES.start[0]:
            raise RuntimeError("mine")
        return WAVES.value(x)

    oracle = Oracle(function_source(fails, WAVES.gradient, (), Space(WAVES.start)))
    known = oracle.gradient(WAVES.start.copy())
    with pytest.raises(RuntimeError, match="mine"):
        oracle.learn(Sample(WAVES.start + 1.0))
    assert oracle.last is known


# --- what comes back from user code -------------------------------------------------------------

X0 = np.ones(3)


@pytest.mark.parametrize(
    ("returned", "error", "words"),
    [
        (None, TypeError, r"jac returned None"),
        (np.ones(4), ValueError, r"jac returned shape \(4,\), but x has shape \(3,\)"),
        (np.ones((3, 1)), ValueError, r"jac returned shape \(3, 1\)"),
        (np.ones((1, 3)), ValueError, r"jac returned shape \(1, 3\)"),
        (1.0, ValueError, r"jac returned shape \(\)"),
        (np.ones(3, np.float32), TypeError, r"jac returned dtype float32, but x0 has.*float64"),
        (np.ones(3, complex), TypeError, r"jac returned dtype complex128"),
        ([1j, 1j, 1j], TypeError, r"jac returned dtype complex128"),
        ("gradient", (TypeError, ValueError), r"jac returned"),
        (["a", "b", "c"], TypeError, r"jac returned a list that is not an array of numbers"),
        ({"g": 1}, TypeError, r"jac returned a dict that is not.*one real number for each entry"),
        ((1.0, np.ones(3)), (TypeError, ValueError), r"jac returned"),
    ],
    ids=str,
)
def test_a_wrong_gradient_is_refused_by_name(returned, error, words):
    with pytest.raises(error, match=words):
        minimize(lambda x: 1.0, X0, jac=lambda x: returned)


@pytest.mark.parametrize("returned", [[1.0, 2.0, 3.0], (1, 2, 3), range(1, 4), np.arange(1, 4)])
def test_lists_tuples_and_whole_numbers_are_gradients_as_in_scipy(returned):
    assert np.array_equal(
        minimize(lambda x: 1.0, X0, jac=lambda x: returned, max_iterations=0).jac, [1.0, 2.0, 3.0]
    )


@pytest.mark.parametrize("other", ["torch", "jax", "array_api_strict"])
def test_a_gradient_of_another_library_is_refused(other):
    pytest.importorskip(other)
    xp = pytest.importorskip("jax.numpy" if other == "jax" else other)
    foreign = xp.ones(3)
    with pytest.raises(TypeError, match=r"jac returned a .*but x0 is a numpy ndarray"):
        minimize(lambda x: 1.0, X0, jac=lambda x: foreign)
    with pytest.raises(TypeError, match=r"jac returned a numpy ndarray, but x0 is"):
        minimize(lambda x: 1.0, foreign, jac=lambda x: np.ones(3, np.float32))


def test_a_gradient_on_another_device_is_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"jac returned an array on meta, but x0 is on cpu"):
        minimize(lambda x: 1.0, torch.ones(3), jac=lambda x: torch.ones(3, device="meta"))


@pytest.mark.parametrize("pair", [1.0, (1.0,), (1.0, np.ones(3), 2), np.ones(2), None])
def test_with_jac_true_anything_but_a_pair_is_refused(pair):
    with pytest.raises(TypeError, match=r"with jac=True fun must return \(f, g\)"):
        minimize(lambda x: pair, X0, jac=True)


def test_a_pair_in_the_wrong_order_is_refused():
    with pytest.raises((TypeError, ValueError), match=r"fun returned an array of shape \(3,\)"):
        minimize(lambda x: (np.ones(3), 1.0), X0, jac=True)


@pytest.mark.parametrize("value", [2.5, 2, np.float32(2.5), np.array(2.5), np.array([[2.5]]), True])
def test_one_number_in_any_wrapping_is_a_value(value):
    result = minimize(lambda x: value, X0, jac=lambda x: np.zeros(3))
    assert type(result.fun) is float
    assert result.fun == np.asarray(value).item()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.ones(2), r"fun returned an array of shape \(2,\); it must return one number"),
        (np.ones(0), r"fun returned an array of shape \(0,\)"),
        (None, r"fun returned None"),
        ("low", r"fun returned 'low' \(str\)"),
        ("3", r"fun returned '3' \(str\); it must return one real number"),
        (b"3", r"fun returned b'3' \(bytes\)"),
        (np.str_("3"), r"fun returned .*one real number"),
        (np.array(["3"]), r"fun returned .*one real number"),
        (np.array("3", object), r"fun returned .*one real number"),
        (np.timedelta64(3, "ns"), r"fun returned .*one real number"),
        ([1.0, 2.0], r"fun returned \[1\.0, 2\.0\]"),
        (1 + 2j, r"fun returned .*one real number"),
        (np.complex128(1 + 2j), r"fun returned .*one real number"),
        (np.array(1 + 2j), r"fun returned .*one real number"),
        ((1.0, np.ones(3)), r"fun returned .*one real number"),
    ],
    ids=str,
)
def test_what_is_not_one_real_number_is_refused_as_value(value, words):
    with pytest.raises((TypeError, ValueError), match=words):
        minimize(lambda x: value, X0, jac=lambda x: np.zeros(3))


def test_a_pair_without_jac_true_is_refused_with_the_way_out():
    with pytest.raises(TypeError, match=r"one real number; if that is \(f, g\), pass jac=True"):
        minimize(lambda x: (float(x @ x), 2 * x), np.ones(2), jac="2-point")


def test_a_whole_number_beyond_all_floats_is_infinity():
    result = minimize(lambda x: -(10**400), np.ones(2), jac=lambda x: 2 * x)
    assert (result.success, result.message.split(";")[0]) == (False, "fun(x0) is -inf")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"tol": np.array([1e-5])}, r"tol=array\(\[1.e-05\]\) must be a number >= 0"),
        ({"jac": np.ones(2)}, r"jac=array\(\[1., 1.\]\) is not understood"),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_by_name(option, words):
    with pytest.raises((TypeError, ValueError), match=words):
        minimize(lambda x: float(x @ x), np.ones(2), **({"jac": lambda x: 2 * x} | option))


def test_a_complex_tensor_is_refused_as_value():
    torch = pytest.importorskip("torch")
    with pytest.raises((TypeError, ValueError), match=r"fun returned .*one real number"):
        minimize(lambda x: torch.tensor(1 + 2j), torch.ones(3), jac=lambda x: torch.zeros(3))


def test_the_gradient_is_checked_at_every_call_not_only_the_first():
    calls = itertools.count()
    with pytest.raises(ValueError, match=r"jac returned shape \(2,\)"):
        minimize(WAVES.value, WAVES.start, jac=lambda x: np.ones(3 if next(calls) < 5 else 2))


# --- user code with habits ----------------------------------------------------------------------


class OneBuffer:
    """Writes every gradient into the same array, as careful Fortran and C programmers do."""

    def __init__(self):
        self.buffer = np.empty(3)

    def gradient(self, x):
        self.buffer[:] = WAVES.gradient(x)
        return self.buffer

    def both(self, x):
        return WAVES.value(x), self.gradient(x)

    def given(self, how):
        if how == "fused":
            return {"fun": self.both, "jac": True}
        return {"fun": WAVES.value, "jac": self.gradient}


@pytest.mark.parametrize("observer", ["looks on", "peeks", "calls the function"])
def test_one_gradient_buffer_for_all_calls_gives_the_same_run(method, how, observer):
    def run(user):
        seen = []

        def look(intermediate_result):
            step = intermediate_result
            seen.append(step.jac.copy())
            if observer == "peeks":
                step.peek()
            elif observer == "calls the function":
                user.both(np.full(3, 7.0))

        trace = Trace(values=observer == "peeks")
        options = method.eventful | user.given(how)
        return minimize(x0=WAVES.start, callback=look, trace=trace, **options), seen

    result, seen = run(OneBuffer())
    wanted, wanted_seen = run(counted(WAVES))
    assert np.array_equal(result.x, wanted.x)
    assert np.array_equal(result.jac, wanted.jac)
    assert (result.nfev, result.njev) == (wanted.nfev, wanted.njev)
    assert np.array_equal(seen, wanted_seen), "the callback's jac belongs to its x"


def test_one_gradient_buffer_leaves_jac_and_x_together_wherever_the_run_is_cut(method, how):
    for limit in range(30):
        user = OneBuffer()
        options = method.eventful | user.given(how) | {"max_iterations": limit}
        result = minimize(x0=WAVES.start, **options)
        assert np.array_equal(result.jac, WAVES.gradient(result.x)), f"after {limit} iterations"


def test_the_result_s_jac_is_not_the_user_s_buffer(method, how):
    user = OneBuffer()
    result = minimize(x0=WAVES.start, **user.given(how), **method.eventful)
    jac = result.jac.copy()
    user.gradient(np.full(3, 7.0))
    assert np.array_equal(result.jac, jac)


def test_a_gradient_that_is_x_itself(method):
    def value(x):
        return 0.5 * float(x @ x)

    class Problem:
        gradient_lipschitz, hessian_lipschitz = 1.0, 1.0

    result = minimize(value, np.ones(4), jac=lambda x: x, tol=1e-4, **method.plain(Problem))
    copied = minimize(value, np.ones(4), jac=np.copy, tol=1e-4, **method.plain(Problem))
    assert result.success
    assert np.array_equal(result.x, copied.x)
    result.x += 1.0
    assert np.array_equal(result.jac, copied.jac), "x and jac are two arrays"


def writes_into(x):
    x *= 0.5


@pytest.mark.parametrize("who", ["fun", "jac", "fused"])
@pytest.mark.parametrize("size", [3, LARGE])
def test_user_code_that_writes_into_x_fails_loudly(who, size):
    problem = Waves(size)

    def bad_value(x):
        writes_into(x)
        return problem.value(x)

    def bad_gradient(x):
        writes_into(x)
        return problem.gradient(x)

    given = {
        "fun": {"fun": bad_value, "jac": problem.gradient},
        "jac": {"fun": problem.value, "jac": bad_gradient},
        "fused": {"fun": lambda x: (bad_value(x), problem.gradient(x)), "jac": True},
    }[who]
    x0 = problem.start
    with pytest.raises(ValueError, match="read-only"):
        minimize(x0=x0, **given)
    assert np.array_equal(x0, Waves(size).start)


def test_user_code_that_writes_into_a_tensor_fails_loudly():
    torch = pytest.importorskip("torch")

    def gradient(x):
        result = 2 * x
        writes_into(x)
        return result

    with pytest.raises((ValueError, RuntimeError), match=r"writ|chang|modif"):
        minimize(lambda x: torch.sum(x * x), torch.ones(3), jac=gradient, max_iterations=5)


KEEPERS = {
    "the array": lambda x: x,
    "a slice": lambda x: x[::7],
    "a reshaped view": lambda x: x.reshape(-1, 1)[3:, 0],
    "a view of a view": lambda x: x.view()[1:].view(),
    "a subclass view": lambda x: x.view(np.ma.MaskedArray),
    "a memoryview": memoryview,
    "an iterator": lambda x: x.flat,
    "a window": lambda x: np.lib.stride_tricks.sliding_window_view(x, 3)[:, 1],
    "a closure": lambda x: lambda: x,
    "a real part": lambda x: x.real,
    "bytes seen as numbers": lambda x: np.frombuffer(x, dtype=np.uint8),
}


def contents(kept):
    return np.array(kept() if callable(kept) else kept)


@pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS)
def test_whatever_user_code_keeps_of_x_stays_as_it_was(keep):
    """Large arrays are used again when nobody refers to them: nobody must mean nobody."""
    problem, shelf = Waves(LARGE), []

    def note(x):
        shelf.append((keep(x), contents(keep(x))))

    def jac(x):
        note(x)
        return problem.gradient(x)

    def fun(x):
        note(x)
        return problem.value(x)

    for name in ("ada-rhb", "ragd"):
        constants = {"gradient_lipschitz": 100.0, "hessian_lipschitz": 100.0}
        options = constants if name == "ragd" else {}
        minimize(fun, problem.start, jac=jac, method=name, max_iterations=12, **options)
    assert len(shelf) > 20
    assert len({contents(kept).tobytes() for kept, _ in shelf}) > 20, "the points differ"
    assert all(np.array_equal(contents(kept), then) for kept, then in shelf)


def test_tensors_that_look_at_x_stay_as_they_were():
    torch = pytest.importorskip("torch")
    problem, shelf = Waves(LARGE), []

    def fun(x):
        tensor = torch.from_numpy(x)
        shelf.append((tensor[5:], tensor[5:].clone()))
        return problem.both(x)

    with pytest.warns(UserWarning, match="not writable"):
        minimize(fun, problem.start, jac=True, max_iterations=15)
    assert len(shelf) > 10
    assert all(torch.equal(kept, then) for kept, then in shelf)


@pytest.mark.parametrize("size", [3, LARGE])
def test_what_a_callback_keeps_stays_as_it_was(method, size, how):
    problem, shelf = Waves(size), []

    def callback(intermediate_result):
        step = intermediate_result
        arrays = (step.x, step.jac, step.x[1:], step.jac[1:])
        shelf.extend((array, array.copy()) for array in arrays)

    options = method.plain(problem) | {"max_iterations": 15}
    user = counted(problem)
    minimize(x0=problem.start, callback=callback, **user.given(how), **options)
    assert len(shelf) == 60
    assert all(np.array_equal(kept, then) for kept, then in shelf)


@pytest.mark.parametrize("size", [3, LARGE])
def test_points_kept_from_iterate_stay_as_they_were(size):
    problem = Waves(size)
    options = {"jac": problem.gradient, "method": "ada-ragd", "max_iterations": 15}
    run = momentous.iterate(problem.value, problem.start, **options)
    shelf = [(step.x, step.x.copy(), step) for step in run]
    result = run.result
    assert all(np.array_equal(kept, then) for kept, then, _ in shelf)
    assert all(np.array_equal(step.jac, problem.gradient(step.x)) for _, _, step in shelf)
    assert result.status is Status.MAX_ITERATIONS


def test_a_gradient_kept_by_the_user_stays_as_it_was(method):
    problem, shelf = Waves(LARGE), []

    def jac(x):
        gradient = problem.gradient(x)
        shelf.append((gradient, gradient.copy()))
        return gradient

    options = method.plain(problem) | {"max_iterations": 12}
    minimize(problem.value, problem.start, jac=jac, **options)
    assert all(np.array_equal(kept, then) for kept, then in shelf)


def test_the_run_is_the_same_whether_or_not_points_are_kept(method):
    """Buffers that are used again hold nothing of what they held."""
    problem, kept = Waves(LARGE), []
    options = method.plain(problem) | {"jac": problem.gradient, "max_iterations": 25}
    plain = minimize(problem.value, problem.start, **options)
    keeping = minimize(
        problem.value,
        problem.start,
        callback=lambda intermediate_result: kept.append(intermediate_result),
        **options,
    )
    assert np.array_equal(plain.x, keeping.x)
    assert np.array_equal(plain.trace["grad_norm"], keeping.trace["grad_norm"])


def test_user_code_may_make_its_tensor_require_gradients():
    """The usual idiom with backward(): the graph must not grow through the run."""
    torch = pytest.importorskip("torch")

    def both(x):
        x.requires_grad_(True)
        value = torch.sum(torch.cosh(x))
        value.backward()
        return value, x.grad

    result = minimize(both, torch.ones(3, dtype=torch.float64), jac=True, tol=1e-6)
    assert result.success
    assert not result.x.requires_grad
    assert not result.jac.requires_grad
