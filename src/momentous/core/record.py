"""Records: slotted dataclasses that a checkpoint can take apart and put together again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

_T = TypeVar("_T")

RECORDS: dict[str, type] = {}
_FIELDS: dict[type, Callable[[Any], Any]] = {}


@dataclass_transform(eq_default=False)
def record(cls: type[_T]) -> type[_T]:
    """Class decorator: a dataclass with slots, known by name to checkpoints.

    Its fields may hold numbers, text, arrays, tuples and other records; and objects that are kept
    in another form, with a method ``packed() -> record``, whose ``unpacked(space)`` makes them
    again (space is None where a file is only looked at).
    """
    made = dataclasses.dataclass(slots=True, eq=False)(cls)
    RECORDS[f"{made.__module__}.{made.__qualname__}"] = made
    names = [field.name for field in dataclasses.fields(made)]  # type: ignore[arg-type]
    if len(names) > 1:
        _FIELDS[made] = attrgetter(*names)
    return made


def copied(item: _T) -> _T:
    """A record with the same fields: faster than `dataclasses.replace`, and then to be changed."""
    return type(item)(*_FIELDS[type(item)](item))
