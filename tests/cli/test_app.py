"""The command line answers fast, and its errors are two lines and a non-zero exit."""

import json
import os
import re
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

import posteria as po
from posteria.cli import app
from posteria.methods.shelf import SHELF

HEAVY = {"jax", "flax", "sklearn", "pandas", "numpy"}
HELP_SECONDS = 0.5
TRIES = 5  # the best counts: the machine may be busy


def invoke(*arguments: str):
    return CliRunner().invoke(app, arguments)


def posteria(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", "from posteria.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)


def test_help_answers_in_under_half_a_second():
    seconds = []
    for _ in range(TRIES):
        began = time.perf_counter()
        answer = posteria("--help")
        seconds.append(time.perf_counter() - began)
        assert answer.returncode == 0
        assert "methods" in answer.stdout
        assert "data" in answer.stdout
    assert min(seconds) < HELP_SECONDS


def test_the_command_line_imports_nothing_heavy_by_itself():
    code = "import json, sys, posteria.cli; print(json.dumps(list(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(json.loads(answer.stdout)) & HEAVY


def test_version():
    answer = invoke("--version")
    assert answer.exit_code == 0
    assert answer.output.strip() == f"posteria {po.__version__}"


def test_methods_fit_80_columns_and_each_says_when_to_use_it_what_it_costs_and_its_source(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    answer = invoke("methods")
    assert answer.exit_code == 0
    assert max(map(len, answer.output.splitlines())) <= 80
    entries = dict(re.findall(r"^([a-z-]+)\n((?:  .*\n)+)", answer.output, re.MULTILINE))
    listed = {each["name"]: each for each in json.loads(invoke("methods", "--json").stdout)}
    for name in SHELF:
        words = " ".join(entries[name].split())
        about = listed[name]
        assert len(about["about"]) > 30 and about["about"] in words
        assert about["cost"] and about["cost"] in words, f"{name} does not say what it costs"
        assert re.search(r"\b(1[6-9]|20)\d\d\b", about["paper"]), f"{name} has no source: give it `paper`"
        assert words.endswith(f"{about['fidelity']}; {about['paper']}")


def test_data_lists_every_set_and_whether_it_is_present(tmp_path, monkeypatch):
    monkeypatch.setenv("POSTERIA_DATA", str(tmp_path))
    answer = invoke("data")
    assert answer.exit_code == 0
    present = {line.split()[0]: line.split()[-1] for line in answer.output.splitlines()}
    assert present["diabetes"] == "yes"
    assert present["yacht"] == "no"
    assert {listing.name for listing in po.data.names()} <= set(present)


def test_data_shows_the_shape_of_one_set():
    answer = invoke("data", "diabetes")
    assert answer.exit_code == 0
    assert "(442, 10)" in answer.output
    assert "regression" in answer.output


def test_an_error_is_one_line_and_a_hint_on_stderr():
    answer = posteria("data", "diabetis")
    assert answer.returncode == 1
    assert answer.stdout == ""
    line, hint = answer.stderr.splitlines()
    assert line.startswith("posteria: no data set 'diabetis'; wanted ")
    assert hint.startswith("hint: ")


def test_debug_shows_the_traceback():
    answer = posteria("--debug", "data", "diabetis")
    assert answer.returncode == 1
    assert "Traceback" in answer.stderr
    assert "DataError" in answer.stderr


def test_an_unforeseen_error_is_a_line_too_and_debug_shows_it(monkeypatch):
    def broken(*arguments):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("posteria.data.names", broken)
    answer = invoke("data")
    assert answer.exit_code == 1
    assert answer.stderr.splitlines()[0] == "posteria: ZeroDivisionError: by zero"
    with pytest.raises(ZeroDivisionError):
        CliRunner().invoke(app, ["--debug", "data"], catch_exceptions=False)
