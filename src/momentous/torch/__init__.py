"""For PyTorch: the methods as a ``torch.optim.Optimizer``, and whole runs on a module.

Here a loss is a function of all trained parameters at once, the same at every call: the whole data
set, or one fixed part of it, and no dropout.  ``docs/start-pytorch.md`` begins at the beginning.
"""

from momentous.io.optional import require

require("torch", extra="torch", purpose="momentous.torch")

from momentous.torch.optimizer import Optimizer  # noqa: E402
from momentous.torch.whole import certify, minimize  # noqa: E402

__all__ = ["Optimizer", "certify", "minimize"]
