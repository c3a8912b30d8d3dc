"""Rows with their columns as they came, by name: to be shown, to be shuffled column by column, and to be told how usual
each value is among the rows that were learnt from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from posteria.data.arrays import is_frame

RARE = 0.01  # share of the rows learnt from: values beyond are called unusual
OWN_VALUES = 0.5  # share of the rows learnt from whose value no other has, from which new values are expected
FEWEST = 20  # rows learnt from, below which nothing is


class Oddity(NamedTuple):
    text: str
    rarity: float  # the share of the rows learnt from that are as far out: 0 beyond all of them


@dataclass(frozen=True, eq=False)
class Features:
    """`train` and `test` are frames without their target, or arrays (n, column); `inputs` makes them a network's x."""

    names: tuple[str, ...]
    train: Any
    test: Any
    inputs: Callable[[Any], Any]

    @classmethod
    def of(cls, train: Any, test: Any, inputs: Callable[[Any], Any]) -> "Features | None":
        """None where rows have no columns to be named, as images."""
        if is_frame(train):
            return cls(tuple(map(str, train.columns)), train, test, inputs)
        if not hasattr(train, "ndim") or train.ndim != 2 or not len(train):
            return None
        return cls(tuple(f"x{number + 1}" for number in range(train.shape[1])), train, test, inputs)

    def column(self, number: int, of_test: bool = True) -> np.ndarray:
        """Its values: numbers where all are, else words; what is missing is None or NaN."""
        rows = self.test if of_test else self.train
        values = rows.iloc[:, number].to_numpy() if is_frame(rows) else np.asarray(rows)[:, number]
        return np.asarray(values, np.float64) if self.is_number(number) else np.asarray(values, object)

    def is_number(self, number: int) -> bool:
        if not is_frame(self.train):
            return True
        kind = self.train.dtypes.iloc[number]
        return getattr(kind, "kind", "O") in "biuf" and self.test.dtypes.iloc[number].kind in "biuf"

    def shuffled(self, number: int, chosen: np.ndarray, order: np.ndarray) -> Any:
        """A network's x of the test rows `chosen`, with one column in another order."""
        if not is_frame(self.test):
            rows = np.array(np.asarray(self.test)[chosen])
            rows[:, number] = rows[order, number]
            return self.inputs(rows)
        rows = self.test.iloc[chosen].copy()
        name = rows.columns[number]
        rows[name] = rows[name].array[order]
        return self.inputs(rows)

    def shown(self, number: int, row: int) -> str:
        """A test row's value, in words."""
        value = self.column(number)[row]
        if value is None or value != value:
            return "missing"
        return f"{value:.4g}" if self.is_number(number) else str(value)

    def oddities(self, row: int) -> list[Oddity]:
        """What is unusual about a test row, column by column, the most unusual first."""
        found = [self._oddity(number, row) for number in range(len(self.names))]
        return sorted((each for each in found if each is not None), key=lambda each: each.rarity)

    def _oddity(self, number: int, row: int) -> Oddity | None:
        value, known = self.column(number)[row], self.column(number, of_test=False)
        if len(known) < FEWEST:
            return None
        name, shown = self.names[number], self.shown(number, row)
        if not self.is_number(number):
            words = known.astype(str)
            times = dict(zip(*np.unique(words, return_counts=True)))
            often = np.array([times[word] for word in words])  # of each training row: how many have its value
            mine = times.get(str(value), 0)
            if mine == 0:  # where most rows have a value of their own (dates, text), another is no news
                is_news = np.mean(often == 1) < OWN_VALUES
                return Oddity(f"{name} {shown} was never seen in training", 0.0) if is_news else None
            rarity = float(np.mean(often <= mine))  # of 300 towns each is a small share, and none is rare
            share = mine / len(words)
            return Oddity(f"{name} {shown} is rare ({share:.1%} of training rows)", rarity) if rarity < RARE else None
        if value != value:
            share = float(np.mean(np.isnan(known)))
            return Oddity(f"{name} is missing, as in {share:.1%} of training rows", share) if share < RARE else None
        known = known[~np.isnan(known)]
        if not len(known):
            return None
        above, below = float(np.mean(known >= value)), float(np.mean(known <= value))
        side, share, end = ("above", above, known.max()) if above < below else ("below", below, known.min())
        if share == 0.0:
            return Oddity(f"{name} {shown} is {side} all training rows ({end:.4g})", 0.0)
        if share >= RARE or above == below:
            return None
        which = "highest" if side == "above" else "lowest"
        return Oddity(f"{name} {shown} is among the {which} {max(share, 0.001):.1%}", share)


def guess(kind: str, targets: list[tuple[np.ndarray, np.ndarray]]) -> float | None:
    """What always answering the same is worth on splits (y to learn from, y to test on), on average: the root mean
    squared error of the average, or the share of the commonest class. None where there is nothing to learn from."""
    if not all(len(train) for train, _ in targets):
        return None
    if kind == "classes":
        shares = [np.mean(np.asarray(test) == np.bincount(np.asarray(train, int)).argmax()) for train, test in targets]
        return float(np.mean(shares))
    errors = [np.asarray(test, np.float64) - np.mean(train, axis=0) for train, test in targets]
    return float(np.mean([np.sqrt(np.mean(each**2)) for each in errors]))
