"""What a user names on the command line: a CSV with a target column, an .npz, or a data set."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from posteria.data import arrays, sets
from posteria.data.arrays import Data, Rows, check_same_length, is_frame, num_rows
from posteria.data.csv_file import read_frame
from posteria.data.formats import read_npz
from posteria.data.preparation import Preparation
from posteria.data.table import KINDS, from_frame
from posteria.errors import DataError, SettingError

if TYPE_CHECKING:
    import pandas as pd

TABLES = (".csv", ".tsv", ".txt")


@dataclass(frozen=True, eq=False)
class Source:
    """Rows as they came: a frame with its target column, or arrays x and y."""

    name: str
    kind: str  # "regression" or "classes"
    target: str  # "" for arrays
    class_names: tuple[str, ...]
    frame: "pd.DataFrame | None"
    x: Data = None  # without a frame
    y: Data = None
    is_named: bool = False  # a data set that is known here, not a file that happens to be called like it
    num_test: int = 0  # of the last rows, which someone has chosen to test on; 0: no one has

    @property
    def num_rows(self) -> int:
        return num_rows(self.x) if self.frame is None else len(self.frame)

    def prepare(self, rows: Rows = slice(None)) -> tuple[Preparation, tuple[Data, np.ndarray]]:
        """How `rows` (for training) are prepared, and those rows."""
        if self.frame is None:
            preparation = Preparation.from_arrays(self.x[rows], self.y[rows], self.kind, self.class_names)
        else:
            preparation = Preparation.from_table(self.frame.iloc[rows], self.target, self.kind)
        return preparation, self.part(preparation, rows)

    def part(self, preparation: Preparation | None, rows: Rows = slice(None)) -> tuple[Data, np.ndarray]:
        """Other rows, prepared in the same way; arrays also as they are."""
        if preparation is None:
            return arrays.rows(self.x, rows), self.y[rows]
        if self.frame is None:
            return preparation.inputs(self.x[rows]), preparation.targets(self.y[rows])
        frame = self.frame.iloc[rows]
        return preparation.inputs(frame), preparation.targets(frame[self.target])

    def with_bins(self, preparation: Preparation, num_bins: int) -> Preparation:
        """The same, clipped, with piecewise-linear features, by all rows."""
        return preparation.with_bins(preparation.encode(self.x if self.frame is None else self.frame).x, num_bins)

    def own_targets(self, rows: Rows) -> np.ndarray:
        """Numbers in their own units."""
        values = self.y[rows] if self.frame is None else self.frame[self.target].iloc[rows]
        return np.asarray(values, np.float64)

    def foreign(self, rows: Rows) -> dict[str, np.ndarray]:
        """Inputs unlike these rows, by name, where the data set has such partners."""
        return sets.foreign_to(self.name, self.x[rows]) if self.is_named else {}

    def with_test(self, other: "Source") -> "Source":
        """The rows of another behind these, to test on."""
        if self.frame is None or other.frame is None:
            x = arrays.joined(self.x, other.x)
            return replace(self, x=x, y=np.concatenate([self.y, other.y]), num_test=other.num_rows)
        import pandas as pd

        frame = pd.concat([self.frame, other.frame], ignore_index=True)
        names = from_frame(frame, self.target, self.kind).class_names
        return replace(self, frame=frame, class_names=names, num_test=other.num_rows)


def read_source(text: str, target: str | None = None, kind: str | None = None, ignore: Sequence[str] = ()) -> Source:
    """A CSV (by its ending, with `target`, without the columns to `ignore`), an .npz with arrays x and y, or the name
    of a data set."""
    path = Path(text)
    if path.suffix.lower() in TABLES:
        return source_of_frame(read_frame(path), target, kind, ignore, path.stem)
    if ignore:
        raise SettingError(f"columns to ignore, {list(ignore)}, of {text!r}", "those of a CSV alone", "leave it out")
    if path.suffix.lower() == ".npz":
        x, y = _read_arrays(path)
        kind = _kind(y, kind)
        names = tuple(map(str, np.unique(y))) if kind == "classes" else ()
        return Source(path.stem, kind, "", names, None, _floating(x), _targets(y, kind, names))
    if path.exists():
        raise DataError(f"{text} ends in {path.suffix!r}", f"one of {(*TABLES, '.npz')}", "save it as a CSV")
    if target is not None:
        raise SettingError(f"--target {target} for {text!r}", "a target only for a CSV", "leave it out, or name a file")
    dataset = sets.load(text)
    return Source(
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


def source_of_frame(
    frame: "pd.DataFrame", target: str | None, kind: str | None = None, ignore: Sequence[str] = (), name: str = "data"
) -> Source:
    """A table with a header; refused here, before anything is planned, if it cannot be learnt from."""
    columns = list(map(str, frame.columns))
    if target is None:
        raise SettingError(f"{name} without a target", f"one of its columns: {columns}", "name it: --target COLUMN")
    if unknown := [column for column in ignore if column not in columns or column == target]:
        raise SettingError(f"columns to ignore, {unknown}", f"some of {[c for c in columns if c != target]}")
    frame = frame.drop(columns=list(ignore))
    table = from_frame(frame, target, kind)
    return Source(name, table.kind, target, table.class_names, frame)


def read_more(data: "str | pd.DataFrame", source: Source) -> Source:
    """Further rows of the same kind, from a file or a frame: so they may be few, and all of one value or class."""
    if source.frame is None:
        path = Path(str(data))
        if path.suffix.lower() != ".npz":
            raise DataError(f"{data} beside arrays", "an .npz file with arrays x and y")
        x, y = _read_arrays(path)
        return replace(source, x=_floating(x), y=_targets(y, source.kind, source.class_names))
    frame: pd.DataFrame = data if is_frame(data) else read_frame(str(data))
    columns = list(source.frame.columns)
    if missing := [str(column) for column in columns if column not in frame.columns]:
        raise DataError(f"the test rows lack the columns {missing}", "the columns of the training rows", "add them")
    return replace(source, frame=frame[columns])


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
    if kind == "regression" and y.dtype.kind == "U":
        raise DataError("y holds words", "numbers for regression", 'take kind="classes"')
    return kind or ("regression" if y.dtype.kind == "f" else "classes")


def _targets(y: np.ndarray, kind: str, names: tuple[str, ...]) -> np.ndarray:
    """Numbers, or positions in `names`."""
    if kind == "regression":
        return y.astype(np.float64)
    places = {name: place for place, name in enumerate(names)}
    if unknown := sorted({str(label) for label in np.unique(y)} - set(places)):
        raise DataError(f"y holds {unknown[:5]}", f"the classes {list(names)}")
    return np.array([places[str(label)] for label in y], np.int32)


def _floating(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if x.ndim == 2 else x
