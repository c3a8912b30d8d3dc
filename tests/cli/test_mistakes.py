"""An ordinary mistake on the command line ends in two lines that tell of it, and in exit code 1 or 2."""

import errno
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.bad_files import table
from cli.mistakes import QUICK, all_mistakes
from posteria.cli import app

NOTE = "the file is not UTF-8"  # how it was read is said before what is wrong with it
LINES, CHARACTERS = 2, 520  # of a message; typer's own about usage are framed, and have exit code 2
EVERY = 12  # of the mistakes, in the fast tests


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """With a good table and a fit of it."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "good.csv").write_text(table())
    answer = CliRunner().invoke(app, ["fit", str(folder / "good.csv"), "--target", "y", *QUICK, "-o", fitted(folder)])
    assert answer.exit_code == 0, answer.output
    return folder


def fitted(folder: Path) -> str:
    return str(folder / "fitted")


def trouble(arguments: list[str]) -> str | None:
    """What is wrong with the answer to a mistake; None where it is as it should be."""
    answer = CliRunner().invoke(app, arguments)
    lines = [line for line in answer.stderr.strip().splitlines() if not line.startswith(NOTE)]
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        return f"raised {answer.exception!r}"
    if answer.exit_code not in (1, 2):
        return f"exit code {answer.exit_code}"
    if "not foreseen" in answer.stderr or "Traceback" in answer.stderr:
        return f"said {lines}"
    if not lines or (answer.exit_code == 1 and (len(lines) > LINES or max(map(len, lines)) > CHARACTERS)):
        return f"said {len(lines)} lines: {lines[:5]}"
    return None


def troubles(mistakes: list[list[str]]) -> list[str]:
    found = ((arguments, trouble(arguments)) for arguments in mistakes)
    return [f"posteria {' '.join(arguments)[:300]}: {text}" for arguments, text in found if text is not None]


def test_some_ordinary_mistakes_end_in_two_lines(folder, monkeypatch):
    monkeypatch.chdir(folder)
    found = troubles(all_mistakes(folder, fitted(folder))[::EVERY])
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_all_ordinary_mistakes_end_in_two_lines(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(folder)
    (tmp_path / "good.csv").write_text(table())
    mistakes = all_mistakes(tmp_path, fitted(folder))
    found = troubles(mistakes)
    print(f"{len(mistakes)} files and arguments: {len(found)} that were not foreseen")
    assert not found, "\n".join(found)
    assert len(mistakes) >= 500


# ---- what a test cannot make happen by itself


@pytest.mark.parametrize(
    ("code", "hint"),
    [(errno.ENOSPC, "make room"), (errno.EACCES, "you may"), (errno.EROFS, "written to"), (errno.EIO, "")],
)
def test_what_the_system_says_is_one_line_with_the_path(folder, monkeypatch, code, hint):
    def refuse(*arguments, **settings):
        raise OSError(code, os.strerror(code), "/data/table.csv")

    monkeypatch.setattr("posteria.data.table_file.read_texts", refuse)
    answer = CliRunner().invoke(app, ["fit", str(folder / "good.csv"), "--target", "y"])
    assert answer.exit_code == 1
    line, fix = answer.stderr.splitlines()
    assert line == f"posteria: /data/table.csv: {os.strerror(code)}"
    assert hint in fix
    with pytest.raises(OSError, match=os.strerror(code)):
        CliRunner().invoke(app, ["--debug", "fit", str(folder / "good.csv"), "--target", "y"], catch_exceptions=False)


@pytest.mark.parametrize(
    "error",
    [MemoryError("Unable to allocate 745. GiB"), RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")],
)
def test_too_little_memory_is_told(folder, monkeypatch, error):
    def refuse(*arguments, **settings):
        raise error

    monkeypatch.setattr("posteria.runs.fit", refuse)
    answer = CliRunner().invoke(app, ["fit", str(folder / "good.csv"), "--target", "y", *QUICK])
    assert answer.stderr.splitlines()[0] == "posteria: this machine's memory does not suffice"


def test_a_pipe_that_closes_is_no_error_of_ours(folder, monkeypatch):
    def refuse(*arguments, **settings):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("posteria.data.table_file.read_texts", refuse)
    answer = CliRunner().invoke(app, ["fit", str(folder / "good.csv"), "--target", "y"])
    assert answer.exit_code == 1
    assert "posteria:" not in answer.stderr
