"""MovieLens data sets from GroupLens, each checked against its published checksum."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from momentous.io.logs import notify
from momentous.io.optional import require
from momentous.lowrank.data.files.sources import expand_home
from momentous.lowrank.data.twins import MODELS

LOGGER = logging.getLogger("momentous.lowrank")
ADDRESS = "https://files.grouplens.org/datasets/movielens/{name}.zip"

LICENCE = """\
{name} belongs to GroupLens, University of Minnesota (https://grouplens.org/datasets/movielens/).
Research use is free; commercial use needs their permission; publications acknowledge it by
Harper & Konstan, The MovieLens Datasets, ACM TiiS 5(4), 2015. Read the README in the archive for
its exact terms, which differ between the data sets."""


@dataclass(frozen=True)
class DataSet:
    """An archive that GroupLens offers, with the checksum of its file NAME.zip.md5."""

    megabytes: int
    md5: str


# Without ml-latest-small, which "may change over time", says its README: it cannot be checked.
DATA_SETS = {
    "ml-100k": DataSet(5, "0e33842e24a9c977be4e0107933c0723"),
    "ml-1m": DataSet(6, "c4d9eecfca2ab87c1945afe126590906"),
    "ml-10m": DataSet(66, "ce571fd55effeba0271552578f2648bd"),
    "ml-20m": DataSet(199, "cd245b17a1ae2cc31bb14903e1204af3"),
    "ml-25m": DataSet(262, "6b51fb2759a8657d3bfcbfc42b592ada"),
    "ml-32m": DataSet(239, "d472be332d4daa821edc399621853b57"),
}


def fetch(name: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """Download a MovieLens data set, unless it is there already; return its archive.

    The licence is shown before each download.  `Ratings.read` takes the archive as it is.

    Parameters
    ----------
    name : {"ml-100k", "ml-1m", "ml-10m", "ml-20m", "ml-25m", "ml-32m"}
    folder : path, optional
        Where to keep it; by default a folder in the user's cache.

    Raises
    ------
    ConnectionError
        If it cannot be downloaded.
    ValueError
        If what came is not what GroupLens published.
    """
    if name not in DATA_SETS:
        raise ValueError(f"there is no data set {name!r}; there are {', '.join(DATA_SETS)}")
    pooch = require("pooch", "app", "A download")
    place = expand_home(pooch.os_cache("momentous") if folder is None else folder)
    archive, data_set, address = place / f"{name}.zip", DATA_SETS[name], ADDRESS.format(name=name)
    if not archive.exists():
        notify(LOGGER, LICENCE.format(name=name), always=True)
        notify(LOGGER, f"downloading {data_set.megabytes} MB from {address}", always=True)
    pooch.get_logger().setLevel("WARNING")  # what it has to say was just said
    try:
        pooch.retrieve(address, f"md5:{data_set.md5}", archive.name, place)
    except OSError as error:  # requests' errors are OSErrors, too
        alike = name if name in MODELS else "ml-100k"
        raise ConnectionError(
            f"{name} could not be downloaded from {address} ({error}). Without a network, bring "
            f"the file to {archive} yourself, or use a synthetic twin: Ratings.twin({alike!r})"
        ) from error
    except ValueError as error:
        raise ValueError(
            f"what came from {address} is not what GroupLens published (md5 {data_set.md5}); "
            "try again, or look there whether it has changed"
        ) from error
    return archive
