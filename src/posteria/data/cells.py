"""The values of a table as numbers, for the package and for its exports, which carry this file along: NumPy alone.

A value is a number, a truth value or text; or missing: None, NaN, or what pandas has for either.
"""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

LARGEST = 1e150  # its square is finite: rows are standardised by their squares
MISSING_LEVEL = "(missing)"
MISSING = frozenset(  # how text says that a value is missing: pandas' own words, and a question mark
    (
        "",
        "?",
        "<NA>",
        "#N/A",
        "#N/A N/A",
        "#NA",
        "N/A",
        "n/a",
        "NA",
        "NaN",
        "nan",
        "-NaN",
        "-nan",
        "None",
        "NULL",
        "null",
    )
) | {"1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"}
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?inf(inity)?", re.ASCII | re.IGNORECASE)
WHOLE = re.compile(r"[-+]?\d{1,400}", re.ASCII)
TRUTHS = {"true": True, "false": False}


def is_missing(value: Any) -> bool:
    if isinstance(value, float | np.floating):
        return bool(value != value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def numbers(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float64 with NaN where a value is missing, and which values are no finite numbers that can be computed with."""
    if values.dtype.kind in "biuf":
        found = values.astype(np.float64)
        return found, np.abs(found) > LARGEST
    present = np.array([not is_missing(value) for value in values], bool)
    found = np.array([_number(value) if is_there else np.nan for value, is_there in zip(values, present)], np.float64)
    return found, (np.abs(found) > LARGEST) | (present & np.isnan(found))


def _number(value: Any) -> float:
    """NaN where it is none."""
    if isinstance(value, str):
        return float(value) if NUMBER.fullmatch(value.strip()) else np.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def levels(values: np.ndarray) -> np.ndarray:
    """As text; 1 and 1.0 are one level, since a column of whole numbers turns floating when one is missing."""
    return np.array([_level(value) for value in values.astype(object)], object)


def _level(value: Any) -> str:
    if is_missing(value):
        return MISSING_LEVEL
    if isinstance(value, float | np.floating) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def encoded_number(found: np.ndarray, median: float, has_indicator: bool) -> np.ndarray:
    """Missing values take the median; with an indicator, a second column says which."""
    is_nan = np.isnan(found)
    filled = np.where(is_nan, median, found)
    return np.stack([filled, is_nan], axis=1) if has_indicator else filled[:, None]


def encoded_category(found: np.ndarray, known: Iterable[str]) -> np.ndarray:
    """One 0/1 column a known level, all zeros for any other."""
    return (found[:, None] == np.array(list(known), object)[None, :]).astype(np.float64)


def softly_clipped(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Columns as they are within [low, high]; beyond, ever more slowly, and by a tenth of the range at most."""
    reach = 0.1 * np.where(high > low, high - low, 1.0)
    above, below = np.maximum(x - high, 0.0), np.maximum(low - x, 0.0)
    return np.clip(x, low, high) - reach * np.expm1(-above / reach) + reach * np.expm1(-below / reach)


def piecewise_linear(x: np.ndarray, edges: Iterable[Iterable[float]]) -> np.ndarray:
    """For each column, a feature a bin: -1 before it, 1 after it, linear within. Gorishniy et al. 2022."""
    features = [np.zeros((len(x), 0))]
    for column, ends in zip(x.T, edges):
        ends = np.asarray(list(ends), np.float64)
        features.append(2.0 * np.clip((column[:, None] - ends[:-1]) / np.diff(ends), 0.0, 1.0) - 1.0)
    return np.concatenate(features, axis=1)


# ---- text


def of_texts(texts: Iterable[Any], known: Iterable[str] = ()) -> np.ndarray:
    """What a column of a CSV file holds, as pandas reads it: numbers or truth values if all are, otherwise text.

    A known level is one, also where it reads as a word for what is missing.
    """
    kept = set(known)
    values = [_text(text, kept) for text in texts]
    there = [value for value in values if value is not None]
    if len(there) == len(values) and all(WHOLE.fullmatch(value.strip()) for value in there):
        return np.array([int(value) for value in there], object)
    if there and all(NUMBER.fullmatch(value.strip()) for value in there):
        return np.array([np.nan if value is None else float(value) for value in values])
    if there and all(value.lower() in TRUTHS for value in there):
        return np.array([None if value is None else TRUTHS[value.lower()] for value in values], object)
    return np.array(values, object)


def _text(text: Any, kept: set[str]) -> str | None:
    if text is None or (text.lstrip() in MISSING and text.strip() not in kept):
        return None
    return text.lstrip()
