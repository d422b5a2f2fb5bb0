"""The state of an optimizer: a run in plain Python and tensors, with a checksum, and the way back.

A state is checked as a whole before anything is taken over.
"""

from __future__ import annotations

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


def pack_run(state: RunState, shown: Array | None) -> PackedState:
    """A run in tensors of its own."""
    tree, shared = pack_state(state)
    if shown is not None:
        shared[SHOWN] = to_numpy(shown)
    arrays = {name: array.copy() for name, array in shared.items()}
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return {"version": VERSION, "tree": seal(tree, arrays), "arrays": tensors}


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
        what = " ".join(str(error).split())[:200]
        raise CheckpointError(f"the state is damaged ({type(error).__name__}: {what})") from error
