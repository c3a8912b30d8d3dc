"""A job of four processes on loopback: the draws of one process, and what is left when one of them dies."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import posteria as po
from engine import jobs
from posteria import machine
from posteria.engine import distributed
from posteria.errors import SettingError

JOB = str(Path(__file__).parent / "job.py")


def run(folder: Path, *words: str) -> np.ndarray:
    """A job from start to end: its draws."""
    codes = jobs.ended(jobs.start(4, [JOB, str(folder), *words], folder / "logs"))
    assert codes == [0, 0, 0, 0], said(folder)
    return np.load(folder / f"{words[0]}.npy")


def said(folder: Path) -> list[str]:
    return [(folder / "logs" / f"{i}.txt").read_text() for i in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hmc", "sghmc", "map"])
def test_four_processes_draw_what_four_devices_of_one_process_draw(tmp_path, name):
    """Bit for bit; which is what one device draws, but for rounding (test_mesh)."""
    (tmp_path / "one").mkdir()
    command = [sys.executable, str(Path(__file__).parent / "on_a_mesh.py"), str(tmp_path / "one"), "2", "2", name]
    env = os.environ | {"PYTHONPATH": jobs.python_path()}
    assert subprocess.run(command, env=env).returncode == 0
    drawn = run(tmp_path, name)
    assert np.array_equal(drawn, np.load(tmp_path / "one" / f"{name} draws.npy"))
    manifest = json.loads((tmp_path / name / "manifest.json").read_text())
    assert manifest["status"] == "complete" and manifest["run"]["layout"] == "mesh:2x2"
    loaded = po.load(tmp_path / name)
    assert np.array_equal(loaded.stored.flat, drawn)


def rows_written(folder: Path, stage: str) -> int:
    try:
        with np.load(folder / "long" / "stages" / stage / "state.npz") as state:
            return int(state["count"][0])
    except (OSError, ValueError, KeyError):
        return 0


def kill_at(folder: Path, stage: str, row: int, victim: int) -> None:
    """Start the job, kill one of its processes after so many rows, and hold the others to their promise."""
    processes = jobs.start(4, [JOB, str(folder), "long", "often"], folder / "logs")
    try:
        while rows_written(folder, stage) < row:
            assert all(process.poll() is None for process in processes), said(folder)
            time.sleep(0.02)
        os.kill(jobs.watched(processes[victim]), signal.SIGKILL)
        began = time.monotonic()
        codes = jobs.ended(processes)
        assert time.monotonic() - began < 60
    finally:
        jobs.stop(processes)
    lines = [[line for line in text.splitlines() if line.startswith("posteria:")] for text in said(folder)]
    assert all(len(each) == 1 for each in lines), said(folder)
    assert lines[victim][0].startswith(f"posteria: process {victim} of 4 was ended by SIGKILL")
    for i in {0, 1, 2, 3} - {victim}:
        assert codes[i] != 0
        assert lines[i][0].startswith(f"posteria: process {i} of 4 stopped, because another process of the job ended")
        assert "Traceback" not in said(folder)[i]


@pytest.mark.slow
def test_a_killed_process_ends_the_job_and_the_job_resumes_bit_identically(tmp_path):
    """Ten kills at random moments of warm-up and of drawing, all in one job; nothing is lost."""
    whole = run(tmp_path / "whole", "long")
    moments = random.Random(0)
    folder = tmp_path / "killed"
    for i in range(10):
        stage, total = ("warm-up", 200) if i < 5 else ("draws", 400)
        row = rows_written(folder, stage) + moments.randint(1, total // 6)
        kill_at(folder, stage, row, victim=moments.randrange(4))
    assert np.array_equal(run(folder, "long", "often"), whole)


# ---- without a job


def test_one_process_agrees_with_itself():
    assert not machine.are_joined() and not machine.are_several() and machine.is_first()
    assert machine.agreed(3, True) == (3, True)
    assert machine.told(b"words") == b"words"
    assert machine.on_first(lambda: {"a": 1}) == {"a": 1}
    tree = {"a": np.arange(3)}
    assert machine.told_tree(tree, tree) is tree


@pytest.mark.parametrize(
    ("given", "env", "words"),
    [
        ({}, {}, "nothing says which processes"),
        ({"coordinator": "host:1"}, {}, "all three or none"),
        ({"coordinator": "host", "num_processes": 2, "process_id": 0}, {}, '"host:port"'),
        ({"coordinator": "host:1", "num_processes": 2, "process_id": 2}, {}, "process 2 of 2"),
        ({}, {distributed.COORDINATOR: "host:1"}, distributed.NUM_PROCESSES),
        ({}, {distributed.COORDINATOR: "host:1", distributed.NUM_PROCESSES: "two"}, "'two'"),
        ({}, {distributed.COORDINATOR: "host:1", distributed.NUM_PROCESSES: "2"}, distributed.PROCESS_ID),
    ],
)
def test_a_job_that_is_not_described_is_refused_before_anything_starts(monkeypatch, given, env, words):
    for name in (*distributed.NUMBERED_BY, distributed.COORDINATOR, distributed.NUM_PROCESSES, "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingError, match=words):
        po.distributed(**given)


def test_a_process_finds_its_place_in_the_environment(monkeypatch):
    monkeypatch.delenv(distributed.PROCESS_ID, raising=False)
    monkeypatch.setenv(distributed.COORDINATOR, "first:9911")
    monkeypatch.setenv(distributed.NUM_PROCESSES, "8")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "3")  # as Kubernetes sets it
    found = {"coordinator_address": "first:9911", "num_processes": 8, "process_id": 3}
    assert distributed._place(None, None, None) == found
    monkeypatch.delenv(distributed.COORDINATOR)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert distributed._place(None, None, None) == {}  # JAX reads the rest


def test_the_watcher_says_in_one_line_how_its_process_ended(capfd):
    endings = {
        "import sys; sys.exit(0)": (0, ""),
        "import sys; sys.exit(3)": (3, "process 1 of 4 ended with exit code 3"),
        "import os; os.kill(os.getpid(), 9)": (137, "process 1 of 4 was ended by SIGKILL"),
        "import os; os.abort()": (134, "process 1 of 4 stopped, because another process"),
        f"import os; os._exit({distributed.LOST})": (distributed.LOST, "process 1 of 4 stopped, because another"),
        "import os; assert os.environ['POSTERIA_WATCHED']": (0, ""),
    }
    for program, (code, words) in endings.items():
        assert distributed.watch_over([sys.executable, "-c", program], "process 1 of 4") == code
        line = capfd.readouterr().err
        assert (words in line and line.count("\n") == 1 and "resumes" in line) if words else not line
