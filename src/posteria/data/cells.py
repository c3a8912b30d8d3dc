"""The values of a table as numbers, for the package and for its exports, which carry this file along: NumPy alone.

A value is a number, a truth value or text; or missing: None, NaN, or what pandas has for either.
"""

import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

LARGEST = 1e150  # its square is finite: rows are standardised by their squares
MISSING_LEVEL = "(missing)"
VALUES_SHOWN = 5
_WORDS = "?|<NA>|#N/A|#N/A N/A|#NA|N/A|n/a|NA|NaN|nan|-NaN|-nan|None|NULL|null|1.#IND|-1.#IND|1.#QNAN|-1.#QNAN"
MISSING = frozenset(("", *_WORDS.split("|")))  # how text says that a value is missing: pandas' own, and a question mark
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?inf(inity)?", re.ASCII | re.IGNORECASE)
WHOLE = re.compile(r"[-+]?\d{1,400}", re.ASCII)
PADDED = re.compile(r"0\d+", re.ASCII)  # a code, as 01067, and no number
TRUTHS = {"true": True, "false": False}
CURRENCY = (
    r"(?:[$€£¥₹₽₩₺₴₪฿]|R\$|US\$|kr|zł|Rs\.?|"
    "AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HUF|INR|JPY|NOK|NZD|PLN|SEK|USD|ZAR)"
)
UNIT = r"(?:\s?[A-Za-zµ°²³/ .]{1,12})"
_BEFORE = rf"(?P<sign>[-+]?)\s?(?:{CURRENCY}|%)?\s?(?P<other>[-+]?)"
_AFTER = rf"\s?(?:{CURRENCY}|%)?{UNIT}?"
SPELLINGS = {  # of numbers in text, other than plain; what stands in a spelling after these is the unit, one for all
    "1,234.5": re.compile(rf"{_BEFORE}(?P<whole>\d{{1,3}}(?:,\d{{3}})+|\d+)(?P<part>\.\d+)?{_AFTER}", re.ASCII),
    "1.234,5": re.compile(rf"{_BEFORE}(?P<whole>\d{{1,3}}(?:\.\d{{3}})+|\d+)(?P<part>,\d+)?{_AFTER}", re.ASCII),
    "1 234,5": re.compile(rf"{_BEFORE}(?P<whole>[1-9]\d?\d?(?:[ ']\d{{3}})+|\d+)(?P<part>[.,]\d+)?{_AFTER}", re.ASCII),
}
STYLE_WIDTH = len("1,234.5")
_COMMAS = re.compile(r"[-+]?(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d+)?", re.ASCII)  # thousands apart by points
# spaces, an apostrophe and a minus as typesetters have them
_TIDY = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'", "\u2212": "-"})


def is_missing(value: Any) -> bool:
    if isinstance(value, float | np.floating):
        return bool(value != value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def numbers(values: np.ndarray, spelling: str = "") -> tuple[np.ndarray, np.ndarray]:
    """float64 with NaN where a value is missing, and which values are no finite numbers that can be computed with."""
    if values.dtype.kind in "biuf":
        found = values.astype(np.float64)
        return found, np.abs(found) > LARGEST
    present = np.array([not is_missing(value) for value in values], bool)
    found = np.array([_number(value, spelling) if there else np.nan for value, there in zip(values, present)], float)
    return found, (np.abs(found) > LARGEST) | (present & np.isnan(found))


def _number(value: Any, spelling: str) -> float:
    """NaN where it is none, or has another unit."""
    if isinstance(value, str):
        text = tidy(value)
        is_of_thousands = "." in text and spelling.startswith("1.")  # and no decimal point, whatever stands beside it
        if spelling and (is_of_thousands or SPELLINGS[spelling[:STYLE_WIDTH]].fullmatch(text)):
            return _spelled(text, spelling)
        return float(text) if NUMBER.fullmatch(text) else np.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _spelled(text: str, spelling: str) -> float:
    style, unit = spelling[:STYLE_WIDTH], spelling[STYLE_WIDTH + 1 :]
    found = SPELLINGS[style].fullmatch(text)
    if found is None or unit_of(text) not in ((unit,) if unit == "%" else ("", unit)):
        return np.nan
    whole = re.sub(r"[,.' ]", "", found["whole"])
    number = f"{found['sign']}{found['other']}{whole}{(found['part'] or '').replace(',', '.')}"
    return float(number) if NUMBER.fullmatch(number) else np.nan


def tidy(text: str) -> str:
    return text.translate(_TIDY).strip()


def unit_of(text: str) -> str:
    """What of a number in text is no part of the number: "sq ft" of "1,200 sq ft", "$" of "-$5"."""
    return re.sub(r"^[-+\s]*|(?<!\w)[-+]|\d[\d.,' ]*", "", tidy(text), flags=re.ASCII).strip()


def levels(values: np.ndarray) -> np.ndarray:
    """As text; 1 and 1.0 are one level, since a column of whole numbers turns floating when one is missing."""
    return np.array([_level(value) for value in values.astype(object)], object)


def known_levels(values: np.ndarray, known: Iterable[str]) -> np.ndarray:
    """As levels, where a code that has lost its leading zeros, or has got some, is the known one that is meant."""
    found, known = levels(values), list(known)
    strange = {level for level in found.tolist() if WHOLE.fullmatch(level)}.difference(known)
    if not strange or not any(WHOLE.fullmatch(level) for level in known):
        return found
    meant: dict[str, list[str]] = {}
    for level in known:
        meant.setdefault(level.lstrip("0"), []).append(level)
    one = {level: meant[level.lstrip("0")][0] for level in strange if len(meant.get(level.lstrip("0"), ())) == 1}
    return np.array([one.get(level, level) for level in found], object)


def _level(value: Any) -> str:
    if is_missing(value):
        return MISSING_LEVEL
    if isinstance(value, float | np.floating) and value.is_integer():
        return str(int(value))
    return str(value).strip()


# ---- columns as numbers


def encoded(column: Mapping[str, Any], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A column as it was fitted, of new values: (n, feature), and which values it did not know (n,).

    A ValueError where they cannot be taken as what the column was.
    """
    return ENCODINGS[column["type"]](column, values)


def _encoded_number(column: Mapping[str, Any], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Missing values take the median; with an indicator, a second column says which."""
    found, is_bad = numbers(values, column.get("spelling", ""))
    if column.get("is_lenient"):
        found = np.where(is_bad, np.nan, found)
    elif is_bad.any():
        raise ValueError(_told(column, values, is_bad, f"finite numbers, below {LARGEST:g}"))
    return _filled(found, column), is_bad


def _encoded_category(column: Mapping[str, Any], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One 0/1 column a known level, all zeros for any other."""
    known = np.array(list(column["levels"]), object)
    is_level = (known_levels(values, column["levels"])[:, None] == known[None, :]).astype(np.float64)
    return is_level, ~is_level.any(axis=1)


def _encoded_ordered(column: Mapping[str, Any], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The place of a level among all; for any other, as for missing ones, that of the median."""
    places = {level: float(place) for place, level in enumerate(column["levels"])}
    found = known_levels(values, column["levels"])
    at = np.array([places.get(level, np.nan) for level in found])
    return _filled(at, column), np.isnan(at) & (found != MISSING_LEVEL)


def _encoded_means(column: Mapping[str, Any], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The means of the targets of rows with that level; those of all rows for any other."""
    places = {level: place for place, level in enumerate(column["levels"])}
    at = np.array([places.get(level, -1) for level in known_levels(values, column["levels"])])
    means = np.array([*column["means"], column["overall"]], np.float64)  # the last is for any other, at -1
    return means[at], at < 0


def _encoded_text(column: Mapping[str, Any], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Words, each added to or taken from one of some columns by its hash, over the root of their number.

    Weinberger et al. 2009. A last column has the logarithm of the number of words.
    """
    size = column["num_hashes"]
    of_words: dict[str, tuple[int, float]] = {}
    found = np.zeros((len(values), size + 1))
    for row, value in enumerate(values):
        words = [] if is_missing(value) else words_of(value)
        for word in words:
            if word not in of_words:
                code = zlib.crc32(word.encode())
                of_words[word] = (code >> 1) % size, 1.0 if code & 1 else -1.0
            place, sign = of_words[word]
            found[row, place] += sign
        found[row] /= max(1.0, np.sqrt(len(words)))
        found[row, size] = np.log1p(len(words))
    return found, np.zeros(len(values), bool)


def words_of(value: Any) -> list[str]:
    return re.findall(r"\w+", str(value).lower())


def _encoded_date(column: Mapping[str, Any], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Days since the first training row, and waves in step with the periods of the calendar; 0 where it is missing."""
    seconds, is_bad = moments(values, column["spelling"])
    if is_bad.mean() > MOST_UNREAD:
        raise ValueError(_told(column, values, is_bad, f"dates ({column['spelling']})"))
    days = _filled((seconds - column["first"]) / DAY, column)
    waves = [PERIODS[period](seconds) for period in column["periods"]]
    return np.concatenate([days, *(np.nan_to_num(wave) for wave in waves)], axis=1), is_bad


def _filled(found: np.ndarray, column: Mapping[str, Any]) -> np.ndarray:
    is_nan = np.isnan(found)
    filled = np.where(is_nan, column["median"], found)
    return np.stack([filled, is_nan], axis=1) if column["has_indicator"] else filled[:, None]


def _told(column: Mapping[str, Any], values: np.ndarray, is_bad: np.ndarray, wanted: str) -> str:
    """What is wrong with which values: "column 'a' holds ['x'] (1 values, first rows [3]); wanted ..."."""
    shown = list(dict.fromkeys(map(str, values[is_bad])))[:VALUES_SHOWN]
    rows = np.flatnonzero(is_bad)[:VALUES_SHOWN].tolist()
    return f"column {column['name']!r} holds {shown} ({is_bad.sum()} values, first rows {rows}); wanted {wanted}"


ENCODINGS: dict[str, Callable[[Mapping[str, Any], np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "number": _encoded_number,
    "category": _encoded_category,
    "ordered": _encoded_ordered,
    "means": _encoded_means,
    "text": _encoded_text,
    "date": _encoded_date,
}


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


# ---- dates

DAY = 86_400.0  # seconds
MOST_UNREAD = 0.5  # of new values: with more, dates are spelled in another way
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
CENTURY_ENDS = 68  # of years in two digits: 69 is 1969, as POSIX has it
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:[.,]\d+)?))?\s?(?P<half>[ap]m)?"
_TIME = rf"(?:(?:T|,?\s+){_CLOCK}\s?(?P<zone>Z|(?:UTC|GMT)?(?:[-+]\d{{1,2}}(?::?\d\d)?)?)?)?"
_NAME = rf"(?P<name>{'|'.join(MONTHS)})[a-z]*\.?"
_YEAR = r"(?P<year>\d{4}|\d{2})"
_DAY, _MONTH = r"(?P<day>\d{1,2})", r"(?P<month>\d{1,2})"
DATES = {  # how they are spelled
    "year-month-day": re.compile(rf"(?P<year>\d{{4}})[-/.]{_MONTH}[-/.]{_DAY}{_TIME}", re.I | re.A),
    "day-month-year": re.compile(rf"{_DAY}[-/. ]\s?{_MONTH}[-/. ]\s?{_YEAR}{_TIME}", re.I | re.A),
    "month-day-year": re.compile(rf"{_MONTH}[-/. ]\s?{_DAY}[-/. ]\s?{_YEAR}{_TIME}", re.I | re.A),
    "day-name-year": re.compile(
        rf"(?:[a-z]+,?\s)?{_DAY}(?:\.|st|nd|rd|th)?[- ]?{_NAME}[-, ]*{_YEAR}{_TIME}", re.I | re.A
    ),
    "name-day-year": re.compile(rf"(?:[a-z]+,?\s)?{_NAME}[- ]?{_DAY}(?:st|nd|rd|th)?[-, ]+{_YEAR}{_TIME}", re.I | re.A),
    "yearmonthday": re.compile(r"(?P<year>(?:19|20)\d\d)(?P<month>\d{2})(?P<day>\d{2})", re.A),
    "year-month": re.compile(rf"(?P<year>\d{{4}})[-/]{_MONTH}", re.A),
    "name-year": re.compile(rf"{_NAME}[-, ]+{_YEAR}", re.I | re.A),
    "hour:minute": re.compile(_CLOCK, re.I | re.A),
}
CLEAR = ("year-month-day", "day-name-year", "name-day-year")  # each reads in one way alone
UNIX = {"unix seconds": 1.0, "unix milliseconds": 1e-3, "unix microseconds": 1e-6, "unix nanoseconds": 1e-9}


def moments(values: np.ndarray, spelling: str, is_strict: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Seconds since 1970 (UTC where a zone is given), NaN where one is missing, and which values are no dates.

    Other spellings that read in one way alone are understood too, unless it is strict.
    """
    if values.dtype.kind == "M":
        found = values.astype("datetime64[us]").astype(np.int64) / 1e6
        return np.where(np.isnat(values), np.nan, found), np.zeros(len(values), bool)
    if spelling in UNIX:
        found, is_bad = numbers(values)
        return np.where(is_bad, np.nan, found) * UNIX[spelling], is_bad
    spellings = (spelling,) if is_strict else (spelling, *CLEAR)
    known = {value: _moment(value, spellings) for value in {_key(value) for value in values}}
    found = np.array([known[_key(value)] for value in values], np.float64)
    return found, np.isnan(found) & np.array([not is_missing(value) for value in values], bool)


def _key(value: Any) -> Any:
    """One for all that are missing, which may not be equal to themselves; 20240131.0 is 20240131."""
    return None if is_missing(value) else int(value) if isinstance(value, float) and value.is_integer() else value


def _moment(value: Any, spellings: tuple[str, ...]) -> float:
    if value is None:
        return np.nan
    if hasattr(value, "isoformat"):  # a date, a datetime, a time, or pandas' own
        value = value.isoformat()
    text = str(value).strip()
    for spelling in spellings:
        if spelling in DATES and (match := DATES[spelling].fullmatch(text)):
            return _seconds(match.groupdict())
    return np.nan


def _seconds(parts: Mapping[str, str | None]) -> float:
    """NaN for the 31st of February."""
    year, month, day = parts.get("year") or "1970", parts.get("month") or "1", parts.get("day") or "1"
    if len(year) == 2:
        year = f"{'20' if int(year) <= CENTURY_ENDS else '19'}{year}"
    number = MONTHS.index(str(parts["name"]).lower()) + 1 if parts.get("name") else int(month)
    hour, minute = int(parts.get("hour") or 0), int(parts.get("minute") or 0)
    if half := parts.get("half"):
        hour = hour % 12 + (12 if half.lower() == "pm" else 0)
    second = float((parts.get("second") or "0").replace(",", "."))
    try:
        days = np.datetime64(f"{year}-{number:02d}-{int(day):02d}").astype(np.int64)
    except ValueError:
        return np.nan
    if hour > 23 or minute > 59 or second >= 61:
        return np.nan
    return float(days * DAY + 3600 * hour + 60 * minute + second - _ahead(parts.get("zone") or ""))


def _ahead(zone: str) -> float:
    """Seconds before UTC: of "", "Z", "+01:00", "-0530" or "GMT+1"."""
    sign, hours, minutes = re.fullmatch(r"(?:Z|UTC|GMT)?([-+]?)(\d{0,2}):?(\d\d)?", zone, re.I).groups()  # type: ignore
    return float(f"{sign}1") * (3600 * int(hours or 0) + 60 * int(minutes or 0))


def phase(seconds: np.ndarray, period: str) -> np.ndarray:
    """How far into the year, the month, the week (from Monday) or the day, 0 to 1."""
    if period == "day":
        return np.mod(seconds, DAY) / DAY
    if period == "week":
        return np.mod(seconds / DAY + 3.0, 7.0) / 7.0  # the first of 1970 was a Thursday
    unit = {"year": "Y", "month": "M"}[period]
    began = (
        np.where(np.isnan(seconds), 0, seconds).astype(np.int64).astype("datetime64[s]").astype(f"datetime64[{unit}]")
    )
    ended = began + np.array(1, f"timedelta64[{unit}]")
    first, last = (each.astype("datetime64[s]").astype(np.int64) for each in (began, ended))
    return (seconds - first) / (last - first)


def _waves(period: str, harmonics: int) -> Callable[[np.ndarray], np.ndarray]:
    def features(seconds: np.ndarray) -> np.ndarray:
        angles = 2 * np.pi * phase(seconds, period)[:, None] * np.arange(1, harmonics + 1)
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

    return features


def _weekdays(seconds: np.ndarray) -> np.ndarray:
    """A 0/1 column a day: what happens on Sundays is no wave."""
    return (np.floor(7 * phase(seconds, "week"))[:, None] == np.arange(7)).astype(np.float64)


PERIODS = {"year": _waves("year", 2), "month": _waves("month", 1), "week": _weekdays, "day": _waves("day", 2)}


# ---- text


def of_texts(texts: Iterable[Any], known: Iterable[str] = ()) -> np.ndarray:
    """What a column of a CSV file holds, as `read_frame` reads it: numbers or truth values if all are, otherwise text,
    as codes are.

    A known level is one, also where it reads as a word for what is missing.
    """
    kept = set(known)
    values = [_text(text, kept) for text in texts]
    there = [value for value in values if value is not None]
    if are_codes(there):
        return np.array(values, object)
    if len(there) == len(values) and all(WHOLE.fullmatch(value.strip()) for value in there):
        return np.array([int(value) for value in there], object)
    if there and all(NUMBER.fullmatch(value.strip()) for value in there):
        return np.array([np.nan if value is None else float(value) for value in values])
    if there and all(value.lower() in TRUTHS for value in there):
        return np.array([None if value is None else TRUTHS[value.lower()] for value in values], object)
    return np.array(values, object)


def are_codes(texts: Iterable[str]) -> bool:
    """Whole numbers of which some begin with zeros, which a number would lose."""
    stripped = [text.strip() for text in texts]
    return any(map(PADDED.fullmatch, stripped)) and all(map(WHOLE.fullmatch, stripped))


def with_points(texts: Iterable[Any]) -> list[Any]:
    """Decimal points for commas, and none between thousands, of a column in which every value is then a number; else
    as it is."""
    texts = list(texts)
    if all(text is None or text.strip() in MISSING or _COMMAS.fullmatch(text.strip()) for text in texts):
        return [text if text is None else text.replace(".", "").replace(",", ".") for text in texts]
    pointed = [text if text is None else text.replace(",", ".") for text in texts]
    is_number = all(text is None or text.strip() in MISSING or NUMBER.fullmatch(text.strip()) for text in pointed)
    return pointed if is_number else texts


def _text(text: Any, kept: set[str]) -> str | None:
    if text is None or (text.lstrip() in MISSING and text.strip() not in kept):
        return None
    return text.lstrip()
