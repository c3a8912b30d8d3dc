"""Tests in a fork of this process, which has imported what is heavy and has not started JAX: seconds less for each."""

import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

HEAVY = (  # not BlackJAX, which starts JAX
    "flax.nnx",
    "jax.numpy",
    "matplotlib",
    "optax",
    "pandas",
    "scipy.stats",
    "sklearn",
    "typer",
)
GRACE = 60.0  # CPU seconds beyond the budget, of one test that has begun
SLOWEST = 20.0  # seconds on the clock for each CPU second, on a busy machine, before it counts as hung


class Outcome(NamedTuple):
    word: str  # passed, failed, hung, or absent: pytest itself failed
    by: str  # the first test that failed
    seconds: dict[str, float]  # of CPU, by test or class of tests that was run to its end


class Watch:
    """Ends the session when the CPU seconds are used up, and keeps those of each test."""

    def __init__(self, budget: float, coverage: Any = None) -> None:
        self.budget, self.coverage, self.seconds, self.failed = budget, coverage, {}, []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item):
        unit = "::".join(item.nodeid.split("::")[:2]).partition("[")[0]
        if self.coverage is not None:
            self.coverage.switch_context(unit)
        began = spent()
        result = yield
        self.seconds[unit] = round(self.seconds.get(unit, 0.0) + spent() - began, 2)
        if spent() > self.budget:
            item.session.shouldstop = "the budget is used up"
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == "failed":
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def spent() -> float:
    """CPU seconds of this process and of those that it started and has waited for."""
    return sum(os.times()[:4])


def warm() -> None:
    for name in HEAVY:
        importlib.import_module(name)


def run(
    tests: list[str],
    tree: Path,
    cache: Path,
    budget: float,
    log: Path,
    stop_at_first: bool = True,
    lines: Path | None = None,
    marks: str = "not slow",
) -> Outcome:
    """With `lines`, a file for which lines of the source each test runs."""
    answer = log.with_suffix(".json")
    answer.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _in_the_child(tests, tree, cache, budget, log, answer, stop_at_first, lines, marks)
    try:
        if _is_over_time(child, budget + GRACE):
            return Outcome("hung", "", {})
    except KeyboardInterrupt:
        _end(child)
        raise
    if not answer.is_file():
        return Outcome("failed", f"the process died: {log.read_text()[-200:]}", {})
    return Outcome(*json.loads(answer.read_text()))


def _is_over_time(child: int, limit: float) -> bool:
    """Once it has ended; what takes longer is ended."""
    began = time.monotonic()
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.2)
        if cpu_seconds(child) > limit or time.monotonic() - began > SLOWEST * limit:
            _end(child)
            return True
    return False


def _end(child: int) -> None:
    os.killpg(child, signal.SIGKILL)  # a session of its own: it, and what it started
    os.waitpid(child, 0)


def cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _in_the_child(
    tests: list[str],
    tree: Path,
    cache: Path,
    budget: float,
    log: Path,
    answer: Path,
    stop_at_first: bool,
    lines: Path | None,
    marks: str,
) -> None:
    try:
        os.setsid()
        os.chdir(tree)
        os.environ |= {"PYTHONPATH": str(tree / "src"), "JAX_COMPILATION_CACHE_DIR": str(cache)}
        os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        sys.dont_write_bytecode = True
        sys.path[:0] = [str(tree / "src")]
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        import jax

        jax.config.update("jax_compilation_cache_dir", str(cache))  # it was imported without
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        recording = None
        if lines is not None:
            import coverage

            recording = coverage.Coverage(data_file=str(lines), source=[str(tree / "src")], config_file=False)
            recording.start()
        watch = Watch(budget, recording)
        flags = ["-q", "-m", marks, "-p", "no:cacheprovider", "--tb=short", *(["-x"] if stop_at_first else [])]
        code = pytest.main([*flags, *tests], plugins=[watch])
        if recording is not None:
            recording.stop()
            recording.save()
        word = "passed" if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else "failed"
        if code == pytest.ExitCode.INTERRUPTED and not watch.failed:
            word = "passed"  # the budget
        if code == pytest.ExitCode.INTERNAL_ERROR:
            word = "absent"
        if code == pytest.ExitCode.USAGE_ERROR:  # the source cannot be imported; else, a test that is not there
            sys.path[:0] = [str(tree / "tests")]
            word = "absent"
            try:
                import conftest  # noqa: F401
            except Exception:
                word = "failed"
        by = watch.failed if not stop_at_first else (watch.failed[0] if watch.failed else f"exit code {int(code)}")
        part = answer.with_suffix(".part")
        part.write_text(json.dumps([word, by if word == "failed" else "", watch.seconds]))
        part.rename(answer)
    finally:
        sys.stdout.flush()
        os._exit(0)
