"""What a column of a table is taken as, and why: by its type, its values and, of whole numbers alone, its name."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from posteria.data import cells
from posteria.errors import DataError, SettingError

if TYPE_CHECKING:
    import pandas as pd

TAKEN = ("number", "count", "category", "ordered", "date", "text", "ignore")  # what one may ask for
MAX_LEVELS = 20  # of one category, as columns of their own
VALUES_SHOWN = 5
LEAST_COUNTED = 20  # rows, from which numbers in their order count them
LEAST_COMPACT = 5  # different dates, from which 20240131 is one and no number

LEAST_REPEATED = 2.0  # rows a level, on average, where many levels can tell something of others
LEAST_WORDS = 3  # in the middle text, where it is prose
LEAST_SHARED = 0.3  # of all words, that other rows have too, where text is no name of its row
STAND_INS = (-99.0, -999.0, -9999.0, -99999.0, 999.0, 9999.0, 99999.0, 999999.0)  # for what is missing
CODES = re.compile(r"(?:^|[^a-z])(?:id|ids|uid|uuid|guid|key|code|zip|zipcode|postcode|postal|plz)(?:$|[^a-z])", re.I)
TIMES = re.compile(r"^(?:t|x|time|date|year|quarter|month|week|day|hour|minute|second|step|epoch|age)s?$", re.I)
ROW = "(?:row|index|nr|no|number|#|unnamed: 0)"
NAMES_A_ROW = re.compile(rf"^(?:{ROW}|.*(?:^|[^a-z])(?:id|uid|uuid|guid|key)|(?:id|uid)[^a-z].*)$", re.I)


@dataclass(frozen=True)
class Recognised:
    taken: str  # one of TAKEN, or "id", "constant"
    why: str
    spelling: str = ""  # of dates, and of numbers in text
    levels: tuple[str, ...] = ()  # of what is ordered, from the least
    is_lenient: bool = False  # what is no number counts as missing


def recognised(name: str, values: "pd.Series", asked: str = "") -> Recognised:
    """A column as it is asked for, or as its type and values tell."""
    import pandas as pd

    wanted, _, more = asked.partition(":")
    if wanted == "ignore":
        return Recognised("ignored", "asked for")
    present = values[values.notna()]
    if present.empty:
        return Recognised("constant", "every value is missing")
    if wanted:
        return _asked(name, present, wanted, more)
    if isinstance(values.dtype, pd.CategoricalDtype):
        if values.dtype.ordered:
            return Recognised("ordered", "its type", levels=_names(values.dtype.categories))
        return _of_levels(name, values, present)
    is_number = values.dtype.kind in "biuf"
    if values.dtype.kind == "M":
        return _or_constant(Recognised("date", "its type", "year-month-day"), values, present)
    if values.dtype.kind == "m":
        raise DataError(f"column {name!r} holds spans of time", "numbers or dates", "divide it by a unit, as seconds")
    if present.nunique() == 1 and len(present) == len(values):
        return Recognised("constant", f"always {_short(present.iloc[0])}")
    if is_number:
        return _of_numbers(name, values, present)
    if found := date_spelling(present, has_to_be=False):
        return Recognised("date", _date_reason(present, found), found)
    if cells.are_codes(present.astype(str)):
        return _of_codes(name, values, present)
    return _of_text(name, values, present)


def _or_constant(found: Recognised, values: "pd.Series", present: "pd.Series") -> Recognised:
    is_constant = present.nunique() == 1 and len(present) == len(values)
    return Recognised("constant", f"always {_short(present.iloc[0])}") if is_constant else found


def _of_numbers(name: str, values: "pd.Series", present: "pd.Series") -> Recognised:
    if values.dtype.kind == "b":
        return Recognised("number", "truth values")
    numbers = present.to_numpy(np.float64)
    if np.isinf(numbers).any() or (numbers != np.round(numbers)).any():
        return Recognised("number", "numbers")
    num_different = len(np.unique(numbers))
    is_new_each_row = num_different == len(values)
    if is_new_each_row and NAMES_A_ROW.match(name):
        return Recognised("id", "names its row: another value in each")
    if is_new_each_row and values.dtype.kind in "iu" and len(values) >= LEAST_COUNTED and not TIMES.match(name):
        steps = np.diff(numbers)
        if numbers[0] in (0, 1) and (steps == 1).all():
            return Recognised("id", "counts the rows in their order")
    if num_different >= LEAST_COMPACT and date_spelling(present, has_to_be=False) == "yearmonthday":
        return Recognised("date", "reads as yearmonthday", "yearmonthday")
    if CODES.search(name) and values.dtype.kind in "iu" and len(present) >= LEAST_REPEATED * num_different:
        return Recognised("category", "its name says that the numbers are codes")
    return Recognised("number", "whole numbers")


def _of_codes(name: str, values: "pd.Series", present: "pd.Series") -> Recognised:
    """Zeros in front say that a number is a code, but where hardly one repeats there is nothing to learn of each."""
    if len(present) >= LEAST_REPEATED * present.nunique():
        return Recognised("category", "codes, which begin with zeros")
    numbers = present.astype(str).astype(np.int64 if present.astype(str).str.len().max() < 19 else np.float64)
    return _of_numbers(name, numbers.reindex(values.index) if len(present) < len(values) else numbers, numbers)


def _of_text(name: str, values: "pd.Series", present: "pd.Series") -> Recognised:
    texts = present.astype(str)
    for spelling in _spellings(texts):
        numbers, is_bad = cells.numbers(texts.to_numpy(object), spelling)
        share, num_different = 1 - is_bad.mean(), len(np.unique(numbers[~is_bad]))
        if share == 1 and (spelling or num_different > MAX_LEVELS):
            return Recognised("number", f"numbers as {spelling}" if spelling else "numbers in text", spelling)
        if not spelling and share > 0.5 and num_different > MAX_LEVELS:
            return _refuse_stray(name, values, texts[is_bad])
    found = _of_levels(name, values, present)
    if found.taken in ("id", "text"):  # are there numbers in it after all?
        _, is_bad = cells.numbers(texts.to_numpy(object), number_spelling(texts))
        if is_bad.mean() < 0.5:
            return _refuse_stray(name, values, texts[is_bad])
    return found


def _spellings(texts: "pd.Series") -> tuple[str, ...]:
    """Those of numbers that could be meant, with the unit that most values have: plain first, but in a file of decimal
    commas, where 3.100 is 3100."""
    units = Counter(filter(None, map(cells.unit_of, texts)))
    unit = units.most_common(1)[0][0] if units else ""
    commas, points, spaces = (f"{each} {unit}".strip() for each in ("1.234,5", "1,234.5", "1 234,5"))
    if texts.attrs.get("decimal") == ",":
        return commas, "", points, spaces
    return "", points, commas, spaces


def _of_levels(name: str, values: "pd.Series", present: "pd.Series") -> Recognised:
    counts = Counter(cells.levels(present.to_numpy(object)).tolist())
    if len(counts) == 1 and len(present) == len(values):
        return Recognised("constant", f"always {_short(next(iter(counts)))}")
    if len(counts) <= MAX_LEVELS:
        return Recognised("category", "few values")
    words = [cells.words_of(level) for level in counts]
    repeats = len(present) / len(counts)
    if repeats >= LEAST_REPEATED and not (np.median([len(each) for each in words]) > LEAST_WORDS and repeats < 4):
        return Recognised("category", "many values that repeat")
    rows_with = Counter(word for each in words for word in set(each))
    shared = sum(count for count in rows_with.values() if count > max(1, 0.002 * len(counts)))
    is_prose = np.median([len(each) for each in words]) >= 2 and shared > LEAST_SHARED * sum(rows_with.values())
    if is_prose:
        return Recognised("text", "words that other rows have too")
    if repeats >= 1.5:
        return Recognised("category", "many values, some of which repeat")
    return Recognised("id", "names its row: hardly a value repeats")


def _refuse_stray(name: str, values: "pd.Series", found: "pd.Series") -> Recognised:
    rows = np.flatnonzero(values.astype(str).isin(found) & values.notna())[:VALUES_SHOWN].tolist()
    raise DataError(
        f"column {name!r} is mostly numbers but holds {list(dict.fromkeys(found))[:VALUES_SHOWN]} "
        f"({len(found)} values, first rows {rows})",
        "numbers, or text that repeats",
        f"correct those values, or leave them empty; --as {name}=number takes them as missing",
    )


def stand_in(values: "pd.Series") -> str:
    """ "-999 (12 rows)": nines that repeat, far from all other values; "" where there are none."""
    if values.dtype.kind not in "iuf":
        return ""
    numbers = values.to_numpy(np.float64, na_value=np.nan)
    for nines in STAND_INS:
        is_odd = numbers == nines
        others = numbers[~is_odd & np.isfinite(numbers)]
        if is_odd.sum() < 2 or len(others) < LEAST_COUNTED:
            continue
        low, high = others.min(), others.max()
        if not low - (high - low) <= nines <= high + (high - low):
            return f"{nines:g} ({is_odd.sum():,} rows)"
    return ""


# ---- what is asked for


def check_asked(asked: dict[str, str], columns: list[str]) -> None:
    """Refuse columns that are not there, and what a column cannot be taken as."""
    for name, wanted in asked.items():
        if name not in columns:
            raise SettingError(f"{name!r} as {wanted}", f"one of the columns {columns}", "check its name")
        if wanted.partition(":")[0] not in TAKEN:
            raise SettingError(f"{name!r} as {wanted!r}", f"one of {', '.join(TAKEN)}")


def _asked(name: str, present: "pd.Series", wanted: str, more: str) -> Recognised:
    why = "asked for"
    if wanted == "date":
        if more and more not in (*cells.DATES, *cells.UNIX):
            raise SettingError(
                f"{name!r} as date:{more}", f"date, or date: and one of {', '.join((*cells.DATES, *cells.UNIX))}"
            )
        spelling = more or date_spelling(present, has_to_be=True)
        if not spelling or cells.moments(plain(present), spelling)[1].all():
            raise DataError(
                f"column {name!r} as dates holds {_few(present)}",
                "dates, as 2024-01-31, 31.1.2024 or 1/31/2024 14:30",
                "leave out --as, or take it as category or text",
            )
        return Recognised("date", why, spelling)
    if wanted == "ordered":
        levels = cells.levels(present.to_numpy(object)).tolist()
        order = tuple(level.strip() for level in more.split("<")) if more else _in_order(levels)
        if unknown := sorted(set(levels) - set(order)):
            raise SettingError(
                f"{name!r} as ordered:{more}", "all of its values, from the least", f"it also holds {unknown}"
            )
        return Recognised("ordered", why, levels=order)
    if more:
        raise SettingError(f"{name!r} as {wanted}:{more}", f"{wanted} alone", "leave the rest out")
    if wanted in ("number", "count"):
        spelling = number_spelling(present)
        numbers, is_bad = cells.numbers(plain(present), spelling)
        if is_bad.all():
            raise DataError(f"column {name!r} as {wanted} holds {_few(present)}", "numbers", "leave out --as")
        known = numbers[~is_bad]
        if wanted == "count" and ((known < 0) | (known != np.round(known))).any():
            raise DataError(f"column {name!r} as count holds {_few(present)}", "whole numbers from 0 on", "as number")
        return Recognised(wanted, why, spelling, is_lenient=bool(is_bad.any()))
    return Recognised(wanted, why)


def number_spelling(present: "pd.Series") -> str:
    """Of numbers in text, the one that reads the most of them."""
    if present.dtype.kind in "biuf":
        return ""
    texts = present.astype(str)
    return min(_spellings(texts), key=lambda spelling: cells.numbers(texts.to_numpy(object), spelling)[1].sum())


def _in_order(levels: list[str]) -> tuple[str, ...]:
    """By the first number in each, then by the alphabet."""

    def key(level: str) -> tuple[float, str]:
        found = re.search(r"-?\d+\.?\d*", level)
        return (float(found.group()) if found else -np.inf, level)

    return tuple(sorted(set(levels), key=key))


def _date_reason(present: "pd.Series", spelling: str) -> str:
    if is_either_way(present, spelling):
        return f"reads as {spelling}, or otherwise"
    num_bad = int(cells.moments(plain(present), spelling)[1].sum())
    return f"reads as {spelling}" + (f", but for {num_bad} values" if num_bad else "")


def _names(categories: object) -> tuple[str, ...]:
    return tuple(cells.levels(np.asarray(list(categories), object)).tolist())  # type: ignore[call-overload]


def _few(values: "pd.Series") -> list[str]:
    return list(dict.fromkeys(map(str, values)))[:VALUES_SHOWN]


def _short(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= 20 else f"{text[:17]}...")


if TYPE_CHECKING:
    import pandas as pd

# ---- how the dates of a column are spelled

LEAST_DATES = 0.95  # of the values, that read as dates where a column is taken as such without being asked to
LEAST_FIRST = 0.8  # of a few of them, below which the others are not looked at
FEW = 50
EITHER_WAY = ("day-month-year", "month-day-year")
UNIX_LIMITS = (1e11, 1e14, 1e17)  # of seconds, milliseconds, microseconds since 1970: the years 5138
LEAST_PERIODS = 1.9  # two years of days, from the first of January to the 31st of December, are two


def date_spelling(present: "pd.Series", has_to_be: bool = False) -> str:
    """How dates are spelled in a column, "" where they are none; numbers since 1970 only where they have to be dates.

    Where no value tells day and month apart, dots mean that the day comes first, and slashes the month.
    """
    if present.dtype.kind == "M":
        return "year-month-day"
    values = plain(present)
    if values.dtype.kind == "f":
        if _share(values, "yearmonthday") == 1:
            return "yearmonthday"
        return list(cells.UNIX)[int(np.searchsorted(UNIX_LIMITS, np.median(np.abs(values))))] if has_to_be else ""
    few = values[:: -(-len(values) // FEW)]
    least_first, least = (1e-9, 1e-9) if has_to_be else (LEAST_FIRST, LEAST_DATES)
    shares = {each: _share(values, each) for each in cells.DATES if _share(few, each) >= least_first}
    if not shares or max(shares.values()) < least:
        return ""
    best = [spelling for spelling in shares if shares[spelling] == max(shares.values())]
    if best == list(EITHER_WAY):
        return EITHER_WAY[0] if np.mean(["." in str(value) for value in few]) > 0.5 else EITHER_WAY[1]
    return "" if best[0] == "yearmonthday" and not has_to_be else best[0]


def is_either_way(present: "pd.Series", spelling: str) -> bool:
    """Day and month could change places in every value, and other dates would come out."""
    if spelling not in EITHER_WAY or present.dtype.kind == "M":
        return False
    one, other = (cells.moments(plain(present), each) for each in EITHER_WAY)
    return not (one[1] | other[1]).any() and bool((one[0] != other[0]).any())


def periods_of(seconds: np.ndarray) -> tuple[str, ...]:
    """Periods of the calendar that the range can carry: it holds two of them, and rows lie at different places in them.

    In less, a period cannot be told from the time that has passed.
    """
    known = seconds[~np.isnan(seconds)]
    if not len(known):
        return ()
    span = known.max() - known.min()
    if span < cells.DAY:  # hours of a day alone
        return ("day",) if len(np.unique(known)) > 2 and known.max() < cells.DAY else ()
    days = {"year": 365.25, "month": 30.4, "week": 7.0, "day": 1.0}
    carried = [period for period, length in days.items() if span >= LEAST_PERIODS * length * cells.DAY]
    return tuple(period for period in carried if np.ptp(cells.phase(known, period)) > 0)


def plain(values: "pd.Series") -> np.ndarray:
    """As the cells of a file come: numbers, times or objects."""
    if values.dtype.kind in "biuf":
        found: np.ndarray = values.to_numpy(np.float64, na_value=np.nan)
        return found
    if values.dtype.kind == "M":
        is_zoned = getattr(values.dt, "tz", None) is not None
        return (values.dt.tz_convert("UTC").dt.tz_localize(None) if is_zoned else values).to_numpy()
    return values.to_numpy(object)


def _share(values: np.ndarray, spelling: str) -> float:
    return 1.0 - float(cells.moments(values, spelling, is_strict=True)[1].mean())
