"""Calls that people type by habit: with the import changed they run, or the error names the way.

Each habit is a function; with words, it ends with an error in which they stand.
"""

import pickle
import re

import numpy as np
import pytest
import scipy.optimize
from scipy.optimize import rosen, rosen_der

from momentous import minimize

X0 = np.array([-1.2, 1.0])


def both(x):
    return rosen(x), rosen_der(x)


def near_one(result):
    return np.allclose(result.x, 1.0, atol=1e-3)


def names_keep_their_meaning(result):
    return result["x"] is result.x and {"nit", "nfev", "njev", "status", "jac"} <= result.keys()


def history(**options):
    points = []
    minimize(rosen, X0, jac=rosen_der, callback=points.append, **options)
    return len(points) > 3 and all(x.shape == X0.shape for x in points)


def ends_at_three(xk):
    if xk[0] > -1.0:
        raise StopIteration


def by(name, *, words=None, **more):
    return lambda: near_one(minimize(rosen, X0, method=name, jac=rosen_der, **more)), words


# Name: (habit, words of the error or None).  A habit that runs is true.
SCIPY = {
    "method='BFGS'": by("BFGS"),
    "method='L-BFGS-B'": by("L-BFGS-B"),
    "method='L-BFGS-B' with bounds": by("L-BFGS-B", bounds=[(-2, 2), (None, 2)]),
    "method='CG'": by("CG"),
    "method='Newton-CG'": by("Newton-CG"),
    "method='trust-ncg'": by("trust-ncg"),
    "method='trust-exact'": by("trust-exact"),
    "method='trust-constr' without constraints": by("trust-constr"),
    "method='dogleg'": by("dogleg"),
    "method='TNC'": by("TNC", bounds=scipy.optimize.Bounds(-2, 2)),
    "method='SLSQP' without constraints": by("SLSQP"),
    "method='Nelder-Mead'": by("Nelder-Mead", words="no gradients.*scipy.optimize.minimize"),
    "method='Powell'": by("Powell", words="no gradients.*scipy.optimize.minimize"),
    "method='COBYLA'": by("COBYLA", words="no gradients.*scipy.optimize.minimize"),
    "method='COBYQA'": by("cobyqa", words="no gradients.*scipy.optimize.minimize"),
    "constraints with SLSQP": by(
        "SLSQP", constraints={"type": "eq", "fun": abs}, words="scipy.optimize.minimize.*SLSQP"
    ),
    "arguments by position": (
        lambda: near_one(minimize(rosen, X0, (), "BFGS", rosen_der, None, None, None, (), 1e-6)),
        None,
    ),
    "jac=True": (lambda: near_one(minimize(both, X0, jac=True)), None),
    "jac='2-point'": (lambda: near_one(minimize(rosen, X0, jac="2-point")), None),
    "a list of whole numbers as x0": (
        lambda: near_one(minimize(rosen, [0, 0], jac=rosen_der)), None,
    ),
    "a number as x0": (
        lambda: minimize(lambda x: (x[0] - 1) ** 2, 0.0, jac=lambda x: 2 * (x - 1)).x.shape == (1,),
        None,
    ),
    "args=(a,)": (
        lambda: minimize(
            lambda x, a: float(x @ x) - a, X0, args=(3.0,), jac=lambda x, a: 2 * x
        ).success,
        None,
    ),
    "options={'maxiter', 'gtol', 'disp'}": (
        lambda: near_one(minimize(
            rosen, X0, jac=rosen_der, options={"maxiter": 500, "gtol": 1e-8, "disp": False}
        )),
        None,
    ),
    "options={'maxfun': 20}": (
        lambda: minimize(rosen, X0, jac=rosen_der, options={"maxfun": 20}).nfev == 20, None,
    ),
    "options={'ftol', 'maxcor'} of L-BFGS-B": by("L-BFGS-B", options={"ftol": 1e-14, "maxcor": 5}),
    "callback(xk)": (history, None),
    "a callback that raises StopIteration": (
        lambda: minimize(rosen, X0, jac=rosen_der, callback=ends_at_three).status == 99, None,
    ),
    "the result as a dictionary": (
        lambda: names_keep_their_meaning(minimize(rosen, X0, jac=rosen_der)), None,
    ),
    "result.hess_inv": (
        lambda: minimize(rosen, X0, method="BFGS", jac=rosen_der).hess_inv.shape == (2, 2), None,
    ),
    "scipy.optimize.minimize(method=minimize)": (
        lambda: near_one(scipy.optimize.minimize(rosen, X0, jac=rosen_der, method=minimize)), None,
    ),
    "basinhopping(minimizer_kwargs={'method': minimize})": (
        lambda: near_one(scipy.optimize.basinhopping(
            rosen, X0, niter=2, minimizer_kwargs={"method": minimize, "jac": rosen_der}
        )),
        None,
    ),
    "fprime=": (lambda: minimize(rosen, X0, fprime=rosen_der), "called jac here"),
    "maxiter= as a keyword": (
        lambda: minimize(rosen, X0, jac=rosen_der, maxiter=3).nit == 3, None,
    ),
    "no x0": (lambda: minimize(rosen, jac=rosen_der), r"minimize\(\) needs x0"),
}  # fmt: skip


def tensors():
    torch = pytest.importorskip("torch")
    inputs = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None]
    net = torch.nn.Linear(1, 1, dtype=torch.float64)
    return torch, inputs, 3 * inputs - 1, net


def trained(net):
    return abs(net.weight.item() - 3) < 1e-3 and abs(net.bias.item() + 1) < 1e-3


def optimizer_of(net, *values, **options):
    from momentous.torch import Optimizer

    return Optimizer(net.parameters(), *values, **options)


def loop(build=optimizer_of, epochs=30, zeroes=True):
    """The training loop of torch.optim.LBFGS."""
    torch, inputs, targets, net = tensors()
    optimizer = build(net)

    def closure():
        if zeroes:
            optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        if zeroes:
            loss.backward()
        return loss

    losses = [optimizer.step(closure) for _ in range(epochs)]
    return trained(net) and losses[-1].item() < losses[0].item()


def whole(**options):
    _, inputs, targets, net = tensors()
    from momentous.torch import minimize as minimize_net

    minimize_net(net, lambda: (net(inputs) - targets).square().mean(), **options)
    return trained(net)


def resumed():
    torch, inputs, targets, net = tensors()
    first = optimizer_of(net)

    def closure():
        return (net(inputs) - targets).square().mean()

    first.step(closure)
    second = optimizer_of(net)
    second.load_state_dict(torch.load(_saved(torch, first.state_dict()), weights_only=True))
    for _ in range(30):
        second.step(closure)
    return trained(net)


def _saved(torch, state):
    import io

    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


def of_tensor(**options):
    torch = pytest.importorskip("torch")
    result = minimize(lambda x: (x - 2).square().sum(), torch.zeros(3), **options)
    return isinstance(result.x, torch.Tensor) and bool((result.x - 2).abs().max() < 1e-3)


def with_dropout():
    torch, inputs, targets, _ = tensors()
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(1, 20), torch.nn.Tanh(), torch.nn.Dropout(), torch.nn.Linear(20, 1)
    ).double()
    optimizer = optimizer_of(net)
    for _ in range(50):
        optimizer.step(lambda: (net(inputs) - targets).square().mean())


def scheduler():
    torch, *_, net = tensors()
    return torch.optim.lr_scheduler.StepLR(optimizer_of(net), 10)


def without_graph():
    torch = pytest.importorskip("torch")
    return minimize(lambda x: float(x.detach().square().sum()), torch.ones(2))


PYTORCH = {
    "the closure of LBFGS": (loop, None),
    "a closure without zero_grad and backward": (lambda: loop(zeroes=False), None),
    "Optimizer(params, 'lbfgs')": (lambda: loop(lambda net: optimizer_of(net, "lbfgs")), None),
    "Optimizer(named_parameters())": (
        lambda: loop(lambda net: type(optimizer_of(net))(net.named_parameters())), None,
    ),
    "Optimizer([{'params': ...}])": (
        lambda: loop(lambda net: type(optimizer_of(net))([{"params": net.parameters()}])), None,
    ),
    "state_dict and load_state_dict": (resumed, None),
    "a whole run on a module": (whole, None),
    "minimize(f, tensor) with autograd": (of_tensor, None),
    "minimize(f, tensor, jac='autodiff')": (lambda: of_tensor(jac="autodiff"), None),
    "repr(optimizer)": (
        lambda: repr(optimizer_of(tensors()[3], tol=1e-3)).startswith(
            "Optimizer(method='auto', tol=0.001)"
        ),
        None,
    ),
    "lr=1e-3": (lambda: loop(lambda net: optimizer_of(net, lr=1e-3)), "no learning rate"),
    "betas=": (lambda: loop(lambda net: optimizer_of(net, betas=(0.9, 0.99))), "nothing has to be"),
    "weight_decay=": (
        lambda: loop(lambda net: optimizer_of(net, weight_decay=0.1)), "penalty to the loss",
    ),
    "max_iter= of LBFGS": (lambda: loop(lambda net: optimizer_of(net, max_iter=5)), "max_iterat"),
    "history_size= of LBFGS": (
        lambda: loop(lambda net: optimizer_of(net, history_size=5)), "method='lbfgs', memory=",
    ),
    "'adam'": (lambda: loop(lambda net: optimizer_of(net, "adam")), "torch.optim"),
    "step() without a closure": (lambda: optimizer_of(tensors()[3]).step(), "needs a closure"),
    "Optimizer(net)": (lambda: type(optimizer_of(tensors()[3]))(tensors()[3]), "named_parameters"),
    "a scheduler": (scheduler, "no learning rate"),
    "minimize(net, loss, epochs=)": (lambda: whole(epochs=10), "called max_iterations here"),
    "dropout left on": (with_dropout, r"two answers at one point.*net.eval\(\).*torch.optim"),
    "a function that leaves PyTorch": (without_graph, r"no detach\(\).*jac='2-point'"),
}  # fmt: skip


def ratings():
    rng = np.random.default_rng(0)
    pairs = np.argwhere(rng.random((30, 12)) < 0.7)
    rows, cols = rng.standard_normal(30), rng.standard_normal(12)
    return pairs, 3 + rows[pairs[:, 0]] * cols[pairs[:, 1]]


def estimator(**parameters):
    pytest.importorskip("sklearn")
    from momentous.lowrank import MatrixCompletion

    return MatrixCompletion(**{"rank": 2, "threads": 1} | parameters)


def fitted(**parameters):
    return estimator(**parameters).fit(*ratings())


def imputed(*steps):
    pytest.importorskip("sklearn")
    from sklearn.pipeline import make_pipeline

    from momentous.lowrank import LowRankImputer

    table = np.outer(np.arange(1.0, 9.0), [1.0, 2.0, -1.0])
    table[3, 2] = np.nan
    made = make_pipeline(LowRankImputer(rank=1, threads=1), *steps)
    return np.isfinite(made.fit_transform(table)).all()


def scaled():
    pytest.importorskip("sklearn")
    from sklearn.preprocessing import StandardScaler

    return imputed(StandardScaler())


def searched():
    pytest.importorskip("sklearn")
    from sklearn.model_selection import GridSearchCV

    search = GridSearchCV(estimator(), {"rank": [1, 2]}, cv=2).fit(*ratings())
    return search.best_params_["rank"] in (1, 2)


def cloned():
    pytest.importorskip("sklearn")
    from sklearn.base import clone

    return clone(estimator(ridge=0.3)).get_params()["ridge"] == 0.3


def validated():
    pytest.importorskip("sklearn")
    from sklearn.model_selection import cross_val_score

    return cross_val_score(estimator(), *ratings(), cv=3).shape == (3,)


def restored():
    model, (pairs, _) = fitted(), ratings()
    again = pickle.loads(pickle.dumps(model))
    return np.array_equal(again.predict(pairs), model.predict(pairs))


SCIKIT_LEARN = {
    "fit(X, y).predict(X)": (lambda: np.isfinite(fitted().predict(ratings()[0])).all(), None),
    "score(X, y) is R^2": (lambda: fitted().score(*ratings()) > 0.5, None),
    "attributes with an underscore": (lambda: fitted().n_iter_ > 0, None),
    "get_params and set_params": (
        lambda: estimator().set_params(rank=3).get_params()["rank"] == 3, None,
    ),
    "clone": (cloned, None),
    "GridSearchCV": (searched, None),
    "cross_val_score": (validated, None),
    "pickle": (restored, None),
    "lists": (lambda: estimator(rank=1).fit([[0, 0], [0, 1], [1, 0]], [1, 2, 3]).n_iter_ > 0, None),
    "an imputer's fit_transform": (imputed, None),
    "make_pipeline": (scaled, None),
    "n_components=": (lambda: estimator(n_components=3), "called rank here"),
    "max_iter=": (lambda: estimator(max_iter=3), "called max_iterations here"),
    "n_jobs=": (lambda: estimator(n_jobs=2), "called threads here"),
    "alpha=": (lambda: estimator(alpha=2), "called ridge here"),
    "predict before fit": (lambda: estimator().predict([[0, 0]]), "not fitted yet. Call 'fit'"),
    "fit(X) of a matrix": (lambda: estimator().fit(np.ones((4, 3))), r"pass X\[:, :2\]"),
    "sample_weight=": (
        lambda: estimator().fit(*ratings(), sample_weight=-ratings()[1]), "leave out pairs",
    ),
    "solver='als'": (lambda: fitted(solver="als"), "solver='sweep'"),
}  # fmt: skip

HABITS = {"SciPy": SCIPY, "PyTorch": PYTORCH, "scikit-learn": SCIKIT_LEARN}


@pytest.mark.parametrize(
    ("habit", "words"),
    [
        pytest.param(*case, id=f"{home}: {name}")
        for home, cases in HABITS.items()
        for name, case in cases.items()
    ],
)
def test_a_habit_runs_or_the_error_names_the_way(habit, words):
    if words is None:
        assert habit()
        return
    with pytest.raises(Exception, match=re.compile(words, re.DOTALL)):  # of whatever class
        habit()


def test_there_are_as_many_habits_as_were_asked_for():
    assert (len(SCIPY) >= 30, len(PYTORCH) >= 20, len(SCIKIT_LEARN) >= 15) == (True, True, True)
