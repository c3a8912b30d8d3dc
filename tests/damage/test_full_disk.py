"""A full disk at every write: one sentence, exit code 2, and nothing that was there is lost.

Without a disk of its own, the n-th write fails as on a full one; with one (a small tmpfs, for root alone), so much room
is left as n pages.
"""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib.figure  # noqa: F401  (which looks for a folder of its own, once: tests/report tries that)
import numpy as np
import pytest
from typer.testing import CliRunner

import posteria as po
from damage import killed
from damage.subjects import QUICK, table
from posteria import disk
from posteria.cli import app
from posteria.engine import checkpoint, chunks
from posteria.errors import DiskError

OPEN = os.open


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> Path:
    """Two posteriors, a fit of the command line and its table."""
    home = tmp_path_factory.mktemp("given")
    model, data = killed.problem()
    for key, name in enumerate("ab"):
        po.fit(model, data, killed.HMC, key=key, progress=False).save(home / name)
    table(0, home / "table.csv")
    arguments = ["fit", home / "table.csv", "--target", "y", *QUICK, "-o", home / "run", "-q"]
    assert CliRunner().invoke(app, list(map(str, arguments))).exit_code == 0
    return home


@pytest.fixture
def often(monkeypatch) -> None:
    """Checkpoints as often as can be."""
    monkeypatch.setattr(checkpoint, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "CHECKPOINT_SHARE", 1.0)
    monkeypatch.setattr(chunks, "CHUNK_SECONDS", 0.02)


def command(*arguments: Any) -> None:
    """As on the command line: what cannot be written is a DiskError here, if it was told as it should be."""
    answer = CliRunner().invoke(app, list(map(str, arguments)))
    if answer.exit_code == 2:
        lines = answer.stderr.splitlines()
        assert lines[0].startswith("posteria: ") and len(lines) <= 2 and "Traceback" not in answer.stderr
        raise DiskError(lines[0])
    assert answer.exit_code == 0, answer.output


def fitted(given: Path, place: Path) -> None:
    model, data = killed.problem()
    po.fit(model, data, killed.HMC, key=0, out=place / "run", if_exists="resume", progress=False)


def replaced_fit(given: Path, place: Path) -> None:
    model, data = killed.problem()
    po.fit(model, data, killed.HMC, key=1, out=place / "run", if_exists="replace", progress=False)


def saved(given: Path, place: Path) -> None:
    po.load(given / "b").save(place / "run", if_exists="replace")


def exported(given: Path, place: Path) -> None:
    po.load(given / "b").export(place / "export", num_draws=5, if_exists="replace")


def predicted(given: Path, place: Path) -> None:
    command("predict", given / "run", given / "table.csv", "-o", place / "out.csv", "-q")


def compared(given: Path, place: Path) -> None:
    killed.compare(place / "comparison")


def fit_by_command(given: Path, place: Path) -> None:
    arguments = ("--target", "y", *QUICK, "-o", place / "run", "-q", "--if-exists", "resume")
    command("fit", given / "table.csv", *arguments)


def export_by_command(given: Path, place: Path) -> None:
    command("export", given / "run", place / "export", "-q")


def reported(given: Path, place: Path) -> None:
    command("report", place / "comparison")


ACTIONS: dict[Callable, str] = {  # and what is there before
    fitted: "",
    fit_by_command: "",
    replaced_fit: "a fit",
    saved: "a fit",
    exported: "an export",
    export_by_command: "",
    predicted: "predictions",
    compared: "",
    reported: "a comparison",
}
FAST = (fitted, saved, predicted)


def prepare(given: Path, place: Path, what: str) -> None:
    if what == "a fit":
        shutil.copytree(given / "a", place / "run")
    elif what == "an export":
        po.load(given / "a").export(place / "export", num_draws=5)
    elif what == "predictions":
        (place / "out.csv").write_text("old")
    elif what == "a comparison":
        killed.compare(place / "comparison")


def check_kept(given: Path, place: Path, what: str, act: Callable) -> None:
    """What was there is there, whole; nothing half-written lies beside it."""
    halves = list(place.rglob(f"*{disk.HALF}"))
    assert not halves, halves
    if act is replaced_fit:  # the old one, or the new one, as far as it came
        manifest = (place / "run" / "manifest.json").read_text()
        assert '"complete"' in manifest or '"running"' in manifest
    elif what == "a fit":
        np.testing.assert_array_equal(po.load(place / "run").stored.flat, po.load(given / "a").stored.flat)
    elif what == "an export":
        assert (place / "export" / "artifact.json").is_file()
    elif what == "predictions":
        assert (place / "out.csv").read_text() == "old"


def check_done(given: Path, place: Path, act: Callable) -> None:
    """With room again, what was asked for is there, as if nothing had happened."""
    if act in (fitted, replaced_fit, saved):
        wanted = po.load(given / ("a" if act is fitted else "b"))
        np.testing.assert_array_equal(po.load(place / "run").stored.flat, wanted.stored.flat)
    elif act is fit_by_command:
        np.testing.assert_array_equal(po.load(place / "run").stored.flat, po.load(given / "run").stored.flat)
    elif act is predicted:
        assert (place / "out.csv").read_text().startswith("a,b,y,mean")
    elif act in (compared, reported):
        assert (place / "comparison" / "results.json").is_file()
    else:
        assert (place / "export" / "artifact.json").is_file()


# ---- writes that fail


class Writes:
    """Counts the writes of a process, and lets the n-th and all after it fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.last = 0, None
        for owner, name in ((disk.os, "open"), (disk.os, "fsync"), (disk.os, "replace"), (disk.os, "rename")):
            monkeypatch.setattr(owner, name, self.failing(getattr(owner, name)))
        monkeypatch.setattr(Path, "mkdir", self.failing(Path.mkdir))
        monkeypatch.setattr(disk, "_open", self.failing(disk._open, is_tensorstore=True))
        write = disk.ArrayFile.write

        def written(file: Any, *arguments: Any) -> None:
            file._do(self.failing(lambda: None, is_tensorstore=True), "cannot be written")
            write(file, *arguments)

        monkeypatch.setattr(disk.ArrayFile, "write", written)

    def failing(self, act: Callable, is_tensorstore: bool = False) -> Callable:
        def tried(*arguments: Any, **settings: Any) -> Any:
            if act is OPEN and not arguments[1] & os.O_CREAT:
                return act(*arguments, **settings)
            self.count += 1
            if self.last is not None and self.count > self.last:
                if is_tensorstore:
                    raise ValueError(f"RESOURCE_EXHAUSTED: no space [os_error_code='{errno.ENOSPC}']")
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return act(*arguments, **settings)

        return tried


@pytest.mark.parametrize(
    "act",
    [act if act in FAST else pytest.param(act, marks=pytest.mark.slow) for act in ACTIONS],
    ids=lambda a: a.__name__,
)
def test_the_nth_write_fails(given, tmp_path, often, act):
    what, number, failures = ACTIONS[act], 0, 0
    while True:
        place = tmp_path / str(number)
        place.mkdir()
        prepare(given, place, what)
        with pytest.MonkeyPatch.context() as patch:
            writes = Writes(patch)
            writes.last = number
            try:
                act(given, place)
            except DiskError as error:
                assert "full" in str(error)
                failures += 1
            else:
                break
        check_kept(given, place, what, act)
        act(given, place)
        check_done(given, place, act)
        shutil.rmtree(place)
        number += 1 + number // 12  # all of the first, then fewer
    check_done(given, place, act)
    print(f"\n{act.__name__}: {failures} failing writes, of {writes.count}")
    assert failures > 2


# ---- a disk that is full


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    options = ["-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)]
    if subprocess.run(["mount", *options], capture_output=True).returncode:
        pytest.skip("a tmpfs can be mounted by root alone")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def leave(place: Path, pages: int) -> Path:
    """Fill the disk but for so many pages."""
    ballast = place / "ballast"
    state = os.statvfs(place)
    with open(ballast, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, (state.f_bavail - pages) * state.f_frsize)
    return ballast


@pytest.mark.slow
@pytest.mark.parametrize("act", list(ACTIONS), ids=lambda act: act.__name__)
def test_the_disk_is_full(given, small_disk, often, act):
    what, pages, failures = ACTIONS[act], 0, 0
    while True:
        place = small_disk / "place"
        place.mkdir()
        prepare(given, place, what)
        ballast = leave(small_disk, pages)
        try:
            act(given, place)
        except DiskError as error:
            assert "full" in str(error)
            failures += 1
        else:
            break
        check_kept(given, place, what, act)
        ballast.unlink()
        act(given, place)
        check_done(given, place, act)
        shutil.rmtree(place)
        pages += 1 + pages // 8
    check_done(given, place, act)
    print(f"\n{act.__name__}: full {failures} times, with up to {pages} pages left")
    assert failures > 0
