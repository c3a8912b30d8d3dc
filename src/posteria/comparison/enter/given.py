"""Predictions that were made elsewhere, as a reference: somebody's HMC, on the rows that the comparison tests on.

An npz holds `probs` (n, class), `quantiles` (level, n) or `samples` (draw, n), in the data's own units. A CSV holds a
column of probabilities for each class, named as the classes are or in their order. Rows are in the order of the test
rows, or in any order with `index`: an array or a column of the number that each row has in the file of test rows, the
first being 0. With it, rows that the comparison does not test on may be there too.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from posteria.comparison.ask import Fold, Problem
from posteria.comparison.enter.baselines import SAMPLE_LEVELS, ProbsPredictive, QuantilePredictive
from posteria.data.arrays import Data
from posteria.data.formats import read_all_npz
from posteria.errors import DataError
from posteria.metrics import quantile_levels

SUFFIXES = (".npz", ".csv")
INDEX = "index"
SUM_ERROR = 1e-3  # by which probabilities may miss 1, as where they were written in 16 bits


@dataclass(frozen=True)
class GivenPredictions:
    """Of the test rows of one split; it has no others, whatever it is asked."""

    predictive: Any
    num_rows: int

    def predict(self, x: Data) -> Any:
        return self.predictive


def read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file; of a CSV: `probs`, the `classes` that its columns name, and `index` where it has one."""
    if not path.is_file():
        raise DataError(f"no file {path}", "an npz or a CSV of predictions", "check the path")
    return read_all_npz(path) if path.suffix == ".npz" else _read_csv(path)


def _read_csv(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            header, *lines = [line for line in csv.reader(stream) if line] or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read ({error})", "a CSV in UTF-8", "save it as one") from None
    try:
        values = np.array([list(map(float, line)) for line in lines], np.float64).reshape(len(lines), -1)
    except ValueError as error:
        raise DataError(f"{path}: {error}", "numbers, as many on every line, under a line of names") from None
    if len(header) < 2 or values.shape[1:] != (len(header),):
        raise DataError(f"{path} has {len(header)} names and columns {values.shape[1:]}", "a name for each column")
    is_class = np.array([name != INDEX for name in header])
    arrays = {"probs": values[:, is_class], "classes": np.array(header)[is_class]}
    return arrays if is_class.all() else arrays | {INDEX: values[:, ~is_class][:, 0]}


def of_fold(arrays: dict[str, np.ndarray], problem: Problem, fold: Fold) -> GivenPredictions:
    """Of the test rows of the first split: a file is of one."""
    if fold is not problem.folds[0]:
        raise DataError("a reference from a file is of one split", "one seed", "compare with seeds=1")
    found = predictions(arrays, problem.kind, fold.test_rows, problem.data["class_names"])
    if found.num_rows != len(fold.y_test):
        raise DataError(
            f"the reference has {found.num_rows} rows",
            f"the {len(fold.y_test)} test rows of the first split",
            f"with {INDEX}, the number of each row, there may be others too",
        )
    return found


def predictions(
    arrays: dict[str, np.ndarray], kind: str, test_rows: np.ndarray | None = None, class_names: Any = ()
) -> GivenPredictions:
    """Of the test rows, in their order; `test_rows` are their numbers (None: from 0)."""
    for name, axis in (("probs", 0), ("quantiles", 1), ("samples", 1)):
        if INDEX in arrays and name in arrays and np.shape(arrays[name])[axis : axis + 1] != (len(arrays[INDEX]),):
            raise DataError(f"index has {len(arrays[INDEX])} rows, {name} is {np.shape(arrays[name])}", "as many rows")
    order = _order(arrays[INDEX], test_rows) if INDEX in arrays else slice(None)
    if kind == "classes":
        if "probs" not in arrays:
            raise DataError(f"the reference holds {sorted(arrays)}", "probs (n, class)")
        probs = _checked(np.asarray(arrays["probs"], np.float64), arrays.get("classes"), list(class_names))[order]
        return GivenPredictions(ProbsPredictive(probs), len(probs))
    if "quantiles" not in arrays and "samples" not in arrays:
        raise DataError(f"the reference holds {sorted(arrays)}", "quantiles (level, n) or samples (draw, n)")
    levels = quantile_levels(len(arrays["quantiles"]) if "quantiles" in arrays else SAMPLE_LEVELS)
    values = arrays["quantiles"] if "quantiles" in arrays else np.quantile(arrays["samples"], levels, axis=0)
    values = values.reshape(len(levels), -1)[:, order]
    return GivenPredictions(QuantilePredictive(levels, values), values.shape[1])


def _order(index: np.ndarray, test_rows: np.ndarray | None) -> np.ndarray:
    """Where each test row stands in the file."""
    numbers = np.asarray(index)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf" or (numbers != np.round(numbers)).any():
        raise DataError(f"index is {numbers.dtype} {numbers.shape}", "whole numbers (n,), a row's number from 0")
    numbers = numbers.astype(np.int64)
    values, counts = np.unique(numbers, return_counts=True)
    if (counts > 1).any():
        found = f"index has {values[counts > 1][0]} {counts[counts > 1][0]} times"
        raise DataError(found, "every row once", "leave out the lines that repeat a row")
    wanted = np.arange(len(numbers)) if test_rows is None else np.asarray(test_rows)
    missing = np.setdiff1d(wanted, numbers)
    if len(missing):
        raise DataError(
            f"index lacks {len(missing)} of {len(wanted)} test rows, the first {missing[0]}",
            "predictions of every test row",
            "rows are numbered from 0 in the file that they come from",
        )
    place = np.argsort(numbers)
    return np.asarray(place[np.searchsorted(numbers, wanted, sorter=place)])


def _checked(probs: np.ndarray, named: np.ndarray | None, class_names: list[str]) -> np.ndarray:
    """In the order of the classes."""
    names = [] if named is None else list(map(str, named))
    if probs.ndim != 2 or (class_names and probs.shape[1] != len(class_names)):
        found = f"probs is {probs.shape}" if named is None else f"{len(names)} columns beside {INDEX!r}: {names[:20]}"
        wanted = f"{len(class_names)}, one for each of {class_names}"
        raise DataError(found, wanted, f"name the column of row numbers {INDEX!r}, and leave out what is no class")
    is_wrong = ~(np.isfinite(probs).all(1) & (probs >= 0).all(1) & (abs(probs.sum(1) - 1) < SUM_ERROR))
    if is_wrong.any():
        first = int(is_wrong.argmax())
        raise DataError(
            f"{is_wrong.sum()} of {len(probs)} rows of probs are no distribution, the first is row {first}: its sum is "
            f"{probs[first].sum():.4g}, its least {probs[first].min():.4g}",
            "numbers from 0 that add up to 1 in each row",
            "write probabilities, not logits",
        )
    if sorted(names) == sorted(class_names):
        probs = probs[:, [names.index(name) for name in class_names]]
    elif known := sorted(set(names) & set(class_names)):
        raise DataError(
            f"columns {sorted(set(names) - set(class_names))} name no class, {known} do",
            f"the names {class_names}, or none of them",
            "spell all as the classes are, or number the columns, to have them taken in order",
        )
    return probs / probs.sum(1, keepdims=True)
