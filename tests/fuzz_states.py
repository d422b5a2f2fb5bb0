"""Damaged states of `momentous.torch.Optimizer`, for the fuzz target "states".

A case is a line of text: the method, and the number of a damage; ``good`` in its place is none.
What `load_state_dict` refuses must leave the optimizer as it was, with the run that is under way.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from momentous.core.checkpoint import CheckpointError
from momentous.io.optional import require

torch: Any = None  # imported where a state is made: the other targets do without

METHODS = ("auto", "lbfgs", "ada-ragd", "universal-hb", "cg", "gd", "rhb")
PARAMETERS = {"rhb": {"step_size": 0.3, "momentum": 0.9, "radius": 0.3, "epoch_length": 12}}
OUTER = 3  # how deep a place may be for every wrong thing to stand there
LONGEST_MESSAGE = 700  # characters: a sentence or two


def good_cases() -> list[bytes]:
    return [f"{method} good".encode() for method in METHODS]


def random_case(seed: int, number: int) -> bytes:
    return f"{METHODS[number % len(METHODS)]} {seed}-{number}".encode()


def crafted_cases(good: list[bytes]) -> Iterator[bytes]:
    """Each wrong thing in each of the outer places of a state; random damage goes deeper."""
    count = sum(1 for _ in places(state_of("ada-ragd"), OUTER))
    for place in range(count):
        for wrong in range(len(wrong_things())):
            yield f"ada-ragd at {place} {wrong}".encode()


def read_state(path: Path) -> None:
    """Load the state of a case into an optimizer with a run of its own, and take some steps."""
    method, how, *rest = path.read_text().split()
    state = copy.deepcopy(state_of(method))
    if how == "at":
        place, wrong = map(int, rest)
        holder, key = list(places(state, OUTER))[place]
        holder[key] = wrong_things()[wrong]
    elif how != "good":
        state = damaged(state, random.Random(f"{method} {how}"))
    net, optimizer, closure = training(None)
    optimizer.step(closure)
    run, before = optimizer._run, written(optimizer.state_dict())
    try:
        optimizer.load_state_dict(state)
    except CheckpointError:
        assert optimizer._run is run
        assert written(optimizer.state_dict()) == before
        optimizer.step(closure)
        assert optimizer.progress.nit == 2
        raise
    net.load_state_dict(training(method, steps=6)[0].state_dict())
    for _ in range(3):
        value = optimizer.step(closure).item()
        assert math.isfinite(value)
    assert optimizer.progress.nit >= 0


def refused_in_a_sentence(read: Callable[[Path], None], path: Path) -> None:
    try:
        read(path)
    except CheckpointError as error:
        text = str(error)
        assert text.startswith(("the state", "the checkpoint")), text
        assert "\n" not in text, text
        assert len(text) < LONGEST_MESSAGE, text
        raise


read_and_judge = functools.partial(refused_in_a_sentence, read_state)


def training(method: str | None, steps: int = 0) -> tuple[Any, Any, Any]:
    """A small network, its optimizer after some steps, and the loss."""
    global torch
    torch = require("torch", "torch", "the fuzz target states")
    from momentous.torch import Optimizer

    torch.manual_seed(1)
    points = torch.linspace(-2, 2, 20, dtype=torch.float64)[:, None]
    net = torch.nn.Sequential(torch.nn.Linear(1, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    net = net.double()

    def closure() -> Any:
        return (net(points) - torch.sin(3 * points)).square().mean()

    given = {} if method is None else {"method": method, **PARAMETERS.get(method, {})}
    optimizer = Optimizer(net.named_parameters(), tol=1e-9, **given)
    for _ in range(steps):
        optimizer.step(closure)
    return net, optimizer, closure


@functools.cache
def state_of(method: str) -> dict[str, Any]:
    """A good state."""
    state: dict[str, Any] = training(method, steps=6)[1].state_dict()
    return state


def written(state: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    torch.save(state, sink)
    return sink.getvalue()


# --- damage ---------------------------------------------------------------------------------------


def places(part: Any, depth: int) -> Iterator[tuple[Any, Any]]:
    """Every place in a tree of dictionaries and lists: what holds it, and its key there."""
    if depth and isinstance(part, dict | list):
        for key in list(part) if isinstance(part, dict) else range(len(part)):
            yield part, key
            yield from places(part[key], depth - 1)


def random_place(part: Any, rng: random.Random) -> tuple[Any, Any] | None:
    """One of all places, or of the outer ones, which are few."""
    if rng.random() < 0.6 and (all_places := list(places(part, 100))):
        return rng.choice(all_places)
    place = None
    while isinstance(part, dict | list) and part and (place is None or rng.random() < 0.7):
        key = rng.choice(list(part)) if isinstance(part, dict) else rng.randrange(len(part))
        place, part = (part, key), part[key]
    return place


def wrong_things() -> list[Any]:
    """What may stand where something else should."""
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    return [
        None, -1, 0, 2**70, 1e308, -1.5, math.nan, True, "x", "", b"x", [], {}, [[]], {1: 2}, {3},
        (), (1, 2), {"array": 0}, {"array": -1}, {"array": []}, {"plain": 0}, {"list": 3},
        {"enum": "Status", "value": 99}, {"enum": [], "value": 1}, {"dict": {}}, {"dict": [1]},
        {"record": "os.system", "fields": {}}, {"record": [], "fields": {}}, deep, 1j, ...,
        torch.ones(3), torch.ones(0), torch.tensor(1.0), torch.full((10,), math.nan).double(),
        torch.ones(10, dtype=torch.float64), torch.ones(10), torch.ones(10, dtype=torch.complex64),
        torch.ones(10, dtype=torch.bfloat16), torch.ones(10, device="meta"),
        torch.ones(10, dtype=torch.float64).requires_grad_(), torch.eye(10).to_sparse(),
        torch.ones(10, dtype=torch.int64), np.ones(10), np.float64(1.0), np.array([None]), object,
    ]  # fmt: skip


def damaged(state: dict[str, Any], rng: random.Random) -> Any:
    """One to three damages."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        found, another = random_place(state, rng), random_place(state, rng)
        if found is None or another is None:
            return state
        (holder, key), (other, other_key) = found, another
        kind, part = rng.randrange(8), holder[key]
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[rng.choice(["x", "", 7, None, "record", "array"])] = holder.pop(key)
        elif kind == 2:
            with contextlib.suppress(RecursionError):
                holder[key] = copy.deepcopy(other[other_key])
        elif kind == 3 and isinstance(holder, list):
            holder.insert(key, rng.choice(wrong_things()))
        elif kind == 4 and type(part) in (int, float, bool):
            holder[key] = rng.choice([part + 1, -part, part * 1e-3, 2.0 * part, str(part)])
        elif kind <= 6 and isinstance(part, torch.Tensor):
            holder[key] = damaged_tensor(part, rng)
        else:
            holder[key] = rng.choice(wrong_things())
    return rng.choice(wrong_things()) if rng.random() < 0.01 else state


def damaged_tensor(tensor: Any, rng: random.Random) -> Any:
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return torch.ones(2)
    tensor = torch.atleast_1d(tensor.detach().double())
    changed = tensor.clone().reshape(-1)
    if changed.numel():
        changed[rng.randrange(changed.numel())] = rng.choice([math.nan, math.inf, 1e300, 0.0, -3.0])
    return rng.choice([
        changed.reshape(tensor.shape), tensor[1:], tensor[None], tensor.float(), tensor.bfloat16(),
        tensor.to(torch.complex128), tensor.to("meta"), tensor.to_sparse(), tensor.tolist(),
        torch.cat([changed, changed]), tensor.clone().requires_grad_(), tensor.numpy(),
    ])  # fmt: skip
