"""A table with a target column: x and y as numbers, and the encoder that does the same to new rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from posteria.data.encode import Encoded, Encoder
from posteria.data.frames import as_frame
from posteria.data.table_file import read_frame
from posteria.data.table_plan import TablePlan, plan_table
from posteria.data.table_target import KIND_OF, target_values

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Table:
    """x (n, feature) float64; y (n,) is float64 in its own units, or int32 positions in `class_names`."""

    x: np.ndarray
    y: np.ndarray
    kind: str  # "regression", "counts" or "classes"
    target: str
    class_names: tuple[str, ...]  # empty for numbers
    encoder: Encoder
    plan: TablePlan

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
        return self.encoder.encode(as_frame(frame).drop(columns=self.target, errors="ignore"))


def read_csv(path: str | Path, target: str, kind: str | None = None, as_: Mapping[str, str] = {}) -> Table:
    """A file as a Table; see `read_frame` for what is understood and `from_frame` for the kind."""
    return from_frame(read_frame(path), target, kind, as_)


def from_frame(
    frame: "pd.DataFrame",
    target: str,
    kind: str | None = None,
    as_: Mapping[str, str] = {},
    plan: TablePlan | None = None,
) -> Table:
    """A frame as a Table; rows without a target are left out. Medians, levels and means come from these rows: pass the
    training rows alone. `plan` is how the columns are taken, where that was decided on more rows.

    Unless `kind` says so, the target is classes when it is text or booleans, has two whole values, or numbers its
    labels 0..K-1 or 1..K with K at most 20; counts when whole numbers from 0 on have a tail; regression otherwise.
    """
    frame = as_frame(frame)
    plan = plan_table(frame, target, kind, as_) if plan is None else plan
    frame = frame[frame[target].notna().to_numpy()]
    assert plan.target is not None
    kind = kind or KIND_OF[plan.target.taken]
    y, class_names = target_values(frame[target], kind)
    features = frame.drop(columns=target)
    encoder, x = fit_encoder(features, plan, y, len(class_names))
    return Table(x, y, kind, target, class_names, encoder, plan)


def fit_encoder(
    features: "pd.DataFrame", plan: TablePlan | None, y: np.ndarray, num_classes: int
) -> tuple[Encoder, np.ndarray]:
    """The encoder of training rows, and these rows encoded."""
    meant = to_be_meant(y, num_classes)
    encoder = Encoder.fit(features, plan, meant)
    return encoder, encoder.encode_training(features, meant)


def to_be_meant(y: np.ndarray, num_classes: int) -> np.ndarray:
    """The columns whose means many-valued categories become: targets, the second of two classes, or each of more."""
    if num_classes == 0:
        return np.asarray(y, np.float64)
    return (y == 1).astype(np.float64) if num_classes == 2 else np.eye(num_classes)[y]
