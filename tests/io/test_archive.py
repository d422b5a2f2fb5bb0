"""An archive is read only if it is what it says it is."""

import io
import zipfile

import numpy as np
import pytest

from momentous.io.archive import ArchiveError, ArraySpec, is_archive, read_archive, write_archive
from momentous.io.optional import require

SCHEMA = {"a": ArraySpec("f", 1), "b": ArraySpec("iu", 2, required=False)}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "x.npz"
    write_archive(path, "thing", 1, {"n": 3}, {"a": np.arange(3.0)})
    return path


def test_what_is_written_is_read(path):
    archive = read_archive(path, "thing", 1, SCHEMA)
    assert archive.content == {"n": 3}
    assert archive.arrays["a"].tolist() == [0.0, 1.0, 2.0]
    assert is_archive(path, "thing")
    assert not is_archive(path, "model")


@pytest.mark.parametrize(
    ("kind", "version", "told"),
    [("model", 1, "is a thing, not a model"), ("thing", 2, "version 1.*reads version 2")],
)
def test_another_kind_or_version_is_refused(path, kind, version, told):
    with pytest.raises(ArchiveError, match=told) as caught:
        read_archive(path, kind, version)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({}, "lacks the array 'a'"),
        ({"a": np.zeros((2, 2))}, "2 dimensions"),
        ({"a": np.zeros(2, int)}, "dtype int64"),
        ({"a": np.zeros(2), "b": np.zeros((2, 2))}, "'b'"),
    ],
)
def test_arrays_that_do_not_fit_the_schema_are_refused(tmp_path, arrays, told):
    path = tmp_path / "x.npz"
    write_archive(path, "thing", 1, {}, arrays)
    with pytest.raises(ArchiveError, match=told):
        read_archive(path, "thing", 1, SCHEMA)


def test_pickles_are_refused(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, header=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ArchiveError):
        read_archive(path, "thing", 1)


def test_another_npz_file_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, a=np.zeros(2))
    with pytest.raises(ArchiveError, match="another npz"):
        read_archive(path, "thing", 1)
    assert not is_archive(path, "thing")


def test_damage_anywhere_is_one_clear_error(path):
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole)
        for place in random.integers(len(whole), size=random.integers(1, 4)):
            damaged[place] = random.integers(256)
        path.write_bytes(damaged[: random.integers(1, len(whole) + 1)])
        try:
            read_archive(path, "thing", 1, SCHEMA)
        except ArchiveError:
            refused += 1
    assert refused > 200


def test_an_array_that_claims_more_than_there_is_takes_no_memory(tmp_path):
    path = tmp_path / "x.npz"
    write_archive(path, "thing", 1, {}, {"a": np.zeros(3)})
    text = path.read_bytes()
    claim = text.replace(b"'shape': (3,), }" + b" " * 12, b"'shape': (3000000000000,), }")
    assert claim != text
    path.write_bytes(claim)
    with pytest.raises(ArchiveError, match=r"not as long as it says|damaged"):
        read_archive(path, "thing", 1, SCHEMA)


def test_an_unknown_compression_is_one_clear_error(tmp_path):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr("header.npy", b"x")
    content = bytearray(made.getvalue())
    for signature, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        content[content.index(signature) + offset] = 77
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    with pytest.raises(ArchiveError):
        read_archive(path, "thing", 1)


def test_a_missing_package_is_named_with_the_way_to_install_it():
    with pytest.raises(ModuleNotFoundError, match=r"Flying needs .*momentous\[app\]"):
        require("antigravity_of_course", "app", "Flying")
