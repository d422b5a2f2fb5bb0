"""Certificates where the arrays are: those of a device do not mix with NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from convex_problems import KINDS, RIDGES, options, ratings

from momentous.distributed import Alone
from momentous.lowrank.backends import Side
from momentous.lowrank.backends.device import gpu_available
from momentous.lowrank.backends.numpy import NumpyBackend
from momentous.lowrank.solvers import certificate
from momentous.lowrank.solvers.certificate import certify, examine
from momentous.lowrank.solvers.fit import FitConfig, solve
from momentous.lowrank.solvers.rank_search import without_surplus


class OnDevice(np.ndarray):
    """An array that takes part in NumPy's functions as CuPy's do: with its kind alone."""

    def __array_ufunc__(self, function, method, *inputs, out=(), **more):
        return self._call(getattr(function, method), inputs, more | ({"out": out} if out else {}))

    def __array_function__(self, function, types, inputs, more):
        return self._call(function, inputs, more)

    def _call(self, function, inputs, more):
        return _map(put, function(*_map(bare, inputs), **_map(bare, more)))


def _map(function, item):
    if isinstance(item, tuple | list):
        made = [_map(function, one) for one in item]
        return type(item)(*made) if hasattr(item, "_fields") else type(item)(made)
    if isinstance(item, dict):
        return {name: _map(function, one) for name, one in item.items()}
    return function(item)


def bare(item):
    if isinstance(item, np.ndarray) and item.dtype == float and not isinstance(item, OnDevice):
        raise TypeError("an array of NumPy among those of the device")
    return item.view(np.ndarray) if isinstance(item, OnDevice) else item


def put(item):
    return item.view(OnDevice) if isinstance(item, np.ndarray) else item


class Functions:
    """What there is of NumPy on the device."""

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *given, **more: put(getattr(np, name)(*given, **more))


class DeviceSide(Side):
    @property
    def values(self):
        return put(super().values)

    def predictions(self, left, right):
        return put(super().predictions(left.view(np.ndarray), right.view(np.ndarray)))

    def product_with(self, data):
        assert isinstance(data, OnDevice)
        times = super().product_with(data.view(np.ndarray))
        return lambda v: put(times(v.view(np.ndarray)))


class DeviceBackend(NumpyBackend):
    name = "strict"
    xp = Functions()

    def side(self, groups, loss, threads):
        return DeviceSide(groups, loss)

    def asarray(self, array, dtype):
        return put(np.ascontiguousarray(array, dtype))

    def to_host(self, array):
        return np.array(array.view(np.ndarray))


no_gpu = pytest.mark.skipif(not gpu_available(), reason="no GPU to use")
BACKENDS = ["strict", pytest.param("cuda", marks=[pytest.mark.gpu, no_gpu])]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize(("loss", "seed"), [(one, k) for one in RIDGES for k in range(len(KINDS))])
def test_a_certificate_is_made_on_the_device(loss, seed, small, backend, monkeypatch):
    where = {"device": "cuda"} if backend == "cuda" else {"backend": DeviceBackend()}
    if backend == "strict":
        monkeypatch.setattr(Alone, "_all_reduce", lambda self, a, operation: a.copy())
    if not small:
        monkeypatch.setattr(certificate, "DENSE", 0)
    given, entries = options(loss, seed), ratings(loss, seed)
    plain = FitConfig(rank=3, max_iterations=5, backend="numpy", **given)
    x, _ = solve(plain.objective(entries), plain)
    found = []
    for config in (plain, FitConfig(rank=3, **where, **given)):
        objective = config.objective(entries)
        there = objective.backend.asarray(x, np.float64)
        proof, escape = examine(objective, there)
        assert all(type(one) is np.ndarray for one in escape)
        smaller, point = without_surplus(objective, there)
        left = certify(smaller, point).gap
        found.append([proof.gap, proof.sigma_max, proof.decrease, smaller.rank, left])
    assert found[1] == pytest.approx(found[0], rel=1e-6)
