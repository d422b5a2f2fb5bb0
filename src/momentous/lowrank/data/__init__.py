"""Ratings from files: readers, one format a module, with a cache; downloads; a description."""

from momentous.lowrank.data.describe import describe
from momentous.lowrank.data.errors import RatingsFileError
from momentous.lowrank.data.fetch import fetch
from momentous.lowrank.data.formats import FORMATS
from momentous.lowrank.data.read import read_ratings

__all__ = ["FORMATS", "RatingsFileError", "describe", "fetch", "read_ratings"]
