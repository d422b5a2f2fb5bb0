"""What an evaluation is: a value and a gradient, the image of a map, or a gradient in a metric."""

from momentous.core.oracle.base import NO_SAMPLE as NO_SAMPLE
from momentous.core.oracle.base import BudgetSpentError as BudgetSpentError
from momentous.core.oracle.base import CachedOracle as CachedOracle
from momentous.core.oracle.base import Oracle as Oracle
from momentous.core.oracle.base import Sample as Sample
from momentous.core.oracle.base import Words as Words
from momentous.core.oracle.descent_map import MapOracle as MapOracle
from momentous.core.oracle.function import Differences as Differences
from momentous.core.oracle.function import Fun as Fun
from momentous.core.oracle.function import FunctionOracle as FunctionOracle
from momentous.core.oracle.function import Jac as Jac
from momentous.core.oracle.function import levels_to_the_user as levels_to_the_user
from momentous.core.oracle.metric import Coordinates as Coordinates
from momentous.core.oracle.metric import MetricOracle as MetricOracle
from momentous.core.oracle.metric import MetricSample as MetricSample
