"""A scikit-learn regressor."""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_array, column_or_1d

from posteria.data import cells
from posteria.data.frames import as_values, counted
from posteria.errors import DataError
from posteria.estimators.table_estimator import Rows, TableEstimator, can_update, check_lengths
from posteria.models.likelihoods import Likelihood
from posteria.models.priors import Prior
from posteria.recipes import with_target_scale

if TYPE_CHECKING:
    import pandas as pd


class Regressor(RegressorMixin, TableEstimator):
    """A Bayesian network for a real target (or several), with the noise inferred.

    `method` is a name or an object such as `po.HMC()`; `network` "mlp:50,50" or any network. `target_scale` is
    "linear", "log" (y is then above 0, and so is all that is predicted), or "auto": a log scale where no method and no
    likelihood is named, y is positive and skewed, and rows left out do not tell against it; a warning says so.
    """

    kind = "regression"

    def __init__(
        self,
        method: Any = None,
        network: Any = None,
        *,
        quality: str = "fast",
        target_scale: str = "auto",
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
        self.target_scale = target_scale

    def fit(
        self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """`sample_weight` is how often each row counts in the likelihood: 2 is the row twice, 0 leaves it out.

        Rows that belong together (of one patient, one shop) have one label in `groups`: a preset's folds leave them out
        together, so that its widths are those of new patients; else they are those of further rows of these.
        """
        frame = self._frame(X, reset=True)
        frame, checked, weight = counted(frame, self._checked(y, len(frame)), sample_weight)
        if np.any(np.ptp(checked, axis=0) == 0):
            warnings.warn("y is the same in every row: no row tells how wide intervals should be", stacklevel=2)
        return self._fit(frame, checked, weight=weight, groups=self._grouped(groups, sample_weight))

    @available_if(can_update)
    def partial_fit(self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """More rows: the posterior so far is their prior. The first call sets units and categories."""
        if not hasattr(self, "posterior_"):
            return self.fit(X, y, sample_weight)
        frame = self._frame(X, reset=False)
        return self._update(*counted(frame, self._checked(y, len(frame)), sample_weight))

    def predict(
        self, X: Rows, return_std: bool = False, groups: ArrayLike | None = None
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The mean, or (mean, std); `groups` of the rows where it was calibrated by groups, as in all that follow."""
        predictive = self._predict(X, groups)
        mean = self._shaped(predictive.mean)
        return (mean, self._shaped(predictive.std)) if return_std else mean

    def interval(self, X: Rows, level: float = 0.9, groups: ArrayLike | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(lower, upper): the central interval that holds `level` of the prediction."""
        lower, upper = self._predict(X, groups).interval(level)
        return self._shaped(lower), self._shaped(upper)

    def quantile(self, X: Rows, q: float | ArrayLike, groups: ArrayLike | None = None) -> np.ndarray:
        """What y is below with probability q: (n,), or (n, targets); with a leading axis where q is a list."""
        return self._shaped(self._predict(X, groups).quantile(q))

    def sample(self, X: Rows, num: int, key: int = 0, groups: ArrayLike | None = None) -> np.ndarray:
        """Draws of y: (num, n) or (num, n, targets)."""
        return self._shaped(self._predict(X, groups).sample(key, num))

    def _checked(self, y: ArrayLike, num_rows: int) -> np.ndarray:
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        values = as_values(y)
        if np.asarray(values).dtype.kind in "OUS" and (strange := _no_numbers(values)):
            raise DataError(f"y holds {strange[:3]}", "numbers", "po.Classifier predicts classes")
        checked = check_array(values, dtype=np.float64, ensure_2d=False, allow_nd=False, input_name="y")
        if checked.ndim == 2 and checked.shape[1] == 1:
            checked = column_or_1d(checked, warn=True)
        check_lengths(num_rows, checked)
        return checked

    def _scale_target(self, kind: str, frame: "pd.DataFrame", y: np.ndarray, y_often: np.ndarray) -> None:
        is_free = kind == "regression" and self.method is None and self.likelihood is None
        self.preparation_ = with_target_scale(
            self.preparation_,
            self.target_scale,
            lambda: self.preparation_.training_inputs(frame, y),
            y,
            is_free,
            y_often=y_often,
            max_seconds=self.max_seconds,
        )

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        is_one: bool = self.preparation_.y is not None and self.preparation_.y.mean.ndim == 0
        return values[..., 0] if is_one else values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


def _no_numbers(values: ArrayLike) -> list[str]:
    texts = [value for value in np.asarray(values, object).ravel().tolist() if isinstance(value, str)]
    _, is_bad = cells.numbers(np.array(texts, object))
    return list(dict.fromkeys(text for text, bad in zip(texts, is_bad) if bad))
