"""Frames of any library that narwhals knows (polars, pyarrow, modin, ...) as pandas', which everything here reads."""

from typing import TYPE_CHECKING, Any

import numpy as np

from posteria.data.arrays import is_frame
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

    twice = sorted({name for name in found.columns if found.columns.count(name) > 1})
    if twice:  # of pyarrow, which allows them
        raise DataError(f"columns {twice} twice", "a name for each column", "rename them")
    return pd.DataFrame({name: _column(found[name]) for name in found.columns})


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
