"""Bounds of parameters of PyTorch, by name."""

import pytest

torch = pytest.importorskip("torch")

from momentous.torch import Optimizer, certify, minimize  # noqa: E402


def line():
    x = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None]
    net = torch.nn.Linear(1, 1, dtype=torch.float64)
    torch.nn.init.constant_(net.weight, 0.5)
    torch.nn.init.constant_(net.bias, 0.5)

    def loss():
        assert 0.0 <= net.weight.item() <= 2.0
        return (net(x) - 3 * x - 1).square().mean()

    return net, loss


def test_a_module_is_trained_within_bounds():
    net, loss = line()
    result = minimize(net, loss, tol=1e-8, bounds={"weight": (0, 2)})
    assert result.success
    assert net.weight.item() == 2.0
    assert net.bias.item() == pytest.approx(1.0, abs=1e-7)
    assert result.active["weight"].tolist() == [[1]]
    assert result.multipliers["weight"].item() < 0.0
    assert result.message.startswith("the projected gradient norm")
    found = certify(net, loss, eps=1e-6, bounds={"weight": (0, 2)})
    assert found.is_second_order
    assert found.active["weight"].tolist() == [[1]]
    assert found.smallest_eigenvalue == pytest.approx(2.0)


def test_an_optimizer_keeps_to_bounds_and_goes_on_with_them():
    net, loss = line()
    optimizer = Optimizer(net.named_parameters(), tol=1e-8, bounds={"weight": (0, 2)})
    optimizer.step(loss)
    state = optimizer.state_dict()
    other, its_loss = line()
    other.load_state_dict(net.state_dict())
    again = Optimizer(other.named_parameters(), tol=1e-8, bounds={"weight": (0, 2)})
    again.load_state_dict(state)
    for optimizer_, loss_ in ((optimizer, loss), (again, its_loss)):
        while not optimizer_.done:
            optimizer_.step(loss_)
    assert optimizer.result.success
    assert other.bias.item() == net.bias.item()


def test_groups_have_bounds_of_their_own():
    net, loss = line()
    groups = [
        {"params": [("weight", net.weight)], "bounds": (0, 2)},
        {"params": [("bias", net.bias)]},
    ]
    optimizer = Optimizer(groups, tol=1e-8, bounds={"bias": (None, 0.75)})
    while not optimizer.done:
        optimizer.step(loss)
    assert optimizer.result.success
    assert (net.weight.item(), net.bias.item()) == (2.0, 0.75)
    groups[1]["params"] = [("bias", torch.nn.Parameter(torch.zeros(1, dtype=torch.float64)))]
    with pytest.raises(ValueError, match="must be a dict of names where groups have bounds"):
        Optimizer(groups, bounds=(0, 1)).step(loss)


def test_names_that_are_not_there_are_refused():
    net, loss = line()
    with pytest.raises(ValueError, match="names 'wait', which is not trained; these are: weight"):
        minimize(net, loss, bounds={"wait": (0, 2)})


def test_tensors_in_single_precision_stay_inside():
    x = torch.tensor([0.9, 0.1], requires_grad=True)
    top = 0.7  # which float32 does not hold

    def loss():
        assert (x.detach().double() <= max(top, 0.9)).all()
        return ((x - 5.0) ** 2).sum()

    with pytest.warns(RuntimeWarning, match="outside of the bounds"):
        result = minimize(x, loss, bounds=(None, top), tol=1e-3)
    assert result.success
    assert (x.detach().double() <= top).all()


def test_a_pair_of_tensors_is_all_lower_and_all_upper_bounds():
    net = torch.nn.Linear(1, 2, dtype=torch.float64)
    torch.nn.init.constant_(net.bias, 0.1)
    pair = (torch.zeros(2), torch.full((2,), 0.5))
    found = minimize(net, lambda: (net.bias - 3).square().sum(), bounds={"bias": pair})
    assert found.x["bias"].tolist() == [0.5, 0.5]
