"""What the report reads: a problem of results.json, its rows in the order they are shown, and their arrays; and what
it remembers from one writing of the page to the next."""

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

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
            arrays = results.read_picture(folder, facts["name"], row["name"], wanted) or {}
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


Drawing = TypeVar("Drawing")


class Drawings(Generic[Drawing]):
    """Pictures by what they are about: none is drawn again as the page is written anew after each row.

    They are text alone: what they were drawn from is not kept, and those not asked for longest go first.
    """

    def __init__(self, most: int) -> None:
        self.num_drawn = 0
        self._most = most
        self._drawn: OrderedDict[Hashable, Drawing] = OrderedDict()

    def get(self, about: Hashable, draw: Callable[[], Drawing]) -> Drawing:
        if about not in self._drawn:
            self._drawn[about] = draw()
            self.num_drawn += 1
        self._drawn.move_to_end(about)
        while len(self._drawn) > self._most:
            self._drawn.popitem(last=False)
        return self._drawn[about]
