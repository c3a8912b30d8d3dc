"""A CSV file as a pandas frame, whatever its delimiter."""

import csv
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from posteria.data.cells import MISSING
from posteria.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

DELIMITERS = ",;\t|"
LINES_SNIFFED = 50


def read_frame(path: str | Path, levels: Mapping[str, Iterable[str]] = {}) -> "pd.DataFrame":
    """A file with a header line; the delimiter is found, a UTF-8 byte-order mark and spaces around names dropped.

    In a file separated by semicolons a decimal comma is understood. A nameless first column that counts the rows (as
    pandas writes its index) is left out. What is a level of a column is no word for what is missing.
    """
    import pandas as pd

    lines = _first_lines(Path(path))
    try:
        delimiter = _delimiter(lines)
        header = next(csv.reader(lines, delimiter=delimiter, skipinitialspace=True))
        _check_header(path, header)
        decimal = "," if delimiter == ";" and _has_decimal_commas(lines) else "."
    except csv.Error as error:  # a field as long as a book
        raise DataError(f"{path} is not a table ({error})", "fields of text or numbers", "check its quotes") from None
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # it warns of rows longer than the header
        try:
            frame = pd.read_csv(
                path,
                sep=delimiter,
                decimal=decimal,
                encoding="utf-8-sig",
                skipinitialspace=True,
                index_col=False,
                na_values={
                    name or f"Unnamed: {i}": sorted(MISSING.difference(levels.get(name.strip(), ())))
                    for i, name in enumerate(header)
                },
                keep_default_na=False,
                low_memory=False,
            )
        except UnicodeDecodeError:  # the first lines may be plain ASCII
            raise _not_utf8(path) from None
        except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
            raise DataError(
                f"{path} is not a table ({error})", "as many fields on every line as in the first"
            ) from None
    frame.columns = [str(column).strip() for column in frame.columns]
    if frame.empty:
        raise DataError(f"{path} has a header and no rows", "at least one row")
    return _without_row_numbers(frame)


def _first_lines(path: Path) -> list[str]:
    if not path.is_file():
        raise DataError(f"no file {path}", "a CSV file", "check the path")
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = [line for _, line in zip(range(LINES_SNIFFED), file)]
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise DataError(f"{path} is empty", "a header line and rows")
    return lines


def _not_utf8(path: str | Path) -> DataError:
    return DataError(f"{path} is not UTF-8 text", "a CSV file in UTF-8", "save it again as UTF-8")


def _delimiter(lines: list[str]) -> str:
    """The one that cuts every line into the same number of fields, and into the most."""

    def num_fields(delimiter: str) -> int:
        counts = {len(row) for row in csv.reader(lines, delimiter=delimiter, skipinitialspace=True) if row}
        return counts.pop() if len(counts) == 1 else 1

    best = max(DELIMITERS, key=num_fields)
    if num_fields(best) > 1:
        return best
    # no delimiter is consistent (or there is one column): the header decides, and the reader says what is wrong
    return max(DELIMITERS, key=lambda delimiter: len(next(csv.reader(lines, delimiter=delimiter))))


def _check_header(path: str | Path, header: list[str]) -> None:
    if all(_is_number(field) for field in header):
        raise DataError(
            f"{path} starts with numbers, {header[:3]}", "a first line with the names of the columns", "add that line"
        )
    names = [name.strip() for name in header if name.strip()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{path} has columns twice: {twice}", "a name for each column", "rename or drop one")


def _has_decimal_commas(lines: list[str]) -> bool:
    fields = [field for row in csv.reader(lines[1:], delimiter=";") for field in row]
    return any("," in field and _is_number(field.replace(",", ".")) for field in fields)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _without_row_numbers(frame: "pd.DataFrame") -> "pd.DataFrame":
    first = frame.columns[0]
    is_nameless = first == "Unnamed: 0"  # pandas' name for it
    counts = is_nameless and any(frame[first].equals(frame.index.to_series() + start) for start in (0, 1))
    return frame.drop(columns=first) if counts else frame
