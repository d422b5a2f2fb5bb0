"""Descent maps with their objectives: EM and MM steps, proximal and alternating ones.

Every factory returns a `MapProblem`: the map, its objective and a start, in flat NumPy vectors.
"""

from momentous.testbed.maps.suite import map_suite
from momentous.testbed.problem import MapProblem

__all__ = ["MapProblem", "map_suite"]
