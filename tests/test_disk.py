"""Files and folders are written whole or not at all, and special files are written through."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from posteria import disk
from posteria.errors import DiskError, StoreError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_takes_the_place_of_another_and_nothing_else_is_left(tmp_path):
    disk.write_bytes(tmp_path / "below" / "a", b"one")
    disk.write_bytes(tmp_path / "below" / "a", b"two")
    assert (tmp_path / "below" / "a").read_bytes() == b"two"
    assert names(tmp_path / "below") == ["a"]


def test_permissions_are_those_of_the_umask_and_of_a_file_that_was_there(tmp_path):
    before = os.umask(0o027)
    try:
        disk.write_bytes(tmp_path / "new", b"")
        disk.write_bytes(tmp_path / "private", b"")
        os.chmod(tmp_path / "private", 0o600)
        disk.write_bytes(tmp_path / "private", b"more")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600


@pytest.mark.parametrize("where", ["write", "fsync", "replace"])
def test_whatever_fails_what_was_there_stays_and_the_half_goes(tmp_path, monkeypatch, where):
    disk.write_bytes(tmp_path / "a", b"old")

    def full(*arguments):
        raise KeyboardInterrupt if where == "replace" else OSError(28, "No space left on device")

    if where == "write":
        monkeypatch.setattr(disk.os, "chmod", full)
    else:
        monkeypatch.setattr(disk.os, where, full)
    with pytest.raises(
        KeyboardInterrupt if where == "replace" else DiskError, match=None if where == "replace" else "full"
    ):
        disk.write_bytes(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_a_link_leads_to_its_target(tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "dangling").symlink_to("created")
    disk.write_output(tmp_path / "link", b"new")
    disk.write_output(tmp_path / "dangling", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_bytes() == b"new"
    assert (tmp_path / "created").read_bytes() == b"new"


def test_a_link_or_a_device_in_a_folder_of_ours_leads_nowhere(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "link").symlink_to("victim")
    (tmp_path / "dangling").symlink_to("created")
    (tmp_path / "device").symlink_to("/dev/full")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "dangling", "device", "pipe"):
        disk.write_bytes(tmp_path / name, b"new")
        assert not (tmp_path / name).is_symlink() and (tmp_path / name).read_bytes() == b"new"
    assert (tmp_path / "victim").read_text() == "precious" and not (tmp_path / "created").exists()


def test_the_half_is_opened_exclusively_though_someone_guessed_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(disk.secrets, "token_hex", lambda length: "guessed")
    (tmp_path / "victim").write_text("precious")
    (tmp_path / f".guessed{disk.HALF}").symlink_to("victim")
    with pytest.raises(DiskError, match="File exists"):
        disk.write_bytes(tmp_path / "a", b"new")
    assert (tmp_path / "victim").read_text() == "precious" and not (tmp_path / "a").exists()


def test_a_device_and_a_pipe_are_written_through(tmp_path):
    device = os.stat("/dev/null")
    disk.write_output(Path("/dev/null"), b"gone")
    assert os.stat("/dev/null").st_ino == device.st_ino and stat.S_ISCHR(os.stat("/dev/null").st_mode)
    os.mkfifo(tmp_path / "pipe")
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    disk.write_output(tmp_path / "pipe", b"through")
    reader.join()
    assert heard == [b"through"] and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_is_written_through_also_where_it_is_a_file(tmp_path, path):
    (tmp_path / "log").write_text("before\n")
    code = f"from pathlib import Path; from posteria import disk; disk.write_output(Path({path!r}), b'after\\n')"
    with open(tmp_path / "log", "a") as log:
        subprocess.run([sys.executable, "-c", code], check=True, stdout=log)
    assert (tmp_path / "log").read_text() == "before\nafter\n"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"after\n"
    assert names(tmp_path) == ["log"]


def test_what_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for path in ("folder", "file/below", "x" * 300):
        for write in (disk.write_bytes, disk.write_output):
            with pytest.raises(DiskError, match=r"cannot be written|is a folder"):
                write(tmp_path / path, b"")
    assert names(tmp_path) == ["file", "folder"]


def test_a_folder_takes_the_place_of_another_in_one_rename(tmp_path):
    for content in ("one", "two"):
        with disk.written_whole(tmp_path / "f") as fresh:
            (fresh / content).write_text(content)
            assert not (tmp_path / "f" / content).exists()
    assert names(tmp_path) == ["f"] and names(tmp_path / "f") == ["two"]


@pytest.mark.parametrize("has_swap", [True, False])
def test_a_folder_that_fails_leaves_what_was(tmp_path, monkeypatch, has_swap):
    if not has_swap:
        monkeypatch.setattr(disk, "_swapped", lambda one, other: False)
    with disk.written_whole(tmp_path / "f") as fresh:
        (fresh / "old").write_text("")
    with pytest.raises(KeyboardInterrupt), disk.written_whole(tmp_path / "f") as fresh:
        (fresh / "new").write_text("")
        raise KeyboardInterrupt
    assert names(tmp_path) == ["f"] and names(tmp_path / "f") == ["old"]
    with disk.written_whole(tmp_path / "f") as fresh:
        (fresh / "new").write_text("")
    assert names(tmp_path) == ["f"] and names(tmp_path / "f") == ["new"]


def test_an_empty_folder_is_filled_where_it_is_and_empty_again_when_that_fails(tmp_path, monkeypatch):
    """It may be a volume, or the current folder: neither can be renamed."""
    (tmp_path / "f").mkdir()
    monkeypatch.chdir(tmp_path / "f")
    with pytest.raises(OSError), disk.written_whole(Path(".")) as fresh:
        (fresh / "half").mkdir()
        raise OSError
    assert names(Path(".")) == []
    with disk.written_whole(Path(".")) as fresh:
        (fresh / "whole").write_text("")
    assert names(Path(".")) == ["whole"]
    with pytest.raises(DiskError, match="current folder"), disk.written_whole(Path(".")):
        pass


def test_what_a_kill_left_beside_is_swept_and_what_another_writes_is_not(tmp_path):
    name = ".f[1].0123456789abcdef.part"
    (tmp_path / name).mkdir()
    (tmp_path / "f[1]").mkdir()
    (tmp_path / "f[1]" / "old").write_text("")
    with disk.locked(tmp_path / name):
        with disk.written_whole(tmp_path / "f[1]") as fresh:
            (fresh / "x").write_text("")
        assert names(tmp_path) == [name, "f[1]"]
        with pytest.raises(StoreError, match="another process"), disk.locked(tmp_path / name):
            pass
    with disk.written_whole(tmp_path / "f[1]") as fresh:
        (fresh / "x").write_text("")
    assert names(tmp_path) == ["f[1]"]
