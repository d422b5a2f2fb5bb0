"""Random numbers that belong to an id: the same on any number of ranks, whoever draws them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from momentous.io.types import AnyArray

Keys = NDArray[np.uint64]
Rng = int | np.random.Generator | None

STEP = np.uint64(0x9E3779B97F4A7C15)  # of the generator: 2^64 over the golden ratio, made odd
DIGIT = 16  # bits of a key that are looked at together
KEYS_PER_BLOCK = 1 << 20  # keys that are counted at a time


def new_generator(rng: Rng) -> np.random.Generator:
    """A generator of random numbers, from a seed or as it is."""
    try:
        return np.random.default_rng(rng)
    except (ValueError, TypeError):
        raise ValueError(
            f"rng={rng!r:.60} must be a whole number >= 0, a Generator or None"
        ) from None


def mix(keys: ArrayLike) -> Keys:
    """64 bits that look random, for any 64 bits.

    The output function of SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom
    number generators", OOPSLA 2014, with the constants of its published code).
    """
    with np.errstate(over="ignore"):
        z = np.asarray(keys, np.uint64) + STEP
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Keys = z ^ (z >> np.uint64(31))
    return mixed


def keys_of(ids: AnyArray) -> Keys:
    """One key per id, of whole numbers or text; equal ids have equal keys on every machine."""
    if ids.dtype.kind in "iu":
        return mix(ids.astype(np.int64).view(np.uint64))
    if ids.dtype.kind == "f":
        return mix(ids.astype(np.float64).view(np.uint64))
    text = np.ascontiguousarray(ids.astype(np.str_))
    keys = np.zeros(text.size, np.uint64)
    if not text.size:
        return keys
    letters = text.view(np.uint32).reshape(text.size, -1)
    for column in letters.T:  # what is shorter is filled up with zeros, which change nothing
        keys = np.where(column > 0, mix(keys ^ column.astype(np.uint64)), keys)
    return mix(keys)


def normals(keys: Keys, count: int, seed: np.uint64) -> NDArray[np.float64]:
    """So many standard normal numbers for every key (Box & Muller)."""
    columns = mix(seed ^ mix(np.arange(2 * count, dtype=np.uint64)))
    bits = mix(keys[:, None] ^ columns)
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    sizes, turns = uniform[:, :count], uniform[:, count:]
    drawn: NDArray[np.float64] = np.sqrt(-2.0 * np.log(sizes)) * np.cos(2.0 * np.pi * turns)
    return drawn


def least_keys(
    keys: Keys, count: int, total: Callable[[NDArray[np.int64]], NDArray[np.int64]]
) -> NDArray[np.bool_]:
    """Which keys are among the ``count`` least ones of all ranks, over which ``total`` adds up."""
    left, prefix, inside = count, np.uint64(0), keys
    for shift in range(64 - DIGIT, -1, -DIGIT):
        digits = (inside >> np.uint64(shift)).astype(np.uint16)
        numbers = np.zeros(2**DIGIT, np.int64)
        for begin in range(0, digits.size, KEYS_PER_BLOCK):
            numbers += np.bincount(digits[begin : begin + KEYS_PER_BLOCK], minlength=2**DIGIT)
        until = np.cumsum(total(numbers))
        digit = int(np.searchsorted(until, left))  # in which the last one lies
        left -= int(until[digit - 1]) if digit else 0
        prefix |= np.uint64(digit << shift)
        inside = inside[digits == digit]
    return np.asarray(keys <= prefix)
