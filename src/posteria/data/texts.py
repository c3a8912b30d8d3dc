"""A CSV file as text, whatever its packing, encoding and delimiter, for the package and for its exports, which carry
this file along: the standard library alone. Whatever is wrong with a file is a ValueError that says so."""

import bz2
import codecs
import csv
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

DELIMITERS = ",;\t|"
LINES_SNIFFED = 50
MOST_BYTES = 8_000_000_000  # of a file, unpacked
PACKINGS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ": lzma.open,
    b"BZh": bz2.open,
}  # by their first bytes
MARKS = {  # of encodings
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class Texts(NamedTuple):
    """A file with a header line."""

    text: str  # from the header line on
    delimiter: str
    decimal: str  # "." or ","
    names: tuple[str, ...]  # of the columns, each once
    encoding: str
    repeated: tuple[str, ...]  # names that several columns have, which are numbered

    def rows(self) -> list[list[str]]:
        """The fields of every line below the header; blank lines are left out."""
        reader = csv.reader(io.StringIO(self.text, newline=""), delimiter=self.delimiter, skipinitialspace=True)
        return [row for row in reader if row][1:]


def read_texts(content: bytes, encoding: str | None = None) -> Texts:
    """The content of a file: gzip, xz or bz2, in UTF-8, UTF-16 or a Western encoding, unless one is named."""
    text, encoding = decoded(unpacked(content), encoding)
    text, delimiter = _without_preamble(text)
    lines = [line for line in _first_lines(text) if line.strip()]
    if not lines:
        raise ValueError("is empty; wanted a header line and rows")
    try:
        delimiter = delimiter or _delimiter(lines)
        header = next(csv.reader(lines, delimiter=delimiter, skipinitialspace=True))
    except csv.Error as error:  # a field as long as a book
        raise ValueError(f"is not a table ({error}); wanted fields of text or numbers, check its quotes") from None
    if all(_is_number(field) for field in header):
        raise ValueError(f"starts with numbers, {header[:3]}; wanted a first line with the names of the columns")
    names, repeated = numbered(header)
    decimal = "," if delimiter != "," and _has_decimal_commas(lines, delimiter) else "."
    return Texts(text, delimiter, decimal, names, encoding, repeated)


def unpacked(content: bytes) -> bytes:
    for mark, opened in PACKINGS.items():
        if content.startswith(mark):
            try:
                with opened(io.BytesIO(content)) as file:
                    found = file.read(MOST_BYTES + 1)
            except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
                raise ValueError(f"cannot be unpacked ({error}); wanted a complete file") from None
            if len(found) > MOST_BYTES:
                raise ValueError(f"unpacks to more than {MOST_BYTES:,} bytes; wanted a smaller table")
            return found
    return content


def decoded(content: bytes, encoding: str | None = None) -> tuple[str, str]:
    """The text, and its encoding: as asked for, by its mark, UTF-8, UTF-16 by its zeros, or Windows' for the West."""
    if encoding is not None:
        try:
            return content.decode(codecs.lookup(encoding).name), encoding
        except LookupError:
            raise ValueError(f"cannot be read as {encoding!r}; wanted an encoding, as utf-8 or latin-1") from None
        except UnicodeDecodeError as error:
            raise ValueError(f"is not in {encoding} ({error.reason} at byte {error.start})") from None
    for mark, name in MARKS.items():
        if content.startswith(mark):
            return _as(content, name)
    if b"\0" in content[:4000]:
        zeros = [content[start:4000:2].count(0) for start in (0, 1)]
        if max(zeros) < 0.2 * len(content[:4000]):
            raise ValueError("is not text; wanted a CSV file")
        return _as(content, "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be")
    for name in ("utf-8", "cp1252"):
        try:
            return content.decode(name), name
        except UnicodeDecodeError:
            pass
    return content.decode("latin-1"), "latin-1"


def _as(content: bytes, encoding: str) -> tuple[str, str]:
    try:
        return content.decode(encoding), encoding
    except UnicodeDecodeError as error:
        raise ValueError(f"is not in {encoding}, as it begins ({error.reason} at byte {error.start})") from None


def _without_preamble(text: str) -> tuple[str, str]:
    """Without comments above the header, and without "sep=;", which says the delimiter."""
    delimiter = ""
    while True:
        line, end, rest = text.partition("\n")
        if line.startswith("#") and end:
            text = rest
        elif line.lower().startswith("sep=") and line[4:].strip("\r") in tuple(DELIMITERS):
            text, delimiter = rest, line[4:5]
        else:
            return text, delimiter


def _first_lines(text: str) -> list[str]:
    return [line for _, line in zip(range(LINES_SNIFFED), io.StringIO(text, newline=""))]


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


def numbered(header: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names without spaces around them; a second "a" is "a (2)"; those that have no name, "Unnamed: 3"."""
    wanted = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(header)]
    found: list[str] = []
    for name in wanted:
        free, number = name, 1
        while free in found or (number > 1 and free in wanted):
            number += 1
            free = f"{name} ({number})"
        found.append(free)
    return tuple(found), tuple(sorted({name for name in wanted if wanted.count(name) > 1}))


def _has_decimal_commas(lines: list[str], delimiter: str) -> bool:
    fields = [field for row in csv.reader(lines[1:], delimiter=delimiter) for field in row]
    return any("," in field and _is_number(field.replace(",", ".", 1)) for field in fields)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
