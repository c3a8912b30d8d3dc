"""What the target of a table is taken as: numbers, counts or classes; and what is worth knowing of it."""

from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from posteria.data import cells
from posteria.data.recognise import number_spelling, plain, stand_in
from posteria.errors import DataError, SettingError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

KINDS = ("regression", "counts", "classes")
KIND_OF = {"number": "regression", "count": "counts", "category": "classes", "ordered": "classes"}  # as taken
MAX_NUMBERED_CLASSES = 20  # a target of labels 0..K-1 or 1..K with more than these is regression
FEWEST_COUNTS = 5  # different values: 0, 1, 2, 3 may as well be names
THIN = 0.25  # share of the commonest count that the largest has at most: what is counted has a tail
MOST_COUNTED = 50.0  # mean of counts that have a likelihood of their own; not measured: larger ones are numbers
RARE, COMMON = 0.05, 0.9  # shares of classes that are worth a word
ROWS_SHOWN, LEAST_TOLD = 5, 20
MANY_ORDERED, SAME_ORDER = 30, 0.9999  # different values, and the correlation of ranks, of what is the target again
LEAST_REPEATED = 5  # rows a value, with which a copy of the target is no chance
FAR, MOST_FAR = 20.0, 0.02  # widths of the middle nine tenths from the median, and the share of values that may be
NEAR_A_BOUND, LEAST_BOUND = 0.1, 0.01  # of a target within 0 and 1; the share of zeros of one that is never below 0
NOT_COUNTS = (
    "the target counts something; if not: --kind classes or regression (in Python likelihood=po.likelihoods.Gaussian())"
)


class Target(NamedTuple):
    kind: str  # one of KINDS
    taken: str  # in the words of a plan
    why: str
    becomes: str


def check_target(target: str, columns: list[str]) -> None:
    if target not in columns:
        near = get_close_matches(str(target), columns, n=3, cutoff=0.5)
        raise DataError(f"no column {target!r}", f"one of {near or columns}", "name the column to predict")


def recognised_target(values: "pd.Series", kind: str | None = None) -> tuple[Target, list[str]]:
    """As `kind` says or its values tell, and notes on what its classes are like; no value is missing.

    Classes are text or booleans, two whole values, or labels 0..K-1 or 1..K with K at most 20; unless these count
    something: whole numbers from 0 on that become rare towards a tail.
    """
    if kind not in (None, *KINDS):
        raise SettingError(f"kind={kind!r}", f"one of {KINDS}")
    if values.empty:
        raise DataError(f"the target {values.name!r} is missing in every row", "rows with a target")
    why = "asked for" if kind else ""
    if kind is None:
        kind, why = _guessed(values)
    if kind == "regression":
        return Target(kind, "number", why, "the number, standardised"), _told_of_numbers(values)
    if kind == "counts":
        note = [] if why == "asked for" else [NOT_COUNTS]
        return Target(kind, "count", why, "negative binomial counts"), note
    return _classes(values, why)


def _guessed(values: "pd.Series") -> tuple[str, str]:
    import pandas as pd

    if values.dtype.kind == "b":
        return "classes", "truth values"
    if isinstance(values.dtype, pd.CategoricalDtype):
        return "classes", "its type"
    if values.dtype.kind not in "iuf":
        if cells.are_codes(values.astype(str)) and values.nunique() <= MAX_NUMBERED_CLASSES:
            return "classes", "codes, which begin with zeros"
        spelling = number_spelling(values)
        share_of_numbers = 1 - cells.numbers(values.to_numpy(object), spelling)[1].mean()
        numbers = f"numbers as {spelling}" if spelling else "numbers"
        return ("regression", numbers) if share_of_numbers > 0.5 else ("classes", "text")  # stray text: refused later
    different, counts = np.unique(values.to_numpy(dtype=np.float64), return_counts=True)
    if (different != np.round(different)).any():
        return "regression", "numbers"
    if len(different) == 2:
        return "classes", "two values"
    if is_counted(different, counts):
        return "counts", "whole numbers from 0, with a tail"
    if different[0] in (0, 1) and (np.diff(different) == 1).all() and len(different) <= MAX_NUMBERED_CLASSES:
        return "classes", f"numbered {different[0]:g} to {different[-1]:g}"
    return "regression", "whole numbers"


def _told_of_numbers(values: "pd.Series") -> list[str]:
    """What a fit of numbers takes at its word, and should be known: mistakes far away, and bounds."""
    if odd := stand_in(values):
        return [f"the target: {odd} looks like a word for missing; if so, leave those cells empty"]
    y, is_bad = cells.numbers(plain(values), number_spelling(values))
    y = y[~is_bad & np.isfinite(y)]
    if len(y) < LEAST_TOLD:
        return []
    low, middle, high = np.quantile(y, [0.05, 0.5, 0.95])
    is_far = np.abs(y - middle) > FAR * (high - low)
    if 0 < is_far.mean() <= MOST_FAR and not may_suit_logs(y):
        far, near = y[is_far], y[~is_far]
        furthest = far[np.abs(far - middle).argmax()]
        return [
            f"the target: {len(far):,} value{'s lie' if len(far) > 1 else ' lies'} far from all others "
            f"({near.min():.4g} to {near.max():.4g}), up to {furthest:.4g}: so few drive a whole fit; where they are "
            'mistakes, leave those cells empty, else quality="balanced" (--quality balanced) gives them less say'
        ]
    is_share = y.min() >= 0 and y.max() <= 1 and y.min() <= NEAR_A_BOUND and y.max() >= 1 - NEAR_A_BOUND
    if is_share or (y.min() == 0 and (y == 0).mean() >= LEAST_BOUND):
        bounds = "within 0 and 1" if is_share else "never below 0"
        return [f"the target is {bounds} here, which a fit does not know: its intervals may reach beyond"]
    return []


def is_counted(different: np.ndarray, counts: np.ndarray) -> bool:
    """Whole numbers from 0 on that become rare towards a tail, and have no gaps where they are common."""
    if different[0] != 0 or len(different) < FEWEST_COUNTS or (different != np.round(different)).any():
        return False
    total = counts.sum()
    if (different * counts).sum() / total > MOST_COUNTED:
        return False
    shares = np.zeros(int(min(different[-1], 1e6)) + 1)
    inside = different < len(shares)
    shares[different[inside].astype(int)] = counts[inside] / total
    middle = int(np.searchsorted(np.cumsum(shares), 0.8)) + 1  # the lower 80 % of the rows
    if (shares[:middle] == 0).mean() > 0.1:
        return False
    mode = int(shares.argmax())
    error = np.sqrt(shares.max() / total)  # of a share
    rises, falls = np.diff(shares[: mode + 1]), np.diff(shares[mode:])
    is_one_hump = (rises > -3 * error).all() and (falls < 3 * error).all()
    is_zero_heavy = shares[0] > 0 and mode > 0 and (falls < 3 * error).all()  # zeros of their own, then a hump
    return bool((is_one_hump or is_zero_heavy) and shares[-1] <= THIN * shares[mode])


def _classes(values: "pd.Series", why: str) -> tuple[Target, list[str]]:
    import pandas as pd

    names, counts = np.unique(cells.levels(values.to_numpy(object)), return_counts=True)
    shares = counts / counts.sum()
    notes = []
    is_typed = isinstance(values.dtype, pd.CategoricalDtype) and bool(values.dtype.ordered)
    is_numbered = values.dtype.kind in "iuf" and len(names) > 2
    taken = "ordered" if is_typed or is_numbered else "category"
    if taken == "ordered":
        other = "" if is_typed else "; --kind regression or counts if they are amounts"
        notes.append(f"the classes may be in an order, of which no method makes use{other}")
    rarest, commonest = int(shares.argmin()), int(shares.argmax())
    if shares[commonest] > COMMON or shares[rarest] < RARE:
        notes.append(
            f"classes are imbalanced: {names[commonest]!r} has {shares[commonest]:.0%} of the rows, "
            f"{names[rarest]!r} has {counts[rarest]:,}"
        )
    folded = [name.casefold() for name in names]
    if alike := sorted(name for name, fold in zip(names, folded) if folded.count(fold) > 1):
        notes.append(f"classes {', '.join(map(repr, alike))} differ in capitals alone: are they the same?")
    return Target("classes", taken, why, f"{len(names)} classes"), notes


def is_copy(feature: "pd.Series", y: "pd.Series") -> bool:
    """Whether a column is the target in other words: values of one and of the other go together, and repeat."""
    num_values, num_targets = feature.nunique(), y.nunique()
    if num_values != num_targets or not 2 <= num_values <= len(y) / LEAST_REPEATED or feature.isna().any():
        return False
    pairs = set(zip(levels_of(feature.to_numpy(object)), levels_of(y.to_numpy(object))))
    return len(pairs) == num_values


def is_monotone(feature: "pd.Series", y: "pd.Series") -> bool:
    """Whether a column is the target on another scale: of many numbers, in the same or the opposite order."""
    if not {feature.dtype.kind, y.dtype.kind} <= set("iuf"):
        return False
    both = feature.notna().to_numpy() & y.notna().to_numpy()  # the index of a frame need not be that of y
    first, second = feature[both], y[both]
    if min(first.nunique(), second.nunique()) < MANY_ORDERED:
        return False
    return bool(abs(np.corrcoef(first.rank().to_numpy(), second.rank().to_numpy())[0, 1]) > SAME_ORDER)


def target_values(values: "pd.Series", kind: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """y, and the names of classes: float64 in own units, or int32 positions in the names."""
    return _class_target(values) if kind == "classes" else _real_target(values, kind)


def _real_target(values: "pd.Series", kind: str) -> tuple[np.ndarray, tuple[str, ...]]:
    y = numbers_of(values, kind)
    if y.min() == y.max():
        raise DataError(f"the target {values.name!r} is {y[0]} in every row", "a target that varies")
    if kind == "counts" and ((y < 0) | (y != np.round(y))).any():
        odd = y[(y < 0) | (y != np.round(y))][0]
        raise DataError(f"the target {values.name!r} holds {odd:g}", "counts: 0, 1, 2, ...", "take kind regression")
    return y, ()


def numbers_of(values: "ArrayLike | pd.Series", kind: str = "regression") -> np.ndarray:
    """Targets as float64, of text too; refused where one is missing or no number."""
    import pandas as pd

    values = values if isinstance(values, pd.Series) else np.asarray(values)
    if isinstance(values, np.ndarray):
        if values.dtype.kind in "biuf":
            return values.astype(np.float64)
        values = pd.Series(values, name="y")
    y, is_bad = cells.numbers(plain(values), number_spelling(values))
    bad = np.flatnonzero(is_bad | np.isnan(y))
    if len(bad):
        raise DataError(
            f"the target {values.name!r} holds {str(values.iloc[bad[0]])!r} "
            f"({len(bad)} such values, first rows {bad[:ROWS_SHOWN].tolist()})",
            f"finite numbers for {kind}, below {cells.LARGEST:g}",
            'correct them, or pass kind="classes"',
        )
    return y


def _class_target(values: "pd.Series") -> tuple[np.ndarray, tuple[str, ...]]:
    is_number = values.dtype.kind in "iuf"
    different, y = np.unique(values.to_numpy() if is_number else levels_of(values), return_inverse=True)
    if len(different) == 1:
        raise DataError(f"the target {values.name!r} is {str(different[0])!r} in every row", "at least two classes")
    if len(different) == len(values) > 2:
        raise DataError(
            f"the target {values.name!r} is different in every row", "classes that repeat", 'is it kind="regression"?'
        )
    return y.astype(np.int32), tuple(levels_of(different).tolist())


def levels_of(values: object) -> np.ndarray:
    """As text: 1 and 1.0 are one, since a column of whole numbers turns floating when one is missing."""
    return cells.levels(np.asarray(values, object))


# ---- targets that may be better taken on a log scale: prices, durations, concentrations are never negative, and vary
# by shares. Box & Cox 1964

TARGET_SCALES = ("auto", "linear", "log")
SKEWED = 1.0  # skewness of the target from which on logarithms are tried
FEWEST_SKEWED = 50  # rows
ON_LOG_SCALE = (
    "the target is taken on a log scale: it is positive and skewed, and rows left out do not tell against it; "
    'if not: target_scale="linear" (--target-scale linear)'
)


def may_suit_logs(y: np.ndarray) -> bool:
    """Positive, skewed, and less so on a log scale."""
    if y.ndim != 1 or len(y) < FEWEST_SKEWED or y.min() <= 0:
        return False
    skewness = _skewness(y)
    return skewness >= SKEWED and abs(_skewness(np.log(y))) <= skewness


def _skewness(values: np.ndarray) -> float:
    centred = values - values.mean()
    return float((centred**3).mean() / max((centred**2).mean() ** 1.5, 1e-300))
