"""A scikit-learn classifier."""

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from posteria.data.arrays import check_weight
from posteria.data.frames import as_values, counted
from posteria.errors import DataError, SettingError
from posteria.estimators.table_estimator import Rows, TableEstimator, can_update, check_lengths
from posteria.models.likelihoods import Likelihood
from posteria.models.priors import Prior
from posteria.tree import Json


class Classifier(ClassifierMixin, TableEstimator):
    """A Bayesian network for classes.

    `method` is a name or an object such as `po.HMC()`; `network` "mlp:50,50" or any network. `class_weight`, a dict by
    label or "balanced" (as if there were equally many of each), multiplies the weights of rows; probabilities are then
    those of rows so weighted.
    """

    kind = "classes"

    def __init__(
        self,
        method: Any = None,
        network: Any = None,
        *,
        class_weight: Mapping[Any, float] | str | None = None,
        quality: str = "fast",
        likelihood: Likelihood | None = None,
        prior: Prior | None = None,
        temperature: float = 1.0,
        as_: Mapping[str, str] | None = None,
        early_stopping: bool = False,
        max_seconds: float | None = None,
        progress: bool = False,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        super().__init__(
            method,
            network,
            quality=quality,
            likelihood=likelihood,
            prior=prior,
            temperature=temperature,
            as_=as_,
            early_stopping=early_stopping,
            max_seconds=max_seconds,
            progress=progress,
            random_state=random_state,
        )
        self.class_weight = class_weight

    def fit(
        self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """`sample_weight` is how often each row counts in the likelihood: 2 is the row twice, 0 leaves it out.

        Rows that belong together (of one patient, one shop) have one label in `groups`: a preset's folds leave them out
        together, so that its probabilities are right for new patients; else they are for further rows of these.
        """
        frame = self._frame(X, reset=True)
        labels = self._checked(y, len(frame))
        weighed = self._weighed(labels, sample_weight)
        frame, labels, weight = counted(frame, labels, weighed)
        self.classes_, positions = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(
                f"y has one class, {self.classes_.tolist()[0]!r}", "at least two classes", "check the target"
            )
        names, groups = tuple(map(str, self.classes_)), self._grouped(groups, weighed)
        return self._fit(frame, positions.astype(np.int32), names, weight, groups)

    @available_if(can_update)
    def partial_fit(
        self,
        X: Rows,
        y: ArrayLike,
        classes: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """More rows: the posterior so far is their prior. The first call must see every class."""
        if isinstance(self.class_weight, str):
            raise SettingError(
                f"class_weight={self.class_weight!r} of parts", "a weight for each class", "pass a dict of them"
            )
        if not hasattr(self, "posterior_"):
            if classes is not None and set(classes) - set(np.unique(y)):
                raise DataError(
                    "a first part without some of the classes", "rows of every class", "begin with more rows"
                )
            return self.fit(X, y, sample_weight)
        frame = self._frame(X, reset=False)
        labels = self._checked(y, len(frame))
        return self._update(*counted(frame, self._known(labels), self._weighed(labels, sample_weight)))

    def predict(self, X: Rows, groups: ArrayLike | None = None) -> np.ndarray:
        """The most probable class; `groups` of the rows where it was calibrated by groups, as in all that follow."""
        probs = self.predict_proba(X, groups)
        return self.classes_[probs.argmax(1)]

    def predict_proba(self, X: Rows, groups: ArrayLike | None = None) -> np.ndarray:
        """(n, classes), in the order of `classes_`; each row's sum is 1 in float64."""
        probs = np.asarray(self._predict(X, groups).probs, np.float64)
        return probs / probs.sum(1, keepdims=True)

    def predict_log_proba(self, X: Rows, groups: ArrayLike | None = None) -> np.ndarray:
        """Their logarithms."""
        return np.log(np.maximum(self.predict_proba(X, groups), np.finfo(np.float64).tiny))

    def entropy(self, X: Rows, groups: ArrayLike | None = None) -> np.ndarray:
        """How uncertain each prediction is, in nats: (n,)."""
        return self._predict(X, groups).entropy

    def sets(self, X: Rows, level: float = 0.9, groups: ArrayLike | None = None) -> np.ndarray:
        """Which classes each row may have, (n, classes), after `calibrate`: right for `level` of the rows."""
        predictive = self._predict(X, groups)
        if not hasattr(predictive, "sets"):
            raise SettingError("sets before calibrate", "a calibrated classifier", "calibrate(X, y) on held-out rows")
        return predictive.sets(level)

    def sample(self, X: Rows, num: int, key: int = 0, groups: ArrayLike | None = None) -> np.ndarray:
        """Draws of the class: (num, n)."""
        return self.classes_[np.asarray(self._predict(X, groups).sample(key, num))]

    def _weighed(self, labels: np.ndarray, sample_weight: ArrayLike | None) -> np.ndarray | None:
        """Weights of rows, times those of their classes; None where each counts once."""
        if self.class_weight is None:
            return None if sample_weight is None else np.asarray(as_values(sample_weight))
        own = (
            np.ones(len(labels))
            if sample_weight is None
            else check_weight(np.asarray(as_values(sample_weight)), len(labels))
        )
        counts = own > 0
        of_class = np.zeros(len(labels))
        of_class[counts] = compute_sample_weight(self.class_weight, labels[counts])
        return own * of_class

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
        settings = super()._settings() | {"classes_": self.classes_.tolist()}
        if isinstance(self.class_weight, Mapping):
            pairs = [
                [label.item() if hasattr(label, "item") else label, float(w)] for label, w in self.class_weight.items()
            ]
            settings["class_weight_"] = pairs
        return settings

    def _restore_classes(self) -> None:
        self.classes_ = np.asarray(self.classes_)
        if hasattr(self, "class_weight_"):
            self.class_weight = dict(self.class_weight_)
            del self.class_weight_


def _is_missing(label: object) -> bool:
    import pandas as pd

    return bool(pd.isna(label))
