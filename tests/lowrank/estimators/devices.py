"""A fixture by which a module's tests of estimators run on the GPU, too, where there is one."""

from __future__ import annotations

import pytest

from momentous.lowrank import LowRankObjective
from momentous.lowrank.backends import Backend, find_backend
from momentous.lowrank.backends.device import gpu_available

GPU = [pytest.mark.gpu, pytest.mark.skipif(not gpu_available(), reason="no GPU to use")]
# These compare bits with a fit that a fixture has made on the CPU.
SAME_BITS = {
    "test_ids_may_be_strings_or_numbers_with_gaps",
    "test_pairs_ratings_sparse_matrices_and_tables_give_the_same_fit",
    "test_ratings_become_labels_by_a_threshold",
}


def backend_on_gpu(backend="auto", device="cpu", entries=0):
    """What `find_backend` is replaced by in a model: the GPU's backend, where none is named.

    Where one is named the arrays are that one's: a model sums errors of its own, which are on the
    host, by "numpy"."""
    found = find_backend(backend, device, entries)  # what is refused there is refused here
    return find_backend("cuda", "cuda") if backend == "auto" else found


def objective_on_gpu(*given, backend="auto", device="cpu", **named):
    """What `LowRankObjective` is replaced by where estimators make it: whatever they name."""
    if not isinstance(backend, Backend):
        find_backend(backend, device)  # what is refused there is refused here
        backend = find_backend("cuda", "cuda")
    return LowRankObjective(*given, backend=backend, **named)


@pytest.fixture(autouse=True, params=["cpu", pytest.param("cuda", marks=GPU)])
def device(request, monkeypatch):
    """Where a test's fits run."""
    if request.param == "cuda":
        if request.node.originalname in SAME_BITS:
            pytest.skip("compares bits with a fit on the CPU")
        monkeypatch.setattr("momentous.lowrank.model.fitted.find_backend", backend_on_gpu)
        monkeypatch.setattr("momentous.lowrank.solvers.fit.LowRankObjective", objective_on_gpu)
    return request.param
