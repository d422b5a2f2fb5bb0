"""Ratings from files, tables and queries, with a cache; synthetic twins; downloads; writing."""

from momentous.lowrank.data.describe import describe
from momentous.lowrank.data.errors import Limits, RatingsFileError
from momentous.lowrank.data.fetch import fetch
from momentous.lowrank.data.files.formats import FORMATS
from momentous.lowrank.data.ratings import Compressed, Ratings
from momentous.lowrank.data.read import query_ratings, read_pairs, read_ratings
from momentous.lowrank.data.twins import twin
from momentous.lowrank.data.vocabulary import Vocabulary
from momentous.lowrank.data.write import write_ratings

Ratings.read = staticmethod(read_ratings)
Ratings.query = staticmethod(query_ratings)
Ratings.twin = staticmethod(twin)

__all__ = [
    "FORMATS",
    "Compressed",
    "Limits",
    "Ratings",
    "RatingsFileError",
    "Vocabulary",
    "describe",
    "fetch",
    "read_pairs",
    "read_ratings",
    "twin",
    "write_ratings",
]
