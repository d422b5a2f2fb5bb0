"""The state of an optimizer: a run in plain Python and tensors, and the checks on the way back.

A state is checked as a whole before anything is taken over.
"""

from __future__ import annotations

from typing import Any

import torch

from momentous.core.checkpoint import VERSION, CheckpointError, RunState, packed, unpacked
from momentous.core.space import Array, Space

Packed = dict[str, Any]  # a run in plain Python and tensors


def pack_run(state: RunState, shown: Array | None) -> Packed:
    """A run in plain Python and tensors of its own."""
    tree, arrays = packed(state)
    return {
        "version": VERSION,
        "tree": tree,
        "arrays": {name: torch.from_numpy(array.copy()) for name, array in arrays.items()},
        "shown": None if shown is None else torch.asarray(shown, device="cpu", copy=True),
    }


def unpack_run(saved: Any, x: Array) -> RunState:
    """The run that `pack_run` made this of, in the space of x; checked."""
    _require(isinstance(saved, dict), f"its entry 'run' is a {type(saved).__name__}, not a dict")
    version, tensors = saved.get("version"), saved.get("arrays")
    if type(version) is not int or version != VERSION:
        raise CheckpointError(
            f"the state has version {_short(version)}, this momentous reads {VERSION}: it was "
            "written by another version, or is damaged"
        )
    _require(isinstance(tensors, dict), "it has no dict of arrays")
    arrays = {name: _array(tensor) for name, tensor in tensors.items()}
    for name, array in arrays.items():
        _require(array is not None, f"its array {_short(name)} is no dense tensor in memory")
    try:
        return unpacked(saved.get("tree"), arrays, Space(x))
    except CheckpointError as error:
        raise CheckpointError(f"the state {error}") from None


def require_groups(state: Any, groups: list[dict[str, Any]]) -> None:
    """Refuse what PyTorch's own `load_state_dict` would stumble over."""
    if not isinstance(state, dict) or "run" not in state:
        raise CheckpointError(
            "the state has no entry 'run': it was not written by momentous.torch.Optimizer"
        )
    own: Any = state.get("state")
    given: Any = state.get("param_groups")
    _require(isinstance(own, dict) and not own, "its entry 'state' is not an empty dict")
    _require(
        isinstance(given, list) and all(isinstance(group, dict) for group in given),
        "its entry 'param_groups' is not a list of dicts",
    )
    for group in given:
        numbers, names = group.get("params"), group.get("param_names")
        _require(_is_list_of(int, numbers), "the 'params' of a group are not a list of numbers")
        _require(
            "param_names" not in group or (_is_list_of(str, names) and len(names) == len(numbers)),
            "the 'param_names' of a group are not a list with one name per parameter",
        )
    there, here = ([len(group["params"]) for group in which] for which in (given, groups))
    if there != here:
        raise CheckpointError(
            f"the state belongs to another problem: its groups have {there} parameters, those of "
            f"this optimizer {here}"
        )


def require_point(saved: Packed, x: Array) -> None:
    """Is there the point that the last step left in the parameters, as `pack_run` writes it?"""
    shown = saved.get("shown")
    same = "shown" in saved and (
        shown is None
        or (
            isinstance(shown, torch.Tensor)
            and shown.layout is torch.strided
            and shown.device.type != "meta"
            and tuple(shown.shape) == tuple(x.shape)
            and shown.dtype == torch.as_tensor(x).dtype
        )
    )
    _require(same, "its entry 'shown' is no tensor like the vector of all parameters")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise CheckpointError(f"the state is damaged: {what}")


def _array(tensor: Any) -> Any:
    """A copy, since a memory may be updated in place; None where it is no tensor that NumPy can
    hold."""
    try:
        return tensor.detach().cpu().clone().numpy()
    except (AttributeError, TypeError, RuntimeError):
        return None


def _is_list_of(kind: type, given: object) -> bool:
    return isinstance(given, list) and all(type(part) is kind for part in given)


def _short(given: object) -> str:
    """What was seen, in a few characters."""
    return f"{given!r:.60}" if isinstance(given, str | int) else f"a {type(given).__name__}"
