"""Low-rank models on many ranks: users are spread, with their entries, and items are shared.

A point x is spread: each rank has the parameters of its own users and of its share of the items.
Before a pass over the entries the items' parameters are gathered; after it, what all ranks say
about them is added up, and each rank gets its share of that.  `LowRankObjective` does this.
"""

from momentous.lowrank.ranks.ratings import RankRatings

__all__ = ["RankRatings"]
