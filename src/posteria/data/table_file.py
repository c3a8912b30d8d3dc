"""A table in a file as a pandas frame: text with any delimiter, Parquet, Feather, Excel."""

import io
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posteria.data.cells import MISSING, are_codes, is_missing, with_points
from posteria.data.frames import as_frame
from posteria.data.texts import Texts, numbered, read_texts
from posteria.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

TEXTS = (".csv", ".tsv", ".txt", ".tab", ".dat")
PACKED = (".gz", ".xz", ".bz2")


def is_table(path: Path) -> bool:
    """Whether it is read as one, by its ending."""
    return _ending(path) in (*TEXTS, *BINARY)


def read_frame(
    path: str | Path, levels: Mapping[str, Iterable[str]] = {}, encoding: str | None = None
) -> "pd.DataFrame":
    """A table; what was noticed in reading it is in `frame.attrs["notes"]`.

    Of text: a header line; the delimiter, the encoding (unless it is named) and the packing are found, spaces around
    names dropped, repeated names numbered. Between semicolons a decimal comma is understood. Codes, as 01067, keep
    their zeros. A nameless first column that counts the rows (as pandas writes its index) is left out. What is a level
    of a column is no word for what is missing. Parquet, Feather and Excel files are read where a reader for them is
    installed.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"no file {path}", "a CSV, Parquet, Feather or Excel file", "check the path")
    ending = _ending(path)
    if ending in BINARY:
        if encoding is not None:
            raise DataError(f"{path} as {encoding}", "an encoding of text alone", "leave it out")
        frame, notes = _read_binary(path, ending)
        decimal = "."
    else:
        frame, notes, decimal = _read_text(path, levels, encoding)
    if frame.empty:
        raise DataError(f"{path} has a header and no rows", "at least one row")
    frame = _without_row_numbers(frame)
    frame.attrs["notes"] = notes
    frame.attrs["decimal"] = decimal  # columns have it too, and what is text is read by it
    return frame


def _read_text(
    path: Path, levels: Mapping[str, Iterable[str]], encoding: str | None
) -> "tuple[pd.DataFrame, list[str], str]":
    texts = _texts_of(path, encoding)
    missing = {name: sorted(MISSING.difference(levels.get(name, ()))) for name in texts.names}
    frame = _parsed(path, texts, na_values=missing)
    whole = [name for name in texts.names if frame[name].dtype.kind in "iuf" and not (frame[name] % 1).any()]
    if whole and _may_hold_codes(texts):
        written = _parsed(path, texts, na_values=missing, dtype=str, usecols=whole)
        for name in whole:
            if are_codes(written[name].dropna()):
                frame[name] = written[name]
    return frame, _told(texts), texts.decimal


def _may_hold_codes(texts: Texts) -> bool:
    """Whether any field is digits that begin with a zero: a look at the text, before columns are read once more."""
    end = rf'[{re.escape(texts.delimiter)}"\s]'
    return re.search(rf"{end}0\d+(?:{end}|$)", texts.text, re.ASCII) is not None


def as_written(frame: "pd.DataFrame", path: str | Path, encoding: str | None = None) -> "pd.DataFrame":
    """The table that was read from the file, each cell as it stands there, to be written out again.

    Of what is no text, and of decimal commas, as it was read: these have no spelling that a CSV file shares.
    """
    path = Path(path)
    if _ending(path) in BINARY:
        return frame
    texts = _texts_of(path, encoding)
    if texts.decimal != ".":  # 1.250 is 1250 there, and would be 1.25 in what is written
        texts_there = [name for name in frame.columns if frame[name].dtype.kind == "O"]
        return frame.assign(**{name: _with_points(frame[name]) for name in texts_there})
    return _parsed(path, texts, dtype=str, na_filter=False)[list(frame.columns)]


def _with_points(column: "pd.Series") -> Any:
    texts = [text if isinstance(text, str) else None for text in column]
    return with_points(texts) if all(isinstance(text, str) or is_missing(text) for text in column) else column


def _texts_of(path: Path, encoding: str | None) -> Texts:
    try:
        return read_texts(path.read_bytes(), encoding)
    except ValueError as error:
        got, _, wanted = str(error).partition("; wanted ")
        raise DataError(f"{path} {got}", wanted or "text", "check the file; --encoding names another") from None


def _parsed(path: Path, texts: Texts, **options: Any) -> "pd.DataFrame":
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # it warns of rows longer than the header
        try:
            frame: pd.DataFrame = pd.read_csv(
                io.StringIO(texts.text),
                sep=texts.delimiter,
                decimal=texts.decimal,
                names=list(texts.names),
                header=0,
                skipinitialspace=True,
                index_col=False,
                keep_default_na=False,
                low_memory=False,
                **options,
            )
        except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
            raise DataError(
                f"{path} is not a table ({error})", "as many fields on every line as in the first"
            ) from None
    return frame


def _told(texts: Texts) -> list[str]:
    notes = []
    if texts.encoding in ("cp1252", "latin-1"):
        notes.append(f"the file is not UTF-8 and was read as {texts.encoding}; --encoding names another")
    if texts.repeated:
        notes.append(
            f"several columns are called {', '.join(map(repr, texts.repeated))}: they are numbered, as 'a (2)'"
        )
    return notes


# ---- what is no text


def _read_binary(path: Path, ending: str) -> "tuple[pd.DataFrame, list[str]]":
    what, packages, read = BINARY[ending]
    try:
        frame: pd.DataFrame = read(path)
    except ImportError:
        raise DataError(
            f"{path} is {what}, and nothing that reads it is installed", packages, "pip install posteria[tables]"
        ) from None
    except Exception as error:  # whatever a reader says of a damaged file
        raise DataError(f"{path} cannot be read as {what} ({error})", f"a complete {ending} file") from None
    names, repeated = numbered([str(name) for name in frame.columns])
    frame.columns = list(names)
    notes = [f"several columns are called {', '.join(map(repr, repeated))}: they are numbered"] if repeated else []
    return frame, notes


def _read_parquet(path: Path) -> "pd.DataFrame":
    try:
        import pyarrow.parquet

        return _from_arrow(pyarrow.parquet.read_table(path))
    except ImportError:
        import narwhals as nw

        return as_frame(nw.read_parquet(str(path), backend="polars"))


def _read_feather(path: Path) -> "pd.DataFrame":
    import pyarrow.feather

    return _from_arrow(pyarrow.feather.read_table(path))


def _from_arrow(table: Any) -> "pd.DataFrame":
    """Without the index that pandas may have put beside the columns."""
    names, _ = numbered(list(table.column_names))
    table = table.rename_columns(list(names))
    return as_frame(table.select([name for name in names if not name.startswith("__index_level_")]))


def _read_excel(path: Path) -> "pd.DataFrame":
    """The first sheet."""
    import pandas as pd

    return pd.read_excel(path, na_values=sorted(MISSING), keep_default_na=False)


BINARY: dict[str, tuple[str, str, Callable[[Path], Any]]] = {
    ".parquet": ("a Parquet file", "pyarrow or polars", _read_parquet),
    ".pq": ("a Parquet file", "pyarrow or polars", _read_parquet),
    ".feather": ("a Feather file", "pyarrow", _read_feather),
    ".arrow": ("a Feather file", "pyarrow", _read_feather),
    ".xlsx": ("an Excel file", "openpyxl", _read_excel),
    ".xls": ("an Excel file", "xlrd", _read_excel),
    ".ods": ("a spreadsheet", "odfpy", _read_excel),
}


def _ending(path: Path) -> str:
    """The last, but for that of a packing: ".csv" of table.csv.gz."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _without_row_numbers(frame: "pd.DataFrame") -> "pd.DataFrame":
    first = frame.columns[0]
    is_nameless = first == "Unnamed: 0"  # as `numbered` calls it
    counts = is_nameless and any(frame[first].equals(frame.index.to_series() + start) for start in (0, 1))
    return frame.drop(columns=first) if counts else frame
