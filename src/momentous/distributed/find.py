"""Which ranks is this process one of?  The environment of its launcher tells."""

from __future__ import annotations

import functools
import os
import sys

from momentous.distributed.mpi_engine import MPI
from momentous.distributed.ranks import Alone, Ranks
from momentous.distributed.torch_engine import Torch
from momentous.distributed.torch_setup import whole_number

# What the launchers of MPI libraries set: Open MPI, MPICH and Intel MPI, MVAPICH; and srun, where
# it starts ranks of MPI.
MPI_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
SLURM_SIZE, SLURM_MPI = "SLURM_STEP_NUM_TASKS", "PMIX_RANK"


def find() -> Ranks:
    """The ranks of this program, always the same object.

    Those of torch.distributed if the program has set it up or a launcher of PyTorch runs it, those
    of MPI under mpirun (or ``srun --mpi``), otherwise this process alone.
    """
    loaded = sys.modules.get("torch.distributed")
    if loaded is not None and loaded.is_available() and loaded.is_initialized():
        return _torch()
    if "RANK" in os.environ and whole_number("WORLD_SIZE", "1") > 1:
        return _torch()
    sizes = MPI_SIZES if SLURM_MPI not in os.environ else (*MPI_SIZES, SLURM_SIZE)
    if any(int(os.environ.get(name, "1")) > 1 for name in sizes):
        return _mpi()
    return _alone()


_torch = functools.cache(Torch)
_mpi = functools.cache(MPI)
_alone = functools.cache(Alone)
