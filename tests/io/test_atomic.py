"""A file is the old one or the new one, whatever happens while it is written."""

import os
import re
import signal
import stat
import subprocess
import sys

import pytest

from momentous.io.atomic import (
    atomic_file,
    permissions_of,
    previous_path,
    remove_left_over,
    require_writable,
    write_text,
)


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
    with atomic_file(tmp_path / "b.txt"):
        (name,) = leftovers(tmp_path)
    trap = tmp_path / name.replace("b.txt", "a.txt")
    trap.symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_text(tmp_path / "a.txt", "new")
    assert victim.read_text() == "precious"


def test_a_link_that_leads_to_itself_is_an_error(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for write in (require_writable, lambda path: write_text(path, "new")):
        with pytest.raises(OSError, match=r"symbolic links.*loop"):
            write(loop)
    assert loop.is_symlink()


def test_a_link_that_leads_to_nothing_is_not_followed(tmp_path):
    link, target = tmp_path / "link", tmp_path / "elsewhere"
    link.symlink_to(target)
    for write in (require_writable, lambda path: write_text(path, "new")):
        with pytest.raises(FileNotFoundError, match=r"elsewhere.*does not exist.*remove the link"):
            write(link)
    assert link.is_symlink()
    assert not target.exists()


def test_whether_a_file_can_be_written_is_known_before(tmp_path):
    path = tmp_path / "a.txt"
    require_writable(path)
    assert list(tmp_path.iterdir()) == []
    path.write_text("old")
    require_writable(path)
    assert path.read_text() == "old"
    require_writable("/dev/null")
    gone = tmp_path / "gone" / "a.txt"
    for write in (require_writable, lambda path: write_text(path, "new")):
        with pytest.raises(FileNotFoundError) as told:
            write(gone)
        assert told.value.filename == str(gone)  # and not the partial file


def test_a_pipe_is_written_to_directly():
    write_text("/dev/null", "anything")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    plain, made = tmp_path / "plain", tmp_path / "made"
    plain.write_text("")
    write_text(made, "")
    assert made.stat().st_mode == plain.stat().st_mode


KILLED = """
import os, signal, sys
from momentous.io.atomic import atomic_file
with atomic_file(sys.argv[1], "w") as file:
    file.write("half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_what_a_killed_process_left_is_removed_by_the_next_one(tmp_path):
    path = tmp_path / "a.txt"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = leftovers(tmp_path)
    machine, process, _ = re.fullmatch(r"a\.txt\.(\w+)-(\d+)-(\w+)\.partial", left).groups()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    dead, here = f"{machine}-{process}", f"{machine}-{os.getpid()}"
    elsewhere = f"{int(machine, 16) ^ 1:08x}-{process}"
    others = [f"a.txt.{maker}-00000000.partial" for maker in (here, elsewhere, "7")]
    others += [f"b.txt.{dead}-00000000.partial", f"a.txt.{dead}-00000000.partial.gz"]
    for name in others:
        (tmp_path / name).write_text("")
    link = tmp_path / f"a.txt.{dead}-00000000.partial"
    link.symlink_to(victim)
    write_text(path, "new")
    assert path.read_text() == "new"
    assert set(leftovers(tmp_path)) == {*others, link.name}  # the rest is not ours to remove
    assert victim.read_text() == "precious"
    remove_left_over(tmp_path)
    assert set(leftovers(tmp_path)) == {*others, link.name} - {f"b.txt.{dead}-00000000.partial"}


@pytest.mark.skipif(os.name != "posix", reason="permissions")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o444])
def test_a_file_that_is_written_again_keeps_its_permissions(tmp_path, mode):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    path.chmod(mode)
    with atomic_file(path, "w", keep_previous=True) as file:
        (partial,) = tmp_path.glob("*.partial")  # nor is it open to others before it is done
        assert stat.S_IMODE(partial.stat().st_mode) == mode
        file.write("new")
    assert path.read_text() == "new"
    for each in (path, previous_path(path)):
        assert stat.S_IMODE(each.stat().st_mode) == mode


@pytest.mark.skipif(os.name != "posix", reason="permissions")
def test_permissions_that_are_given_are_the_most_that_a_file_gets(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    path.chmod(0o644)
    before = os.umask(0o027)
    try:
        for most, expected in ((0o600, 0o600), (0o666, 0o640)):
            with atomic_file(path, permissions=most) as file:
                file.write(b"new")
            assert stat.S_IMODE(path.stat().st_mode) == expected
    finally:
        os.umask(before)


@pytest.mark.skipif(sys.platform != "linux", reason="who gets which group")
def test_permissions_of_a_group_are_for_new_files_of_that_group_alone(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_text(path, "text")
    path.chmod(0o640)
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    own.mkdir()
    shared.chmod(0o2755)  # new files have the folder's group
    group = path.stat().st_gid
    monkeypatch.setattr(os, "getegid", lambda: group)
    assert permissions_of(path, own) == permissions_of(path, shared) == 0o640
    monkeypatch.setattr(os, "getegid", lambda: group + 1)
    assert [permissions_of(path, folder) for folder in (own, shared)] == [0o600, 0o640]
