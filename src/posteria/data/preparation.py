"""A user's rows as a network wants them, the same way for new rows as for the first; and what is odd about new ones."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from posteria.data import cells
from posteria.data.arrays import Data, check_x, is_frame, num_rows
from posteria.data.encode import Encoded, Encoder, told_of
from posteria.data.frames import as_frame
from posteria.data.standardise import NUM_BINS, Bins, Standardiser
from posteria.data.table_file import read_frame
from posteria.data.table_plan import TablePlan, plan_table
from posteria.data.table_target import KIND_OF, numbers_of, target_values
from posteria.errors import DataError
from posteria.tree import Json

if TYPE_CHECKING:
    import pandas as pd

FAR = 0.5  # of the range of a column in the fit, beyond that range


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


@dataclass(frozen=True, eq=False)
class Preparation:
    """Columns encoded (of a frame) and standardised (of a table, not of images); real targets standardised."""

    kind: str  # "regression", "counts" (which stay as they are) or "classes"
    target: str  # the name of y, "" where it has none
    class_names: tuple[str, ...]  # empty for numbers
    encoder: Encoder | None  # None: x comes as arrays
    x: Standardiser | None
    y: Standardiser | None  # None for classes
    lowest: np.ndarray  # of each feature among the training rows, in its own units; empty where x is no table
    highest: np.ndarray
    bins: Bins | None = None  # piecewise-linear features beside the columns
    plan: TablePlan | None = None  # how the columns of a frame were taken

    @classmethod
    def from_table(
        cls, frame: "pd.DataFrame", target: str, kind: str | None = None, as_: Mapping[str, str] = {}
    ) -> "Preparation":
        """As the training rows ask for; see `data.from_frame` for how the kind is guessed."""
        return cls.from_encoded(from_frame(frame, target, kind, as_))

    @classmethod
    def from_encoded(cls, table: Table) -> "Preparation":
        """The same, of rows already encoded."""
        arrays = cls.from_arrays(table.x, table.y, table.kind, table.class_names)
        return replace(arrays, encoder=table.encoder, target=table.target, plan=table.plan)

    @classmethod
    def from_features(
        cls,
        frame: "pd.DataFrame",
        y: np.ndarray,
        kind: str,
        class_names: tuple[str, ...] = (),
        plan: TablePlan | None = None,
    ) -> "Preparation":
        """Of a frame of features and a y beside it: numbers, or labels 0..K-1."""
        encoder, x = fit_encoder(frame, plan, y, len(class_names))
        return replace(cls.from_arrays(x, y, kind, class_names), encoder=encoder, plan=plan)

    @classmethod
    def from_arrays(cls, x: Data, y: ArrayLike, kind: str, class_names: tuple[str, ...] = ()) -> "Preparation":
        """Of training rows that are numbers already; y is labels 0..K-1 for classes."""
        is_table = isinstance(x, np.ndarray) and x.ndim == 2 and x.dtype.kind == "f"
        if kind == "classes" and not class_names:
            class_names = tuple(map(str, range(int(np.max(y)) + 1)))
        return cls(
            kind=kind,
            target="",
            class_names=class_names,
            encoder=None,
            x=Standardiser.fit(x) if is_table else None,
            y=None
            if kind == "classes"
            else Standardiser.none(np.shape(y)[1:])
            if kind == "counts"
            else Standardiser.fit(y),
            lowest=x.min(axis=0) if is_table else np.zeros(0),
            highest=x.max(axis=0) if is_table else np.zeros(0),
        )

    @property
    def num_outputs(self) -> int:
        """Of a network for these targets, one a class or one a number."""
        return len(self.class_names) or (1 if self.y is None or not self.y.mean.ndim else len(self.y.mean))

    @property
    def num_columns(self) -> int:
        """Of a table, encoded; piecewise-linear features come after them. 0 where x is no table."""
        return len(self.lowest)

    def encode(self, rows: "pd.DataFrame") -> Encoded:
        """Rows as numbers in their own units, and what could not be carried over."""
        if self.encoder is None:
            x = check_x(rows)
            return Encoded(x, {}, (), {}, np.zeros(num_rows(x), int), {})
        rows = as_frame(rows)
        if not is_frame(rows):
            raise DataError(
                f"rows are a {type(rows).__name__}", "a CSV or a frame with named columns, as in the fit", "name them"
            )
        return self.encoder.encode(rows.drop(columns=self.target, errors="ignore"))

    def inputs(self, rows: "pd.DataFrame | Data") -> Data:
        """Rows as the network's x."""
        return self.standardised(self.encode(rows).x)

    def training_inputs(self, rows: "pd.DataFrame | Data", y: np.ndarray) -> Data:
        """The rows that it was made of, with their y in own units (or as positions): no row sees its own target."""
        return self.standardised(self.encode_training(rows, y))

    def encode_training(self, rows: "pd.DataFrame | Data", y: np.ndarray) -> Data:
        if self.encoder is None or not self.encoder.has_means:
            return self.encode(rows).x
        features = as_frame(rows).drop(columns=self.target, errors="ignore")
        return self.encoder.encode_training(features, to_be_meant(np.asarray(y), len(self.class_names)))

    def standardised(self, x: Data) -> Data:
        """Encoded rows as the network's x."""
        if self.x is None:
            return x
        if self.bins is None:
            return self.x.apply(x).astype(np.float32)
        x = np.asarray(x, np.float64)
        features = self.bins.features(x)
        return np.concatenate([self.x.apply(self.bins.clipped(x)), features], axis=1).astype(np.float32)

    def with_bins(self, x: np.ndarray, num_bins: int = NUM_BINS) -> "Preparation":
        """The same, clipped, with piecewise-linear features beside the columns; x as encoded."""
        return self if self.x is None else replace(self, bins=Bins.fit(x, num_bins, self.is_size))

    def with_logs(self, y: np.ndarray, note: str = "") -> "Preparation":
        """The same, with targets on a log scale; `note` says why, where nobody asked for it."""
        plan = self.plan
        if plan is not None:
            target = plan.target and replace(plan.target, becomes="its logarithm, standardised")
            plan = replace(plan, target=target, notes=(*plan.notes, *([note] if note else [])))
        return replace(self, y=Standardiser.of_logs(y), plan=plan)

    @property
    def is_size(self) -> np.ndarray:
        """Which features are sizes, and no flags, waves or words: (feature,)."""
        return np.ones(len(self.lowest), bool) if self.encoder is None else self.encoder.is_size

    def targets(self, values: ArrayLike) -> np.ndarray:
        """y as the network's likelihood wants it: standardised, or positions in `class_names`."""
        if self.y is not None:
            return self.y.apply(numbers_of(values)).astype(np.float32)
        if self.encoder is None and np.asarray(values).dtype.kind in "iu":
            return np.asarray(values, np.int32)
        positions = {name: position for position, name in enumerate(self.class_names)}
        names = cells.known_levels(np.asarray(values, object), self.class_names).tolist()
        if unknown := sorted(set(names) - set(positions)):
            raise DataError(
                f"the target holds {unknown[:5]}",
                f"the classes of the fit, {list(self.class_names)}",
                "drop those rows",
            )
        return np.array([positions[name] for name in names], np.int32)

    def num_outside(self, x: np.ndarray) -> np.ndarray:
        """How many features of each row of encoded x lie outside the range of the training rows: (n,)."""
        if not self.lowest.size:
            return np.zeros(len(x), int)
        x, lowest, highest = (np.asarray(each, np.float32) for each in (x, self.lowest, self.highest))  # as arrays come
        return ((x < lowest) | (x > highest)).sum(axis=1)

    def told_of(self, encoded: Encoded) -> dict[str, str]:
        """What new rows have that the fit's had not, a line by column; of numbers that lie further out than `FAR`."""
        lines = told_of(encoded, self.encoder)
        if self.encoder is None or not self.lowest.size:
            return lines
        found = {}
        for place, name in enumerate(self.encoder.feature_names):
            if name not in self.encoder.numbers or name in lines:
                continue
            low, high, values = self.lowest[place], self.highest[place], encoded.x[:, place]
            reach = FAR * (high - low)
            if num_far := int(((values < low - reach) | (values > high + reach)).sum()) if reach else 0:
                found[name] = (
                    f"{name}: {num_far:,} values far outside of {low:.4g} to {high:.4g}, the range of the fit: no row "
                    "says how wide intervals should be there"
                )
        return lines | found

    def to_json(self) -> Json:
        return {
            "kind": self.kind,
            "target": self.target,
            "class_names": list(self.class_names),
            "encoder": self.encoder and self.encoder.to_json(),
            "x": self.x and self.x.to_json(),
            "y": self.y and self.y.to_json(),
            "lowest": self.lowest.tolist(),
            "highest": self.highest.tolist(),
            "bins": self.bins and self.bins.to_json(),
            "table": self.plan and self.plan.to_json(),
        }

    @classmethod
    def from_json(cls, stored: Json) -> "Preparation":
        return cls(
            kind=stored["kind"],
            target=stored["target"],
            class_names=tuple(stored["class_names"]),
            encoder=stored["encoder"] and Encoder.from_json(stored["encoder"]),
            x=stored["x"] and Standardiser.from_json(stored["x"]),
            y=stored["y"] and Standardiser.from_json(stored["y"]),
            lowest=np.asarray(stored["lowest"], np.float64),
            highest=np.asarray(stored["highest"], np.float64),
            bins=Bins.from_json(stored["bins"]) if stored.get("bins") else None,
            plan=TablePlan.from_json(stored["table"]) if stored.get("table") else None,
        )
