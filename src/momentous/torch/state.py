"""The state of an optimizer: a run in plain Python and tensors, with a checksum, and the way back.

A state is checked as a whole before anything is taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

import torch

from momentous.core.checkpoint import (
    MALFORMED,
    VERSION,
    CheckpointError,
    RunState,
    pack_state,
    seal,
    unpack_state,
)
from momentous.core.space import Array, Space, to_numpy
from momentous.io.types import JsonObject

SHOWN = "shown"  # among the arrays: the point that the last step left in the parameters


class PackedState(TypedDict):
    """A run in plain Python and tensors."""

    version: int
    tree: JsonObject
    arrays: dict[str, torch.Tensor]


def pack_run(state: RunState, shown: Array | None, groups: list[JsonObject]) -> PackedState:
    """A run in tensors of its own; the groups are PyTorch's, as a state has them."""
    tree, shared = pack_state(state)
    if shown is not None:
        shared[SHOWN] = to_numpy(shown)
    arrays = {name: array.copy() for name, array in shared.items()}
    tree = seal(tree | {"groups": _plain(groups)}, arrays)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return {"version": VERSION, "tree": tree, "arrays": tensors}


def unpack_run(saved: PackedState, x: Array) -> tuple[RunState, Array | None]:
    """The run that `pack_run` made this of, in the space of x, and the point that it showed."""
    try:
        version, space = saved["version"], Space(x)
        if version != VERSION:
            raise CheckpointError(
                f"has version {version!r:.60}, this momentous reads {VERSION}: it was written by "
                "another version, or is damaged"
            )
        # Copies, since a memory may be updated in place.
        arrays = {name: a.detach().cpu().clone().numpy() for name, a in saved["arrays"].items()}
        state = unpack_state(saved["tree"], arrays, space)
        return state, space.from_numpy(arrays[SHOWN]) if SHOWN in arrays else None
    except CheckpointError as error:
        raise CheckpointError(f"the state {error}") from None
    except (*MALFORMED, RuntimeError) as error:
        raise _damaged(error) from error


def require_groups(state: Mapping[str, object], groups: list[JsonObject]) -> None:
    """Refuse groups that are not those of the optimizer, or of the run."""
    if not isinstance(state, dict) or "run" not in state:
        raise CheckpointError(
            "the state has no entry 'run': it was not written by momentous.torch.Optimizer"
        )
    try:
        given, run = _plain(state["param_groups"]), state["run"]
        there, here = ([count for count, _ in which] for which in (given, _plain(groups)))
        if there != here:
            raise CheckpointError(
                f"the state belongs to another problem: its groups have {there} parameters, those "
                f"of this optimizer {here}"
            )
        if state["state"] != {} or (run is not None and run["tree"].get("groups", given) != given):
            raise CheckpointError("the state is damaged: its groups are not those of its run")
    except CheckpointError:
        raise
    except (*MALFORMED, RuntimeError) as error:
        raise _damaged(error) from error


def _plain(groups: list[JsonObject]) -> list[list[object]]:
    """Which parameters are in which group, and their names; bounds may be anything."""
    return [[len(group["params"]), group.get("param_names")] for group in groups]


def _damaged(error: BaseException) -> CheckpointError:
    what = " ".join(str(error).split())[:200]
    return CheckpointError(f"the state is damaged ({type(error).__name__}: {what})")
