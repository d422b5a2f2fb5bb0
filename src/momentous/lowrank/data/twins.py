"""Synthetic twins of well-known data sets: their size and their habits, none of their data.

MovieLens and the Netflix prize data may not be passed on; a twin may.  It has the exact number of
users, items and ratings of its model, power-law activities through the model's known extremes, and
ratings made of biases, a signal of rank 12 with a decaying spectrum, and noise, on the model's
scale.  Who rates what is independent of how it is rated, except that popular items are liked a
little better; there is no time, no taste in what one chooses to rate, and no film behind an item.
So a twin is right for timing and for comparing methods, and says nothing about real viewers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from momentous.io.types import AnyArray
from momentous.lowrank.checks import corrects_names
from momentous.lowrank.data.draws import Rng, new_generator
from momentous.lowrank.data.ratings import Ratings

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Model:
    """What is publicly known of a data set, as far as its twin repeats it."""

    users: int
    items: int
    count: int
    most_active: int  # ratings of the most active user; the least active has 20
    most_rated: int  # ratings of the most rated item; the least rated has about one
    mean: float
    half_stars: bool = False
    dtype: DTypeLike = np.float64


MODELS = {
    "ml-100k": Model(943, 1_682, 100_000, 737, 583, 3.53),
    "ml-1m": Model(6_040, 3_706, 1_000_209, 2_314, 3_428, 3.58),
    "ml-10m": Model(69_878, 10_677, 10_000_054, 7_359, 34_864, 3.51, half_stars=True),
    "ml-20m": Model(138_493, 26_744, 20_000_263, 9_254, 67_310, 3.53, half_stars=True),
    "netflix": Model(480_189, 17_770, 100_480_507, 17_653, 232_944, 3.60, dtype=np.float32),
}

SHARING = 8
"""Users per block.  With 8, the two users who are most alike are hardly more so than by independent
choices (a third of all that both rate, against a quarter); with 256, some would be identical."""

LEAST_ACTIVE = 20
SHORTER = 1.0 - 1e-6  # so that rounding cannot make an item longer than the distance
USERS_FALL, ITEMS_FALL = 0.5, 1.5
"""Exponents, for which the medians come out about right, too (69 and 135 in MovieLens 10M)."""

RANK = 12
SIGNAL, USER_BIAS, ITEM_BIAS, NOISE = 0.5, 0.45, 0.4, 0.8
"""Standard deviations, in stars; together about that of the real ratings, 1.05 to 1.1."""


@corrects_names
def twin(name: str, rng: Rng = 0) -> Ratings:
    """Make the synthetic twin of a data set.

    Every user and every item has ratings, no pair has two, each user has at least 20.  The same
    seed gives the same ratings wherever NumPy's generators give the same stream.

    Parameters
    ----------
    name : {"ml-100k", "ml-1m", "ml-10m", "ml-20m", "netflix"}
        The model.  Values are float64, for "netflix" float32 (0.8 GB instead of 1.2).
    rng : seed or Generator, optional

    Examples
    --------
    >>> from momentous.lowrank.data.twins import twin
    >>> twin("ml-100k")
    <Ratings 943 x 1,682, 100,000 entries (6.30%), float64>
    """
    if name not in MODELS:
        raise ValueError(f"there is no twin of {name!r}; there are those of {', '.join(MODELS)}")
    model = MODELS[name]
    generator = new_generator(rng)
    activity = power_law(model.users, model.count, LEAST_ACTIVE, model.most_active, USERS_FALL)
    popularity = power_law(model.items, model.count, 1, model.most_rated, ITEMS_FALL)
    # The curves are sorted; who stands where on them is drawn.
    user_at, item_at = (generator.permutation(size) for size in (model.users, model.items))
    counts = np.empty(model.users, np.int64)
    counts[user_at] = activity
    starts = np.concatenate([[0], np.cumsum(counts)])
    cols = np.empty(model.count, np.int32)
    for first, last, chosen in _choices(activity, popularity, generator):
        where = np.repeat(starts[user_at[first:last]], activity[first:last])
        cols[where + _within(activity[first:last])] = item_at[chosen]
    _fill_gaps(cols, model.items, generator)
    _sort_within(cols, starts)
    values = _rate(model, starts, cols, item_at, generator)
    rows = np.repeat(np.arange(model.users, dtype=np.int32), counts)
    return Ratings(rows, cols, values, (model.users, model.items))


def power_law(size: int, total: int, least: int, most: int, exponent: float) -> Integers:
    """Whole numbers that fall from `most` to `least` and have the given sum.

    They follow the law of Zipf and Mandelbrot, (rank + shift)^(-exponent), stretched so that it
    begins and ends as asked; the sum fixes the shift.
    """
    rank = np.arange(1, size + 1)

    def curve(shift: float) -> Floats:
        law = ((1.0 + shift) / (rank + shift)) ** exponent
        stretched: Floats = least + (most - least) * (law - law[-1]) / (1.0 - law[-1])
        return stretched

    low, high = 1e-9 - 1.0, 1e3 * size  # the sum grows with the shift
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (middle, high) if curve(middle).sum() < total else (low, middle)
    law = curve(low)
    whole = np.floor(law + 1e-9).astype(np.int64)
    missing = total - int(whole.sum())
    # One more for those that lost most by rounding down; never above the one that leads.
    whole[1 + np.argsort(-(law - whole)[1:], kind="stable")[:missing]] += 1
    return whole


def _choices(
    activity: Integers, popularity: Integers, generator: np.random.Generator
) -> Iterator[tuple[int, int, Integers]]:
    """For blocks of users, as (first, last): what they rate, as ranks of items, user by user.

    Each user takes a systematic sample: items lie in a random order on a line, each as long as it
    is likely, and the user takes those at equal distances from a random first point on.  No item is
    longer than the distance, so none is taken twice; what would be longer is certain to be taken.
    The users of a block have about the same activity and share the order; their first points are
    spread evenly, for with nearly the same point two users would rate nearly the same items.
    """
    weights = weights_for(activity, popularity)
    rest, rising, first = _rest(weights), -activity, 0
    while first < activity.size:
        draws = activity[first]
        certain = _certain(weights, rest, draws)
        alike = np.searchsorted(rising, [-draws / 1.03, -certain], "left")
        last = min(first + SHARING, int(alike.min()))
        order = certain + generator.permutation(weights.size - certain)
        ends = np.cumsum(weights[order])
        drawn = activity[first:last] - certain
        offset = generator.permutation(drawn.size) + generator.random()
        offset = np.repeat(offset / drawn.size, drawn)
        spacing = np.repeat(ends[-1] / drawn, drawn)
        found = order[np.searchsorted(ends[:-1], (_within(drawn) + offset) * spacing, "right")]
        if certain:
            taken = np.empty(int(activity[first:last].sum()), np.int64)
            place = _within(activity[first:last])
            taken[place >= certain] = found
            taken[place < certain] = place[place < certain]
            found = taken
        yield first, last, found
        first = last


def _rest(weights: Floats) -> Floats:
    """Length of the line from each item on."""
    return np.cumsum(weights[::-1])[::-1]


def _certain(weights: Floats, rest: Floats, draws: float) -> int:
    """How many of the leading items are certain: the rest is nowhere longer than the distance."""
    if draws * weights[0] <= SHORTER * rest[0]:
        return 0
    left = draws - np.arange(weights.size)
    return int(np.argmax(left * weights <= SHORTER * rest))


def weights_for(activity: Integers, popularity: Integers) -> Floats:
    """Lengths on the line for which items are expected to get their popularity.

    Popularities themselves would give the leading items too little, because nobody rates them
    twice: a fixed-point iteration corrects that.
    """
    weights = popularity.astype(np.float64)
    for _ in range(25):
        weights *= popularity / expected_counts(weights, activity)
        weights = np.maximum.accumulate(weights[::-1])[::-1]  # sorted, as `_certain` needs them
    return weights


def expected_counts(weights: Floats, activity: Integers) -> Floats:
    """How many ratings items can expect, by classes of about equally active users."""
    level = np.unique(np.floor(np.log(activity) / np.log(1.1)), return_inverse=True)[1]
    users = np.bincount(level)
    draws = np.bincount(level, activity) / users
    expected, rest = np.zeros(weights.size), _rest(weights)
    for number, each in zip(users, draws, strict=True):
        certain = _certain(weights, rest, each)
        expected[:certain] += number
        expected[certain:] += weights[certain:] * (number * (each - certain) / rest[certain])
    return expected


def _fill_gaps(cols: NDArray[np.int32], items: int, generator: np.random.Generator) -> None:
    """Give items that nobody has rated one rating each, taken from items that have enough."""
    counts = np.bincount(cols, minlength=items)
    empty = np.flatnonzero(counts == 0)
    drawn = generator.choice(cols.size, 20 * empty.size, replace=False)
    spare = drawn[counts[cols[drawn]] > 1 + empty.size]  # nearly all ratings are of such items
    cols[spare[: empty.size]] = empty


def _sort_within(cols: NDArray[np.int32], starts: Integers, users: int = 4096) -> None:
    """Sort the items of each user, some users at a time."""
    for first in range(0, starts.size - 1, users):
        bounds = starts[first : first + users + 1]
        part = cols[bounds[0] : bounds[-1]]
        user = np.repeat(np.arange(bounds.size - 1) << 32, np.diff(bounds))
        part[:] = np.sort(user | part) & 0xFFFFFFFF


def _rate(
    model: Model,
    starts: Integers,
    cols: NDArray[np.int32],
    item_at: Integers,
    generator: np.random.Generator,
) -> AnyArray:
    """Biases, signal and noise, rounded and clipped to the scale."""
    share = 1.0 / np.arange(1, RANK + 1)  # of the variance: singular values fall as k^(-1/2)
    sizes = np.sqrt(SIGNAL * np.sqrt(share / share.sum())).astype(np.float32)
    left = generator.standard_normal((RANK, model.users), np.float32) * sizes[:, None]
    right = generator.standard_normal((RANK, model.items), np.float32) * sizes[:, None]
    user_bias = generator.standard_normal(model.users, np.float32) * np.float32(USER_BIAS)
    item_bias = generator.standard_normal(model.items, np.float32) * np.float32(ITEM_BIAS)
    # Popular items are liked better: from -0.2 for the last to 0.2 for the first.
    item_bias[item_at] += np.linspace(0.2, -0.2, model.items, dtype=np.float32)
    counts = np.bincount(cols, minlength=model.items)
    # A running sum adds in the same order everywhere, unlike a dot product.
    item_bias -= np.float32(np.cumsum(counts * item_bias.astype(np.float64))[-1] / cols.size)
    step = 0.5 if model.half_stars else 1.0
    values = np.empty(cols.size, model.dtype)
    users = max(1, model.users * 500_000 // model.count)
    for first in range(0, model.users, users):
        bounds = starts[first : first + users + 1]
        part, of_user = slice(bounds[0], bounds[-1]), np.diff(bounds)
        item = cols[part]
        # Factor by factor: a matrix product would round differently on every machine.
        stars = np.float32(NOISE) * generator.standard_normal(item.size, np.float32)
        stars += np.repeat(user_bias[first : first + users], of_user) + item_bias[item]
        for u, v in zip(left, right, strict=True):
            stars += np.repeat(u[first : first + users], of_user) * v[item]
        stars = np.rint((stars + np.float32(model.mean)) / step) * step
        values[part] = np.clip(stars, step, 5.0)
    return values


def _within(lengths: Integers) -> Integers:
    """0, 1, 2, ... again for each length."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if ends.size else 0) - np.repeat(ends - lengths, lengths)
