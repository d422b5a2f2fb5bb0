"""What an evaluation is: a value and a gradient, the image of a map, or a gradient in a metric."""

from momentous.core.oracle.base import NO_SAMPLE, CachedOracle, Oracle, Sample
from momentous.core.oracle.descent_map import MapOracle
from momentous.core.oracle.function import Fun, FunctionOracle, Jac, levels_to_the_user
from momentous.core.oracle.metric import Coordinates, MetricOracle, MetricSample

__all__ = [
    "NO_SAMPLE",
    "CachedOracle",
    "Coordinates",
    "Fun",
    "FunctionOracle",
    "Jac",
    "MapOracle",
    "MetricOracle",
    "MetricSample",
    "Oracle",
    "Sample",
    "levels_to_the_user",
]
