"""A table with a target column: x and y as numbers, and the encoder that does the same to new rows."""

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from posteria.data.cells import LARGEST
from posteria.data.csv_file import read_frame
from posteria.data.encode import Encoded, Encoder
from posteria.errors import DataError, SettingError

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("regression", "classes")
MAX_NUMBERED_CLASSES = 20  # a target of labels 0..K-1 or 1..K with more than these is regression
ROWS_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Table:
    """x (n, feature) float64; y (n,) is float64 in its own units, or int32 positions in `class_names`."""

    x: np.ndarray
    y: np.ndarray
    kind: str  # "regression" or "classes"
    target: str
    class_names: tuple[str, ...]  # empty for regression
    encoder: Encoder

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the frame that are used."""
        return tuple(column.name for column in self.encoder.columns)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The columns of x."""
        return self.encoder.feature_names

    def encode(self, frame: "pd.DataFrame") -> Encoded:
        """New rows as x; the target may be among the columns or not."""
        return self.encoder.encode(frame.drop(columns=self.target, errors="ignore"))


def read_csv(path: str | Path, target: str, kind: str | None = None) -> Table:
    """A CSV file as a Table; see `read_frame` for what is understood and `from_frame` for the kind."""
    return from_frame(read_frame(path), target, kind)


def from_frame(frame: "pd.DataFrame", target: str, kind: str | None = None) -> Table:
    """A frame as a Table. Its medians and levels come from these rows: pass the training rows alone.

    Unless `kind` says so, the target is classes when it is text or booleans, has two whole values, or numbers its
    labels 0..K-1 or 1..K with K at most 20; regression otherwise.
    """
    if kind not in (None, *KINDS):
        raise SettingError(f"kind={kind!r}", f"one of {KINDS}")
    if target not in frame.columns:
        columns = list(map(str, frame.columns))
        near = get_close_matches(str(target), columns, n=3, cutoff=0.5)
        raise DataError(f"no column {target!r}", f"one of {near or columns}", "name the column to predict")
    values = frame[target]
    _refuse_missing(values)
    kind = kind or _guess_kind(values)
    y, class_names = _regression_target(values) if kind == "regression" else _class_target(values)
    features = frame.drop(columns=target)
    encoder = Encoder.fit(features)
    return Table(encoder.encode(features).x, y, kind, target, class_names, encoder)


def _refuse_missing(values: "pd.Series") -> None:
    missing = np.flatnonzero(values.isna())
    if len(missing):
        raise DataError(
            f"the target {values.name!r} is missing in {len(missing)} rows (first {missing[:ROWS_SHOWN].tolist()})",
            "a target in every row",
            "drop those rows",
        )


def _guess_kind(values: "pd.Series") -> str:
    import pandas as pd

    if values.dtype.kind == "b":
        return "classes"
    if values.dtype.kind not in "iuf":
        share_of_numbers = pd.to_numeric(values.astype(str), errors="coerce").notna().mean()
        return "regression" if share_of_numbers > 0.5 else "classes"  # numbers with stray text: refused below
    different = np.unique(values.to_numpy(dtype=np.float64))
    if (different != np.round(different)).any():
        return "regression"
    numbered = different[0] in (0, 1) and (np.diff(different) == 1).all() and len(different) <= MAX_NUMBERED_CLASSES
    return "classes" if numbered or len(different) == 2 else "regression"


def _regression_target(values: "pd.Series") -> tuple[np.ndarray, tuple[str, ...]]:
    import pandas as pd

    y = pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    bad = np.flatnonzero(~(np.abs(y) <= LARGEST))  # NaN too
    if len(bad):
        raise DataError(
            f"the target {values.name!r} holds {str(values.iloc[bad[0]])!r} "
            f"({len(bad)} such values, first rows {bad[:ROWS_SHOWN].tolist()})",
            f"finite numbers for regression, below {LARGEST:g}",
            'correct them, or pass kind="classes"',
        )
    if y.min() == y.max():
        raise DataError(f"the target {values.name!r} is {y[0]} in every row", "a target that varies")
    return y, ()


def _class_target(values: "pd.Series") -> tuple[np.ndarray, tuple[str, ...]]:
    is_text = values.dtype.kind not in "biuf"
    different, y = np.unique(values.astype(str).str.strip() if is_text else values.to_numpy(), return_inverse=True)
    if len(different) == 1:
        raise DataError(f"the target {values.name!r} is {str(different[0])!r} in every row", "at least two classes")
    if len(different) == len(values) > 2:
        raise DataError(
            f"the target {values.name!r} is different in every row", "classes that repeat", 'is it kind="regression"?'
        )
    return y.astype(np.int32), tuple(str(each) for each in different)
