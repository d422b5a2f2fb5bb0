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


@pytest.mark.parametrize("ended_by", [KeyboardInterrupt, MemoryError])
def test_a_compilation_that_is_broken_off_leaves_no_lock(ended_by, tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    find_backend("numba")
    from momentous.lowrank.backends.numba.compiler import compiled_kernel

    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))

    @compiled_kernel()
    def double(x):
        return 2.0 * x

    @compiled_kernel()
    def double_twice(x):  # compiles what it calls, too
        return double(double(x))

    def is_locked():
        with next(tmp_path.rglob("double_twice_*.lock")).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def break_off(*given):
        assert is_locked()
        raise ended_by

    with monkeypatch.context() as patched:
        patched.setattr(double._compiler, "compile", break_off)
        with pytest.raises(ended_by):
            double_twice(1.5)
    assert not is_locked()
    assert double_twice(1.5) == 6.0
    assert not is_locked()
