"""Ratings that are numbered and sorted on a GPU are those of the CPU."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from momentous.lowrank import Ratings
from momentous.lowrank.backends.device import gpu_available

duckdb = pytest.importorskip("duckdb")

COLUMNS = [
    "(hash(range) % 700)::SMALLINT AS user, "
    "(hash(range * 7) % 300)::BIGINT * 100000000000 AS item, "
    "(1 + hash(range * 3) % 5)::TINYINT AS rating",
    "(hash(range) % 700)::INTEGER - 300 AS user, (hash(range * 7) % 300)::UINTEGER AS item, "
    "(1 + hash(range * 3) % 5) / 3.0 AS rating",
]


def read(path, **options):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ratings = Ratings.read(path, **options)
    return ratings, [str(one.message) for one in told]


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_available(), reason="no GPU that CuPy can use")
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("dtype", [None, "float32"])
def test_a_parquet_file_gives_the_same_ratings(columns, dtype, tmp_path):
    path = tmp_path / "ratings.parquet"
    duckdb.sql(f"COPY (SELECT {columns} FROM range(20000)) TO '{path}' (FORMAT parquet)")
    (here, told), (there, too) = (
        read(path, dtype=dtype, device=device) for device in ("cpu", "cuda")
    )
    assert told == too
    assert "for a pair that is rated again later" in told[0]
    for name in ("starts", "others", "values"):
        one, other = getattr(here.by_row, name), getattr(there.by_row, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    for ids in ("row_ids", "col_ids"):
        np.testing.assert_array_equal(getattr(here, ids), getattr(there, ids))
    assert there.mean == pytest.approx(here.mean, rel=1e-12)
    assert there.deviation == pytest.approx(here.deviation, rel=1e-12)
    assert there.value_range == here.value_range


@pytest.mark.parametrize("columns", COLUMNS)
def test_numbers_of_few_bytes_are_read_as_those_of_many(columns, tmp_path):
    small, large = tmp_path / "small.parquet", tmp_path / "large.parquet"
    duckdb.sql(f"COPY (SELECT {columns} FROM range(2000)) TO '{small}' (FORMAT parquet)")
    duckdb.sql(
        f"COPY (SELECT user::BIGINT AS user, item::BIGINT AS item, rating::DOUBLE AS rating "
        f"FROM '{small}') TO '{large}' (FORMAT parquet)"
    )
    here, there = (read(path)[0] for path in (small, large))
    assert here.dtype == there.dtype == np.float64
    assert here.row_ids.dtype == there.row_ids.dtype
    for name in ("starts", "others", "values"):
        np.testing.assert_array_equal(getattr(here.by_row, name), getattr(there.by_row, name))
    np.testing.assert_array_equal(here.row_ids, there.row_ids)


def test_another_device_is_refused(tmp_path):
    with pytest.raises(ValueError, match="device='tpu' must be 'cpu' or 'cuda'"):
        Ratings.read(tmp_path / "ratings.csv", device="tpu")
