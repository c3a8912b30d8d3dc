"""What is compared on: a model, and data split into rows to learn from and rows to be graded on, once a seed."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from posteria.data.arrays import num_rows
from posteria.data.preparation import Preparation
from posteria.data.splits import Splits
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
    splits: Splits
    data: dict  # of results.json
    curve: Curve | None = None
    source: dict = field(default_factory=dict)  # JSON that travels with every run: how the command line reads the data
    options: dict[str, str] | None = None  # of `posteria fit`, for this model; None where it has no words for it

    @property
    def kind(self) -> str:
        return kind_of(self.model)

    @property
    def num_classes(self) -> int:
        return len(self.data["class_names"])

    @property
    def setting(self) -> dict:
        """Of results.json: the model and the splits."""
        return {
            "network": _spelled(self.model),
            "likelihood": repr(self.model.likelihood),
            "prior": repr(self.model.prior),
            "temperature": self.model.temperature,
            "split": self.splits.about,
            "seeds": [fold.seed for fold in self.folds],
        }


def kind_of(model: Model) -> str:
    return "classes" if hasattr(model.likelihood, "probs") else "regression"


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


def _spelled(model: Model) -> str:
    """The network, as a reader would write it."""
    spec = model.network.spec
    if spec is None:
        return "your own network"
    settings = ", ".join(f"{key}={value}" for key, value in spec["settings"].items() if value is not None)
    return f"{spec['name']}({settings})"
