"""L-BFGS in lanes with ``exact=True``: each has what a single run on the host has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from momentous.core.oracle import Sample
from momentous.methods.search.wolfe import Line


class Own:
    """In every lane what a single run on the host has, bit for bit, one after the other."""

    __slots__ = ("count", "items", "way")

    def __init__(self, items: np.ndarray, way: Line):
        self.items, self.way = items, way
        self.count = np.array([each.count for each in items])

    @classmethod
    def begun(cls, m: Any, here: Sample, on_host: Callable[[Any], Any]) -> Own:
        items = np.empty(m.size, object)
        items[:] = [on_host(m.space) for _ in range(m.size)]
        return cls(items, _lines(m, items, here))

    def line(self, m: Any, here: Sample) -> Line:
        return self.way

    def at(self, m: Any, here: Sample) -> Own:
        items = self.items.copy()
        items[:] = [each.at(m.host(i), _row(here, i)) for i, each in enumerate(items)]
        return Own(items, _lines(m, items, here))

    def after(
        self, m: Any, moved: Any, failed: Any, here: Sample, there: Sample,
        noise: Callable[[], Any],
    ) -> Own:  # fmt: skip
        moved, failed = (np.broadcast_to(a, m.size) for a in (moved, failed))
        changed = (moved | failed) & (True if m.live is None else m.live)
        if not changed.any():
            return self
        noises, items = np.broadcast_to(noise(), m.size), self.items.copy()
        way = _lines_of(type(self.way), lambda name: np.array(getattr(self.way, name)))
        for i in np.flatnonzero(changed).tolist():
            host, before, after, error = m.host(i), _row(here, i), _row(there, i), float(noises[i])
            items[i] = items[i].after(
                host, bool(moved[i]), bool(failed[i]), before, after, lambda error=error: error
            )
            line = items[i].line(host, after if moved[i] else before)
            for name in LINE:
                getattr(way, name)[i] = getattr(line, name)
        return Own(items, way)

    def merged(self, mask: np.ndarray, other: Own) -> Own:
        """This one where the mask says so, the other elsewhere."""

        def choose(name: str) -> Any:
            lanes = mask[:, None] if name == "direction" else mask
            return np.where(lanes, getattr(self.way, name), getattr(other.way, name))

        return Own(np.where(mask, self.items, other.items), _lines_of(type(self.way), choose))

    def taken(self, index: np.ndarray) -> Own:
        """The lanes with these numbers."""
        way = _lines_of(type(self.way), lambda name: getattr(self.way, name)[index])
        return Own(self.items[index], way)


LINE = ("direction", "slope", "descends", "longest", "first", "guess")


def _row(sample: Any, i: int) -> Sample:
    return Sample(
        sample.point[i], float(sample.value[i]), sample.gradient[i], float(sample.grad_norm[i])
    )


def _lines(m: Any, items: np.ndarray, here: Sample) -> Line:
    lines = [each.line(m.host(i), _row(here, i)) for i, each in enumerate(items)]
    return _lines_of(type(lines[0]), lambda name: np.array([getattr(line, name) for line in lines]))


def _lines_of(kind: type[Line], part: Callable[[str], Any]) -> Line:
    return kind(*map(part, LINE))
