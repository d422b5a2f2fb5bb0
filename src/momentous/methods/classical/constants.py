"""The constants of L-BFGS, with the paper or benchmark that each comes from, if there is one."""

from __future__ import annotations

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Constants:
    """What L-BFGS goes by and a user does not choose."""

    # <s, y>/(|s| |y|): a pair with less says nothing that can be relied on.
    smallest_cosine: float = 1e-10
    # A correction t by values (Biggs, see `compact.correction`) must be so many times their noise;
    # and its range.
    correction_signal: float = 12.0
    least_correction: float = 0.5
    most_correction: float = 2.0
    # More pairs than so many are not corrected.  On networks with 100 pairs a correction lowers the
    # loss in the first 300 gradients (by a quarter in the mean of 30 runs), where f bends
    # differently from step to step; after 1,000 it is level (12 runs), and on PINNs it raises the
    # loss beyond.
    most_corrected_pairs: int = 40
    # Variables up to which the matrix of all pairs is kept: as costly there as 80 pairs.
    matrix_dimension: int = 128
    # Pairs beyond that: as many as hold so many entries of s (and of y), at most so many, and in a
    # long vector no fewer than (variables, pairs) say.  From 129 to 5,000 variables 200 in place of
    # 40 or 20 pairs take two thirds of the gradients, on the half of the testbed for choosing; 400
    # take a few percent less, and more time than that saves.
    memory_entries: int = 200_000
    most_memory: int = 200
    least_memory: tuple[tuple[float, int], ...] = ((50_000, 20), (math.inf, 10))
    # Pairs where gradients are costly, as those of networks, if they fit into so many bytes: as
    # many as torch.optim.LBFGS keeps, read half as often.  With 20 of them the loss of a network
    # after 1,000 gradients is some 4 times as high (benchmarks/networks.py).
    long_memory: int = 100
    long_memory_bytes: int = 1 << 30
    # Pairs of plain BFGS before H is scaled by itself: a start whose scale is poor is mended by
    # them; 20 to 100 are level (benchmarks/networks.py).
    plain_pairs: int = 50
    # Pairs that are kept where H is scaled by itself: with 100, what it has learned is dropped too
    # early.
    self_scaled_memory: int = 300
    # The largest matrix of a self-scaled method where gradients are costly: of 4,096 variables on a
    # CPU, of 30,000 on a GPU, and no more than a quarter of all memory.
    matrix_bytes_on_cpu: int = 8 * 4096**2
    matrix_bytes_on_gpu: int = 8 * 30_000**2
    matrix_share_of_memory: float = 0.25
    # gamma, which only grows then, is at most so many times <s, y>/<y, y> of the newest pair.
    most_gamma: float = 1e4
    # Pairs that are kept in place of a matrix where x is spread over ranks.
    pairs_on_ranks: int = 40
    # Entries of a NumPy vector up to which pairs are rows of one array: there calls cost more than
    # arithmetic.
    stacked_entries: int = 1 << 17
    # Entries of a matrix for which BLAS libraries keep to one thread (OpenBLAS: 9,216), so that
    # sums do not depend on how many threads there are.
    one_thread_entries: int = 9216


LBFGS_CONSTANTS = Constants()
