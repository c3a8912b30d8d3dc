"""What a user names on the command line: a table in a file with a target column, an .npz, or a data set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posteria.data import arrays, sets
from posteria.data.arrays import Data, Rows, check_same_length, num_rows
from posteria.data.formats import read_npz
from posteria.data.frames import as_frame
from posteria.data.preparation import Preparation
from posteria.data.table_file import BINARY, TEXTS, is_table, read_frame
from posteria.data.table_plan import TablePlan, plan_table
from posteria.data.table_target import KIND_OF, KINDS, check_target, target_values
from posteria.errors import DataError, SettingError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Origin:
    """Rows as they came: a frame with its target column, or arrays x; and y."""

    name: str
    kind: str  # "regression", "counts" or "classes"
    target: str  # "" for arrays
    class_names: tuple[str, ...]
    frame: "pd.DataFrame | None"  # its index has the numbers of the rows in the file
    x: Data = None  # without a frame
    y: Data = None  # in own units, or positions in `class_names`; of a frame too
    is_named: bool = False  # a data set that is known here, not a file that happens to be called like it
    num_test: int = 0  # of the last rows, which someone has chosen to test on; 0: no one has
    plan: TablePlan | None = None  # of a frame

    @property
    def num_rows(self) -> int:
        return num_rows(self.x) if self.frame is None else len(self.frame)

    def prepare(self, rows: Rows = slice(None)) -> tuple[Preparation, tuple[Data, np.ndarray]]:
        """How `rows` (for training) are prepared, and those rows."""
        if self.frame is None:
            preparation = Preparation.from_arrays(self.x[rows], self.y[rows], self.kind, self.class_names)
        else:
            features, y = self._features(rows), self.y[rows]
            preparation = Preparation.from_features(features, y, self.kind, self.class_names, self.plan)
            preparation = replace(preparation, target=self.target)
        return preparation, self.training(preparation, rows)

    def training(self, preparation: Preparation, rows: Rows = slice(None)) -> tuple[Data, np.ndarray]:
        """The rows that a preparation was made of: where it holds means of targets, none sees its own."""
        if self.frame is None:
            return self.part(preparation, rows)
        y = self.y[rows]
        return preparation.training_inputs(self._features(rows), y), self._targets(preparation, y)

    def part(self, preparation: Preparation | None, rows: Rows = slice(None)) -> tuple[Data, np.ndarray]:
        """Other rows, prepared in the same way; arrays also as they are."""
        if preparation is None:
            return arrays.rows(self.x, rows), self.y[rows]
        x = self.x[rows] if self.frame is None else self._features(rows)
        return preparation.inputs(x), self._targets(preparation, self.y[rows])

    def _targets(self, preparation: Preparation, y: np.ndarray) -> np.ndarray:
        return np.asarray(y, np.int32) if self.kind == "classes" else preparation.targets(y)

    def _features(self, rows: Rows) -> "pd.DataFrame":
        assert self.frame is not None
        return self.frame.iloc[rows].drop(columns=self.target)

    def with_bins(self, preparation: Preparation, num_bins: int) -> Preparation:
        """The same, clipped, with piecewise-linear features, by all rows."""
        features = self.x if self.frame is None else self._features(slice(None))
        return preparation.with_bins(preparation.encode_training(features, self.y), num_bins)

    def own_targets(self, rows: Rows) -> np.ndarray:
        """Numbers in their own units."""
        return np.asarray(self.y[rows], np.float64)

    def row_numbers(self, rows: Rows) -> np.ndarray:
        """Where rows stand in the file that they came from, the first is 0."""
        return np.arange(self.num_rows)[rows] if self.frame is None else self.frame.index.to_numpy()[rows]

    def foreign(self, rows: Rows) -> dict[str, np.ndarray]:
        """Inputs unlike these rows, by name, where the data set has such partners."""
        return sets.foreign_to(self.name, self.x[rows]) if self.is_named else {}

    def without(self, column: str) -> "Origin":
        """Without a column of the frame that is no input, because it splits the rows."""
        assert self.frame is not None and self.plan is not None
        return replace(self, frame=self.frame.drop(columns=column), plan=self.plan.without(column))

    def with_test(self, other: "Origin") -> "Origin":
        """The rows of another behind these, to test on."""
        if self.frame is None or other.frame is None:
            x = arrays.joined(self.x, other.x)
            return replace(self, x=x, y=np.concatenate([self.y, other.y]), num_test=other.num_rows)
        import pandas as pd

        frame = pd.concat([self.frame, other.frame], ignore_index=True)
        y, names = target_values(frame[self.target], self.kind)
        return replace(self, frame=frame, y=y, class_names=names, num_test=other.num_rows)


def read_origin(
    text: str,
    target: str | None = None,
    kind: str | None = None,
    ignore: Sequence[str] = (),
    as_: Mapping[str, str] = {},
    encoding: str | None = None,
) -> Origin:
    """A table (by its ending, with `target`, without the columns to `ignore`, others taken as `as_` says), an .npz with
    arrays x and y, or the name of a data set."""
    path = Path(text)
    if is_table(path):
        name = path.name.partition(".")[0] or path.stem
        return origin_of_frame(read_frame(path, encoding=encoding), target, kind, ignore, name, as_)
    if ignore or as_ or encoding:
        asked = [*ignore, *as_, *filter(None, [encoding])]
        raise SettingError(f"how to read columns, {asked}, of {text!r}", "those of a table alone", "leave it out")
    if path.suffix.lower() == ".npz":
        x, y = _read_arrays(path)
        kind = _kind(y, kind)
        names = tuple(map(str, np.unique(y))) if kind == "classes" else ()
        return Origin(path.stem, kind, "", names, None, _floating(x), _targets(y, kind, names))
    if path.exists():
        known = (*TEXTS, *BINARY, ".npz")
        raise DataError(f"{text} ends in {path.suffix!r}", f"one of {known}", "save it as a CSV")
    if target is not None:
        raise SettingError(
            f"--target {target} for {text!r}", "a target only for a table", "leave it out, or name a file"
        )
    dataset = sets.load(text)
    return Origin(
        text,
        dataset.kind,
        "",
        dataset.class_names,
        None,
        dataset.x,
        dataset.y,
        is_named=True,
        num_test=dataset.num_test,
    )


def origin_of_frame(
    frame: Any,
    target: str | None,
    kind: str | None = None,
    ignore: Sequence[str] = (),
    name: str = "data",
    as_: Mapping[str, str] = {},
) -> Origin:
    """A table with a header; refused here, before anything is planned, if it cannot be learnt from."""
    frame = as_frame(frame)
    notes = frame.attrs.get("notes", [])
    columns = list(map(str, frame.columns))
    if target is None:
        raise SettingError(f"{name} without a target", f"one of its columns: {columns}", "name it: --target COLUMN")
    if unknown := [column for column in ignore if column not in columns or column == target]:
        raise SettingError(f"columns to ignore, {unknown}", f"some of {[c for c in columns if c != target]}")
    check_target(target, columns)
    frame = frame.reset_index(drop=True)
    plan = plan_table(frame, target, kind, dict(as_) | dict.fromkeys(ignore, "ignore"))
    plan = replace(plan, notes=(*notes, *plan.notes))
    assert plan.target is not None
    frame = frame[frame[target].notna().to_numpy()]
    frame = frame.drop(columns=[column.name for column in plan.columns if column.taken == "ignored"])
    kind = KIND_OF[plan.target.taken]
    y, names = target_values(frame[target], kind)
    source = Origin(name, kind, target, names, frame, y=y, plan=plan)
    source.prepare()  # a table of which nothing can be learnt is refused
    return source


def read_more(data: Any, source: Origin, encoding: str | None = None) -> Origin:
    """Further rows of the same kind, from a file or a frame: so they may be few, and all of one value or class."""
    if source.frame is None:
        path = Path(str(data))
        if path.suffix.lower() != ".npz":
            raise DataError(f"{data} beside arrays", "an .npz file with arrays x and y")
        x, y = _read_arrays(path)
        return replace(source, x=_floating(x), y=_targets(y, source.kind, source.class_names))
    frame = read_frame(data, encoding=encoding) if isinstance(data, str | Path) else as_frame(data)
    columns = list(source.frame.columns)
    if missing := [str(column) for column in columns if column not in frame.columns]:
        raise DataError(f"the test rows lack the columns {missing}", "the columns of the training rows", "add them")
    frame = frame[columns].reset_index(drop=True)
    return replace(source, frame=frame[frame[source.target].notna().to_numpy()])


def _read_arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    if not path.is_file():
        raise DataError(f"no file {path}", "an .npz file with arrays x and y", "check the path")
    x, y = read_npz(path, "x", "y")
    for name, values, known in (("x", x, "biuf"), ("y", y, "biufU")):
        if values.ndim == 0 or values.dtype.kind not in known:
            raise DataError(f"{path}: {name} is {values.dtype} of shape {values.shape}", "numbers, one row a datum")
    check_same_length(x, y)
    return x, y


def _kind(y: np.ndarray, kind: str | None) -> str:
    """As it is asked for, or as the dtype tells."""
    if kind not in (None, *KINDS):
        raise SettingError(f"kind={kind!r}", f"one of {KINDS}", "leave it out to have it guessed")
    if kind in ("regression", "counts") and y.dtype.kind == "U":
        raise DataError("y holds words", "numbers for regression", 'take kind="classes"')
    return kind or ("regression" if y.dtype.kind == "f" else "classes")


def _targets(y: np.ndarray, kind: str, names: tuple[str, ...]) -> np.ndarray:
    """Numbers, or positions in `names`."""
    if kind != "classes":
        return y.astype(np.float64)
    places = {name: place for place, name in enumerate(names)}
    if unknown := sorted({str(label) for label in np.unique(y)} - set(places)):
        raise DataError(f"y holds {unknown[:5]}", f"the classes {list(names)}")
    return np.array([places[str(label)] for label in y], np.int32)


def _floating(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if x.ndim == 2 else x
