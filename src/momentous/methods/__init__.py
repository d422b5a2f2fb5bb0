"""The methods, one family a file, and their registry by name."""

from __future__ import annotations

import difflib

from momentous.core.method import Method
from momentous.methods.adaptive import AdaRAGD, AdaRHB
from momentous.methods.conjugate_gradient import ConjugateGradient
from momentous.methods.gradient_descent import GradientDescent
from momentous.methods.guilty import ConvexUntilGuilty
from momentous.methods.heuristic import HeuristicAGD
from momentous.methods.jin import JinAGD
from momentous.methods.lbfgs import LBFGS
from momentous.methods.parameter_free_agd import ParameterFreeAGD
from momentous.methods.restarted import RAGD, RHB, PerturbedRAGD
from momentous.methods.safeguarded import Safeguarded
from momentous.methods.universal_heavy_ball import UniversalHeavyBall

REGISTRY: dict[str, type[Method]] = {
    cls.name: cls
    for cls in (
        Safeguarded,
        AdaRAGD,
        AdaRHB,
        RAGD,
        RHB,
        PerturbedRAGD,
        ParameterFreeAGD,
        UniversalHeavyBall,
        JinAGD,
        ConvexUntilGuilty,
        GradientDescent,
        HeuristicAGD,
        ConjugateGradient,
        LBFGS,
    )
}
AUTO = Safeguarded


def method_class(name: str) -> type[Method]:
    """The method of that name; ``"auto"`` is the one that needs no parameters."""
    key = name.lower().replace("_", "-")
    if key == "auto":
        return AUTO
    for known, cls in REGISTRY.items():
        if key in (known, known.replace("-", "")):
            return cls
    close = difflib.get_close_matches(key, REGISTRY, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ValueError(
        f"no method is called {name!r}{hint or '.'} There are: auto, {', '.join(REGISTRY)}"
    )


def methods_table() -> str:
    """The table of methods in Markdown, as the README shows it."""
    rows = [
        "| `method=` | class | what it is | needs | guarantee | an iteration |",
        "|---" * 6 + "|",
    ]
    for name, cls in REGISTRY.items():
        shown = f"`{name}`" + (" (= `auto`)" if cls is AUTO else "")
        cells = (shown, f"`{cls.__name__}`", cls.summary, cls.needs, cls.guarantee, cls.cost)
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


__all__ = [
    "AUTO",
    "LBFGS",
    "RAGD",
    "REGISTRY",
    "RHB",
    "AdaRAGD",
    "AdaRHB",
    "ConjugateGradient",
    "ConvexUntilGuilty",
    "GradientDescent",
    "HeuristicAGD",
    "JinAGD",
    "ParameterFreeAGD",
    "PerturbedRAGD",
    "Safeguarded",
    "UniversalHeavyBall",
    "method_class",
    "methods_table",
]
