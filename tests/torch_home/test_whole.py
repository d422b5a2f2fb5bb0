"""momentous.torch.minimize and certify: whole runs on modules."""

import doctest
import logging

import pytest

torch = pytest.importorskip("torch")

from momentous import Status  # noqa: E402
from momentous.torch import Optimizer, certify, minimize, optimizer, whole  # noqa: E402

GENERATOR = torch.Generator().manual_seed(0)
INPUT = torch.randn(30, 3, dtype=torch.float64, generator=GENERATOR)
WANTED = torch.tanh(INPUT @ torch.tensor([[1.0], [-2.0], [0.5]], dtype=torch.float64))


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Tanh()).double()


def loss_of(net):
    return lambda: torch.nn.functional.mse_loss(net(INPUT), WANTED)


def test_a_module_is_left_at_the_solution():
    net = network()
    result = minimize(net, loss_of(net), tol=1e-8)
    assert result.status is Status.CONVERGED
    assert loss_of(net)().item() == result.fun < 1e-14
    assert result.hess_inv.shape == (4, 4)
    assert torch.equal(result.x["0.weight"], net[0].weight)
    assert result.x["0.weight"].data_ptr() != net[0].weight.data_ptr()


def test_modules_tensors_lists_pairs_and_dictionaries_are_the_same():
    found = []
    for chosen in (
        lambda net: net,
        lambda net: net.parameters(),
        lambda net: net.named_parameters(),
        lambda net: dict(net.named_parameters()),
    ):
        net = network()
        found.append(minimize(chosen(net), loss_of(net), "ada-ragd", tol=1e-4).fun)
    assert len(set(found)) == 1
    x = torch.zeros(2, requires_grad=True)
    assert minimize(x, lambda: (x - 1).square().sum(), tol=1e-4).success
    assert torch.allclose(x, torch.ones(2))


def test_a_callback_sees_the_optimizer_and_may_end_the_run():
    for how in ("returns True", "raises"):
        net, seen = network(), []

        def callback(running: Optimizer, net=net, seen=seen, how=how) -> bool:
            seen.append((running.progress.nit, loss_of(net)().item()))
            if len(seen) == 4 and how == "raises":
                raise StopIteration
            return len(seen) == 4

        result = minimize(net, loss_of(net), callback=callback)
        assert result.status is Status.STOPPED
        assert result.message.startswith("the callback asked to stop in iteration 4")
        assert [nit for nit, _ in seen] == [1, 2, 3, 4]
        assert result.fun == seen[-1][1]


def test_a_callback_sees_the_last_iteration_too():
    net, seen = network(), []
    result = minimize(net, loss_of(net), callback=lambda running: seen.append(running.progress.nit))
    assert seen == list(range(1, result.nit + 1))
    minimize(net, loss_of(net), callback=seen.clear)  # there is no iteration: it is not called


def test_an_interrupted_run_leaves_the_point_reached_and_is_resumed_from_its_file(tmp_path):
    file, net = tmp_path / "run.npz", network()
    wanted = minimize(net, loss_of(net), tol=1e-8)
    net, calls, reached = network(), [0], []

    def loss():
        calls[0] += 1
        if calls[0] == 9:
            raise KeyboardInterrupt
        return loss_of(net)()

    def callback(running):
        reached[:] = [p.detach().clone() for p in net.parameters()]

    with pytest.raises(KeyboardInterrupt) as raised:
        minimize(net, loss, tol=1e-8, checkpoint=file, callback=callback)
    assert all(map(torch.equal, reached, net.parameters()))
    found = raised.value.result
    assert found.status is Status.INTERRUPTED
    assert all(map(torch.equal, found.x.values(), net.parameters()))
    net = network()
    result = minimize(net, loss_of(net), tol=1e-8, resume=file)
    assert (result.fun, result.nfev) == (wanted.fun, wanted.nfev)


@pytest.mark.parametrize("call", [1, 2])
def test_ctrl_c_in_the_first_evaluations_has_the_result_by_names(call):
    net, calls = network(), [0]
    before = [p.detach().clone() for p in net.parameters()]

    def loss():
        calls[0] += 1
        if calls[0] == call:
            raise KeyboardInterrupt
        return loss_of(net)()

    with pytest.raises(KeyboardInterrupt) as raised:
        minimize(net, loss, method="gd")
    found = raised.value.result
    assert (found.status, found.nit) == (Status.INTERRUPTED, 0)
    assert all(map(torch.equal, found.x.values(), before))
    assert all(map(torch.equal, net.parameters(), before))
    assert (found.jac is None) == (call == 1)
    calls[0] = 0
    steps = Optimizer(net.named_parameters(), method="gd")
    with pytest.raises(KeyboardInterrupt):
        steps.step(loss)
    steps.step(loss)  # begins the run
    assert steps.progress.nit == 1


def test_ctrl_c_in_the_callback_has_the_result_too_and_is_logged(caplog):
    net = network()

    def interrupt(running):
        if running.progress.nit == 3:
            raise KeyboardInterrupt

    with caplog.at_level(logging.INFO, "momentous"), pytest.raises(KeyboardInterrupt) as raised:
        minimize(net, loss_of(net), callback=interrupt)
    found = raised.value.result
    assert (found.status, found.nit) == (Status.INTERRUPTED, 3)
    assert all(map(torch.equal, found.x.values(), net.parameters()))
    assert caplog.records[-1].getMessage().startswith("interrupted after iteration 3")


def test_disp_prints_and_the_log_has_how_the_run_ended(capsys, caplog):
    net = network()
    result = minimize(net, loss_of(net), disp=True)
    assert capsys.readouterr().out.startswith(result.message)
    with caplog.at_level(logging.DEBUG, "momentous"):
        net = network()
        result = minimize(net, loss_of(net), max_iterations=2)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == result.nit + 1
    assert said[-1].startswith(result.message)


def test_errors_name_what_was_called():
    net = network()
    with pytest.raises(TypeError, match=r"^minimize\(\) has no option 'lr'"):
        minimize(net, loss_of(net), lr=0.1)
    with pytest.raises(TypeError, match=r"^minimize\(\) has no option 'calback'; .* 'callback'"):
        minimize(net, loss_of(net), calback=print)
    with pytest.raises(TypeError, match=r"^Optimizer\(\) has no option 'disp': .*torch.minimize"):
        Optimizer(net.parameters(), disp=True)


def test_what_is_not_a_loss_or_has_no_parameters_is_refused():
    net = network()
    with pytest.raises(TypeError, match="loss must be a function without arguments"):
        minimize(net, loss_of(net)())
    functional = torch.nn.functional.mse_loss
    for loss, call in ((functional, "mse_loss"), (torch.nn.MSELoss(), r"MSELoss\(\)")):
        with pytest.raises(
            TypeError, match=rf"loss takes no arguments.*lambda: {call}\(net\(X\), y"
        ):
            minimize(net, loss)
    with pytest.raises(TypeError, match="parameters is a function; it must be a module"):
        minimize(loss_of(net), net)
    with pytest.raises(ValueError, match="no parameters to train"):
        minimize(torch.nn.Tanh(), float)


# --- certificates ---------------------------------------------------------------------------------


def saddle(x):
    return x[0].square() - x[1].square() + x[1] ** 4


@pytest.mark.parametrize("calls_backward", [False, True])
def test_a_saddle_is_found_with_its_direction(calls_backward):
    x = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def loss():
        value = saddle(x)
        if calls_backward:
            value.backward()
        return value

    found = certify({"x": x}, loss, eps=1e-6, rho=1.0)
    assert found.is_saddle
    assert found.smallest_eigenvalue == pytest.approx(-2.0, rel=1e-4)
    assert abs(found.direction["x"][1].item()) == pytest.approx(1.0)
    assert torch.equal(x.detach(), torch.zeros(2, dtype=torch.float64))


def test_a_linear_loss_has_no_curvature():
    x = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    found = certify([x], lambda: 1e-8 * x.sum(), eps=1e-6, rho=1.0)
    assert found.is_second_order
    assert found.smallest_eigenvalue == 0.0


def test_the_end_of_a_run_is_certified():
    net = network()
    minimize(net, loss_of(net), tol=1e-8)
    before = [p.detach().clone() for p in net.parameters()]
    assert certify(net, loss_of(net), eps=1e-6).is_second_order
    assert all(map(torch.equal, before, net.parameters()))


def test_products_with_the_hessian_of_complex_parameters():
    z = torch.nn.Parameter(torch.zeros(1, dtype=torch.complex128))
    found = certify(z, lambda: (z.real.square() - 3 * z.imag.square()).sum(), eps=1e-6, rho=1.0)
    assert found.smallest_eigenvalue == pytest.approx(-6.0)
    assert abs(found.direction["0"].imag.item()) == pytest.approx(1.0)


def test_a_check_of_the_gradient_speaks_of_loss_and_closure():
    net = network()

    def clipped():
        loss = loss_of(net)()
        net.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
        return loss

    with pytest.raises(ValueError, match=r"the gradient that the closure leaves.*clip") as refused:
        minimize(net, clipped, check_gradient=True)
    assert "jac" not in str(refused.value)


@pytest.mark.parametrize("module", [optimizer, whole])
def test_the_examples_in_docstrings_run(module):
    torch.manual_seed(0)
    results = doctest.testmod(module)
    assert results.attempted >= 5
    assert results.failed == 0
