"""What the report reads: a problem of results.json, its rows in the order they are shown, and their arrays."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from posteria.comparison.tell import results
from posteria.plots import theme

ORDER = ("reference", "method", "baseline")


@dataclass(frozen=True)
class Row:
    """One method with its facts from results.json and, once it is done, its arrays."""

    facts: dict[str, Any]
    arrays: Mapping[str, np.ndarray]
    style: theme.Style
    identity: str  # changes when anything that is drawn of this row does

    @property
    def name(self) -> str:
        return self.facts["name"]

    @property
    def label(self) -> str:
        return self.facts["label"]

    @property
    def role(self) -> str:
        return self.facts["role"]

    def score(self, key: str) -> float | None:
        return self.facts["scores"].get(key, {}).get("value")

    def has(self, *names: str) -> bool:
        return all(name in self.arrays for name in names)


@dataclass(frozen=True)
class Problem:
    """One data set with everything that was fitted to it."""

    facts: dict[str, Any]
    rows: tuple[Row, ...]  # the reference first, then methods, then baselines

    @property
    def data(self) -> dict[str, Any]:
        return self.facts["data"]

    @property
    def is_regression(self) -> bool:
        return self.data["kind"] == "regression"

    @property
    def columns(self) -> list[dict[str, Any]]:
        return self.facts["columns"]

    @property
    def reference(self) -> Row | None:
        return next((row for row in self.rows if row.role == "reference"), None)

    def row(self, name: str | None) -> Row | None:
        return next((row for row in self.rows if row.name == name), None)


def problem(facts: dict[str, Any], folder: Path) -> Problem:
    """The problem with the arrays for its pictures from the folder of the comparison; a row may have none yet."""
    ordered = sorted(facts["rows"], key=lambda row: ORDER.index(row["role"]))
    styles = theme.styles([row["role"] for row in ordered])
    rows = []
    for row, style in zip(ordered, styles):
        file = results.picture_path(folder, facts["name"], row["name"])
        stamp = (file.stat().st_mtime_ns, file.stat().st_size) if file.exists() else None
        wanted = row.get("picture")  # its sum; None where there is none yet, missing where results are of before sums
        arrays: Mapping[str, np.ndarray] = {}
        if wanted or (stamp and "picture" not in row):
            arrays = _arrays(folder, facts["name"], row["name"], wanted, stamp)
        live = facts.get("live") or {}
        if live.get("row") == row["name"] and not arrays:  # it is being fitted
            arrays = {name: _array(values) for name, values in live.items() if name != "row"}
            stamp = (len(live["learning_epoch"]), int(live["learning_epoch"][-1]))
        rows.append(Row(row, arrays, style, json.dumps([str(file), stamp, row["label"], style])))
    return Problem(facts, tuple(rows))


def _array(values: list[Any]) -> np.ndarray:
    if values and isinstance(values[0], str):
        return np.array(values, str)
    return np.array([np.nan if value is None else value for value in values], np.float64)


@lru_cache(maxsize=256)
def _arrays(
    folder: Path, name: str, row: str, wanted: str | None, stamp: tuple[int, int] | None
) -> Mapping[str, np.ndarray]:
    """The row's arrays; `stamp` is part of the question, so that a file written anew is read anew."""
    return results.read_picture(folder, name, row, wanted) or {}
