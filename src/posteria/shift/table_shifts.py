"""Shifts of tables: rows as they may come once a model is in use, at five severities."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from posteria.data.arrays import is_frame
from posteria.errors import DataError, SettingError
from posteria.settings import CountFromZero, checked, shown

SEVERITIES = (1, 2, 3, 4, 5)
NEVER_SEEN = "(never seen)"  # a category that no table had
NOISE = (0.1, 0.2, 0.4, 0.7, 1.0)  # of a column's standard deviation
MISSING = (0.05, 0.1, 0.2, 0.35, 0.5)  # of the values of a column
DRIFT = (0.1, 0.25, 0.5, 1.0, 2.0)  # of itself, by which a column grows
UNSEEN = (0.05, 0.1, 0.25, 0.5, 1.0)  # of the rows
TILT = (0.25, 0.5, 1.0, 1.5, 2.0)  # standard deviations by which the mean moves, where rows are Normal
WORDS = ("object", "string", "category", "bool")  # types of columns of categories
SHARE_OF_COLUMNS = 1 / 3  # that are hit


class Shifted(NamedTuple):
    x: Any  # as it was given: an array or a frame
    rows: np.ndarray  # of the table that was given, which these are: y[rows] goes with x


def shift_table(x: Any, name: str, severity: int, key: int = 0) -> Shifted:
    """A table of test rows after a shift of severity 1 to 5; `po.shift.TABLE_SHIFTS` has the names.

    "noise": numbers are measured less well. "missing": runs of rows lack values in a third of the columns. "drift": a
    third of the columns of numbers are in another unit or have grown. "unseen": a category that was never seen.
    "tilt": rows far along a direction are more common, drawn with replacement. Columns and rows are chosen by the key.
    """
    if not isinstance(name, str) or name not in TABLE_SHIFTS:
        raise SettingError(f"the shift is {shown(name)}", "one of " + ", ".join(TABLE_SHIFTS), "correct the name")
    severity = as_severity(severity)
    key = checked("shift_table", "key", key, CountFromZero, 0)
    table = _copied(x)
    rng = np.random.default_rng([key, list(TABLE_SHIFTS).index(name)])
    return TABLE_SHIFTS[name](table, severity - 1, rng)


def as_severity(severity: Any) -> int:
    is_whole = isinstance(severity, int | np.integer) and not isinstance(severity, bool)
    if not is_whole or severity not in SEVERITIES:
        raise SettingError(f"severity is {shown(severity)}", "1, 2, 3, 4 or 5", "5 is the most")
    return int(severity)


def _copied(x: Any) -> Any:
    if is_frame(x):
        table = x.copy()
        if not table.columns.is_unique:
            twice = table.columns[table.columns.duplicated()][0]
            raise DataError(f"two columns are named {twice!r}", "a name of its own for each", "rename one")
    else:
        try:
            table = np.array(x)
        except ValueError:
            raise DataError("rows of several lengths", "as many values in each", "pass (n, columns)") from None
        if table.ndim != 2 or not np.issubdtype(table.dtype, np.floating):
            raise DataError(
                f"x is {table.dtype} {table.shape}", "rows of floats, or a pandas frame", "pass (n, columns)"
            )
    if not len(table):
        raise DataError("x has no rows", "at least one", "pass test rows")
    return table


def _noise(table: Any, level: int, rng: np.random.Generator) -> Shifted:
    for column in _needed(_numbers(table), "numbers", "noise"):
        values = _values(table, column)
        _put(table, column, values + NOISE[level] * _moments(values)[1] * rng.normal(size=len(values)))
    return Shifted(table, np.arange(len(table)))


def _missing(table: Any, level: int, rng: np.random.Generator) -> Shifted:
    num = len(table)
    for column in _some(rng, _needed(_all(table), "any kind", "missing")):
        first = int(rng.integers(num))
        hit = (first + np.arange(round(MISSING[level] * num))) % num
        if is_frame(table):
            values = table[column].astype(float) if column in _numbers(table) else table[column]
            values = values if values.dtype.kind in "fMm" else values.astype(object)  # dates and times hold NaT
            values.iloc[hit] = np.nan if column in _numbers(table) else None
            table[column] = values
        else:
            table[hit, column] = np.nan
    return Shifted(table, np.arange(num))


def _drift(table: Any, level: int, rng: np.random.Generator) -> Shifted:
    for column in _some(rng, _needed(_numbers(table), "numbers", "drift")):
        _put(table, column, (1 + DRIFT[level]) * _values(table, column))
    return Shifted(table, np.arange(len(table)))


def _unseen(table: Any, level: int, rng: np.random.Generator) -> Shifted:
    words = list(table.select_dtypes(WORDS).columns) if is_frame(table) else []
    num = len(table)
    for column in _some(rng, _needed(words, "categories", "unseen")):
        values = table[column].astype(object)
        values.iloc[rng.permutation(num)[: round(UNSEEN[level] * num)]] = NEVER_SEEN
        table[column] = values
    return Shifted(table, np.arange(num))


def _tilt(table: Any, level: int, rng: np.random.Generator) -> Shifted:
    """Rows with the weights exp(t z), z along a direction of the standardised numbers."""
    columns = _needed(_numbers(table), "numbers", "tilt")
    units = np.stack([_standardised(_values(table, column)) for column in columns], 1)
    along = units @ rng.normal(size=len(columns))
    along = (along - along.mean()) / max(along.std(), 1e-12)
    weights = np.exp(TILT[level] * (along - along.max()))
    rows = np.sort(rng.choice(len(table), len(table), p=weights / weights.sum()))
    return Shifted(table.iloc[rows] if is_frame(table) else table[rows], rows)


TABLE_SHIFTS: dict[str, Callable[[Any, int, np.random.Generator], Shifted]] = {
    "noise": _noise,
    "missing": _missing,
    "drift": _drift,
    "unseen": _unseen,
    "tilt": _tilt,
}


def _all(table: Any) -> list[Any]:
    return list(table.columns) if is_frame(table) else list(range(table.shape[1]))


def _numbers(table: Any) -> list[Any]:
    """Columns of numbers; truth values are categories, durations neither."""
    if not is_frame(table):
        return _all(table)
    return list(table.select_dtypes("number", exclude=["bool", "timedelta", "complexfloating"]).columns)


def _needed(columns: list[Any], of: str, name: str) -> list[Any]:
    if not columns:
        raise DataError(f"a table without a column of {of}", f"one, for {name}", "take another shift")
    return columns


def _moments(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of the finite values; 0 where there are none."""
    finite = values[np.isfinite(values)]
    return (float(finite.mean()), float(finite.std())) if len(finite) else (0.0, 0.0)


def _standardised(values: np.ndarray) -> np.ndarray:
    """0 where a value is not finite."""
    mean, std = _moments(values)
    return np.where(np.isfinite(values), values - mean, 0.0) / (std or 1.0)


def _values(table: Any, column: Any) -> np.ndarray:
    return np.asarray(table[column] if is_frame(table) else table[:, column], np.float64)


def _put(table: Any, column: Any, values: np.ndarray) -> None:
    if is_frame(table):
        table[column] = values
    else:
        table[:, column] = values


def _some(rng: np.random.Generator, columns: list[Any]) -> list[Any]:
    num = max(1, round(SHARE_OF_COLUMNS * len(columns))) if columns else 0
    return [columns[i] for i in sorted(rng.permutation(len(columns))[:num])]
