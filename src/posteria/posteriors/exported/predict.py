"""Predictions of an exported posterior: needs JAX and NumPy alone.

    from predict import load
    prediction = load("folder")(rows, level=0.9)   # rows: a frame, a dict of columns, or an array

or `python predict.py new.csv > predictions.csv`.
"""

import csv
import json
import math
import sys
import time
from pathlib import Path

import jax
import jax.export
import numpy as np

sys.path.append(str(Path(__file__).parent))  # for flatbuffers, which jax.export needs

MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
MAX_BLOCK = 4096  # rows at once
MISSING_LEVEL = "(missing)"


class Predictor:
    """What a folder predicts: `mean`, `std`, `lower`, `upper`, `epistemic_std`, or `probs`, `entropy`, ..."""

    def __init__(self, folder):
        self.about = json.loads((Path(folder) / "artifact.json").read_text())
        function = jax.export.deserialize((Path(folder) / "function.bin").read_bytes())
        self._call = jax.jit(function.call)

    def __call__(self, rows, level=0.9):
        x = self.inputs(rows)
        parts = [self._block(x[first : first + MAX_BLOCK], level) for first in range(0, len(x), MAX_BLOCK)]
        raw = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return raw if self.about["y"] is None else self._in_units(raw)

    def _block(self, x, level):
        num_rows, fixed = len(x), self.about["batch"]
        padded = fixed or 1 << (num_rows - 1).bit_length()  # few different sizes are compiled
        x = np.concatenate([x, np.repeat(x[-1:], -num_rows % padded, axis=0)])
        parts = [self._call(x[first : first + padded], np.float32(level)) for first in range(0, len(x), padded)]
        return {name: np.concatenate([part[name] for part in parts])[:num_rows] for name in parts[0]}

    def inputs(self, rows):
        """Rows as the network's x."""
        if self.about["columns"] is not None:
            columns = self.about["columns"]
            if isinstance(rows, (list, tuple)) or (isinstance(rows, np.ndarray) and rows.dtype.names is None):
                rows = _named(columns, np.asarray(rows))
            rows = np.concatenate([_encode(column, rows) for column in columns], axis=1)
        x = np.asarray(rows)
        if self.about["x"] is not None:
            x = (np.asarray(x, np.float64) - self.about["x"]["mean"]) / self.about["x"]["std"]
        x = x.astype(self.about["dtype"])
        if list(x.shape[1:]) != self.about["shape"]:
            raise ValueError(f"rows of shape {x.shape[1:]}, wanted {tuple(self.about['shape'])}")
        return x

    def _in_units(self, raw):
        mean, std = (np.atleast_1d(np.asarray(self.about["y"][name])) for name in ("mean", "std"))
        places = {name: raw[name] * std + mean for name in ("mean", "lower", "upper")}
        return places | {name: raw[name] * std for name in ("std", "epistemic_std")}


def load(folder):
    return Predictor(folder)


def _named(columns, array):
    """The columns of an array, in the order of the fit."""
    if array.ndim != 2 or array.shape[1] != len(columns):
        raise ValueError(f"rows of shape {array.shape}, wanted (rows, {len(columns)}) or named columns")
    return {column["name"]: array[:, i] for i, column in enumerate(columns)}


def _encode(column, rows):
    try:
        values = np.asarray(rows[column["name"]], dtype=object)
    except (KeyError, IndexError, TypeError, ValueError):
        raise ValueError(f"column {column['name']!r} is missing") from None
    if column["type"] == "category":
        levels = np.array([_level(value, column["levels"]) for value in values], dtype=object)
        return (levels[:, None] == np.array(column["levels"], dtype=object)[None]).astype(np.float64)
    numbers = np.array([_number(column["name"], value) for value in values])
    if np.isinf(numbers).any():
        raise ValueError(f"column {column['name']!r} holds infinite values")
    filled = np.where(np.isnan(numbers), column["median"], numbers)
    return np.stack([filled, np.isnan(numbers)], axis=1) if column["has_indicator"] else filled[:, None]


def _number(name, value):
    if _is_missing(value):
        return math.nan
    try:
        return float({"true": 1, "false": 0}.get(str(value).strip().lower(), value))
    except ValueError:
        raise ValueError(f"column {name!r} holds {value!r}, wanted a number") from None


def _level(value, known):
    if isinstance(value, str) and value.strip() in known:  # "None" may be a category like any other
        return value.strip()
    if _is_missing(value):
        return MISSING_LEVEL
    is_whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return str(int(value)) if is_whole else str(value).strip()


def _is_missing(value):
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return value != value or (isinstance(value, str) and value.strip() in MISSING)


def _read_csv(path):
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file, skipinitialspace=True))
    if not rows:
        raise SystemExit(f"{path} has no rows")
    return {name.strip(): [row[name] for row in rows] for name in rows[0]}


def _one_row(about):
    return np.zeros((about["batch"] or 1, *about["shape"]), about["dtype"])


def _time(folder):
    """Seconds from the start of this script to the first prediction, and milliseconds for one row after that."""
    predictor = load(folder)
    x, level = _one_row(predictor.about), np.float32(0.9)
    jax.block_until_ready(predictor._call(x, level))
    cold = time.perf_counter() - BEGAN
    times = []
    for _ in range(200):
        began = time.perf_counter()
        jax.block_until_ready(predictor._call(x, level))
        times.append(time.perf_counter() - began)
    print(json.dumps({"cold_start_seconds": cold, "one_row_milliseconds": 1000 * sorted(times)[100]}))


def _main():
    folder = Path(__file__).parent
    if sys.argv[1:] == ["--time"]:
        return _time(folder)
    predictor = load(folder)
    columns = _read_csv(sys.argv[1])
    if predictor.about["columns"] is None:
        columns_as_rows = np.array([list(map(float, values)) for values in columns.values()]).T
        prediction = predictor(columns_as_rows)
    else:
        prediction = predictor(columns)
    flat = {}
    for name, values in prediction.items():
        parts = values.reshape(len(values), -1).T
        names = predictor.about["class_names"] if name in ("probs", "sets") else []
        if len(names) != len(parts):
            names = range(len(parts)) if len(parts) > 1 else [""]
        flat |= {f"{name} {part}".strip(): column for part, column in zip(names, parts)}
    writer = csv.writer(sys.stdout)
    writer.writerow(flat)
    writer.writerows(zip(*(values.tolist() for values in flat.values())))


if __name__ == "__main__":
    BEGAN = time.perf_counter()
    _main()
