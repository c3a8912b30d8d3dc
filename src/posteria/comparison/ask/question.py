"""What is compared on: a model, and data split into rows to learn from and rows to be graded on, once a seed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from posteria.comparison.tell.spelling import no_commands
from posteria.data.arrays import num_rows, rows
from posteria.data.preparation import Preparation
from posteria.data.standardise import Standardiser
from posteria.models.model import Model
from posteria.posteriors.store import fingerprint
from posteria.posteriors.units import in_units

EXTREME_SHARE = 0.1  # of the test rows of a table, those furthest from the centre of the training rows
LEAST_EXTREMES = 5


@dataclass(frozen=True, eq=False)
class Fold:
    """One split. `train` is as the model wants it; `y_test` and `y_train` are in the data's own units, or labels."""

    seed: int
    train: tuple[Any, np.ndarray]
    y_train: np.ndarray
    x_test: Any
    y_test: np.ndarray
    scale: Standardiser | None = None  # of y; None: the model sees own units
    far: dict[str, np.ndarray] = field(default_factory=dict)  # test rows out of distribution, as masks by name
    out: dict[str, Any] = field(default_factory=dict)  # further inputs out of distribution, by name
    preparation: Preparation | None = None
    test_rows: np.ndarray | None = None  # their numbers in the file they came from, the first is 0

    def predict(self, posterior: Any, x: Any) -> Any:
        """A posterior's (or a baseline's) prediction in the data's own units."""
        predictive = posterior.predict(x)
        return in_units(predictive, self.scale) if hasattr(posterior, "draws") else predictive

    @property
    def fingerprint(self) -> str:
        return fingerprint((self.train, self.x_test, self.y_test, self.out))


@dataclass(frozen=True, eq=False)
class Curve:
    """Inputs along the one axis of a one-dimensional problem, for its picture."""

    x: np.ndarray  # (g,), own units
    inputs: np.ndarray  # (g, 1), as the model wants them
    train_x: np.ndarray


@dataclass(frozen=True, eq=False)
class Problem:
    name: str
    title: str
    model: Model
    folds: tuple[Fold, ...]
    data: dict  # of results.json
    setting: dict  # likewise
    curve: Curve | None = None
    next_commands: Callable[..., dict] = no_commands
    source: dict = field(default_factory=dict)  # JSON that travels with every run: how the command line reads the data

    @property
    def kind(self) -> str:
        return kind_of(self.model)

    @property
    def num_classes(self) -> int:
        return len(self.data["class_names"])


def kind_of(model: Model) -> str:
    return "classes" if hasattr(model.likelihood, "probs") else "regression"


def extremes(x_train: Any, x_test: Any) -> dict[str, np.ndarray]:
    """The mask of the test rows that are furthest out, by the mean square of features in the training rows' stds.

    They stand in for data from elsewhere where a table has none: a good posterior is less sure of them.
    """
    if not (isinstance(x_train, np.ndarray) and x_train.ndim == 2 and x_train.dtype.kind == "f"):
        return {}
    count = round(EXTREME_SHARE * len(x_test))
    if count < LEAST_EXTREMES:
        return {}
    distance = (Standardiser.fit(x_train).apply(x_test).astype(np.float64) ** 2).mean(1)
    mask = np.zeros(len(x_test), bool)
    mask[np.argsort(-distance, kind="stable")[:count]] = True
    return {"extremes": mask}


def fold_of_arrays(
    seed: int, x: Any, y: np.ndarray, split: tuple[np.ndarray, np.ndarray], out: dict[str, Any] | None = None
) -> Fold:
    """Arrays as they are: the model sees the data's own units."""
    train, test = split
    x_train, x_test, y_train, y_test = rows(x, train), rows(x, test), y[train], y[test]
    return Fold(
        seed,
        (x_train, y_train),
        y_train,
        x_test,
        y_test,
        far=extremes(x_train, x_test) if not out else {},
        out=out or {},
    )


def describe(
    name: str,
    kind: str,
    folds: tuple[Fold, ...],
    *,
    num_rows_all: int,
    columns: int,
    class_names: tuple = (),
    **more: Any,
) -> dict:
    """The `data` part of results.json."""
    return {
        "name": name,
        "rows": num_rows_all,
        "train_rows": num_rows(folds[0].train[0]),
        "test_rows": len(folds[0].y_test),
        "columns": columns,
        "categorical": 0,
        "kind": kind,
        "target": "",
        "class_names": list(class_names),
        "fingerprint": folds[0].fingerprint,
        "notes": [],
    } | more
