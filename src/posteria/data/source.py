"""What a user names on the command line: a CSV with a target column, an .npz, or a data set."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posteria.data import sets
from posteria.data.arrays import check_same_length, num_rows
from posteria.data.csv_file import read_frame
from posteria.data.formats import read_npz
from posteria.data.preparation import Preparation
from posteria.data.table import from_frame
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
    x: Any = None  # without a frame
    y: Any = None

    @property
    def num_rows(self) -> int:
        return num_rows(self.x) if self.frame is None else len(self.frame)

    def prepare(self, rows: Any = slice(None)) -> tuple[Preparation, tuple[Any, np.ndarray]]:
        """How `rows` (for training) are prepared, and those rows."""
        if self.frame is None:
            preparation = Preparation.from_arrays(self.x[rows], self.y[rows], self.kind, self.class_names)
        else:
            preparation = Preparation.from_table(self.frame.iloc[rows], self.target, self.kind)
        return preparation, self.part(preparation, rows)

    def part(self, preparation: Preparation, rows: Any = slice(None)) -> tuple[Any, np.ndarray]:
        """Other rows, prepared in the same way."""
        if self.frame is None:
            return preparation.inputs(self.x[rows]), preparation.targets(self.y[rows])
        frame = self.frame.iloc[rows]
        return preparation.inputs(frame), preparation.targets(frame[self.target])


def read_source(text: str, target: str | None = None, kind: str | None = None) -> Source:
    """A CSV (by its ending, with `target`), an .npz with arrays x and y, or the name of a data set."""
    path = Path(text)
    if path.suffix.lower() in TABLES:
        return _from_csv(path, target, kind)
    if path.suffix.lower() == ".npz":
        return _from_npz(path, kind)
    if path.exists():
        raise DataError(f"{text} ends in {path.suffix!r}", f"one of {(*TABLES, '.npz')}", "save it as a CSV")
    if target is not None:
        raise SettingError(f"--target {target} for {text!r}", "a target only for a CSV", "leave it out, or name a file")
    dataset = sets.load(text)
    x = dataset.x.astype(np.float64) if dataset.x.ndim == 2 else dataset.x
    return Source(text, dataset.kind, "", dataset.class_names, None, x, dataset.y)


def _from_csv(path: Path, target: str | None, kind: str | None) -> Source:
    frame = read_frame(path)
    if target is None:
        raise SettingError(
            f"{path} without a target", f"one of its columns: {list(frame.columns)}", "name it: --target COLUMN"
        )
    table = from_frame(frame, target, kind)  # refused here, before anything is planned
    return Source(path.stem, table.kind, target, table.class_names, frame)


def _from_npz(path: Path, kind: str | None) -> Source:
    if not path.is_file():
        raise DataError(f"no file {path}", "an .npz file with arrays x and y", "check the path")
    x, y = read_npz(path, "x", "y")
    check_same_length(x, y)
    kind = kind or ("classes" if y.dtype.kind in "iub" else "regression")
    if kind == "classes":
        names, y = np.unique(y, return_inverse=True)
        return Source(path.stem, kind, "", tuple(map(str, names)), None, _floating(x), y.astype(np.int32))
    return Source(path.stem, kind, "", (), None, _floating(x), y.astype(np.float64))


def _floating(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if x.ndim == 2 else x
