"""Low-rank models of partly observed matrices: ratings, likes, implicit feedback.

`Ratings` are the observed entries, from arrays, a file or a synthetic `twin`; `LowRankObjective` is
the function to minimise; `Sweep`, `ALSSweep` and `MMSweep` are maps for `momentous.accelerate`; the
estimators `MatrixCompletion`, `OneBitMatrixCompletion`, `ImplicitMF` and `LowRankImputer` put it
all together.  Names are imported when they are first used.
"""

from momentous.lazy import importer, names

_MODULE_OF = names(__name__, __spec__)

__getattr__ = importer(__name__, _MODULE_OF, globals())
__all__ = sorted(_MODULE_OF)


def __dir__() -> list[str]:
    return __all__
