"""Descent maps with their objectives: EM and MM steps, proximal and alternating ones.

Every factory returns a `MapProblem`: the map, its objective and a start, in flat NumPy vectors.
"""

from momentous.testbed.maps.problem import MapProblem
from momentous.testbed.maps.suite import MapEntry, map_suite

__all__ = ["MapEntry", "MapProblem", "map_suite"]
