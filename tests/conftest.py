"""What is set before the tests, and their fixtures; what they import stands in helpers.py."""

import importlib.util
import os
import signal

import pytest

from helpers import ADAPTIVE, FIXED, LIBRARIES, METHODS, Clock, Library, MethodCase
from momentous.methods.registry import REGISTRY

# JAX reserves three quarters of a GPU when it is first used.  Tests share the GPU with other test
# processes, so JAX takes memory as it needs it.  The processes that tests start inherit this.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# Signals that the tests send to processes of their own: what starts the tests (nohup, a shell's
# background) may have them ignored, and processes inherit that.
for _name, _handler in {"SIGINT": signal.default_int_handler, "SIGHUP": signal.SIG_DFL}.items():
    if signal.getsignal(getattr(signal, _name, signal.SIGINT)) is signal.SIG_IGN:
        signal.signal(getattr(signal, _name), _handler)


@pytest.fixture(params=METHODS, ids=str)
def method(request) -> MethodCase:
    return request.param


@pytest.fixture(params=ADAPTIVE, ids=str)
def adaptive(request) -> MethodCase:
    return request.param


@pytest.fixture(params=FIXED, ids=str)
def fixed(request) -> MethodCase:
    return request.param


@pytest.fixture(params=["separate", "fused"])
def how(request) -> str:
    """How the user gives value and gradient."""
    return request.param


def _installed(library: Library) -> list[pytest.MarkDecorator]:
    missing = importlib.util.find_spec(library.module.split(".")[0]) is None
    return [pytest.mark.skip(reason=f"{library.module} is not installed")] if missing else []


@pytest.fixture(params=[pytest.param(lib, marks=_installed(lib), id=str(lib)) for lib in LIBRARIES])
def library(request) -> Library:
    return request.param


@pytest.fixture(
    params=[
        pytest.param((lib, dtype), marks=_installed(lib), id=f"{lib}-{dtype}")
        for lib in LIBRARIES
        for dtype in lib.dtypes
    ]
)
def library_and_dtype(request) -> tuple[Library, str]:
    return request.param


@pytest.fixture
def registry():
    """What a test registers is forgotten after it."""
    before = dict(REGISTRY)
    yield REGISTRY
    REGISTRY.clear()
    REGISTRY.update(before)


@pytest.fixture
def clock(monkeypatch):
    """The loop's clock, wound by hand."""
    made = Clock()
    monkeypatch.setattr("momentous.core.loop.perf_counter", made)
    return made
