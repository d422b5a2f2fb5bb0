"""Launchers of others: Spark and Ray, as docs/how-to/ray-and-spark.md shows them, and JAX's.

The tests of Spark and Ray need their packages, and Java for Spark: without them they are skipped.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from launch import HERE, LIMIT, environment, launch

from momentous import minimize

HOW_TO = HERE.parents[1] / "docs" / "how-to"
PROGRAMS = {
    "ray" if "ray.train" in program else "spark": program
    for program in re.findall(
        r"```py\n(.*?)```", (HOW_TO / "ray-and-spark.md").read_text(), flags=re.DOTALL
    )
}


def run_program(name: str, folder: Path, **settings: str) -> str:
    """Run a program of the page in a process of its own, with a folder for the shared one."""
    program = folder / "program.py"
    program.write_text(PROGRAMS[name].replace("/shared", str(folder)))
    done = subprocess.run(
        [sys.executable, str(program)], env=environment() | settings, cwd=folder,
        capture_output=True, text=True, timeout=LIMIT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.spark
def test_from_a_data_frame_of_spark_to_a_model(tmp_path):
    pytest.importorskip("pyspark")
    pytest.importorskip("torch")
    if shutil.which("java") is None:
        pytest.skip("no Java")
    from momentous.lowrank import Ratings
    from momentous.lowrank.model import load_model
    from momentous.lowrank.tasks import evaluate_file

    ratings = Ratings.twin("ml-100k")
    lines = [
        f"u{user},{item},{rating:g}"
        for user, item, rating in zip(ratings.rows, ratings.cols, ratings.values, strict=True)
    ]
    (tmp_path / "ratings.csv").write_text("\n".join(["user,item,rating", *lines]))
    output = run_program(
        "spark", tmp_path, PYSPARK_PYTHON=sys.executable,
        PYSPARK_SUBMIT_ARGS="--master local[2] --conf spark.ui.enabled=false pyspark-shell",
    )  # fmt: skip
    facts = re.search(r"\{'model'.*\}", output)
    assert facts is not None, output
    assert f"'ratings': {ratings.nnz}" in facts[0]
    assert f"'users': {ratings.shape[0]}, 'items': {ratings.shape[1]}" in facts[0]
    assert len(list(tmp_path.glob("model.shard-*"))) == 2  # one per rank
    model, _ = load_model(tmp_path / "model")
    assert str(model.rows.ids[0]).startswith("u")
    found = evaluate_file(tmp_path / "model", tmp_path / "ratings.csv")
    assert found["unknown_users"] == found["unknown_items"] == 0
    held_out = re.search(r"'held_out_error': ([\d.]+)", facts[0])
    assert held_out is not None
    assert found["rmse"] < float(held_out[1]) < 0.97 * np.std(ratings.values)


@pytest.mark.ray
def test_workers_of_ray_are_the_ranks(tmp_path):
    pytest.importorskip("ray.train")
    pytest.importorskip("torch")
    run_program("ray", tmp_path, RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
    random = np.random.default_rng(0)
    A, b = random.standard_normal((600, 50)), random.standard_normal(600)

    def fun(x):
        r = A @ x - b
        return np.log1p(r * r).sum(), A.T @ (2 * r / (1 + r * r))

    alone = minimize(fun, np.zeros(50), jac=True)
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), alone.x, atol=1e-7)


def test_an_array_of_jax_that_is_spread_over_processes_is_minimised_as_a_whole(tmp_path):
    pytest.importorskip("jax")
    from jax_program import OPTIONS, SCALES

    output = launch("jax", 2, "jax_program.py", tmp_path)
    x0 = np.ones_like(SCALES)
    alone = minimize(lambda x: (0.5 * (SCALES * x * x).sum(), SCALES * x), x0, **OPTIONS)
    for rank in range(2):
        file = tmp_path / f"{rank}.json"
        assert file.exists(), output[-4000:]
        fun, nit, restarts, shape = json.loads(file.read_text())
        assert fun == pytest.approx(alone.fun, rel=1e-3)
        assert [nit, restarts] == [alone.nit, alone.restarts]
        assert shape == [SCALES.size // 2]


def test_the_sbatch_file_and_the_yaml_of_the_page_can_be_read(tmp_path):
    page = (HOW_TO / "launchers.md").read_text()
    blocks = {block.split("\n")[0]: block for block in indented_blocks(page)}
    script = tmp_path / "job.sh"
    script.write_text(blocks["#!/bin/bash"])
    subprocess.run(["bash", "-n", str(script)], check=True)
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load(blocks["apiVersion: kubeflow.org/v1"])
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    (container,) = worker["template"]["spec"]["containers"]
    assert container["command"][0] == "torchrun"
    volumes = {volume["name"] for volume in worker["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def indented_blocks(page: str) -> list[str]:
    found = re.findall(r"(?:^ {4}.*\n)+", page, flags=re.MULTILINE)
    return ["".join(line[4:] + "\n" for line in block.splitlines()) for block in found]
