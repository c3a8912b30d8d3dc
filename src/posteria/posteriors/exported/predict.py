"""Predictions of an exported posterior: needs JAX and NumPy alone.

    from predict import load
    prediction = load("folder")(rows, level=0.9)   # rows: a frame, a dict of columns, or an array

or `python predict.py new.csv > predictions.csv`. Every file is checked by its SHA-256 before it is used.
"""

import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
# Nothing that lies in this folder takes the place of a module: Python puts the folder of a script first.
sys.path[:] = [place for place in sys.path if os.path.realpath(place) != HERE]

import csv  # noqa: E402
import hashlib  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
import types  # noqa: E402
from importlib.abc import Loader  # noqa: E402
from importlib.machinery import ModuleSpec  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import jax  # noqa: E402
import jax.export  # noqa: E402
import numpy as np  # noqa: E402

ABOUT, FUNCTION, CELLS, TEXTS = "artifact.json", "function.bin", "cells.py", "texts.py"
FORMATS = ("posteria-export-1", "posteria-export-2", "posteria-export-3")  # the first has no checksums
MAX_BLOCK = 4096  # rows at once
Columns = dict[str, np.ndarray]


class ExportError(ValueError):
    """A folder that is damaged, or none that was exported; or rows that it cannot take."""


class Predictor:
    """What a folder predicts: `mean`, `std`, `lower`, `upper`, `epistemic_std`, or `probs`, `entropy`, ..."""

    def __init__(self, folder: str | Path) -> None:
        self._cells, self._texts = _own_code()
        folder = Path(folder)
        self.about = _read_about(folder)
        if self.about["format"] == FORMATS[0]:
            print(f"{folder} is of format 1, which has no checksums: it was not verified", file=sys.stderr)
        function = jax.export.deserialize(bytearray(_verified(folder, FUNCTION, self.about)))
        self._call = jax.jit(function.call)

    def __call__(self, rows: Any, level: float = 0.9) -> Columns:
        if not 0 < level < 1:
            raise ExportError(f"level is {level}, wanted a number between 0 and 1")
        x = self.inputs(rows)
        if not len(x):
            raise ExportError("no rows, wanted at least one")
        parts = [self._block(x[first : first + MAX_BLOCK], level) for first in range(0, len(x), MAX_BLOCK)]
        raw = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return raw if self.about["y"] is None else self._in_units(raw)

    def _block(self, x: np.ndarray, level: float) -> Columns:
        num_rows, fixed = len(x), self.about["batch"]
        padded = fixed or 1 << (num_rows - 1).bit_length()  # few different sizes are compiled
        x = np.concatenate([x, np.repeat(x[-1:], -num_rows % padded, axis=0)])
        parts = [self._call(x[first : first + padded], np.float32(level)) for first in range(0, len(x), padded)]
        return {name: np.concatenate([part[name] for part in parts])[:num_rows] for name in parts[0]}

    def inputs(self, rows: Any) -> np.ndarray:
        """Rows as the network's x."""
        if self.about["columns"] is not None:
            columns = self.about["columns"]
            if isinstance(rows, (list, tuple)) or (isinstance(rows, np.ndarray) and rows.dtype.names is None):
                rows = _named(columns, np.asarray(rows))
            rows = np.concatenate([self._encoded(column, rows) for column in columns], axis=1)
        x = np.asarray(rows)
        if self.about["x"] is not None:
            x, bins = np.asarray(x, np.float64), self.about.get("bins")
            features = [] if bins is None else [self._cells.piecewise_linear(x, bins["edges"])]
            if bins is not None:
                x = self._cells.softly_clipped(x, np.asarray(bins["low"]), np.asarray(bins["high"]))
            standardised = (x - self.about["x"]["mean"]) / self.about["x"]["std"]
            x = np.concatenate([standardised, *features], axis=1) if features else standardised
        x = x.astype(self.about["dtype"])
        if list(x.shape[1:]) != self.about["shape"]:
            raise ExportError(f"rows of shape {x.shape[1:]}, wanted {tuple(self.about['shape'])}")
        return x

    def _encoded(self, column: dict[str, Any], rows: Any) -> np.ndarray:
        name, known = column["name"], column.get("levels", ())
        try:
            values = rows[name]
        except (KeyError, IndexError, TypeError, ValueError):
            raise ExportError(f"column {name!r} is missing") from None
        if not hasattr(values, "dtype"):
            values = np.array(list(values), object)
        if hasattr(values, "to_numpy"):
            is_date = getattr(values.dtype, "kind", "O") == "M"
            values = values.to_numpy("datetime64[us]" if is_date else object)
        values = np.asarray(values)
        if values.dtype.kind in "US":  # as from a file
            values = self._cells.of_texts(values.astype(str).tolist(), known)
        try:
            found, is_new = self._cells.encoded(column, values)
        except ValueError as error:
            raise ExportError(str(error)) from None
        if is_new.any():
            print(f"{name}: {is_new.sum():,} values that the fit did not know", file=sys.stderr)
        return found

    def read_csv(self, path: str | Path) -> np.ndarray | Columns:
        """The rows of a CSV file with the columns of the fit."""
        names, texts = self._read_texts(Path(path))
        if self.about["columns"] is None:
            columns = [self._cells.numbers(self._cells.of_texts(column)) for column in texts]
            if any(is_bad.any() or np.isnan(numbers).any() for numbers, is_bad in columns):
                raise ExportError(f"{path} holds values that are no numbers")
            return np.stack([numbers for numbers, _ in columns], axis=1)
        levels = {column["name"]: column.get("levels", ()) for column in self.about["columns"]}
        return {name: self._cells.of_texts(column, levels.get(name, ())) for name, column in zip(names, texts)}

    def _read_texts(self, path: Path) -> tuple[tuple[str, ...], list[list[str | None]]]:
        """The names of the columns, and the texts of each."""
        try:
            found = self._texts.read_texts(path.read_bytes())
            rows = found.rows()
        except ValueError as error:
            raise ExportError(f"{path} {error}") from None
        if not rows:
            raise ExportError(f"{path} has no rows")
        if long := [row for row in rows if len(row) > len(found.names)]:
            raise ExportError(f"{path} has a line with {len(long[0])} fields, wanted {len(found.names)}")
        columns = [[row[i] if i < len(row) else None for row in rows] for i in range(len(found.names))]
        if found.decimal == ",":
            columns = [self._cells.with_points(column) for column in columns]
        return found.names, columns

    def _in_units(self, raw: Columns) -> Columns:
        mean, std = (np.atleast_1d(np.asarray(self.about["y"][name])) for name in ("mean", "std"))
        places = {name: raw[name] * std + mean for name in ("mean", "lower", "upper")}
        return places | {name: raw[name] * std for name in ("std", "epistemic_std")}


def load(folder: str | Path) -> Predictor:
    return Predictor(folder)


def _named(columns: list[dict[str, Any]], array: np.ndarray) -> Columns:
    """The columns of an array, in the order of the fit."""
    if array.ndim != 2 or array.shape[1] != len(columns):
        raise ExportError(f"rows of shape {array.shape}, wanted (rows, {len(columns)}) or named columns")
    return {column["name"]: array[:, i] for i, column in enumerate(columns)}


# ---- what is checked before it is used


def _read_about(folder: Path) -> dict[str, Any]:
    """What a folder says of itself, checked by the sum in it."""
    path = folder / ABOUT
    try:
        about = json.loads(path.read_bytes())
        given = about.pop("sha256", None)
        said = json.dumps(about, sort_keys=True, separators=(",", ":"))
        kind = about["format"]
    except (OSError, ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise ExportError(f"{path} cannot be read ({type(error).__name__}: {error}): export again") from None
    if (given is not None or kind != FORMATS[0]) and hashlib.sha256(said.encode()).hexdigest() != given:
        raise ExportError(f"{path} is damaged or was edited, its SHA-256 is another: export again")
    if kind not in FORMATS:
        raise ExportError(f"{path} is of format {kind!r}, wanted one of {FORMATS}: use the predict.py beside it")
    return about


def _verified(folder: Path, name: str, about: dict[str, Any]) -> bytes:
    """The content of a file, if it is what was exported."""
    try:
        content = (folder / name).read_bytes()
    except OSError as error:
        raise ExportError(f"{folder / name} cannot be read ({error}): export again") from None
    if about["format"] != FORMATS[0] and hashlib.sha256(content).hexdigest() != about["files"].get(name):
        raise ExportError(f"{folder / name} is damaged or was edited, its SHA-256 is another: export again")
    return content


def _own_code() -> list[Any]:
    """The modules `cells` and `texts`, made from the content that was checked; likewise flatbuffers, which JAX needs to
    read a function and does not bring, where it is not installed."""
    here = Path(HERE)
    about = _read_about(here)
    _verified(here, Path(__file__).name, about)
    if importlib.util.find_spec("flatbuffers") is None:
        names = [name for name in about["files"] if name.startswith("flatbuffers/")]
        sys.meta_path.append(_Lent({_module(name): _verified(here, name, about) for name in names}))
    modules = [types.ModuleType(_module(name)) for name in (CELLS, TEXTS)]
    for name, module in zip((CELLS, TEXTS), modules):
        exec(compile(_verified(here, name, about), name, "exec"), vars(module))
    return modules


def _module(name: str) -> str:
    """ "flatbuffers/builder.py" -> "flatbuffers.builder"."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class _Lent(Loader):
    """Finds modules by name in what was checked, not in a folder: a compiled file beside them would not be."""

    def __init__(self, sources: dict[str, bytes]) -> None:
        self.sources = sources

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        is_package = any(other.startswith(f"{name}.") for other in self.sources)
        return importlib.util.spec_from_loader(name, self, is_package=is_package) if name in self.sources else None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compile(self.sources[module.__name__], module.__name__, "exec"), vars(module))


# ---- the script


def _time(folder: str) -> None:
    """Seconds from the start of this script to the first prediction, and milliseconds for one row after that."""
    predictor = load(folder)
    about, level = predictor.about, np.float32(0.9)
    x = np.zeros((about["batch"] or 1, *about["shape"]), about["dtype"])
    jax.block_until_ready(predictor._call(x, level))
    cold = time.perf_counter() - BEGAN
    times = []
    for _ in range(200):
        began = time.perf_counter()
        jax.block_until_ready(predictor._call(x, level))
        times.append(time.perf_counter() - began)
    print(json.dumps({"cold_start_seconds": cold, "one_row_milliseconds": 1000 * sorted(times)[100]}))


def _main() -> None:
    if len(sys.argv) != 2:
        raise ExportError("wanted one argument, a CSV file")
    if sys.argv[1] == "--time":
        return _time(HERE)
    predictor = load(HERE)
    prediction = predictor(predictor.read_csv(sys.argv[1]))
    flat: Columns = {}
    for name, values in prediction.items():
        parts = values.reshape(len(values), -1).T
        names: Any = predictor.about["class_names"] if name in ("probs", "sets") else []
        if len(names) != len(parts):
            names = range(len(parts)) if len(parts) > 1 else [""]
        flat |= {f"{name} {part}".strip(): column for part, column in zip(names, parts)}
    writer = csv.writer(sys.stdout)
    writer.writerow(flat)
    writer.writerows(zip(*(values.tolist() for values in flat.values())))


if __name__ == "__main__":
    BEGAN = time.perf_counter()
    try:
        _main()
    except (OSError, ValueError, csv.Error) as error:
        sys.exit(f"predict.py: {error}")
