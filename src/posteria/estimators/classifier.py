"""A scikit-learn classifier."""

from collections.abc import Iterable
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from posteria.data.frames import as_values
from posteria.errors import DataError, SettingError
from posteria.estimators.table_estimator import Rows, TableEstimator, can_update, check_lengths
from posteria.tree import Json


class Classifier(ClassifierMixin, TableEstimator):
    """A Bayesian network for classes.

    `method` is a name or an object such as `po.HMC()`; `network` "mlp:50,50" or any network.
    """

    kind = "classes"

    def fit(self, X: Rows, y: ArrayLike) -> Self:
        frame = self._frame(X, reset=True)
        labels = self._checked(y, len(frame))
        self.classes_, positions = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(f"y has one class, {self.classes_[0]!r}", "at least two classes", "check the target")
        return self._fit(frame, positions.astype(np.int32), tuple(map(str, self.classes_)))

    @available_if(can_update)
    def partial_fit(self, X: Rows, y: ArrayLike, classes: Iterable[object] | None = None) -> Self:
        """More rows: the posterior so far is their prior. The first call must see every class."""
        if not hasattr(self, "posterior_"):
            if classes is not None and set(classes) - set(np.unique(y)):
                raise DataError(
                    "a first part without some of the classes", "rows of every class", "begin with more rows"
                )
            return self.fit(X, y)
        frame = self._frame(X, reset=False)
        return self._update(frame, self._known(self._checked(y, len(frame))))

    def predict(self, X: Rows) -> np.ndarray:
        """The most probable class."""
        probs = self.predict_proba(X)
        return self.classes_[probs.argmax(1)]

    def predict_proba(self, X: Rows) -> np.ndarray:
        """(n, classes), in the order of `classes_`."""
        return np.asarray(self._predict(X).probs, np.float64)

    def entropy(self, X: Rows) -> np.ndarray:
        """How uncertain each prediction is, in nats: (n,)."""
        return self._predict(X).entropy

    def sets(self, X: Rows, level: float = 0.9) -> np.ndarray:
        """Which classes each row may have, (n, classes), after `calibrate`: right for `level` of the rows."""
        predictive = self._predict(X)
        if not hasattr(predictive, "sets"):
            raise SettingError("sets before calibrate", "a calibrated classifier", "calibrate(X, y) on held-out rows")
        return predictive.sets(level)

    def sample(self, X: Rows, num: int, key: int = 0) -> np.ndarray:
        """Draws of the class: (num, n)."""
        return self.classes_[np.asarray(self._predict(X).sample(key, num))]

    def _checked(self, y: ArrayLike, num_rows: int) -> np.ndarray:
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        labels = np.asarray(column_or_1d(as_values(y), warn=True))
        if labels.dtype == object and (missing := np.flatnonzero([_is_missing(label) for label in labels]).tolist()):
            raise DataError(f"y has {len(missing)} missing labels (rows {missing[:5]})", "labels", "drop those rows")
        check_classification_targets(labels)
        check_lengths(num_rows, labels)
        return labels

    def _known(self, y: ArrayLike) -> np.ndarray:
        """Labels as positions in `classes_`."""
        labels = np.asarray(column_or_1d(y))
        if unknown := sorted(set(labels.tolist()) - set(self.classes_.tolist()), key=str):
            raise DataError(f"classes {unknown[:5]}", f"those of the fit, {self.classes_.tolist()}", "drop those rows")
        return np.searchsorted(self.classes_, labels).astype(np.int32)

    def _settings(self) -> Json:
        return super()._settings() | {"classes_": self.classes_.tolist()}

    def _restore_classes(self) -> None:
        self.classes_ = np.asarray(self.classes_)


def _is_missing(label: object) -> bool:
    import pandas as pd

    return bool(pd.isna(label))
