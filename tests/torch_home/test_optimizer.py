"""momentous.torch.Optimizer: an optimizer of PyTorch that takes the steps of `minimize`."""

import copy
import io
import pickle
import re
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import momentous  # noqa: E402
from momentous import CheckpointError, Status  # noqa: E402
from momentous.torch import Optimizer  # noqa: E402

GENERATOR = torch.Generator().manual_seed(0)
INPUT = torch.randn(40, 3, dtype=torch.float64, generator=GENERATOR)
WANTED = torch.sin(INPUT.sum(1, keepdim=True))

METHODS = {
    "auto": {},
    "lbfgs": {},
    "ssbroyden": {"plain_pairs": 3},
    "ada-ragd": {},
    "ada-rhb": {},
    "universal-hb": {},
    "cg": {},
    "ragd": {"step_size": 0.3, "momentum": 0.9, "radius": 0.3, "epoch_length": 12},
}


def network(dtype=torch.float64):
    torch.manual_seed(1)
    layers = torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)
    return torch.nn.Sequential(*layers).to(dtype)


def loss_of(net):
    return lambda: torch.nn.functional.mse_loss(net(INPUT), WANTED)


def closure_of(net, optimizer):
    """As for torch.optim.LBFGS."""

    def closure():
        optimizer.zero_grad()
        loss = loss_of(net)()
        loss.backward()
        return loss

    return closure


def vector(net):
    return torch.nn.utils.parameters_to_vector(net.parameters()).detach().clone()


def flat_function(net):
    """x -> (f, g) on arrays of NumPy, written without the code under test."""

    def function(x):
        x = torch.tensor(x).requires_grad_()
        sizes = [p.numel() for p in net.parameters()]
        pieces = zip(net.named_parameters(), x.split(sizes), strict=True)
        values = {name: piece.view_as(p) for (name, p), piece in pieces}
        loss = torch.nn.functional.mse_loss(torch.func.functional_call(net, values, INPUT), WANTED)
        return loss.item(), torch.autograd.grad(loss, x)[0].numpy()

    return function


def trained(steps, method="auto", **options):
    """A network, its optimizer and the losses after so many steps."""
    net = network()
    optimizer = Optimizer(net.named_parameters(), method, **{"tol": 1e-4, **options})
    return net, optimizer, [optimizer.step(loss_of(net)).item() for _ in range(steps)]


def bits(net):
    return [p.detach().numpy().tobytes() for p in net.parameters()]


# --- the same as minimize -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_after_every_step_the_parameters_are_what_minimize_would_return_there(method):
    net, options = network(), {"method": method, "tol": 1e-3, **METHODS[method]}
    start, function = vector(net).numpy(), flat_function(network())
    optimizer = Optimizer(net.parameters(), max_iterations=60, **options)
    closure, calls = closure_of(net, optimizer), [0]

    def counted():
        calls[0] += 1
        return closure()

    for k in range(1, 61):
        loss = optimizer.step(counted)
        if k <= 12 or k % 15 == 0:
            there = momentous.minimize(function, start, jac=True, max_iterations=k, **options)
            assert np.array_equal(vector(net).numpy(), there.x)
            assert loss.item() == there.fun
            gradient = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
            assert np.array_equal(gradient.numpy(), there.jac)
    whole = momentous.minimize(function, start, jac=True, max_iterations=60, **options)
    result = optimizer.result
    assert optimizer.done
    found = torch.cat([part.reshape(-1) for part in result.x.values()])
    assert np.array_equal(found.numpy(), whole.x)
    for name in ("fun", "grad_norm", "nit", "nfev", "njev", "restarts", "status", "message"):
        assert result[name] == whole[name], name
    assert calls[0] == result.nfev == result.njev
    assert list(result.trace["fun"]) == list(whole.trace["fun"])


def test_when_the_run_is_over_steps_do_nothing():
    net, optimizer, losses = trained(500, tol=1e-2)
    assert optimizer.result.status is Status.CONVERGED
    assert optimizer.result.nit < 500
    before = bits(net)
    assert optimizer.step(lambda: pytest.fail("the closure was called")).item() == losses[-1]
    assert bits(net) == before


def test_the_results_belong_to_the_caller():
    net, optimizer, _ = trained(300, tol=1e-2)
    assert set(optimizer.result.x) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    net.load_state_dict(optimizer.result.x)
    for part in optimizer.result.x.values():
        part.zero_()
    assert vector(net).norm() > 0
    optimizer.step(loss_of(net))  # no warning that something has changed


def test_a_closure_may_leave_out_zero_grad_and_backward_or_forget_the_first():
    def all_lines(net, optimizer):
        return closure_of(net, optimizer)

    def forgets(net, optimizer):
        def closure():
            loss = loss_of(net)()
            loss.backward()
            return loss

        return closure

    found = []
    for make in (all_lines, forgets, lambda net, optimizer: loss_of(net)):
        net = network()
        optimizer = Optimizer(net.parameters())
        closure = make(net, optimizer)
        for _ in range(5):
            optimizer.step(closure)
        found.append(bits(net))
    assert found[0] == found[1] == found[2]


def test_a_closure_may_return_a_float():
    net = network()
    optimizer = Optimizer(net.parameters())
    closure = closure_of(net, optimizer)
    loss = optimizer.step(lambda: closure().item())
    assert loss.item() == pytest.approx(loss_of(net)().item(), rel=1e-15)


def test_stop_ends_the_run():
    net, optimizer, losses = trained(3)
    optimizer.stop("enough")
    assert optimizer.result.status is Status.STOPPED
    assert optimizer.result.message.startswith("enough in iteration 3")
    assert optimizer.result.fun == losses[-1]
    with pytest.raises(RuntimeError, match="no run to stop"):
        Optimizer(net.parameters()).stop()


# --- which parameters -----------------------------------------------------------------------------


def test_groups_frozen_unused_and_complex_parameters():
    net = network()
    net[0].bias.requires_grad_(False)
    unused = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    spiral = torch.nn.Parameter(torch.ones(2, dtype=torch.complex128))
    groups = [{"params": net[0].parameters()}, {"params": [*net[2].parameters(), unused, spiral]}]
    frozen = net[0].bias.detach().clone()
    optimizer = Optimizer(groups, tol=1e-3)
    while not optimizer.done:
        loss = optimizer.step(lambda: loss_of(net)() + (spiral - 1 - 2j).abs().square().sum())
    assert loss < 0.3
    assert torch.equal(net[0].bias, frozen)
    assert torch.equal(unused.detach(), torch.ones(2, dtype=torch.float64))
    assert torch.allclose(spiral.detach(), torch.full_like(spiral, 1 + 2j), atol=1e-3)
    assert optimizer.result.x["5"].dtype == torch.complex128


def test_sparse_gradients_are_used():
    table = torch.nn.Embedding(5, 2, sparse=True, dtype=torch.float64)
    optimizer = Optimizer(table.parameters(), tol=1e-6)
    rest = table.weight.detach()[3:].clone()
    rows = torch.tensor([0, 2, 2])
    while not optimizer.done:
        optimizer.step(lambda: (table(rows) - 1).square().sum())
    assert torch.allclose(table.weight[rows], torch.ones(3, 2, dtype=torch.float64))
    assert torch.equal(table.weight.detach()[3:], rest)


def test_tied_and_strided_parameters_count_once_and_keep_their_layout():
    net = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False))
    net = net.double()
    net[1].weight = net[0].weight
    net[0].weight.data = net[0].weight.data.T
    optimizer = Optimizer(net.parameters(), tol=1e-6)
    while not optimizer.done:
        optimizer.step(lambda: (net(INPUT) - INPUT).square().mean())
    assert net[0].weight is net[1].weight
    assert net[0].weight.stride() == (1, 3)
    assert optimizer.result.x["0"].shape == (3, 3)
    assert optimizer.result.fun < 1e-8


def test_more_parameters_begin_a_new_run_at_the_point_reached():
    net = network()
    optimizer = Optimizer(net[0].parameters(), tol=1e-4)
    for _ in range(5):
        loss = optimizer.step(loss_of(net))
    optimizer.add_param_group({"params": net[2].parameters()})
    after = optimizer.step(loss_of(net))
    assert after < loss
    assert optimizer.progress.nit == 1
    assert len(optimizer.param_groups) == 2


@pytest.mark.parametrize("change", ["parameters", "frozen", "precision"])
def test_parameters_changed_between_steps_begin_a_new_run_there_with_a_warning(change):
    net, optimizer, _ = trained(5)
    if change == "parameters":
        net.load_state_dict({name: p + 0.5 for name, p in net.state_dict().items()})
    elif change == "frozen":
        net[0].weight.requires_grad_(False)
    else:
        net.to(torch.float32)
    function = loss_of(net)
    if change == "precision":
        function = lambda: torch.nn.functional.mse_loss(net(INPUT.float()), WANTED.float())  # noqa: E731
    begin = function().item()
    with pytest.warns(RuntimeWarning, match="a new run begins at the present") as warned:
        loss = optimizer.step(function)
    assert warned[0].filename == __file__
    assert loss <= begin
    assert optimizer.progress.nit == 1


def test_memory_of_a_parameter_may_be_replaced_by_a_copy():
    net, _, losses = trained(10)
    other, again, found = trained(5)
    for p in other.parameters():
        p.data = p.data.clone()
    found += [again.step(loss_of(other)).item() for _ in range(5)]
    assert found == losses
    assert bits(other) == bits(net)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda n: Optimizer(n.parameters(), lr=0.1), "no learning rate here"),
        (lambda n: Optimizer(n.parameters(), maximize=True), "return the negative"),
        (lambda n: Optimizer(n.parameters(), weight_decay=0.1), "add the penalty to the loss"),
        (lambda n: Optimizer(n.parameters(), history_size=5), "memory="),
        (lambda n: Optimizer([{"params": n.parameters(), "lr": 1}]), "no learning rate here"),
        (lambda n: Optimizer([{"params": n.parameters(), "color": 1}]), "one point of one func"),
        (lambda n: Optimizer(n.parameters(), tolerance=1), r"Optimizer\(\) has no option"),
        (
            lambda n: Optimizer(n.parameters(), "adam"),
            "method='adam' does not run here.*torch.optim",
        ),
        (lambda n: Optimizer(n), r"pass its named_parameters\(\)"),
        (
            lambda n: torch.optim.lr_scheduler.StepLR(Optimizer(n.parameters()), 1),
            "nothing for a scheduler to change",
        ),
    ],
)
def test_what_has_no_meaning_here_is_refused_with_the_remedy(make, sentence):
    with pytest.raises((TypeError, ValueError, KeyError), match=sentence):
        make(network())


def two_dtypes():
    return [torch.nn.Parameter(torch.zeros(2, dtype=d)) for d in (torch.float32, torch.float64)]


def one_memory():
    x = torch.zeros(4)
    return [torch.nn.Parameter(x[:3]), torch.nn.Parameter(x[2:])]


def two_of_one_name():
    layers = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False)
    return [{"params": layer.named_parameters()} for layer in layers]


@pytest.mark.parametrize(
    ("params", "closure", "sentence"),
    [
        (two_dtypes, float, "torch.float32 .0., torch.float64 .1."),
        (one_memory, float, "0 and 1 share memory"),
        (lambda: [torch.zeros(3)], float, "none of the 1 parameters requires a gradient"),
        (None, None, r"step\(\) needs a closure"),
        (two_of_one_name, float, "2 parameters are called 'weight'; give each a name"),
        (None, lambda net: None, "returned None"),
        (None, lambda net: (net(INPUT).sum(), 1), "returned a tuple; it must return the loss"),
        (None, lambda net: net(INPUT).sum().backward() or "3", "returned a str; it must return"),
        (None, lambda net: net(INPUT), r"shape \(40, 1\)"),
        (None, lambda net: torch.tensor(1.0), "left no gradient"),
        (None, lambda net: net(INPUT).sum() * torch.nan, "the loss at the start is nan"),
        (None, lambda net: (net[0].weight * 0).abs().sqrt().sum(), "not finite in 0"),
    ],
)
def test_mistakes_are_named(params, closure, sentence):
    net = network()
    optimizer = Optimizer(net.parameters() if params is None else params())
    call = None if closure is None else lambda: closure(net)
    with pytest.raises((TypeError, ValueError, RuntimeError), match=sentence):
        optimizer.step(call)
    assert bits(net) == bits(network())


def test_a_loss_that_is_not_finite_on_the_way_is_stepped_back_from():
    x = torch.nn.Parameter(torch.tensor([0.1], dtype=torch.float64))
    optimizer = Optimizer([x], tol=1e-6)
    while not optimizer.done:
        optimizer.step(lambda: (x - 20 * torch.log(x)).sum())
        assert torch.isfinite(x).all()
    assert x.item() == pytest.approx(20, rel=1e-5)


# --- exceptions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_leaves_the_last_point_and_the_run_goes_on_as_if_there_had_been_none(error):
    wanted_net, wanted, losses = trained(30)
    net = network()
    optimizer, calls, found = Optimizer(net.named_parameters(), tol=1e-4), [0], []
    fails = {1, 2, 9, 20, 21}  # calls of the closure, some of them in the middle of a step

    def closure():
        calls[0] += 1
        if calls[0] in fails:
            raise error("no memory")
        return loss_of(net)()

    while len(found) < 30:
        before = bits(net)
        try:
            found.append(optimizer.step(closure).item())
        except error:
            assert bits(net) == before
            assert all(p.grad is None for p in net.parameters())
    assert found == losses
    assert bits(net) == bits(wanted_net)
    assert optimizer.progress.nfev == wanted.progress.nfev
    assert calls[0] == wanted.progress.nfev + len(fails)  # none was made twice


# --- saved and resumed ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "ada-ragd", "ragd"])
def test_a_state_resumes_the_run_bit_for_bit(method):
    options = METHODS[method]
    whole_net, whole, losses = trained(25, method, **options)
    for cut in (0, 1, 12):
        net, optimizer, _ = trained(cut, method, **options)
        file = io.BytesIO()
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
        for _ in range(3):
            optimizer.step(loss_of(net))  # what was saved does not change any more
        file.seek(0)
        state = torch.load(file, weights_only=True)
        net, optimizer, _ = trained(0, method, **options)
        optimizer.load_state_dict(state["optimizer"])  # in either order
        net.load_state_dict(state["net"])
        kept = copy.deepcopy(state)
        found = [optimizer.step(loss_of(net)).item() for _ in range(25 - cut)]
        assert found == losses[cut:]
        assert bits(net) == bits(whole_net)
        assert optimizer.progress.nfev == whole.progress.nfev
        assert str(state) == str(kept)  # nor does what was loaded


def test_a_state_that_is_loaded_is_given_again_before_the_next_step():
    net, optimizer, _ = trained(4)
    state = optimizer.state_dict()
    again = Optimizer(net.named_parameters(), tol=1e-4)
    again.load_state_dict(state)
    assert str(again.state_dict()) == str(state)


def test_a_run_that_was_over_is_over_again_and_goes_on_with_more_iterations():
    net, optimizer, _ = trained(10, max_iterations=8)
    assert optimizer.result.status is Status.MAX_ITERATIONS
    state = optimizer.state_dict()
    more = Optimizer(net.named_parameters(), tol=1e-4, max_iterations=8)
    more.load_state_dict(state)
    more.step(loss_of(net))
    assert more.result.nit == 8
    assert more.result.fun == optimizer.result.fun
    more = Optimizer(net.named_parameters(), tol=1e-4, max_iterations=12)
    more.load_state_dict(state)
    more.step(loss_of(net))
    assert more.progress.nit == 9


def test_a_state_of_something_else_is_refused():
    net, optimizer, _ = trained(4)
    state = optimizer.state_dict()
    adam = torch.optim.Adam(net.parameters()).state_dict()
    with pytest.raises(ValueError, match="not written by momentous"):
        optimizer.load_state_dict(adam)
    other = torch.nn.Linear(3, 5).double()
    with pytest.raises(CheckpointError, match="the state belongs to another problem"):
        Optimizer(other.parameters()).load_state_dict(state)
    wider = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
    with pytest.raises(CheckpointError, match="the state belongs to another problem"):
        Optimizer(wider.double().named_parameters()).load_state_dict(state)
    with pytest.raises(CheckpointError, match="another version"):
        optimizer.load_state_dict({**state, "run": {**state["run"], "version": 0}})
    with pytest.raises(CheckpointError, match="the state is damaged"):
        optimizer.load_state_dict({**state, "run": {**state["run"], "tree": {"record": "no"}}})
    optimizer.step(loss_of(net))
    assert optimizer.progress.nit == 5  # what was refused has not touched the run
    with pytest.raises(CheckpointError, match="leave method out to go on with the method"):
        Optimizer(net.named_parameters(), "gd").load_state_dict(state)


@pytest.mark.parametrize(
    ("place", "wrong", "sentence"),
    [
        ("param_groups", None, "is damaged"),
        ("param_groups", [{"lr": 1.0}], "is damaged"),
        ("param_groups", [{"params": [0, 1, 2]}], "of other groups"),
        ("run", 3, "is damaged"),
        ("run.arrays", [], "is damaged"),
        ("run.arrays.a0", "x", "is damaged"),
        ("run.arrays.a0", torch.ones(26, dtype=torch.bfloat16), "is damaged"),
        ("run.arrays.a0", torch.ones(26, dtype=torch.float64), "has changed since it was written"),
        ("run.tree", torch.ones(2), "is damaged"),
        ("run.arrays.shown", torch.ones(2), "has changed since it was written"),
        ("run.version", 2**70, "has version 1180591620717411303424, this momentous"),
        ("run.tree.fields.tol", np.float64(1.0), "has changed since it was written"),
    ],
)
def test_a_damaged_state_is_refused_in_a_sentence_and_changes_nothing(place, wrong, sentence):
    net, optimizer, _ = trained(3)
    state = copy.deepcopy(optimizer.state_dict())
    part, (*path, last) = state, place.split(".")
    for key in path:
        part = part[key]
    part[last] = wrong
    run, groups = optimizer._run, [dict(group) for group in optimizer.param_groups]
    with pytest.raises(CheckpointError, match=f"^the state .*?{re.escape(sentence)}"):
        optimizer.load_state_dict(state)
    assert optimizer._run is run
    assert [dict(group) for group in optimizer.param_groups] == groups
    optimizer.step(loss_of(net))
    assert optimizer.progress.nit == 4


def test_a_run_is_resumed_by_its_own_method_where_none_is_given(tmp_path):
    file = tmp_path / "run.npz"
    net, optimizer, _ = trained(5, "lbfgs", memory=3, checkpoint=file, max_iterations=5)
    for again in (Optimizer(net.named_parameters(), resume=file),
                  Optimizer(net.named_parameters())):  # fmt: skip
        if again.state_dict()["run"] is None:
            again.load_state_dict(optimizer.state_dict())
        again.step(loss_of(net))
        again.stop()
        assert again.result.nit == 6
        assert again.result.method == momentous.LBFGS(memory=3)
        net.load_state_dict(optimizer.result.x)


@pytest.mark.parametrize(
    "method", [None, "auto", momentous.Safeguarded()], ids=("none", "name", "instance")
)
def test_a_network_has_a_self_scaled_matrix_that_a_resumed_run_keeps(method):
    def part():
        torch.manual_seed(0)
        layers = torch.nn.Linear(3, 40), torch.nn.Tanh(), torch.nn.Linear(40, 1)
        net = torch.nn.Sequential(*layers)  # 201 parameters
        x = torch.linspace(-1, 1, 60).reshape(20, 3)
        optimizer = Optimizer(net.parameters(), method)
        return net, optimizer, lambda: (net(x)[:, 0] - x.prod(1)).square().mean()

    net, optimizer, loss = part()
    optimizer.step(loss)
    again, resumed, loss = part()
    resumed.load_state_dict(optimizer.state_dict())
    again.load_state_dict(net.state_dict())
    resumed.step(loss)
    resumed.stop()
    assert resumed.result.method == momentous.Safeguarded(fast=momentous.SelfScaledBroyden())


@pytest.mark.parametrize(
    "given", [{"bounds": {"0.weight": (-1, 1)}}, {"penalty": momentous.L1(0.1)}]
)
def test_with_bounds_or_a_term_there_is_no_self_scaled_matrix(given):
    net = torch.nn.Sequential(torch.nn.Linear(3, 40), torch.nn.Linear(40, 1)).double()
    result = momentous.torch.minimize(
        net, lambda: torch.nn.functional.mse_loss(net(INPUT), WANTED), max_iterations=1, **given
    )
    assert result.method.fast == momentous.LBFGS(memory=200)


def test_in_single_precision_the_double_one_is_advised_once(caplog):
    momentous.torch.optimizer._advise_double_precision.cache_clear()
    with caplog.at_level("INFO", logger="momentous"):
        for dtype in (torch.float64, torch.float32, torch.float32):
            net = network(dtype)
            momentous.torch.minimize(net, lambda net=net, d=dtype: net(INPUT.to(d)).square().mean())
    assert caplog.text.count("train in float64") == 1


def test_a_state_without_its_parameters_begins_anew_with_a_warning():
    _, optimizer, _ = trained(4)
    net, again, _ = trained(0)
    again.load_state_dict(optimizer.state_dict())
    with pytest.warns(RuntimeWarning, match="load the module's state as well"):
        again.step(loss_of(net))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies_go_on_where_the_original_is(copied):
    net, optimizer, _ = trained(6)
    other, again = copied((net, optimizer))
    wanted = [optimizer.step(loss_of(net)).item() for _ in range(6)]
    assert [again.step(loss_of(other)).item() for _ in range(6)] == wanted
    with pytest.raises(KeyError, match="no learning rate"):
        again.param_groups[0]["lr"]


def test_a_checkpoint_file_resumes_too(tmp_path):
    whole_net, whole, _ = trained(400, checkpoint=tmp_path / "whole.npz")
    net = network()
    part = Optimizer(net.parameters(), tol=1e-4, max_iterations=7, checkpoint=tmp_path / "part.npz")
    while not part.done:
        part.step(loss_of(net))
    net = network()
    rest = Optimizer(net.parameters(), tol=1e-4, resume=tmp_path / "part.npz")
    while not rest.done:
        rest.step(loss_of(net))
    assert bits(net) == bits(whole_net)
    assert rest.result.nfev == whole.result.nfev


# --- in company -----------------------------------------------------------------------------------


def test_hooks_of_steps_and_states_are_called():
    net, optimizer, _ = trained(0)
    seen = []
    optimizer.register_step_pre_hook(lambda *given: seen.append("before"))
    optimizer.register_step_post_hook(lambda *given: seen.append("after"))
    optimizer.register_state_dict_post_hook(lambda *given: seen.append("state"))
    optimizer.step(loss_of(net))
    optimizer.state_dict()
    assert seen == ["before", "after", "state"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's compiler causes and hides some
def test_compiled_modules_closures_and_steps_give_the_same():
    _, _, losses = trained(8)
    backend = {"backend": "aot_eager"}
    net, optimizer, _ = trained(0)
    module = torch.compile(net, **backend)
    assert [optimizer.step(loss_of(module)).item() for _ in range(8)] == losses
    net, optimizer, _ = trained(0)
    closure = torch.compile(closure_of(net, optimizer), **backend)
    assert [optimizer.step(closure).item() for _ in range(8)] == losses
    net, optimizer, _ = trained(0)
    step = torch.compile(lambda: optimizer.step(loss_of(net)), **backend)
    assert [step().item() for _ in range(8)] == losses


def test_steps_in_low_precision_keep_it():
    net = network(torch.float32)
    optimizer = Optimizer(net.parameters(), tol=1e-2)
    while not optimizer.done:
        loss = optimizer.step(
            lambda: torch.nn.functional.mse_loss(net(INPUT.float()), WANTED.float())
        )
    assert optimizer.result.success
    assert loss.dtype == net[0].weight.dtype == torch.float32
    assert optimizer.result.x["0"].dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_states_in_low_precision_are_loaded(dtype):
    net, other = network(dtype), network(dtype)
    target = WANTED.to(dtype)

    def step(optimizer, net):
        optimizer.step(lambda: torch.nn.functional.mse_loss(net(INPUT.to(dtype)), target))

    first, second = (Optimizer(each.parameters(), "ada-ragd", tol=0.0) for each in (net, other))
    for _ in range(3):
        step(first, net)
    second.load_state_dict(first.state_dict())
    other.load_state_dict(net.state_dict())
    step(second, other)
    assert second.progress.nit == 4


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_parameters_on_a_gpu_on_two_devices_and_moved_from_one_to_the_other():
    losses = trained(12)[2]
    net, optimizer, _ = trained(0)
    data = INPUT.cuda(), WANTED.cuda()
    function = lambda: torch.nn.functional.mse_loss(net(data[0]), data[1])  # noqa: E731
    net.cuda()
    found = [optimizer.step(function).item() for _ in range(6)]
    net.cpu()
    found += [optimizer.step(loss_of(net)).item() for _ in range(6)]
    assert found == pytest.approx(losses, rel=1e-6)
    net, optimizer, _ = trained(0)
    net[2].cuda()
    both = lambda: (net[2](net[1](net[0](INPUT)).cuda()) - data[1]).square().mean()  # noqa: E731
    assert [optimizer.step(both).item() for _ in range(12)] == pytest.approx(losses, rel=1e-6)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    optimizer.load_state_dict(torch.load(file, weights_only=True))
    optimizer.step(both)
    assert optimizer.progress.nit == 13


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("mini-batches", r"two answers at one point.*one fixed batch"),
        ("clipped", r"not the gradient of the loss.*do not change gradients \(clip"),
        ("right", None),
    ],
)
def test_a_closure_that_is_no_function_is_noticed_in_the_first_steps(kind, words, seed):
    """By steps along which the loss changes unlike the gradients say; a right one is not called
    once more."""
    torch.manual_seed(seed)
    inputs = torch.randn(512, 8)
    targets = torch.sin(inputs.sum(1, keepdim=True))
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer, calls = Optimizer(net.parameters()), []

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        rows = torch.randint(512, (32,)) if kind == "mini-batches" else slice(None)
        loss = 10 * (net(inputs[rows]) - targets[rows]).square().mean()
        loss.backward()
        if kind == "clipped":
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        return loss

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(20):
            optimizer.step(closure)
    assert [bool(re.search(words, str(each.message))) for each in found] == [True] * bool(words)
    assert len(calls) == optimizer.progress.nfev  # looking closer is counted
