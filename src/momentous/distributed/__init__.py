"""Many processes, on one machine or on many: a protocol of six calls, and two engines for it.

A program runs as several processes, its *ranks*, which torchrun, mpirun or another launcher
starts.  What the library needs of them is a `Ranks` object with six members:

====================  ==============================================================================
``rank``, ``size``    which process this is, and how many there are
``all_reduce``        the sum (or the maximum) of an array over all ranks, on every rank
``reduce_scatter``    of the sum of an array over all ranks, this rank's share of the rows
``all_gather``        the rows of all ranks, one after another, on every rank
``broadcast``         the array of one rank, on every rank
====================  ==============================================================================

`Torch` (torch.distributed: Gloo and NCCL) and `MPI` (mpi4py) are the engines, `Alone` is one
process, and `find` gives the one that the launcher asks for:

>>> from momentous.distributed import find
>>> ranks = find()
>>> ranks.rank, ranks.size
(0, 1)

``minimize(..., ranks="data")`` and ``ranks="variables"`` run on them; `Data` and `Variables` say
how x and the data are spread, and on which ranks where these are not the launcher's.

Nothing else may know which engine runs.  Every rank makes the same calls in the same order.  Arrays
of any library go in and come out; all ranks get the same bits.  ``share(n)`` and ``shares(n)`` say
which of n rows ``reduce_scatter`` leaves where; ``sum`` and ``gather_text`` are for one number and
one text per rank.  ``traffic`` counts calls and bytes.

A rank that fails must not leave the others waiting: code between calls stands in ``with
ranks.announced()``.  An exception in it is told to all ranks, beside the calls (by the group's
store, or by messages of their own), and ends the call that they wait in with a `RankError` that
names the rank and the exception.  What was under way stays unfinished: the ranks that waited cannot
be used again after that.  A rank that does not come is waited for until the engine's ``timeout``.
"""

from momentous.distributed.driver import Data, Variables
from momentous.distributed.find import find
from momentous.distributed.mpi_engine import MPI
from momentous.distributed.ranks import Alone, RankError, Ranks, Traffic
from momentous.distributed.torch_engine import Torch

__all__ = [
    "MPI", "Alone", "Data", "RankError", "Ranks", "Torch", "Traffic", "Variables", "find",
]  # fmt: skip
