"""Killed at random moments, a folder holds what was, or what was to be, whole; and nothing that is left behind is in
the way the next time."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import posteria as po
from damage import killed
from damage.subjects import QUICK, read_exports, table
from posteria import report
from posteria.cli import app
from posteria.comparison.tell import results
from posteria.errors import StoreError
from posteria.posteriors import store

SCRIPT = Path(killed.__file__)
SECONDS = {"save": 0.3, "replace": 0.3, "fit": 2.0, "export": 0.5, "report": 2.0, "compare": 4.0}  # about three times


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("kills")
    model, data = killed.problem()
    for key, name in enumerate("ab"):
        po.fit(model, data, killed.HMC, key=key, progress=False).save(home / name)
        po.load(home / name).export(home / f"exported-{name}", num_draws=5)
    killed.compare(home / "comparison")
    return home


@pytest.mark.parametrize(
    "action, times",
    [("replace", 2), *(pytest.param(action, 20, marks=pytest.mark.slow) for action in SECONDS)],
)
def test_a_kill_leaves_the_old_or_the_new_whole(home, action, times):
    out = home / f"out-{action}"
    if action in ("save", "report"):
        shutil.copytree(home / "comparison", out) if action == "report" else out.mkdir()
    random = np.random.default_rng(0)
    tests = Path(__file__).parent.parent
    path = os.pathsep.join([str(Path(po.__file__).parent.parent), str(tests)])
    found: list[str] = []
    for _ in range(times):
        command = [sys.executable, str(SCRIPT), action, str(home)]
        process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, stdout=-1, stderr=-1, text=True)
        line = process.stdout.readline()
        assert line == "under way\n", process.communicate()[1]
        time.sleep(random.uniform(0, SECONDS[action]))
        assert process.poll() is None, process.communicate()[1]
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found.append(held(home, out, action))
    print(f"\n{action}: {times} kills, " + ", ".join(f"{each} {found.count(each)}" for each in sorted(set(found))))
    shutil.rmtree(out)


def held(home: Path, out: Path, action: str) -> str:
    """Which of the two it holds; anything else is an error."""
    draws = {name: po.load(home / name).stored.flat for name in "ab"}

    def which(posterior) -> str:
        return next(name for name, flat in draws.items() if np.array_equal(flat, posterior.stored.flat))

    if action == "save":
        saved = [path for path in out.iterdir() if not path.name.startswith(".")]
        assert saved and {which(po.load(path)) for path in saved} == {"a"}
        return "whole"
    if action == "replace":
        return which(po.load(out))
    if action == "fit":
        try:
            return which(po.load(out))
        except StoreError as error:
            assert "not finished" in str(error)
        copy = Path(shutil.copytree(out, home / "copy"))
        resumed = po.resume(copy, killed.problem()[1], progress=False)
        shutil.rmtree(copy)
        return f"{which(resumed)} once resumed"
    if action == "export":
        lines = read_exports([out, home / "exported-a", home / "exported-b"], rows_of(home))
        assert lines[0] in lines[1:] and lines[0].startswith("answer"), lines
        return "ab"[lines[1:].index(lines[0])]
    found = results.read(out)
    if action == "report":
        page = (out / "index.html").read_text()
        assert page.rstrip().endswith("</html>")
        report.write(out)
        return f"results {found['command'][:1]}, page {'a' if 'a' * 1000 in page else 'b'}"
    report.write(out)  # with all the pictures that the results name
    copy = Path(shutil.copytree(out, home / "copy"))
    again = killed.compare(copy)
    wanted = results.read(home / "comparison")
    assert quality(again.results) == quality(wanted)
    shutil.rmtree(copy)
    return found["status"]


def quality(found: dict) -> list:
    return [row["scores"]["nll"]["value"] for row in found["problems"][0]["rows"]]


def rows_of(home: Path) -> Path:
    path = home / "rows.csv"
    path.write_text("x0,x1\n0.5,1\n-1,2\n")
    return path


@pytest.mark.slow
def test_ctrl_c_in_an_export_leaves_nothing_or_the_whole(home):
    """On the command line, from its start to the end of the measurement of its time."""
    table(0, home / "table.csv")
    fit = ["fit", home / "table.csv", "--target", "y", *QUICK, "-o", home / "run", "-q"]
    assert CliRunner().invoke(app, list(map(str, fit))).exit_code == 0
    code = [sys.executable, "-c", "from posteria.cli import main; main()", "export", str(home / "run")]
    environment = os.environ | {"PYTHONPATH": str(Path(po.__file__).parent.parent)}
    began = time.monotonic()
    subprocess.run([*code, str(home / "whole")], env=environment, check=True, capture_output=True)
    seconds = time.monotonic() - began
    random, ends = np.random.default_rng(0), Counter()
    for number in range(20):
        out = home / f"exported-{number}"
        process = subprocess.Popen([*code, str(out)], env=environment, stdout=-1, stderr=-1, text=True)
        time.sleep(random.uniform(0.2 * seconds, 1.1 * seconds))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        assert process.returncode in (0, 1, 130, -signal.SIGINT), (process.returncode, said)
        if out.exists():
            about = json.loads((out / "artifact.json").read_text())
            assert store.digests(out, *about["files"]) == about["files"]
        ends[f"exit {process.returncode}, {'whole' if out.exists() else 'nothing'}"] += 1
    print(f"\nCtrl-C in an export, {seconds:.1f} s: {dict(ends)}")
    assert not list(home.glob(".exported*"))
