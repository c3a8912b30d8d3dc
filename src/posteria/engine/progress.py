"""What a fit shows and tells as it runs: a bar for a person, entries for `on_log`, and `posterior.history`.

A stage of optimisation says how many steps an epoch has; of each epoch there are the mean of what every step told (its
objective) and the scores that stand at its end. A sampler's rows are its kept draws: these are logged, and not kept
here, since the posterior has them.
"""

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from posteria.cards import Card
from posteria.tree import Arrays, Tree

if TYPE_CHECKING:
    import rich.progress

QUIET_SECONDS = 2.0  # nothing is shown for fits shorter than this
PLAIN_SECONDS = 30.0  # between lines where there is no terminal
NOTEBOOK_SECONDS = 0.5  # between pictures of one bar in a notebook


class Progress:
    """One bar a stage on a terminal and in a notebook; a line now and then elsewhere. `enabled=False` shows nothing."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._started = time.monotonic()
        self._last_line = self._started
        self._bars: rich.progress.Progress | None = None
        self._tasks: dict[str, rich.progress.TaskID] = {}
        self._notebook: NotebookBars | None = None

    def update(self, stage: str, done: int, total: int, status: str) -> None:
        now = time.monotonic()
        if not self._enabled or now - self._started < QUIET_SECONDS:
            return
        if sys.stderr.isatty():
            self._bar(stage, done, total, status)
        elif self._notebook is not None or in_notebook():
            self._notebook = self._notebook or NotebookBars()
            self._notebook.update(stage, done, total, status)
        elif now - self._last_line > PLAIN_SECONDS:
            self._last_line = now
            print(f"{stage}: {done:,} of {total:,}  {status}", file=sys.stderr, flush=True)

    def _bar(self, stage: str, done: int, total: int, status: str) -> None:
        if self._bars is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bars

            columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
            self._bars = Bars(*columns, TextColumn("{task.fields[status]}"), console=Console(stderr=True))
            self._bars.start()
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=total, status="")
        self._bars.update(self._tasks[stage], completed=done, status=status)

    def say(self, message: str) -> None:
        if self._enabled:
            print(message, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()
        if self._notebook is not None:
            self._notebook.show()


def in_notebook() -> bool:
    """Whether an IPython kernel runs this: a notebook, in whatever shows it. IPython's own terminal has no kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


class _Bar(NamedTuple):
    began: float
    at_first: int
    done: int
    total: int
    status: str

    def words(self, now: float) -> str:
        steps, seconds = self.done - self.at_first, now - self.began
        is_known = steps > 0 and self.done < self.total and seconds > 0
        left = f", {(self.total - self.done) * seconds / steps:,.0f} s left" if is_known else ""
        filled = round(20 * self.done / max(self.total, 1))
        return f"{'█' * filled}{'░' * (20 - filled)} {self.done:,} of {self.total:,}{left}  {self.status}"


class NotebookBars:
    """All stages in one output of the cell, which is replaced as they go on: no lines pile up, no widgets needed."""

    def __init__(self) -> None:
        self._bars: dict[str, _Bar] = {}
        self._handle: Any = None
        self._last = 0.0

    def update(self, stage: str, done: int, total: int, status: str) -> None:
        now = time.monotonic()
        before = self._bars.get(stage)
        began, at_first = (now, done) if before is None else (before.began, before.at_first)
        self._bars[stage] = _Bar(began, at_first, done, total, status)
        if before is None or now - self._last >= NOTEBOOK_SECONDS:
            self.show()

    def show(self) -> None:
        from IPython.display import display

        self._last = time.monotonic()
        card = Card("", [(stage, bar.words(self._last)) for stage, bar in self._bars.items()])
        shown = {"text/html": card.html(), "text/plain": card.text().strip()}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


# ---- curves: what was measured along the way, by epoch

Entry = dict[str, Any]  # {"stage", "epoch" or "draw", "seconds", and numbers by name}
OnLog = Callable[[Entry], None]
SCORES = "scores"  # of an info: a dictionary of numbers that stand as they were at the end of the last epoch


class Curve:
    """One stage's numbers by epoch, gathered as rows of info come in."""

    def __init__(self, stage: str, steps: int | None, on_log: OnLog | None, began: float) -> None:
        self.stage, self._steps, self._on_log, self._began = stage, steps, on_log, began
        self._pending: list[Arrays] = []
        self._epochs: list[Arrays] = []  # each (chain, epoch)
        self._num_epochs = 0

    def add(self, info: Tree, is_new: bool = True) -> None:
        """Rows (chain, row) of a stage; those that a run before this one had made are not logged again."""
        if info is None or (self._steps is None and self._on_log is None):
            return
        self._pending.append(_columns(info, self._steps is not None))
        rows = {name: np.concatenate([part[name] for part in self._pending], 1) for name in self._pending[0]}
        steps = self._steps or 1
        count = next(iter(rows.values())).shape[1] // steps
        if not count:
            return
        self._pending = [{name: column[:, count * steps :] for name, column in rows.items()}]
        epochs = {name: _by_epoch(name, column[:, : count * steps], steps) for name, column in rows.items()}
        if self._steps is not None:
            self._epochs.append(epochs)
        if is_new and self._on_log is not None:
            self._log(epochs, count, self._on_log)
        self._num_epochs += count

    def _log(self, epochs: Arrays, count: int, on_log: OnLog) -> None:
        for i in range(count):
            values = {name: column[:, i][np.isfinite(column[:, i])] for name, column in epochs.items()}
            means = {name.removeprefix("*"): float(column.mean()) for name, column in values.items() if len(column)}
            if means:
                place = "draw" if self._steps is None else "epoch"
                seconds = time.monotonic() - self._began
                on_log({"stage": self.stage, place: self._num_epochs + i + 1, "seconds": seconds} | means)

    def table(self) -> Arrays:
        """Columns of one length, a row for each chain and epoch in which it moved; none where there is no epoch."""
        if not self._epochs:
            return {}
        joined = {name: np.concatenate([part[name] for part in self._epochs], 1) for name in self._epochs[0]}
        columns = {name.removeprefix("*"): column for name, column in joined.items()}
        num_chains, num_epochs = next(iter(columns.values())).shape
        moved = np.logical_or.reduce([np.isfinite(column) for column in columns.values()])
        chain, epoch = np.nonzero(moved)
        assert moved.shape == (num_chains, num_epochs)
        labels = {"stage": np.full(len(chain), self.stage), "chain": chain, "epoch": epoch + 1}
        return labels | {name: column[moved] for name, column in columns.items()}


def joined_tables(tables: list[Arrays]) -> Arrays:
    """One below the other; NaN in a column that a table has not."""
    tables = [table for table in tables if table]
    names = list(dict.fromkeys(name for table in tables for name in table))

    def column(table: Arrays, name: str) -> np.ndarray:
        return table.get(name, np.full(len(table["epoch"]), np.nan, np.float32))

    return {name: np.concatenate([column(table, name) for table in tables]) for name in names}


def _columns(info: Tree, is_optimised: bool) -> Arrays:
    """Each floating number of an info as (chain, row), by its name; a score's is marked with a star.

    NaN where a chain has stopped: it only waits for the others.
    """
    fields: Mapping[str, Any] = info._asdict()
    columns = {name: np.asarray(value) for name, value in fields.items() if _is_curve(value)}
    if is_optimised:
        columns["objective"] = columns.pop("log_density")
    columns |= {f"*{name}": np.asarray(value) for name, value in (fields.get(SCORES) or {}).items()}
    if (is_stopped := fields.get("is_stopped")) is not None:
        columns = {name: np.where(is_stopped, np.nan, column) for name, column in columns.items()}
    return columns


def _is_curve(value: Any) -> bool:
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.floating) and np.ndim(value) == 2


def _by_epoch(name: str, column: np.ndarray, steps: int) -> np.ndarray:
    """(chain, row) -> (chain, epoch): scores as they are at its end, means of all else."""
    parts = column.reshape(len(column), -1, steps)
    if name.startswith("*"):
        return parts[..., -1].astype(np.float32)
    return parts.astype(np.float64).mean(-1).astype(np.float32)  # float32 would round sums of many
