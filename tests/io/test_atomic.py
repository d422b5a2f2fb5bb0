"""A file is the old one or the new one, whatever happens while it is written."""

import os
import stat

import pytest

from momentous.io.atomic import atomic_file, previous_path, write_text


def leftovers(folder):
    return [p.name for p in folder.iterdir() if "partial" in p.name or "aside" in p.name]


def test_the_file_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "a.txt"
    with atomic_file(path, "w") as file:
        file.write("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_error_leaves_the_old_file_and_no_partial_one(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write():
        with atomic_file(path, "w") as file:
            file.write("half")
            raise error

    with pytest.raises(type(error)):
        write()
    assert path.read_text() == "old"
    assert leftovers(tmp_path) == []


def test_a_sync_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space.*a\.txt"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert leftovers(tmp_path) == []


def test_every_rename_comes_after_a_sync(tmp_path, monkeypatch):
    calls = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda d: (calls.append("sync"), sync(d))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("rename"), replace(a, b))[1])
    write_text(tmp_path / "a.txt", "new")
    assert calls[:2] == ["sync", "rename"]


def test_the_file_before_is_kept_on_request(tmp_path):
    path = tmp_path / "a.bin"
    for content in (b"1", b"2", b"3"):
        with atomic_file(path, keep_previous=True) as file:
            file.write(content)
    assert path.read_bytes() == b"3"
    assert previous_path(path).read_bytes() == b"2"
    assert leftovers(tmp_path) == []


def test_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_link_in_the_place_of_the_partial_file_is_not_followed(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr("secrets.token_hex", lambda n: "00000000")
    trap = tmp_path / f"a.txt.{os.getpid()}-00000000.partial"
    trap.symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_text(tmp_path / "a.txt", "new")
    assert victim.read_text() == "precious"


def test_a_pipe_is_written_to_directly():
    write_text("/dev/null", "anything")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    plain, made = tmp_path / "plain", tmp_path / "made"
    plain.write_text("")
    write_text(made, "")
    assert made.stat().st_mode == plain.stat().st_mode
