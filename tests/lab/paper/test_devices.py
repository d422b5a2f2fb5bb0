"""The paper's experiments on a GPU: the same runs, kept apart from those of the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from momentous.lab import studies
from momentous.lab.paper import problems
from momentous.lab.paper.folder import StudyFolder
from momentous.lab.paper.methods import PAPER_METHODS
from momentous.lab.paper.plan import Settings
from momentous.lab.paper.problems import DataSet, PaperProblem
from momentous.lab.paper.runs import Task, run_task
from momentous.lab.report.documents import write_account
from momentous.lowrank import Ratings, register_backend
from momentous.lowrank.backends import BACKENDS
from momentous.lowrank.backends.device import gpu_available
from momentous.lowrank.backends.numpy import NumpyBackend
from paper_runs import calls

pytest.importorskip("pyarrow")

gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_available(), reason="no GPU that CuPy can use"),
]
on_gpu = pytest.mark.parametrize("device", [pytest.param("cuda", marks=gpu)])
SHORT = {"iterations": 8, "trial_iterations": 4, "threads": 1}


class Elsewhere(NumpyBackend):
    """NumPy under the name of another device."""

    name = device = "elsewhere"


@pytest.fixture
def elsewhere(monkeypatch) -> str:
    monkeypatch.setattr(problems, "_gpu", lambda: ("Some GPU", "CuPy 1.2.3, CUDA 4.5"))
    monkeypatch.setitem(BACKENDS, "elsewhere", Elsewhere)
    register_backend(Elsewhere)
    return "elsewhere"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> DataSet:
    """In memory: reading a file needs DuckDB, which a machine with a GPU may not have."""
    made = DataSet("small", tmp_path_factory.mktemp("data"))
    rng = np.random.default_rng(0)
    chosen = rng.choice(90 * 70, 2000, replace=False)
    ratings = Ratings(chosen // 70, chosen % 70, rng.integers(1, 6, 2000) + 0.0, (90, 70))
    vars(made)["ratings"] = ratings
    return made


def reproduce(parts, out, data, **settings):
    return studies.reproduce(parts, out, [data], Settings(**SHORT | settings), report=False)[0]


def test_a_record_names_the_device_and_its_software(elsewhere, data, tmp_path):
    here, there = (PaperProblem(data, "completion", device=each) for each in ("cpu", elsewhere))
    run, other = (run_task(Task(PAPER_METHODS["gd"], it, 0.5, 3), tmp_path) for it in (here, there))
    assert (run.info.device, other.info.device) == ("CPU", "Some GPU")
    assert "CuPy" not in run.info.setup
    assert other.info.setup.endswith(", CuPy 1.2.3, CUDA 4.5")
    assert other.info.machine.endswith("CUDA 4.5; Some GPU")
    assert run.path != other.path


def test_runs_of_two_devices_are_two_sets(elsewhere, data, tmp_path):
    for device in ("cpu", elsewhere, "cpu"):
        folder = reproduce(["fig1"], tmp_path, data, methods=["gd"], device=device)
    sets = folder.run_sets()
    assert [it.title for it in sets] == [
        "small, matrix completion", "small, matrix completion, Some GPU"
    ]  # fmt: skip
    for run_set in sets:
        assert len({run.info.device for run in run_set.runs}) == 1
    study = studies.Study(sets)
    write_account(study, tmp_path / "account.md", "momentous", pictures={})
    told = (tmp_path / "account.md").read_text()
    assert "a call ends when its numbers are back on the host" in " ".join(told.split())
    assert "CUDA 4.5; Some GPU" in " ".join(told.split())
    assert "| CPU |" in told
    assert "| Some GPU |" in told


def test_step_sizes_of_another_study_are_taken_over_without_a_search(elsewhere, data, tmp_path):
    methods = ["gd", "cg", "jin-agd"]
    first = reproduce(["fig1"], tmp_path / "a", data, methods=methods, device=elsewhere)
    second = reproduce(
        ["fig1"], tmp_path / "b", data, methods=methods, step_sizes_from=tmp_path / "a"
    )
    assert not list(second.tuning.glob("*"))
    (found,), (taken,) = first.run_sets(), second.run_sets()
    for name, run in taken.by_method.items():
        source = found.by_method[name].info
        assert run.info.step_size == source.step_size
        assert run.info.step_from == f"{source.step_from}, on Some GPU"
        assert run.info.device == "CPU"
    with pytest.raises(ValueError, match=r"a has no run of fig1: small, completion, Ada-RAGD-NC"):
        reproduce(
            ["fig1"], tmp_path / "c", data, methods=["ada-ragd"], step_sizes_from=tmp_path / "a"
        )


def test_what_cannot_be_used_is_refused_before_anything_is_run(tmp_path):
    with pytest.raises(ValueError, match=r"there is no study in .*nowhere that step sizes"):
        Settings(step_sizes_from=tmp_path / "nowhere")
    if not gpu_available():
        with pytest.raises((ValueError, ImportError), match=r"no NVIDIA GPU|needs cupy"):
            Settings(device="cuda")


def test_of_a_trial_no_checkpoint_is_written(data, monkeypatch, tmp_path):
    saved = []
    monkeypatch.setattr(
        "momentous.core.checkpoint.Checkpoint.save",
        lambda self, state: saved.append(state.progress.nit),
    )
    problem = PaperProblem(data, "completion")
    monkeypatch.setattr("momentous.lab.paper.runs.SAVE_EVERY", 0.0)
    run_task(Task(PAPER_METHODS["gd"], problem, 0.5, 5, trial=True), tmp_path)
    assert saved == []
    run_task(Task(PAPER_METHODS["gd"], problem, 0.5, 5), tmp_path)
    assert saved[-1] == 5


# --- on a GPU -------------------------------------------------------------------------------------


@on_gpu
@pytest.mark.parametrize("name", ["completion", "one-bit"])
@pytest.mark.parametrize("method", list(PAPER_METHODS))
def test_the_seven_methods_do_the_same_on_the_gpu(device, name, method, data, tmp_path):
    runs = [
        run_task(Task(PAPER_METHODS[method], PaperProblem(data, name, device=where), 1.0, 15), out)
        for where, out in ((device, tmp_path / "gpu"), ("cpu", tmp_path / "cpu"))
    ]
    np.testing.assert_allclose(runs[0].fun, runs[1].fun, rtol=1e-7)
    np.testing.assert_allclose(runs[0].grad_norm, runs[1].grad_norm, rtol=1e-5)
    for column in ("nfev", "njev"):
        assert runs[0].columns[column].tolist() == runs[1].columns[column].tolist()
    assert "NVIDIA" in runs[0].info.device
    assert "CuPy" in runs[0].info.setup


@on_gpu
def test_an_iteration_takes_one_pass_and_the_points_stay_on_the_gpu(
    device, data, monkeypatch, tmp_path
):
    import cupy

    problem = PaperProblem(data, "completion", device=device)
    passes = calls(problem.objective, monkeypatch, ("value", "value_and_gradient"))
    moved = []
    original = cupy.asnumpy
    monkeypatch.setattr(cupy, "asnumpy", lambda a, *r, **k: moved.append(a.size) or original(a))
    task = Task(PAPER_METHODS["ada-ragd"], problem, 0.5, 20, trial=True)
    run_task(task, tmp_path)
    assert passes.count("value_and_gradient") <= 22
    assert passes.count("value") <= 5
    assert sum(size >= problem.objective.dimension for size in moved) <= 4  # at the end only


@on_gpu
def test_figures_run_on_the_gpu_and_go_on_after_an_interrupt(device, data, monkeypatch, tmp_path):
    how = {"device": device, "methods": ["ada-ragd", "gd"]}
    whole = reproduce(["fig1", "fig3"], tmp_path / "whole", data, **how)
    assert len(whole.run_sets()) == 3
    taken, original = [], PaperProblem.gradient

    def interrupting(self, x):
        taken.append(1)
        if len(taken) == 60:
            raise KeyboardInterrupt
        return original(self, x)

    with monkeypatch.context() as patch:
        patch.setattr(PaperProblem, "gradient", interrupting)
        with pytest.raises(KeyboardInterrupt):
            reproduce(["fig1", "fig3"], tmp_path / "cut", data, **how)
    again = reproduce(["fig1", "fig3"], tmp_path / "cut", data, **how)
    for one, other in zip(whole.run_sets(), again.run_sets(), strict=True):
        for name, run in one.by_method.items():
            assert run.fun.tobytes() == other.by_method[name].fun.tobytes()


@on_gpu
def test_step_sizes_found_on_the_gpu_serve_the_cpu(device, data, tmp_path):
    reproduce(["fig1"], tmp_path / "gpu", data, device=device, methods=["gd", "cg"])
    folder: StudyFolder = reproduce(
        ["fig1"], tmp_path / "cpu", data, methods=["gd", "cg"], step_sizes_from=tmp_path / "gpu"
    )
    assert all("on NVIDIA" in run.info.step_from for run in folder.run_sets()[0].runs)
