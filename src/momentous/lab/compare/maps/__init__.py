"""Accelerations of descent maps, compared: problems, solvers, the runs, and the page."""

from momentous.lab.compare.maps.runs import MapRow, run_maps
from momentous.lab.compare.maps.solvers import MAP_SOLVERS

__all__ = ["MAP_SOLVERS", "MapRow", "run_maps"]
