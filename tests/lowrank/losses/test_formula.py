"""A loss is written once: what is compiled of it, for CPU and GPU, gives what Python gives."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import dataclass

import numpy as np
import pytest

from momentous.lowrank import Loss
from momentous.lowrank.backends.cuda.modules import Weights, entry_source
from momentous.lowrank.losses import Implicit, Logistic, Squared
from momentous.lowrank.losses.formula import Formula

LIMITS = (1.0, 4.5)


@dataclass(frozen=True)
class ShiftedPoisson(Loss):
    """A loss that is added: one class."""

    shift: float = 0.25
    scale: float = 2.0
    name = "shifted-poisson"
    self_concordant = True

    @staticmethod
    def entry(z, x, parameters):
        shift, scale = parameters
        rate = scale * np.exp(z - shift)
        bonus = np.where(np.abs(z) <= 1.0, np.sign(z) * z**2, np.sqrt(np.abs(z)))
        return rate - x * z + np.log1p(np.square(z)), rate - x + bonus, np.maximum(rate, 1e-3)

    def error(self, z, x, value_range):
        return np.abs(np.clip(np.exp(z), *value_range) - x)


LOSSES = [Squared(), Logistic(), Implicit(alpha=0.7), ShiftedPoisson(), Weights()]
PAIRS = np.empty((0, 2))
WEIGHTED = [loss.of(PAIRS) for loss in (Squared(), Logistic(), ShiftedPoisson())]
HARNESS = """
#include <cmath>
using namespace std;
#define __device__
typedef NUMBER A;
typedef double T;
struct Entry { A value, slope, curvature; };
SOURCE
extern "C" void run(int count, const double* z, const double* x, const double* parameters,
                    double low, double high, double* out) {
    for (int k = 0; k < count; k++, out += 4) {
        Entry e = entry(A(z[k]), ((const X*)x)[k], parameters);
        out[0] = e.value, out[1] = e.slope, out[2] = e.curvature;
        out[3] = error_of(z[k], x[k * sizeof(X) / sizeof(T)], low, high);
    }
}
"""


def points(loss):
    z = np.concatenate([np.linspace(-6, 6, 301), np.linspace(-0.1, 0.1, 50)])
    x = np.resize([1.0, -1.0] if loss.labels else [0.0, 1.0, 3.0, 5.0], z.size)
    return z, np.column_stack([x, 0.5 + np.arange(z.size) % 3]) if loss.weighted else x


@pytest.fixture(scope="module", params=["double", "float"])
def in_c(request, tmp_path_factory):
    """Losses compiled as C++, as the GPU's compiler is given them."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")

    def run(loss, text):
        folder = tmp_path_factory.mktemp("loss")
        source = HARNESS.replace("NUMBER", request.param).replace("SOURCE", text)
        (folder / "loss.cpp").write_text(source)
        library = folder / "loss.so"
        command = [compiler, "-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-Wall"]
        subprocess.run([*command, "-o", library, folder / "loss.cpp"], check=True)
        z, x = points(loss)
        parameters, out = np.array(loss.parameters or (0.0,)), np.empty((z.size, 4))
        given = (one.ctypes.data_as(ctypes.c_void_p) for one in (z, x, parameters))
        limits = map(ctypes.c_double, LIMITS)
        ctypes.CDLL(str(library)).run(
            z.size, *given, *limits, out.ctypes.data_as(ctypes.c_void_p)
        )  # fmt: skip
        return out.T

    return run, 1e-14 if request.param == "double" else 2e-5


@pytest.mark.parametrize("loss", [*LOSSES, *WEIGHTED], ids=lambda one: type(one).__qualname__)
def test_the_text_for_the_gpu_gives_what_python_gives(loss, in_c):
    run, accuracy = in_c
    z, x = points(loss)
    of_values = loss.plain.error(z, x[:, 0] if loss.weighted else x, LIMITS)
    expected = [*loss.entries(z, x), of_values]
    for found, one in zip(run(loss, entry_source(loss)), expected, strict=True):
        scale = 1.0 + np.abs(one)
        assert np.max(np.abs(found - one) / scale) < accuracy


# What stood in the GPU's kernels before the text was made from the formula.
BY_HAND = {
    "squared": "A slope = z - x; return {A(0.5) * slope * slope, slope, A(1)};",
    "logistic": (
        "A margin = x * z; A e = exp(margin < A(0) ? margin : -margin);"
        "A wrong = (margin > A(0) ? e : A(1)) / (A(1) + e);"
        "A curvature = wrong * (A(1) - wrong);"
        "return {(margin < A(0) ? -margin : A(0)) + log1p(e), -x * wrong,"
        " curvature > A(1e-8) ? curvature : A(1e-8)};"
    ),
    "implicit": (
        "A more = A(parameters[0]) * x; A missing = A(1) - z;"
        "return {A(0.5) * ((A(1) + more) * missing * missing - z * z), more * z - A(1) - more,"
        " more};"
    ),
}


@pytest.mark.parametrize("loss", LOSSES[:3], ids=str)
def test_the_text_is_to_the_bit_what_was_written_by_hand(loss, in_c):
    run, _ = in_c
    made = entry_source(loss)
    entry = "inline Entry entry(A z, A x, const double* parameters) {" + BY_HAND[loss.name] + "}\n"
    by_hand = "typedef T X;\n" + entry + made[made.index("__device__ inline double error_of") :]
    np.testing.assert_array_equal(run(loss, made), run(loss, by_hand))


@pytest.mark.parametrize("loss", [*LOSSES[:4], *WEIGHTED], ids=lambda one: type(one).__qualname__)
def test_what_numba_compiles_gives_what_python_gives(loss):
    pytest.importorskip("numba")
    from momentous.lowrank.backends.numba.compiler import compiled_entry

    z, x = points(loss)
    entry = compiled_entry(type(loss))
    found = np.array([entry(one, x, k, loss.parameters) for k, one in enumerate(z)]).T
    for one, expected in zip(found, loss.entries(z, x), strict=True):
        assert np.max(np.abs(one - expected) / (1.0 + np.abs(expected))) < 1e-14


def test_what_cannot_be_compiled_is_named():
    with pytest.raises(TypeError, match=r"cannot branch on a number: write np.where"):
        Formula.of(lambda z: z if z > 0.0 else 0.0, "z")
    with pytest.raises(TypeError, match=r"np.arctan cannot be compiled .* known are add"):
        Formula.of(np.arctan, "z")


def test_lines_that_no_result_needs_are_left_out():
    def first(z):
        unused = np.exp(z)
        return (2.0 * z, unused)[0]

    assert Formula.of(first, "z").in_python() == "    t1 = 2.0 * z\n    return t1,"


def test_constants_are_written_so_that_they_can_be_read():
    power = Formula.of(lambda z: np.power(-2.0, z), "z").in_python()
    assert power == "    t0 = (-2.0) ** z\n    return t0,"
    with pytest.raises(TypeError, match="must be finite"):
        Formula.of(lambda z: np.minimum(z, np.inf), "z")
