"""Smooth nonconvex optimisation by accelerated first-order methods that carry guarantees.

Names are imported when they are first used: ``import momentous`` alone loads neither NumPy nor
SciPy.  They are listed in ``__init__.pyi``.
"""

import sys
from types import ModuleType

from momentous.lazy import importer, names
from momentous.version import __version__ as __version__

_MODULE_OF = names(__name__, __spec__)
_ROOMS = {name for name, module in _MODULE_OF.items() if module == __name__}

__getattr__ = importer(__name__, _MODULE_OF, globals())
__all__ = sorted(_MODULE_OF.keys() - _ROOMS - {"__version__"} | {"testbed"})


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Package(ModuleType):
    """This package, in which `certify` stays the function.

    Python binds every imported submodule to its name in the package; the module of the same name
    must not take the function's place.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name in _ROOMS or name not in _MODULE_OF or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
