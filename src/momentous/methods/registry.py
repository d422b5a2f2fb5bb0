"""The methods by name: where ``method="..."`` and the table of methods come from."""

from __future__ import annotations

import difflib
import functools
from typing import Any, TypeVar

from momentous.core.method import Method
from momentous.core.rule import Rule
from momentous.methods.classical.projected_gradient import ProjectedGradient
from momentous.methods.safeguarded import Safeguarded

REGISTRY: dict[str, type[Method]] = {}
"""Every method by its name: those of this package in the order of its stub, then the user's."""
AUTO = Safeguarded
# Parts of others, under no name of their own.
_PARTS: dict[str, type[Method]] = {ProjectedGradient.name: ProjectedGradient}
_NO_GRADIENTS = (
    "it uses no gradients, and every method here does: scipy.optimize.minimize has it; for a "
    "smooth function leave method out (without jac the gradient is made of differences)"
)
_FOR_BATCHES = (
    "it is for a new random batch in every step: torch.optim and optax have it; for one fixed loss "
    "leave method out"
)
# Names that people know from elsewhere, without dashes: what runs here in their place, ...
_ELSEWHERE = {
    "bfgs": "lbfgs",
    "lbfgsb": "lbfgs",
    **dict.fromkeys(
        (
            "newtoncg", "trustncg", "trustkrylov", "trustexact", "trustconstr", "dogleg", "tnc",
            "slsqp",
        ),
        "auto",
    ),
}  # fmt: skip
# ... or why nothing does.
_REFUSED = {
    **dict.fromkeys(("neldermead", "powell", "cobyla", "cobyqa"), _NO_GRADIENTS),
    "als": "it is solver='sweep' of the estimators in momentous.lowrank; their default is faster",
    **dict.fromkeys(("adam", "adamw", "sgd", "rmsprop", "adagrad"), _FOR_BATCHES),
}

C = TypeVar("C", bound=type[Method])

_SYMBOLS = {
    "gradient_lipschitz": "L",
    "hessian_lipschitz": "rho",
    "third_lipschitz": "L3",
    "step_size": "a step size",
}


def register_method(cls: C) -> C:
    """Register a method by its ``name``: a decorator of its class.

    From then on ``minimize(..., method="name")``, checkpoints, the command line, `compare` and the
    table of methods know it.

    Examples
    --------
    >>> import dataclasses
    >>> from momentous import GradientDescent, minimize, register_method
    >>> @register_method
    ... @dataclasses.dataclass(frozen=True)
    ... class ShortSteps(GradientDescent):
    ...     name = "short-steps"
    ...     step_size: float = 0.1
    >>> minimize(lambda x: (x @ x, 2 * x), [1.0, 2.0], jac=True, method="short-steps").success
    True
    """
    if not (isinstance(cls, type) and issubclass(cls, Method) and hasattr(cls, "name")):
        raise TypeError(f"{cls!r} must be a subclass of Method with a name")
    known = AUTO if cls.name == "auto" else REGISTRY.get(cls.name, cls)
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(
            f"the name {cls.name!r} is that of {known.__qualname__} in {known.__module__}; give "
            f"{cls.__qualname__} another one"
        )
    REGISTRY[cls.name] = cls  # a class that is defined again, as in a notebook, takes its place
    return cls


def method_class(name: str) -> type[Method]:
    """The method of that name; ``"auto"`` is the one that needs no parameters."""
    if name == "auto":  # as in most runs
        return AUTO
    key, known = _bare(name), {_bare(each): cls for each, cls in REGISTRY.items()}
    if key not in known:
        key = _ELSEWHERE.get(key, key)
    if key == "auto":
        return AUTO
    if key in known:
        return known[key]
    if key in _REFUSED:
        raise ValueError(f"method={name!r} does not run here: {_REFUSED[key]}")
    close = difflib.get_close_matches(name.lower(), REGISTRY, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ValueError(
        f"no method is called {name!r}{hint or '.'} There are: auto, {', '.join(REGISTRY)}"
    )


def replaces(name: str) -> bool:
    """Does the default run in place of the method of that name, which is SciPy's?"""
    key = _bare(name)
    return _ELSEWHERE.get(key) == "auto" and key not in map(_bare, REGISTRY)


@functools.lru_cache  # asked of all names in every run
def _bare(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def rules() -> dict[str, type[Method]]:
    """Those that ask and are told, by name: whoever can evaluate can run them, JAX's loop too."""
    return {name: cls for name, cls in REGISTRY.items() if issubclass(cls, Rule)}


def in_box(method: Method, argument: str = "bounds=") -> Method:
    """The method that a run with bounds, or with a simple term, takes in place of this one."""
    able, does_not = "takes_bounds", "does not keep to them"
    if argument == "penalty=":
        able, does_not = "takes_penalty", "does not take one"
    kept = method.in_box()
    unable = [] if getattr(kept, able) else [f"the method {method.name!r}"]
    for name, part in kept.parameters().items():
        if isinstance(part, Method) and not getattr(part, able):
            unable.append(f"{name}={method.parameters().get(name, part).name!r} of {method.name!r}")
    if unable:
        those = ", ".join(name for name, cls in REGISTRY.items() if getattr(cls, able))
        raise ValueError(f"{argument}: {unable[0]} {does_not}; these do: auto, {those}")
    return kept


def method_of(
    described: dict[str, Any], cls: type[Method] | None = None, /, **given: Any
) -> Method:
    """The method with that description (`Method.description`), such as a checkpoint holds, and with
    the parameters given; ``cls`` is its class where it is not registered."""
    cls = cls or REGISTRY.get(described["name"]) or _PARTS.get(described["name"])
    if cls is None:
        raise ValueError(f"the method {described['name']!r} is not registered; pass it as method=")
    saved = {
        name: method_of(value) if isinstance(value, dict) else value
        for name, value in described["parameters"].items()
        if name not in given
    }
    return cls(**saved, **given)


def requirements(cls: type[Method]) -> str:
    """What a method needs, in words."""
    sets = ([cls.requires] if cls.requires else []) + list(cls.alternatives)
    words = [", ".join(_SYMBOLS.get(name, name) for name in parameters) for parameters in sets]
    return "; or ".join(words if cls.requires else ["nothing", *words])


def methods_table() -> str:
    """The table of methods in Markdown, as docs/reference/methods.md shows it."""
    rows = [
        "| `method=` | class | what it is | needs | guarantee | cost per iteration |",
        "|---" * 6 + "|",
    ]
    for name, cls in REGISTRY.items():
        shown = f"`{name}`" + (" (= `auto`)" if cls is AUTO else "")
        needs = requirements(cls)
        cells = (shown, f"`{cls.__name__}`", cls.summary, needs, cls.guarantee, cls.cost)
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)
