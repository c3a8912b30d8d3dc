"""How the dates of a column are spelled."""

from typing import TYPE_CHECKING

import numpy as np

from posteria.data import cells

if TYPE_CHECKING:
    import pandas as pd

LEAST_DATES = 0.95  # of the values, that read as dates where a column is taken as such without being asked to
LEAST_FIRST = 0.8  # of a few of them, below which the others are not looked at
FEW = 50
EITHER_WAY = ("day-month-year", "month-day-year")
UNIX_LIMITS = (1e11, 1e14, 1e17)  # of seconds, milliseconds, microseconds since 1970: the years 5138


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


LEAST_PERIODS = 1.9  # two years of days, from the first of January to the 31st of December, are two


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
