"""Answers as tables of the kind that the question came in: pandas, polars, Arrow, or arrays."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Literal, get_args

import numpy as np

from momentous.io.types import AnyArray

Table = Any  # of pandas, polars or Arrow, or a column of one
Column = AnyArray | Table
Kind = Literal["pandas", "polars", "arrow"]
Output = Literal["input", "default", "pandas", "polars", "arrow"]
_OTHERS = {"score", "similarity", "contribution", "rest"}  # columns of answers beside ids
_PACKAGES: dict[str, Kind] = {"pandas": "pandas", "polars": "polars", "pyarrow": "arrow"}


def kind_of(data: object) -> Kind | None:
    """Whose table, or column of a table, this is; None for arrays, lists and all else."""
    kind = _PACKAGES.get(type(data).__module__.partition(".")[0])
    return kind if kind and hasattr(data, "__len__") and not isinstance(data, str) else None


def check_output(output: str) -> None:
    """Refuse what is not known."""
    if output not in get_args(Output):
        raise ValueError(f"answers={output!r} must be one of {', '.join(get_args(Output))}")


def as_column(kind: Kind | None, values: AnyArray, name: str, like: Table = None) -> Column:
    """One column with that name, in pandas with the index of the table that was asked about."""
    if kind == "pandas":
        index = like.index if kind_of(like) == "pandas" else None
        return _module(kind).Series(values, index=index, name=name)
    if kind == "polars":
        return _module(kind).Series(name, values)
    if kind == "arrow":
        return _module(kind).array(values)
    return values


def as_table(kind: Kind, columns: Mapping[str, AnyArray], like: Table = None) -> Table:
    """A table with these columns."""
    if kind == "pandas":
        index = like.index if kind_of(like) == "pandas" else None
        return _module(kind).DataFrame(dict(columns), index=index)
    if kind == "polars":
        return _module(kind).DataFrame(dict(columns))
    return _module(kind).table({name: _module(kind).array(each) for name, each in columns.items()})


def names_of_ids(feature_names: AnyArray | None) -> tuple[str, str]:
    """What the two columns of ids are called: as in the table of the fit, where there was one and
    its names are not those of other columns of an answer."""
    if feature_names is None or not _OTHERS.isdisjoint(feature_names):
        return "user", "item"
    return feature_names[0], feature_names[1]


def ids_of(column: Table) -> AnyArray:
    """The ids of a column of a table as an array."""
    options = {"zero_copy_only": False} if kind_of(column) == "arrow" else {}
    return np.asarray(column.to_numpy(**options))


def _module(kind: Kind) -> ModuleType:
    return import_module("pyarrow" if kind == "arrow" else kind)
