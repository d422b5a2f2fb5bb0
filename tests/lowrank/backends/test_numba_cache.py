"""Kernels are compiled once for several processes, and also where nothing can be cached."""

import subprocess
import sys

import numpy as np
import pytest

from momentous.lowrank.backends import find_backend

pytest.importorskip("numba")


def test_a_function_is_compiled_where_no_cache_can_be_written(monkeypatch):
    from numba.core import caching

    find_backend("numba")
    from momentous.lowrank.backends.numba.compiler import compiled_kernel

    class NoLocator:
        @classmethod
        def from_function(cls, function, path):
            return None

    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [NoLocator])

    @compiled_kernel()
    def double(x):
        return 2.0 * x

    assert double(np.float64(1.5)) == 3.0


def test_processes_that_begin_at_once_compile_a_kernel_once(tmp_path):
    (tmp_path / "kernel.py").write_text(
        "from momentous.lowrank.backends.numba.compiler import compiled_kernel\n\n\n"
        "@compiled_kernel()\ndef double(x):\n    return 2.0 * x\n"
    )
    code = """if True:
        import sys, time
        from pathlib import Path
        from numba.core import event
        import kernel
        Path(sys.argv[1]).touch()  # ready
        while len(list(Path().glob("*.ready"))) < 2:
            time.sleep(0.01)
        with event.install_recorder("numba:compile") as compiled:
            assert kernel.double(1.5) == 3.0
        print(len(compiled.buffer))
    """
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": ":".join(sys.path)}
    waiting = [
        subprocess.Popen(
            [sys.executable, "-c", code, f"{k}.ready"], cwd=tmp_path, text=True,
            env=environment | {"PYTHONPATH": f"{tmp_path}:{environment['PYTHONPATH']}"},
            stdout=subprocess.PIPE,
        )
        for k in range(2)
    ]  # fmt: skip
    events = [int(one.communicate(timeout=100)[0]) for one in waiting]
    assert sorted(events) == [0, 2]  # a beginning and an end, in one of them
