"""A record of a run comes back as it was written, and nothing else is taken for one."""

from dataclasses import dataclass

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from momentous import minimize, testbed
from momentous.core.status import EventKind
from momentous.lab.record import Ended, Outcome, RecordError, RunInfo, RunRecord, setup

INFO = RunInfo("rosenbrock", "gd", {"step_size": 0.5, "pairs": [1, 2]}, setup())


@dataclass(frozen=True)
class MoreInfo(RunInfo):
    shape: tuple[int, int]
    step: float | None
    sizes: list[int]
    rank: int


def a_record(info=INFO, rows=5):
    columns = {
        "nfev": np.arange(rows),
        "njev": np.arange(1, rows + 1),
        "time": np.linspace(0, 1, rows),
        "fun": np.linspace(3, 1, rows),
        "grad_norm": np.array([np.nan, 4.0, 0.5, 0.1, 0.2])[:rows],
    }
    events = [
        (1, EventKind.RESTART, 16.0),
        (1, EventKind.RADIUS_REACHED, 1 / 3),
        (3, EventKind.ROLLBACK, np.inf),
    ]
    return RunRecord.from_columns(info, Outcome(Ended.CONVERGED, "small", 4, 2), columns, events)


def test_a_record_comes_back_with_the_same_bits(tmp_path):
    record = a_record()
    saved = record.save(tmp_path / "run.parquet")
    again = RunRecord.load(saved.path, RunInfo)
    assert (again.info, again.outcome) == (record.info, record.outcome)
    assert again.events == record.events
    assert again.path == saved.path == tmp_path / "run.parquet"
    for name, column in record.columns.items():
        np.testing.assert_array_equal(again.columns[name], column)
        assert again.columns[name].dtype == column.dtype
    assert np.isnan(again.step_size).all()


def test_a_subclass_of_the_info_comes_back_with_its_types(tmp_path):
    info = MoreInfo("p", "m", {}, "s", (3, 4), None, [1, 2], 7)
    path = a_record(info).save(tmp_path / "run.parquet").path
    again = RunRecord.load(path, MoreInfo).info
    assert again == info
    assert isinstance(again.shape, tuple)


@pytest.mark.parametrize(
    ("field", "value"),
    [("rank", "<script>"), ("rank", True), ("shape", [3]), ("step", "0.5"), ("method", 3)],
)
def test_a_field_of_another_type_is_refused(tmp_path, field, value):
    fields = {"problem": "p", "method": "m", "parameters": {}, "setup": "s"}
    fields |= {"shape": (3, 4), "step": None, "sizes": [1], "rank": 7} | {field: value}
    path = a_record(MoreInfo(**fields)).save(tmp_path / "run.parquet").path
    with pytest.raises(RecordError, match=field):
        RunRecord.load(path, MoreInfo)


def test_a_record_of_our_own_method_has_a_row_per_iteration():
    result = minimize(*_rosenbrock(), jac=True, method="adaragd", tol=1e-3)
    record = RunRecord.from_trace(INFO, Outcome.from_result(result), result.trace)
    assert len(record) == result.nit + 1
    assert record.status == "converged"
    assert record.outcome.restarts == result.restarts == len(record.restart_rows())
    assert record.evaluations[-1] == result.trace["nfev"][-1] + result.trace["njev"][-1]


def _rosenbrock():
    problem = testbed.rosenbrock(2)
    return problem.value_and_gradient, problem.start


def test_a_run_that_evaluated_nothing_has_no_rows(tmp_path):
    record = RunRecord.from_columns(INFO, Outcome(Ended.NOT_APPLICABLE, "no constants"))
    assert len(record) == 0
    assert record.best() is None
    assert record.guaranteed_turns is None
    assert len(RunRecord.load(record.save(tmp_path / "run.parquet").path, RunInfo)) == 0


def test_the_first_small_gradient_counts_only_below_the_start():
    record = a_record()
    assert record.reached(0.5, start_fun=3.0) == 2
    assert record.reached(0.5, start_fun=1.8) == 3
    assert record.reached(0.01, start_fun=3.0) is None
    assert record.best() == 3


def test_the_first_rows_keep_their_events_only():
    cut = a_record().first_rows(2)
    assert len(cut) == 2
    assert [row for row, _, _ in cut.events] == [1, 1]


def test_a_damaged_or_foreign_file_is_one_clear_error(tmp_path):
    path = a_record().save(tmp_path / "run.parquet").path
    content = path.read_bytes()
    (tmp_path / "cut.parquet").write_bytes(content[: len(content) // 2])
    (tmp_path / "empty.parquet").write_bytes(b"")
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "other.parquet")
    for name in ("cut", "empty", "other"):
        with pytest.raises(RecordError, match=f"{name}.parquet"):
            RunRecord.load(tmp_path / f"{name}.parquet", RunInfo)
    with pytest.raises(FileNotFoundError):
        RunRecord.load(tmp_path / "absent.parquet", RunInfo)


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_byte_gives_the_record_or_a_clear_error(tmp_path, seed):
    path = a_record().save(tmp_path / "run.parquet").path
    content = bytearray(path.read_bytes())
    rng = np.random.default_rng(seed)
    content[rng.integers(len(content))] ^= int(rng.integers(1, 256))
    path.write_bytes(content)
    try:
        again = RunRecord.load(path, RunInfo)
    except RecordError:
        return
    assert len(again) == 5
