"""scikit-learn estimators: a table in, predictions with honest uncertainty out, in the data's own units."""

import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from posteria.data.arrays import is_frame
from posteria.data.encode import Number
from posteria.data.preparation import Preparation
from posteria.data.standardise import Standardiser
from posteria.errors import DataError, SettingError
from posteria.inference import registry
from posteria.inference.map import MAP
from posteria.inference.runs import fit as fit_model
from posteria.models.priors import FromPosterior
from posteria.models.tabular import model_for
from posteria.models.target import Target
from posteria.posteriors import saving
from posteria.posteriors.calibrated import CalibratedPosterior
from posteria.posteriors.units import in_units

VALIDATION = 0.1  # share of the rows that early stopping holds out


class TableEstimator(BaseEstimator):
    """What Regressor and Classifier share: rows to a network's inputs, a posterior, and its verbs.

    `X` is a frame (categories, booleans, missing values) or an array. Columns of a frame are matched by name.
    """

    kind: str

    def __init__(
        self,
        method: Any = "laplace",
        network: Any = "mlp:50,50",
        *,
        likelihood: Any = None,
        prior: Any = None,
        temperature: float = 1.0,
        early_stopping: bool = False,
        max_seconds: float | None = None,
        progress: bool = False,
        random_state: int = 0,
    ) -> None:
        self.method = method
        self.network = network
        self.likelihood = likelihood
        self.prior = prior
        self.temperature = temperature
        self.early_stopping = early_stopping
        self.max_seconds = max_seconds
        self.progress = progress
        self.random_state = random_state

    def _fit(self, frame: Any, y: np.ndarray, class_names: tuple[str, ...] = ()) -> Any:
        self.preparation_ = Preparation.from_features(frame, y, self.kind, class_names)
        if getattr(self.likelihood, "kind", None) == "count":  # counts stay whole numbers
            as_they_are = Standardiser(np.zeros(y.shape[1:]), np.ones(y.shape[1:]))
            self.preparation_ = replace(self.preparation_, y=as_they_are)
        self._say_what_was_imputed()
        self._fit_posterior(frame, y, self.prior, None)
        return self

    def _update(self, frame: Any, y: np.ndarray) -> Any:
        """The posterior so far as the prior of new rows; a calibration of it does not hold for the new one."""
        so_far: Any = self._uncalibrated()
        self._fit_posterior(frame, y, FromPosterior(so_far), so_far.mean_params)
        fitted: Any = self.posterior_
        # of all rows together the prior is the first one, which can be written down
        model = replace(fitted.model, prior=so_far.model.prior)
        fitted.target = Target(model, (fitted.target.blank_input, None))
        return self

    def _fit_posterior(self, frame: Any, y: np.ndarray, prior: Any, start: Any) -> None:
        preparation = self.preparation_
        model = model_for(
            self.kind,
            preparation.num_outputs,
            self.network,
            likelihood=self.likelihood,
            prior=prior,
            temperature=self.temperature,
        )
        self.posterior_ = fit_model(
            model,
            (preparation.inputs(frame), self._targets(y)),
            self._method(),
            key=_seed(self.random_state),
            start=start,
            max_seconds=self.max_seconds,
            progress=self.progress,
            attach={"preparation": preparation.to_json(), "estimator": self._settings()},
        )

    def _method(self) -> Any:
        method = registry.as_method(self.method)
        if not self.early_stopping:
            return method
        if isinstance(method, MAP):
            return replace(method, validation=VALIDATION)
        if hasattr(method, "map"):
            return replace(method, map=replace(method.map or MAP(), validation=VALIDATION))
        raise SettingError(
            f"early_stopping with {type(method).__name__}", "a method that climbs to a mode", "leave it out"
        )

    # ---- the posterior's verbs

    def diagnose(self, X: Any) -> Any:
        """Convergence of the functions at X, of a posterior that is chains."""
        check_is_fitted(self, "posterior_")
        posterior = self._uncalibrated()
        if not hasattr(posterior, "diagnose"):
            raise SettingError(
                f"{posterior.facts['method']['name']} has no chains", "a sampler", 'method="nuts" has convergence'
            )
        return posterior.diagnose(self._inputs(X))

    def _uncalibrated(self) -> Any:
        return self.posterior_.inner if isinstance(self.posterior_, CalibratedPosterior) else self.posterior_

    def calibrate(self, X: Any, y: Any) -> Any:
        """Calibrate on rows that were not fitted to: intervals (sets of classes) then hold what they promise."""
        check_is_fitted(self, "posterior_")
        self.posterior_ = self.posterior_.calibrate(self._inputs(X), self._targets(self._known(y)))
        return self

    def thin(self, num_draws: int, X: Any = None) -> Any:
        """Keep fewer draws, chosen to keep the predictions at X."""
        check_is_fitted(self, "posterior_")
        self.posterior_ = self.posterior_.thin(num_draws, None if X is None else self._inputs(X))
        return self

    def export(self, path: str | Path, **settings: Any) -> int:
        """Write a folder that predicts with JAX alone, from frames or CSVs; returns its size in bytes."""
        check_is_fitted(self, "posterior_")
        return self.posterior_.export(path, **settings)

    def save(self, path: str | Path, if_exists: str = "error") -> None:
        """Write the fitted estimator to a folder; `load` reads it."""
        check_is_fitted(self, "posterior_")
        self.posterior_.save(path, if_exists)

    @classmethod
    def load(cls, path: str | Path, network: Any = None, likelihood: Any = None, prior: Any = None) -> Any:
        """The fitted estimator again; pass what could not be written down: your own network, likelihood or prior."""
        posterior = saving.load(path, network, likelihood, prior)
        settings = dict(posterior.attached.get("estimator", {}))
        if settings.pop("class", None) != cls.__name__:
            raise DataError(f"{path} does not hold a {cls.__name__}", "a folder that its save wrote", "use po.load")
        fitted = {name: settings.pop(name) for name in list(settings) if name.endswith("_")}
        model = posterior.model
        parts = {"network": model.network, "likelihood": model.likelihood, "prior": model.prior}
        objects = {name: part for name, part in parts.items() if name not in settings}
        given = {"network": network, "likelihood": likelihood, "prior": prior}
        estimator = cls(**settings | objects | {name: part for name, part in given.items() if part is not None})
        if "method" not in settings:
            estimator.method = _method_of(posterior)
        estimator.posterior_ = posterior
        estimator.preparation_ = Preparation.from_json(posterior.attached["preparation"])
        for name, value in fitted.items():
            setattr(estimator, name, np.asarray(value, object) if name == "feature_names_in_" else value)
        estimator._restore_classes()
        return estimator

    def _restore_classes(self) -> None:
        pass

    # ---- rows

    def _frame(self, X: Any, reset: bool) -> Any:
        """A frame with named columns; an array's are x0, x1, ..., as are those that are numbered 0, 1, ..."""
        import pandas as pd

        if is_frame(X):
            if reset:
                validate_data(self, X, skip_check_array=True)
                if len(X) < 2:
                    raise DataError(f"n_samples = {len(X)}", "at least 2 rows", "pass more")
            names = [name if isinstance(name, str) else f"x{name}" for name in X.columns]
            if not reset and self._goes_by_position(names):
                warnings.warn("X has column names, but the fit had none: columns are taken in order", stacklevel=3)
                names = [f"x{i}" for i in range(len(names))]
            return X.set_axis(names, axis=1)
        if not reset and getattr(self, "feature_names_in_", None) is not None:
            warnings.warn("X has no column names, but the fit had: columns are taken in that order", stacklevel=3)
        array = validate_data(
            self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2 if reset else 1
        )
        names = list(getattr(self, "feature_names_in_", [f"x{i}" for i in range(array.shape[1])]))
        return pd.DataFrame(array, columns=names)

    def _goes_by_position(self, names: list[str]) -> bool:
        """Columns with other names than the fit's, which had none of its own."""
        encoder: Any = self.preparation_.encoder
        known = {column.name for column in encoder.columns}
        return not hasattr(self, "feature_names_in_") and len(names) == self.n_features_in_ and not known & set(names)

    def _inputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "posterior_")
        return self.preparation_.inputs(self._frame(X, reset=False))

    def _predict(self, X: Any) -> Any:
        inputs = self._inputs(X)
        return in_units(self.posterior_.predict(inputs), self.preparation_.y)

    def _known(self, y: Any) -> Any:
        """y as `fit` checked it."""
        return y

    def _targets(self, y: np.ndarray) -> np.ndarray:
        """y as the likelihood wants it."""
        return self.preparation_.targets(y) if self.kind == "regression" else y

    def _say_what_was_imputed(self) -> None:
        encoder: Any = self.preparation_.encoder
        imputed = [column.name for column in encoder.columns if isinstance(column, Number) and column.has_indicator]
        if imputed:
            warnings.warn(f"missing values of {imputed} take the median, with an indicator", stacklevel=4)
        for name, reason in encoder.dropped:
            warnings.warn(f"column {name!r} is left out: {reason}", stacklevel=4)

    # ---- storing

    def _settings(self) -> dict:
        """What can be written down of this estimator."""
        plain = {name: value for name, value in self.get_params(deep=False).items() if _is_plain(value)}
        names = getattr(self, "feature_names_in_", None)
        fitted = {"n_features_in_": self.n_features_in_} | ({} if names is None else {"feature_names_in_": list(names)})
        return {"class": type(self).__name__} | plain | fitted

    def __getstate__(self) -> dict:
        state = dict(super().__getstate__())
        if "posterior_" in state:
            state["posterior_"] = saving.pack(state["posterior_"])
        return state

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        if "posterior_" in state:
            network = None if isinstance(self.network, str) else self.network  # a spelling is in the pack
            self.posterior_ = saving.unpack(state["posterior_"], network, self.likelihood, self.prior)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _can_update(estimator: TableEstimator) -> bool:
    """Whether the method's posterior, a Gaussian over the weights, can be the prior of new rows."""
    if not getattr(registry.as_method(estimator.method), "is_updatable", False):
        raise SettingError(
            f"{estimator.method!r} cannot be updated with new rows",
            "variational inference",
            'take method="mean-field", or fit all rows again',
        )
    return True


class Regressor(RegressorMixin, TableEstimator):
    """A Bayesian network for a real target (or several), with the noise inferred.

    `method` is a name or an object such as `po.HMC()`; `network` "mlp:50,50" or any network.
    """

    kind = "regression"

    def fit(self, X: Any, y: Any) -> "Regressor":
        frame = self._frame(X, reset=True)
        return self._fit(frame, self._checked(y, len(frame)))

    @available_if(_can_update)
    def partial_fit(self, X: Any, y: Any) -> "Regressor":
        """More rows: the posterior so far is their prior. The first call sets units and categories."""
        if not hasattr(self, "posterior_"):
            return self.fit(X, y)
        frame = self._frame(X, reset=False)
        return self._update(frame, self._checked(y, len(frame)))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean, or (mean, std)."""
        predictive = self._predict(X)
        mean = self._shaped(predictive.mean)
        return (mean, self._shaped(predictive.std)) if return_std else mean

    def interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """(lower, upper): the central interval that holds `level` of the prediction."""
        lower, upper = self._predict(X).interval(level)
        return self._shaped(lower), self._shaped(upper)

    def sample(self, X: Any, num: int, key: int = 0) -> np.ndarray:
        """Draws of y: (num, n) or (num, n, targets)."""
        return self._shaped(self._predict(X).sample(key, num))

    def _checked(self, y: Any, num_rows: int) -> np.ndarray:
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        y = check_array(y, dtype=np.float64, ensure_2d=False, allow_nd=False, input_name="y")
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        _check_lengths(num_rows, y)
        return y

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        is_one: bool = self.preparation_.y is not None and self.preparation_.y.mean.ndim == 0
        return values[..., 0] if is_one else values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


class Classifier(ClassifierMixin, TableEstimator):
    """A Bayesian network for classes.

    `method` is a name or an object such as `po.HMC()`; `network` "mlp:50,50" or any network.
    """

    kind = "classes"

    def fit(self, X: Any, y: Any) -> "Classifier":
        frame = self._frame(X, reset=True)
        labels = self._checked(y, len(frame))
        self.classes_, positions = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(f"y has one class, {self.classes_[0]!r}", "at least two classes", "check the target")
        return self._fit(frame, positions.astype(np.int32), tuple(map(str, self.classes_)))

    @available_if(_can_update)
    def partial_fit(self, X: Any, y: Any, classes: Iterable | None = None) -> "Classifier":
        """More rows: the posterior so far is their prior. The first call must see every class."""
        if not hasattr(self, "posterior_"):
            if classes is not None and set(classes) - set(np.unique(y)):
                raise DataError(
                    "a first part without some of the classes", "rows of every class", "begin with more rows"
                )
            return self.fit(X, y)
        frame = self._frame(X, reset=False)
        return self._update(frame, self._known(self._checked(y, len(frame))))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class."""
        probs = self.predict_proba(X)
        return self.classes_[probs.argmax(1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, classes), in the order of `classes_`."""
        return np.asarray(self._predict(X).probs, np.float64)

    def entropy(self, X: Any) -> np.ndarray:
        """How uncertain each prediction is, in nats: (n,)."""
        return self._predict(X).entropy

    def sets(self, X: Any, level: float = 0.9) -> np.ndarray:
        """Which classes each row may have, (n, classes), after `calibrate`: right for `level` of the rows."""
        predictive = self._predict(X)
        if not hasattr(predictive, "sets"):
            raise SettingError("sets before calibrate", "a calibrated classifier", "calibrate(X, y) on held-out rows")
        return predictive.sets(level)

    def sample(self, X: Any, num: int, key: int = 0) -> np.ndarray:
        """Draws of the class: (num, n)."""
        return self.classes_[np.asarray(self._predict(X).sample(key, num))]

    def _checked(self, y: Any, num_rows: int) -> np.ndarray:
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        if y.dtype == object and (missing := np.flatnonzero([_is_missing(label) for label in y]).tolist()):
            raise DataError(f"y has {len(missing)} missing labels (rows {missing[:5]})", "labels", "drop those rows")
        check_classification_targets(y)
        _check_lengths(num_rows, y)
        return y

    def _known(self, y: Any) -> np.ndarray:
        """Labels as positions in `classes_`."""
        y = column_or_1d(y)
        if unknown := sorted(set(y.tolist()) - set(self.classes_.tolist()), key=str):
            raise DataError(f"classes {unknown[:5]}", f"those of the fit, {self.classes_.tolist()}", "drop those rows")
        return np.searchsorted(self.classes_, y).astype(np.int32)

    def _settings(self) -> dict:
        return super()._settings() | {"classes_": self.classes_.tolist()}

    def _restore_classes(self) -> None:
        self.classes_ = np.asarray(self.classes_)


def _method_of(posterior: Any) -> Any:
    """The method that fitted it; the default, and said so, where that could not be written down."""
    stored = posterior.facts["method"]
    try:
        return registry.from_json(stored)
    except SettingError as told:
        warnings.warn(f"{told}; before another fit, set_params(method=...)", stacklevel=3)
        return "laplace"


def _check_lengths(num_rows: int, y: np.ndarray) -> None:
    if num_rows != len(y):
        raise DataError(f"X has {num_rows} rows, y has {len(y)}", "the same number", "check how they were joined")


def _is_missing(label: Any) -> bool:
    import pandas as pd

    return bool(pd.isna(label))


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _seed(random_state: Any) -> int:
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return 0 if random_state is None else int(random_state)
