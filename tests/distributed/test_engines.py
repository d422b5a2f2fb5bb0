"""The six calls by both engines, and how a rank that fails or hangs ends the others."""

from __future__ import annotations

import numpy as np
import pytest
from launch import launched

from momentous.distributed import Alone, find

SIZE = 3
TABLE = np.arange(14.0).reshape(7, 2)


@pytest.fixture(scope="module", params=[("torch", 3), ("mpi", 4)], ids=["torch", "mpi"])
def found(request, tmp_path_factory):
    """What each of the first three ranks has seen."""
    return launched(*request.param, tmp_path_factory)[1][:SIZE]


def test_ranks_are_found_and_numbered(found):
    assert [each["calls"]["rank"] for each in found] == [0, 1, 2]
    assert {each["calls"]["size"] for each in found} == {SIZE}
    assert {each["calls"]["engine"] for each in found} <= {"Torch", "MPI"}
    assert all(each["calls"]["same"] for each in found)


def test_all_reduce(found):
    for each in found:
        assert each["calls"]["sum"] == (6 * TABLE).tolist()
        assert each["calls"]["max"] == [2, 0]
        assert each["calls"]["number"] == pytest.approx(0.3)
        assert each["calls"]["single"] == "float32"


def test_reduce_scatter_leaves_each_rank_its_share_of_the_rows(found):
    rows = [each["calls"]["scattered"] for each in found]
    assert [len(part) for part in rows] == [3, 3, 1]
    assert [row for part in rows for row in part] == (6 * TABLE).tolist()


def test_all_gather_of_different_numbers_of_rows(found):
    for each in found:
        assert each["calls"]["gathered"] == [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0]]
        assert each["calls"]["known"] == [1.0, 2.0, 2.0]
        assert each["calls"]["nothing"] == [0, 3]
        assert each["calls"]["texts"] == ["", "rank 1", "rank 2"]


def test_broadcast(found):
    assert all(each["calls"]["broadcast"] == [20, 7] for each in found)


def test_bytes_are_those_of_the_whole_arrays(found):
    whole = 8 * 1000 + 4 * 3000 + 8 * 2 * SIZE
    assert all(each["calls"]["counted"] == [whole, 3] for each in found)
    assert len({each["calls"]["bytes"] for each in found}) == 1


def test_tensors_come_back_as_tensors(found):
    for each in found:
        if each["calls"]["engine"] == "Torch":
            assert each["tensors"]["total"] == [3.0] * 4
            assert each["tensors"]["dtype"] == "torch.float32"
            assert each["tensors"]["part"] == [[3.0, 3.0]] * (2, 2, 0)[each["calls"]["rank"]]


def test_a_rank_that_fails_ends_the_others_with_its_name(found):
    failures = [each["faults"]["failure"] for each in found]
    assert failures[1]["type"] == "ValueError"
    for other in (failures[0], failures[2]):
        assert other["type"] == "RankError"
        assert other["message"] == "rank 1 failed: ValueError: a bad number"
        assert other["failed"] == 1


def test_a_rank_that_hangs_is_not_waited_for_for_ever(found):
    for each in (found[1], found[2]):
        assert "0 s in all_reduce for the other ranks" in each["faults"]["hanging"]["message"]


def test_alone_everything_is_a_copy():
    ranks = Alone()
    assert (ranks.rank, ranks.size) == (0, 1)
    for result in (
        ranks.all_reduce(TABLE),
        ranks.all_reduce(TABLE, "max"),
        ranks.reduce_scatter(TABLE),
        ranks.all_gather(TABLE),
        ranks.broadcast(TABLE),
    ):
        assert result is not TABLE
        np.testing.assert_array_equal(result, TABLE)
    assert ranks.share(7) == slice(0, 7)
    assert ranks.gather_text("é") == ["é"]
    with pytest.raises(KeyError), ranks.announced():
        raise KeyError


def test_without_a_launcher_a_process_is_alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert isinstance(find(), Alone)
