"""A request's body to rows and what is asked of them: JSON, CSV, or Arrow where pyarrow is installed."""

import importlib.util
import io
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from posteria.data.table_file import read_frame
from posteria.data.texts import PACKINGS
from posteria.errors import DataError
from posteria.serve.served import Asked, Served
from posteria.tree import Json

JSON, CSV, ARROW = "application/json", "text/csv", "application/vnd.apache.arrow.stream"
MOST_LEVELS = 32  # intervals, and quantiles
MOST_DRAWS, MOST_VALUES_DRAWN = 1024, 2**20
CELL = (str, int, float, bool, type(None))


class Unreadable(Exception):
    """A kind of body that is not read here."""


def parse(content: bytes, kind: str, query: Mapping[str, str], served: Served, most_rows: int) -> tuple[Any, Json]:
    """Rows (a frame, or an array where the fit was of arrays), and all else that the body or the query says."""
    if kind == JSON:
        body = _json(content)
        rows, others = _rows(body.pop("rows", None), served, most_rows), body
    elif kind == CSV:
        rows, others = _csv(content, served), _of_query(query)
    elif kind == ARROW and importlib.util.find_spec("pyarrow") is not None:
        rows, others = _arrow(content, most_rows), _of_query(query)
        rows = rows if served.preparation.encoder is not None else rows.to_numpy()
    else:
        raise Unreadable(kind)
    check_number(len(rows), most_rows)
    return served.rows_of(rows), others


class TooManyRows(DataError):
    pass


def check_number(num_rows: int, most: int) -> None:
    if num_rows > most:
        raise TooManyRows(f"{num_rows:,} rows", f"at most {most:,}", "send them in parts")


def _json(content: bytes) -> Json:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON; null is a missing value")

    try:
        body = json.loads(content, parse_constant=refuse)
        json.dumps(body, ensure_ascii=False).encode()  # half a character, as \ud800, is no text: pyarrow cannot hold it
    except (ValueError, RecursionError) as error:
        raise DataError(f"a body that is no JSON ({error})", 'an object, as {"rows": [...]}', "see /schema") from None
    if not isinstance(body, dict):
        raise DataError(f"a JSON {type(body).__name__}", 'an object, as {"rows": [...]}', "see /schema")
    return body


def _rows(rows: Any, served: Served, most_rows: int) -> Any:
    import pandas as pd

    if not isinstance(rows, list) or not rows:
        raise DataError('no "rows"', "a list of at least one row", "see /schema for an example")
    check_number(len(rows), most_rows)
    if served.preparation.encoder is None:
        try:
            return np.asarray(rows, np.float64)
        except (ValueError, TypeError, OverflowError):
            raise DataError("rows that are no numbers of one shape", "lists of numbers", "see /schema") from None
    if not all(isinstance(row, dict) for row in rows):
        raise DataError("a row that is no object", "values by the names of columns", "see /schema for an example")
    if not all(isinstance(value, CELL) for row in rows for value in row.values()):
        raise DataError("a value that is a list or an object", "numbers, texts, true, false or null", "see /schema")
    try:
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: _column([row.get(name) for row in rows]) for name in names}
        return pd.DataFrame(columns, index=range(len(rows)))
    except OverflowError:
        raise DataError("a number that is too large", "numbers of double precision", "correct it") from None


def _column(values: list[Any]) -> Any:
    """Numbers as numbers, all else as it is."""
    if all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values):
        return np.array([np.nan if value is None else float(value) for value in values])
    return np.array(values, object)


def _csv(content: bytes, served: Served) -> Any:
    if content.startswith(tuple(PACKINGS)):
        raise DataError("a packed body", "plain CSV", "unpack it")
    columns = served.preparation.encoder.columns if served.preparation.encoder else ()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "body.csv"
        path.write_bytes(content)
        try:
            frame = read_frame(path, {column.name: getattr(column, "levels", ()) for column in columns})
        except DataError as error:
            raise DataError(error.got.replace(str(path), "the body"), error.wanted) from None
    if served.preparation.encoder is not None:
        return frame
    try:
        return frame.to_numpy(np.float64)
    except ValueError as error:
        raise DataError(f"values that are no numbers ({error})", "numbers", "correct them") from None


def _arrow(content: bytes, most_rows: int) -> Any:
    import pyarrow as pa

    try:
        table = pa.ipc.open_stream(io.BytesIO(content)).read_all()
        table.validate(full=True)
        check_number(table.num_rows, most_rows)
        return table.to_pandas()
    except (pa.ArrowException, OSError, TypeError, OverflowError) as error:
        raise DataError(f"a body that is no Arrow stream ({error})", "an IPC stream of one table") from None


def _of_query(query: Mapping[str, str]) -> Json:
    """?intervals=0.5,0.9&quantiles=0.1&draws=10&seed=1"""
    try:
        lists = {name: [float(part) for part in query[name].split(",")] for name in LISTS if name in query}
        return lists | {name: int(query[name]) for name in ("draws", "seed") if name in query}
    except ValueError as error:
        raise DataError(f"a query with {error}", "numbers, as ?intervals=0.5,0.9&draws=10", "correct it") from None


LISTS = ("intervals", "quantiles")


def asked_of(others: Json, num_rows: int, level: float) -> Asked:
    lists = {name: others.get(name, [level] if name == "intervals" else []) for name in LISTS}
    for name, values in lists.items():
        if not isinstance(values, list) or len(values) > MOST_LEVELS or not all(map(_is_share, values)):
            raise DataError(f'"{name}"', f"at most {MOST_LEVELS} numbers between 1e-4 and 1 - 1e-4", "as [0.5, 0.9]")
    draws, seed = (_whole(others.get(name, 0)) for name in ("draws", "seed"))
    if type(draws) is not int or not 0 <= draws <= MOST_DRAWS or draws * num_rows > MOST_VALUES_DRAWN:
        most = f"at most {MOST_DRAWS:,}, and {MOST_VALUES_DRAWN:,} in all rows"
        raise DataError('"draws"', f"a whole number, {most}", "ask for fewer")
    if type(seed) is not int or not 0 <= seed < 2**31:
        raise DataError('"seed"', "a whole number of 31 bits", "as 0")
    levels, quantiles = (tuple(dict.fromkeys(map(float, lists[name]))) for name in LISTS)
    return Asked(levels, quantiles, draws, seed)


def _whole(value: Any) -> Any:
    """10.0 is 10 in JSON."""
    return int(value) if type(value) is float and value.is_integer() else value


def _is_share(value: Any) -> bool:
    return type(value) is float and 1e-4 <= value <= 1 - 1e-4


def finite(values: Any) -> Any:
    """Lists for JSON, in which what is no number is null."""
    array = np.asarray(values)
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return array.tolist()
    told = array.astype(object)
    told[~np.isfinite(array)] = None
    return told.tolist()
