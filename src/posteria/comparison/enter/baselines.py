"""What scikit-learn does on the same rows: a linear model and gradient boosting, with quantiles or class probabilities.

No network and no posterior: they say whether a network is worth its trouble here.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from posteria.comparison.enter.predictives import ProbsPredictive, QuantilePredictive
from posteria.errors import SettingError

BOOSTED_LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
LARGE_TABLE = 1_000_000  # values, from where boosting is worth several threads
ONE_STD = (0.15865525393145707, 0.8413447460685429)  # the levels one std below and above a Gaussian's mean


class Fitted(Protocol):
    """A fitted baseline: own units in, own units out."""

    def predict(self, x: Any) -> Any:
        """A prediction with the surface of a `Predictive`."""


def fit(name: str, x: Any, y: np.ndarray, kind: str, num_classes: int) -> Fitted:
    """`x` as the networks get it, flattened; `y` in its own units, or labels."""
    x = np.asarray(x).reshape(len(y), -1)
    if kind == "regression" and np.ndim(y) > 1:
        if y.shape[1] > 1:
            raise SettingError(f"y has {y.shape[1]} targets", "one, for a baseline", "compare them one at a time")
        y = y[:, 0]
    if name == "linear":
        return _fit_linear(x, y, kind, num_classes)
    from threadpoolctl import threadpool_limits

    # threads that wait for each other in a busy loop: on small tables, or a busy machine, slower than one by far
    with threadpool_limits(1 if x.size < LARGE_TABLE else None, user_api="openmp"):
        return _fit_boosting(x, y, kind, num_classes)


def _fit_linear(x: np.ndarray, y: np.ndarray, kind: str, num_classes: int) -> Fitted:
    from sklearn.linear_model import BayesianRidge, LogisticRegression

    if kind == "classes":
        return _Classifier(LogisticRegression(max_iter=1000).fit(x, y), num_classes)
    return _Line(BayesianRidge().fit(x, y))


def _fit_boosting(x: np.ndarray, y: np.ndarray, kind: str, num_classes: int) -> Fitted:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if kind == "classes":
        return _Classifier(HistGradientBoostingClassifier(random_state=0).fit(x, y), num_classes)
    return _Boosted(
        [
            HistGradientBoostingRegressor(loss="quantile", quantile=level, random_state=0).fit(x, y)
            for level in BOOSTED_LEVELS
        ]
    )


@dataclass(frozen=True)
class _Line:
    """Bayesian ridge regression: a Gaussian around a plane, its noise and shrinkage by evidence. MacKay 1992."""

    model: Any

    def predict(self, x: Any) -> QuantilePredictive:
        mean, std = self.model.predict(np.asarray(x).reshape(len(x), -1), return_std=True)
        return QuantilePredictive(ONE_STD, np.stack([mean - std, mean + std]))


@dataclass(frozen=True)
class _Boosted:
    """Trees fitted to nine quantiles, each by its own loss."""

    models: list

    def predict(self, x: Any) -> QuantilePredictive:
        x = np.asarray(x).reshape(len(x), -1)
        return QuantilePredictive(BOOSTED_LEVELS, np.stack([model.predict(x) for model in self.models]))


@dataclass(frozen=True)
class _Classifier:
    model: Any
    num_classes: int

    def predict(self, x: Any) -> ProbsPredictive:
        found = self.model.predict_proba(np.asarray(x).reshape(len(x), -1))
        probs = np.zeros((len(found), self.num_classes))
        probs[:, self.model.classes_] = found  # a class that no training row has stays at 0
        return ProbsPredictive(probs)


ABOUT = {
    "linear": "A linear model: what there is without a network (Bayesian ridge, or logistic regression).",
    "boosting": "Gradient boosting: the strongest simple rival on tables (nine quantiles, or class probabilities).",
}
