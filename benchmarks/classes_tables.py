"""Tables of classes: six that are reported on, and others on which defaults are chosen.

Those to choose on are simulated, or numbers of other tables cut at their quantiles; none of the six is among them.
"""

import os
from collections.abc import Callable
from pathlib import Path

import honesty_tables
import numpy as np
import pandas as pd
from measure import use_shared_data
from sklearn import datasets

REPORTED = ("digits", "breast cancer", "iris", "wine", "titanic", "penguins")
Table = tuple[pd.DataFrame, np.ndarray]


def _frame(x: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])])


def _made(num_rows: int, **settings: object) -> Callable[[], Table]:
    def load() -> Table:
        x, y = datasets.make_classification(num_rows, random_state=len(str(settings)), **settings)
        return _frame(x), y

    return load


def _logistic(num_rows: int, num_columns: int, strength: float) -> Callable[[], Table]:
    """Of which logistic regression is the truth."""

    def load() -> Table:
        random = np.random.default_rng(num_columns)
        x = random.normal(size=(num_rows, num_columns)) @ random.normal(size=(num_columns, num_columns))
        x /= x.std(0)
        logit = x @ random.normal(size=num_columns)
        return _frame(x), (random.uniform(size=num_rows) < 1 / (1 + np.exp(-strength * logit / logit.std()))).astype(
            int
        )

    return load


def _blobs(num_rows: int, num_classes: int, num_columns: int, spread: float) -> Callable[[], Table]:
    def load() -> Table:
        x, y = datasets.make_blobs(num_rows, num_columns, centers=num_classes, cluster_std=spread, random_state=7)
        return _frame(x), y

    return load


def _moons() -> Table:
    x, y = datasets.make_moons(400, noise=0.3, random_state=3)
    return _frame(x), y


def _circles() -> Table:
    x, y = datasets.make_circles(400, noise=0.2, factor=0.5, random_state=3)
    return _frame(np.concatenate([x, np.random.default_rng(3).normal(size=(400, 4))], axis=1)), y


def _cut(name: str, num_classes: int, num_rows: int) -> Callable[[], Table]:
    """A target cut at its quantiles; values that are often the same make classes unequal, or fewer."""

    def load() -> Table:
        frame, y = honesty_tables.load(name)
        some = np.random.default_rng(0).permutation(len(y))[:num_rows]
        frame, y = frame.iloc[some].reset_index(drop=True), y[some]
        edges = np.unique(np.quantile(y, np.arange(1, num_classes) / num_classes))
        return frame, np.unique(np.searchsorted(edges, y, side="left"), return_inverse=True)[1]

    return load


def _column(file: str, target: str, num_rows: int, drop: tuple[str, ...] = ()) -> Callable[[], Table]:
    """A column of words that is guessed from the others."""

    def load() -> Table:
        use_shared_data()
        frame = pd.read_csv(Path(os.environ["POSTERIA_DATA"]) / "tables" / file)
        frame = frame.sample(min(num_rows, len(frame)), random_state=0).reset_index(drop=True)
        return frame.drop(columns=[target, *drop]), frame[target].to_numpy()

    return load


CHOOSING: dict[str, Callable[[], Table]] = {
    "logistic 8": _logistic(700, 8, 2.0),
    "logistic 25": _logistic(500, 25, 6.0),
    "made plain": _made(500, n_features=10, n_informative=6, n_redundant=2, class_sep=1.2),
    "made flipped": _made(900, n_features=12, n_informative=5, flip_y=0.15, weights=[0.75]),
    "made redundant": _made(560, n_features=30, n_informative=8, n_redundant=20, class_sep=1.5, n_clusters_per_class=1),
    "made four": _made(600, n_features=16, n_informative=8, n_classes=4, flip_y=0.02),
    "made ten": _made(1200, n_features=40, n_informative=16, n_classes=10, n_clusters_per_class=1, class_sep=1.5),
    "made rare": _made(1200, n_features=8, n_informative=4, weights=[0.93], flip_y=0.02),
    "blobs 3": _blobs(150, 3, 4, 3.0),
    "blobs 6": _blobs(400, 6, 6, 4.0),
    "blobs far": _blobs(340, 3, 5, 2.0),
    "made sure": _made(450, n_features=8, n_informative=5, class_sep=3.0, flip_y=0.01, n_clusters_per_class=1),
    "logistic steep": _logistic(350, 6, 20.0),
    "moons": _moons,
    "circles": _circles,
    "boston 3": _cut("boston", 3, 506),
    "concrete 4": _cut("concrete", 4, 900),
    "energy 3": _cut("energy", 3, 768),
    "yacht 4": _cut("yacht", 4, 308),
    "quality of wine": _cut("wine", 6, 1300),
    "diabetes 2": _cut("diabetes", 2, 442),
    "machine 3": _cut("machine", 3, 209),
    "parkinsons 3": _cut("parkinsons", 3, 1200),
    "kin8nm 2": _cut("kin8nm", 2, 900),
    "forest 2": _cut("forest", 2, 517),
    "protein 3": _cut("protein", 3, 1200),
    "origin of cars": _column("mpg.csv", "origin", 398, ("name",)),
    "colour of diamonds": _column("diamonds.csv.gz", "color", 1200),
}


def reported(name: str) -> Table:
    loaders = {"digits": "digits", "breast cancer": "breast_cancer", "iris": "iris", "wine": "wine"}
    if name in loaders:
        data = getattr(datasets, f"load_{loaders[name]}")(as_frame=True)
        return data.data, data.target.to_numpy()
    use_shared_data()
    frame = pd.read_csv(Path(os.environ["POSTERIA_DATA"]) / "tables" / f"{name}.csv")
    target = {"titanic": "survived", "penguins": "species"}[name]
    frame = frame[frame[target].notna()]
    leak = ["alive"] if name == "titanic" else []  # says the same as the target
    return frame.drop(columns=[target, *leak]), frame[target].to_numpy()


def load(name: str) -> Table:
    """(frame, labels)."""
    return CHOOSING[name]() if name in CHOOSING else reported(name)
