"""Test rows as they came and after every shift at every severity, for a comparison: the same rows for every method."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from posteria.data.arrays import is_frame, num_rows, rows
from posteria.errors import DataError, SettingError
from posteria.shift.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from posteria.shift.table_shifts import TABLE_SHIFTS, shift_table

AS_THEY_CAME = "as they came"
OF_IMAGES = ("gaussian_noise", "defocus_blur", "fog", "contrast", "pixelate")  # one or two of each family
MOST_ROWS, MOST_IMAGES = 1000, 300  # test rows that are shifted
NUMBERS = ("number", "count")  # how columns are taken that noise, drift and tilt are for
WORDS = ("category", "ordered")  # and those that an unseen value is for
KEY = 0
ABOUT = {
    "noise": "numbers are measured less well: noise of 0.1 to 1 standard deviation",
    "missing": "runs of rows lack values in a third of the columns: 5 to 50 % of the rows",
    "drift": "a third of the columns of numbers have grown: by 10 to 200 %",
    "unseen": "a third of the columns of categories hold a value that was never seen: 5 to 100 % of rows",
    "tilt": "rows far along one direction are more common: their mean moves by 0.25 to 2 standard deviations",
}


class Condition(NamedTuple):
    name: str  # of the shift; AS_THEY_CAME
    severity: int  # 1 to 5; 0 as they came
    x: Any  # a network's inputs
    rows: np.ndarray  # which of the test rows these are, some of them more than once


@dataclass(frozen=True)
class Asked:
    """Which shifts: `names` (empty: all that such rows can have), and sizes of attacks (empty: none)."""

    names: tuple[str, ...] = ()
    sizes: tuple[float, ...] = ()
    is_shifted: bool = True  # False: attacks alone


class Conditions(NamedTuple):
    found: list[Condition]
    left_out: dict[str, str]  # shifts that such rows cannot have, and why


def asked(shift: Any = None, attack: Any = None) -> Asked | None:
    """`shift` is True or names, `attack` sizes; None where neither is asked for."""
    known = (*TABLE_SHIFTS, *CORRUPTIONS)
    names = [shift] if isinstance(shift, str) else [] if isinstance(shift, bool) or shift is None else list(shift)
    if unknown := [name for name in names if name not in known]:
        raise SettingError(f"the shift is {unknown[0]!r}", f"some of {', '.join(known)}", "True takes all that apply")
    sizes = [attack] if isinstance(attack, int | float) and not isinstance(attack, bool) else list(attack or [])
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int | float | np.number) or not 0 < size < float("inf"):
            raise SettingError(f"the size of an attack is {size!r}", "a finite number above 0", "as 0.1")
    if not names and shift is not True and not sizes:
        return None
    sizes = sorted({float(size) for size in sizes})
    return Asked(tuple(dict.fromkeys(names)), tuple(sizes), bool(names) or shift is True)


def conditions(
    x: Any,
    inputs: Callable[[Any], Any],
    names: Sequence[str],
    taken: Mapping[str, str] | None = None,
    chosen: np.ndarray | None = None,
) -> Conditions:
    """`x` are test rows as they came (a frame, or an array), of which `inputs` makes a network's; `taken` says how
    columns of a frame are taken; `chosen` are the rows that are scored."""
    chosen = some_rows(x) if chosen is None else chosen
    came = x.iloc[chosen] if is_frame(x) else rows(x, chosen)
    found = [Condition(AS_THEY_CAME, 0, inputs(came), chosen)]
    left_out: dict[str, str] = {}
    for name in names or _applicable(x):
        try:
            shifted = [_shifted(came, name, severity, taken) for severity in SEVERITIES]
            found += [
                Condition(name, severity, inputs(rows_then), chosen[places])
                for severity, (rows_then, places) in zip(SEVERITIES, shifted)
            ]
        except DataError as error:
            left_out[name] = str(error).strip().splitlines()[0]
    return Conditions(found, left_out)


def some_rows(x: Any) -> np.ndarray:
    """All test rows, or as many as are shifted; in their order."""
    count = len(x) if is_frame(x) else num_rows(x)
    most = MOST_IMAGES if is_images(x) else MOST_ROWS
    return np.sort(np.random.default_rng(KEY).permutation(count)[:most])


def is_images(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.ndim in (3, 4)


def _applicable(x: Any) -> tuple[str, ...]:
    return OF_IMAGES if is_images(x) else tuple(TABLE_SHIFTS)


def _shifted(came: Any, name: str, severity: int, taken: Mapping[str, str] | None) -> tuple[Any, np.ndarray]:
    if name in CORRUPTIONS:
        if not is_images(came):
            raise DataError(f"rows of a table, for {name}", "images", "take " + ", ".join(TABLE_SHIFTS))
        return corrupt(came, name, severity, KEY), np.arange(len(came))
    if is_images(came):
        raise DataError(f"images, for {name}", "rows of a table", "take corruptions of images")
    if not is_frame(came) or name == "missing":
        return shift_table(came, name, severity, KEY)
    kinds = WORDS if name == "unseen" else NUMBERS
    columns = [column for column in came.columns if (taken or {}).get(str(column), kinds[0]) in kinds]
    if not columns:
        wanted = "a column of categories" if name == "unseen" else "a column of numbers"
        raise DataError(f"a table without {wanted}", wanted, "take another shift")
    part = came[columns]
    part = part.astype(object) if name == "unseen" else part.apply(_as_numbers)
    changed = shift_table(part, name, severity, KEY)
    if name == "tilt":
        return came.iloc[changed.rows], changed.rows
    whole = came.copy()
    for column in columns:
        whole[column] = changed.x[column]
    return whole, changed.rows


def _as_numbers(values: Any) -> Any:
    import pandas as pd

    return pd.to_numeric(values, errors="coerce").astype(float)
