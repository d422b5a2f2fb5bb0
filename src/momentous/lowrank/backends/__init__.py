"""Backends: who does the arithmetic over the entries, one folder per backend, found by name."""

from momentous.lowrank.backends.base import BACKENDS as BACKENDS
from momentous.lowrank.backends.base import Backend as Backend
from momentous.lowrank.backends.base import PlainTerms as PlainTerms
from momentous.lowrank.backends.base import RowStep as RowStep
from momentous.lowrank.backends.base import Side as Side
from momentous.lowrank.backends.base import find_backend as find_backend
from momentous.lowrank.backends.base import register_backend as register_backend
