"""What a fit measured along the way, by epoch: `posterior.history`, and the entries that `on_log` is handed.

A stage of optimisation says how many steps an epoch has; of each epoch there are the mean of what every step told (its
objective) and the scores that stand at its end. A sampler's rows are its kept draws: these are logged, and not kept
here, since the posterior has them.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from posteria.tree import Arrays, Tree

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
