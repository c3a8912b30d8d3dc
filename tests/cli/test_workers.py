"""Rows of a comparison over workers: the same results, a dead worker's row again, and no other."""

import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from posteria.cli import workers
from posteria.errors import SettingError

TIMES = ("seconds", "compile_seconds", "ms_row")


class Deadly:
    """A row that kills its worker the first `num` times."""

    def __init__(self, folder: Path, name: str, num: int) -> None:
        self.folder, self.name, self.num = folder, name, num

    def __call__(self, key: tuple[str, str, int]) -> tuple[str, str]:
        begun = self.folder / f"{key[1]}-{time.monotonic_ns()}"
        begun.touch()
        if key[1] == self.name and len(list(self.folder.glob(f"{key[1]}-*"))) <= self.num:
            os.kill(os.getpid(), signal.SIGKILL)
        return "done", str(os.getpid())


KEYS = [("data", name, 0) for name in "abcde"]


@pytest.mark.parametrize("num_deaths", [1, workers.MOST_ATTEMPTS])
def test_a_dead_workers_row_is_run_again_and_no_other(tmp_path, num_deaths):
    found = dict(workers.on_this_machine(2, Deadly(tmp_path, "c", num_deaths), KEYS))
    begun = Counter(path.name.partition("-")[0] for path in tmp_path.iterdir())
    again = min(num_deaths + 1, workers.MOST_ATTEMPTS)
    assert begun == {"a": 1, "b": 1, "c": again, "d": 1, "e": 1}
    status, reason = found["data", "c", 0]
    assert (status, "died" in reason) == (("failed", True) if num_deaths == workers.MOST_ATTEMPTS else ("done", False))
    assert all(found[key][0] == "done" for key in KEYS if key[1] != "c")
    assert len({pid for status, pid in found.values() if status == "done"}) > 1  # several processes took part


def test_workers_that_cannot_be_are_refused():
    for words, (num, cluster) in {
        "at least 1": (0, None),
        "one of them": (2, "slurm"),
        "scheduler's address": (None, "somewhere"),
    }.items():
        with pytest.raises(SettingError, match=words):
            workers.check(num, cluster)
    workers.check(None, None)


def test_what_a_cluster_needs_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(SettingError, match="cluster"):
        workers.check(None, "slurm")


# ---- whole comparisons


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(70, 2))
    y = x[:, 0] - 0.5 * x[:, 1] + 0.2 * rng.normal(size=70)
    path = tmp_path_factory.mktemp("table") / "table.csv"
    np.savetxt(path, np.c_[x, y], delimiter=",", header="a,b,y", comments="")
    return path


def command(table: Path, out: Path, *words: str) -> list[str]:
    asked = ["compare", str(table), "--target", "y", "--methods", "map,laplace", "--network", "mlp:4"]
    asked += ["--seeds", "2", "--budget", "100", "--reference", "none", "--out", str(out), "--quiet"]
    return [sys.executable, "-c", "from posteria.cli import main; main()", *asked, *words]


def results(out: Path) -> dict:
    """But for what a clock said."""
    found = copy.deepcopy(json.loads((out / "results.json").read_text()))
    assert found["status"] == "complete"
    (problem,) = found["problems"]
    for row in problem["rows"]:
        assert row["status"] == "done"
    return {row["name"]: {k: v for k, v in row["scores"].items() if k not in TIMES} for row in problem["rows"]}


def begun(out: Path) -> Counter:
    return Counter(line.split()[-1] for line in (out / workers.LOG).read_text().splitlines())


@pytest.fixture(scope="module")
def alone(table, tmp_path_factory) -> dict:
    out = tmp_path_factory.mktemp("alone") / "out"
    assert subprocess.run(command(table, out)).returncode == 0
    return results(out)


@pytest.mark.slow
def test_two_workers_find_what_one_process_finds(table, alone, tmp_path):
    out = tmp_path / "out"
    assert subprocess.run(command(table, out, "--workers", "2")).returncode == 0
    assert results(out) == alone
    assert set(begun(out).values()) == {1}
    assert subprocess.run(command(table, out, "--workers", "2")).returncode == 0  # all is there already
    assert set(begun(out).values()) == {1} and results(out) == alone


@pytest.mark.slow
def test_a_killed_worker_costs_its_row_alone(table, alone, tmp_path):
    out = tmp_path / "out"
    running = subprocess.Popen(command(table, out, "--workers", "2"))
    while not (out / workers.LOG).is_file() or len((out / workers.LOG).read_text().splitlines()) < 3:
        assert running.poll() is None
        time.sleep(0.05)
    last = (out / workers.LOG).read_text().splitlines()[-1].split()
    os.kill(int(last[2]), signal.SIGKILL)
    assert running.wait() == 0
    assert results(out) == alone
    again = begun(out)
    assert again.pop(last[-1]) == 2 and set(again.values()) == {1}


@pytest.mark.slow
def test_a_dask_cluster_finds_the_same_with_a_worker_killed(table, alone, tmp_path):
    distributed = pytest.importorskip("distributed")
    out = tmp_path / "out"
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        running = subprocess.Popen(command(table, out, "--cluster", cluster.scheduler_address))
        while not (out / workers.LOG).is_file() or len((out / workers.LOG).read_text().splitlines()) < 3:
            assert running.poll() is None
            time.sleep(0.05)
        last = (out / workers.LOG).read_text().splitlines()[-1].split()
        os.kill(int(last[2]), signal.SIGKILL)
        assert running.wait() == 0
    assert results(out) == alone
    again = begun(out)
    assert again.pop(last[-1]) == 2 and sum(again.values()) <= len(again) + 1  # what it held and had not told


@pytest.mark.slow
def test_submitit_finds_the_same_in_processes_of_its_own(table, alone, tmp_path, monkeypatch):
    """By its local stand-in for SLURM."""
    pytest.importorskip("submitit")
    monkeypatch.setenv("POSTERIA_SUBMITIT", "local")
    out = tmp_path / "out"
    assert subprocess.run(command(table, out, "--cluster", "slurm")).returncode == 0
    assert results(out) == alone
    assert set(begun(out).values()) == {1}
