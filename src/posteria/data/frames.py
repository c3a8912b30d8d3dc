"""Frames of any library that narwhals knows (polars, pyarrow, modin, ...) as pandas', which everything here reads;
and rows that count more or less often than once."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from posteria.data import cells
from posteria.data.arrays import check_weight, is_frame
from posteria.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


def as_frame(rows: Any) -> Any:
    """A frame of another library as pandas', names and types kept; whatever is no frame as it is."""
    if is_frame(rows) or isinstance(rows, np.ndarray | list | tuple | dict | str):
        return rows
    import narwhals as nw

    found = nw.from_native(rows, pass_through=True, allow_series=False)
    if isinstance(found, nw.LazyFrame):
        found = found.collect()
    if not isinstance(found, nw.DataFrame):
        return rows
    import pandas as pd

    check_names(found)  # pyarrow allows the same twice
    return pd.DataFrame({name: _column(found[name]) for name in found.columns})


def check_names(frame: Any) -> None:
    """Refuse a name that is there twice."""
    names = list(frame.columns)
    if twice := sorted({str(name) for name in names if names.count(name) > 1}):
        raise DataError(f"columns {twice} twice", "a name for each column", "rename them")


def as_values(y: Any) -> Any:
    """A series (or a frame of one column) of another library as NumPy's array; whatever is none as it is."""
    if hasattr(y, "iloc") or isinstance(y, np.ndarray | list | tuple):
        return y
    import narwhals as nw

    found = nw.from_native(y, pass_through=True, allow_series=True)
    if isinstance(found, nw.DataFrame):
        return as_frame(y)
    return _column(found).to_numpy() if isinstance(found, nw.Series) else y


def _column(series: Any) -> "pd.Series":
    """Without pyarrow, which polars needs for its own way to pandas."""
    import narwhals as nw
    import pandas as pd

    dtype = series.dtype
    is_dictionary = str(getattr(series.to_native(), "type", "")).startswith("dictionary")  # pyarrow's, also of numbers
    if is_dictionary or isinstance(dtype, nw.Categorical):
        return pd.Series(pd.Categorical(series.to_list()))
    if dtype.is_numeric() and not dtype.is_decimal():
        has_missing = series.null_count() > 0
        return pd.Series(series.cast(nw.Float64).to_numpy() if has_missing else series.to_numpy())
    if dtype.is_decimal():
        return pd.Series(series.cast(nw.Float64).to_numpy())
    if isinstance(dtype, nw.Datetime) and dtype.time_zone is not None:
        series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    if isinstance(dtype, nw.Date | nw.Datetime):
        return pd.Series(series.cast(nw.Datetime("us")).to_numpy().astype("datetime64[us]"))
    if isinstance(dtype, nw.Enum):
        return pd.Series(pd.Categorical(series.to_list(), categories=list(dtype.categories), ordered=True))
    values = series.to_list()
    if isinstance(dtype, nw.Boolean) and None not in values:
        return pd.Series(values, dtype=bool)
    if isinstance(dtype, nw.List | nw.Struct | nw.Array | nw.Binary):
        raise DataError(f"column {series.name!r} holds {dtype}", "numbers, text or dates", "unpack it into columns")
    return pd.Series(values, dtype=object)


if TYPE_CHECKING:
    import pandas as pd

# ---- rows that count more or less often than once

SHARES = 4  # rows that stand for one of average weight, where weights are not whole numbers
MOST_REPEATED = 1_000_000  # rows


def counted(
    frame: "pd.DataFrame", y: np.ndarray, sample_weight: ArrayLike | None
) -> tuple["pd.DataFrame", np.ndarray, np.ndarray | None]:
    """The rows that count, and how often; None where each does once."""
    if sample_weight is None:
        return frame, y, None
    weight = check_weight(np.asarray(as_values(sample_weight)), len(y))
    counts = np.flatnonzero(weight)
    if len(counts) == len(y):
        return frame, y, weight
    return frame.iloc[counts], y[counts], weight[counts]


def as_often(frame: "pd.DataFrame", y: np.ndarray, weight: np.ndarray | None) -> tuple["pd.DataFrame", np.ndarray]:
    """Rows about as often as they count, each at least once, by which units and categories are those of weighted rows:
    exactly so where weights are whole."""
    if weight is None:
        return frame, y
    is_whole = (weight == np.round(weight)).all() and weight.sum() <= max(MOST_REPEATED, len(y))
    counts = weight if is_whole else np.maximum(1.0, np.round(SHARES * weight / weight.mean()))
    often = np.repeat(np.arange(len(y)), counts.astype(int))
    return frame.iloc[often], y[often]


def text_in(X: Any) -> str:
    """The first word of an array that is no number."""
    values = np.asarray(X) if isinstance(X, list | np.ndarray) else np.zeros(0)
    if values.ndim != 2 or values.dtype.kind not in "OU":
        return ""
    texts = np.array([value for value in values.ravel().tolist() if isinstance(value, str)], object)
    _, is_bad = cells.numbers(texts)
    return str(texts[is_bad][0]) if is_bad.any() else ""
