"""What Regressor and Classifier share."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Union

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from posteria import nn
from posteria.data.arrays import Data, is_frame
from posteria.data.encode import Encoded, Encoder
from posteria.data.frames import as_frame, as_often, as_values, check_names, text_in
from posteria.data.preparation import Preparation
from posteria.data.table_plan import plan_table
from posteria.data.table_target import is_counted
from posteria.engine.progress import Progress
from posteria.errors import DataError, SettingError
from posteria.estimators import nested
from posteria.estimators.stored import StoredEstimator
from posteria.methods import registry
from posteria.methods.ensembles.folds import by_groups
from posteria.methods.points.map import MAP
from posteria.models.likelihoods import Likelihood
from posteria.models.model import Model, model_for
from posteria.models.priors import FromPosterior, Prior
from posteria.models.target import Target
from posteria.posteriors.calibrated import CalibratedPosterior
from posteria.posteriors.diagnosis import Diagnosis
from posteria.posteriors.mixture import FoldsPosterior
from posteria.posteriors.units import in_units
from posteria.recipes import Recipe, recipe_for
from posteria.runs import fit as fit_model
from posteria.tree import Params

if TYPE_CHECKING:
    import pandas as pd

Rows = Union["pd.DataFrame", ArrayLike]
DEFAULT_NETWORK = "mlp:50,50"
VALIDATION = 0.1  # share of the rows that early stopping holds out


class TableEstimator(StoredEstimator):
    """Rows to a network's inputs, a posterior, and its verbs, in the data's own units.

    `X` is a frame (of pandas, polars, pyarrow: categories, booleans, dates, text, missing values) or an array. Columns
    of a frame are matched by name; `plan_` says how each was taken, and `as_={"column": "date"}` takes one otherwise:
    number, count, category, ordered, date, text or ignore.
    """

    kind: str

    def __init__(
        self,
        method: Any = None,
        network: Any = None,
        *,
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
        self.method = method
        self.network = network
        self.quality = quality
        self.likelihood = likelihood
        self.prior = prior
        self.temperature = temperature
        self.as_ = as_
        self.early_stopping = early_stopping
        self.max_seconds = max_seconds
        self.progress = progress
        self.random_state = random_state

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings; with `deep` those of method, likelihood and prior too: `method__num_epochs`."""
        params = dict(super().get_params(deep))
        if deep:
            for part in nested.PARTS:
                params |= {f"{part}__{name}": value for name, value in nested.settings_of(params[part]).items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change settings, of parts too: `set_params(method__num_epochs=50)`; a name becomes the method it names."""
        own, inner = nested.split(params)
        if unknown := sorted(set(inner) - set(nested.PARTS)):
            raise SettingError(f"{unknown[0]}__{next(iter(inner[unknown[0]]))}", f"a part of {nested.PARTS}", "mend it")
        super().set_params(**own)
        for part, settings in inner.items():
            setattr(self, part, nested.changed(part, getattr(self, part), settings))
        return self

    def _fit(
        self,
        frame: "pd.DataFrame",
        y: np.ndarray,
        class_names: tuple[str, ...] = (),
        weight: np.ndarray | None = None,
        groups: np.ndarray | None = None,
    ) -> Self:
        kind = self._target_kind(y)
        asked = None if kind == "counts" and self.likelihood is None else kind
        self.plan_ = plan_table(frame, as_=self.as_ or {}, kind=asked, y=_series(y, class_names))
        if groups is not None:
            self.plan_ = self.plan_.by_groups()
        often, y_often = as_often(frame, y, weight)
        self.preparation_ = Preparation.from_features(often, y_often, kind, class_names, self.plan_)
        self._recipe: Recipe | None = None
        if self.method is None:
            self._recipe = self._recipe_for(kind, y)
            encoded = self.preparation_.encode_training(often, y_often)
            num_bins = self._recipe.num_bins(int(self.preparation_.is_size.sum()))
            self.preparation_ = self.preparation_.with_bins(encoded, num_bins)
        self._scale_target(kind, frame, y, y_often)
        if self._recipe is not None:
            self._recipe = self._recipe_for(kind, y)
            Progress(self.progress).say(f"{self.quality}: {self._recipe.cost}")
        if self.preparation_.plan is not None:
            self.plan_ = self.preparation_.plan
        self._say_what_was_imputed()
        self._fit_posterior(frame, y, weight, self.prior, None, groups)
        return self

    def _grouped(self, groups: ArrayLike | None, weight: ArrayLike | None) -> np.ndarray | None:
        """The groups of the rows that count."""
        if groups is None:
            return None
        found = np.asarray(as_values(groups))
        if weight is None:
            return found
        check_lengths(len(found), np.asarray(as_values(weight)), "groups")
        return found[np.flatnonzero(np.asarray(as_values(weight)))]

    def _recipe_for(self, kind: str, y: np.ndarray) -> Recipe:
        num_outputs, num_columns = self.preparation_.num_outputs, self.preparation_.num_columns
        return recipe_for(self.quality, kind, self._targets(y), num_outputs, self.likelihood, num_columns)

    def _scale_target(self, kind: str, frame: "pd.DataFrame", y: np.ndarray, y_often: np.ndarray) -> None:
        """Put the target on a log scale, where that suits it; of classes there is none.

        Its moments are those of `y_often`, rows as often as they weigh; a trial leaves rows out, and copies of them
        would stay.
        """

    def _update(self, frame: "pd.DataFrame", y: np.ndarray, weight: np.ndarray | None) -> Self:
        """The posterior so far as the prior of new rows; a calibration of it does not hold for the new one."""
        so_far: Any = self._uncalibrated()
        self._fit_posterior(frame, y, weight, FromPosterior(so_far), so_far.mean_params)
        fitted: Any = self.posterior_
        # of all rows together the prior is the first one, which can be written down
        model = replace(fitted.model, prior=so_far.model.prior)
        fitted.target = Target(model, (fitted.target.blank_input, None))
        return self

    def _fit_posterior(
        self,
        frame: "pd.DataFrame",
        y: np.ndarray,
        weight: np.ndarray | None,
        prior: Prior | None,
        start: Params | None,
        groups: np.ndarray | None = None,
    ) -> None:
        model, method = self._chosen(len(y), prior)
        if groups is not None:
            method = by_groups(registry.as_method(method), groups)
        is_first = start is None  # rows of an update have no part in the means of targets that columns became
        inputs = self.preparation_.training_inputs(frame, y) if is_first else self.preparation_.inputs(frame)
        data = inputs, self._targets(y), weight
        self.posterior_ = fit_model(
            model,
            data,
            self._method(method, model, data),
            key=_seed(self.random_state),
            start=start,
            max_seconds=self.max_seconds,
            progress=self.progress,
            attach={"preparation": self.preparation_.to_json(), "estimator": self._settings()},
        )
        if self.posterior_.facts.get("is_constant"):
            warnings.warn(next(note for note in self.posterior_.facts["notes"] if "every row" in note), stacklevel=5)

    def _chosen(self, num_rows: int, prior: Prior | None) -> tuple[Model, Any]:
        """The model and the method: named by the user, or of the quality asked for."""
        num_outputs, recipe = self.preparation_.num_outputs, self._recipe
        if recipe is None:
            network = DEFAULT_NETWORK if self.network is None else self.network
            model = model_for(
                self.preparation_.kind,
                num_outputs,
                num_rows,
                network,
                likelihood=self.likelihood,
                prior=prior,
                temperature=self.temperature,
            )
            return model, self.method
        network = recipe.network if self.network is None else self.network
        if isinstance(network, str):
            network = nn.parse(network, num_outputs * getattr(recipe.likelihood, "outputs_per_target", 1))
        prior = recipe.prior if prior is None else prior
        return Model(network, recipe.likelihood, prior, self.temperature), recipe.method

    def _method(self, method: Any, model: Model, data: Data) -> Any:
        method = registry.as_method(method)
        if not self.early_stopping:
            return method
        if self.method is None:
            raise SettingError(
                "early_stopping without a method", "a method to stop", "leave it out: a preset stops early by its folds"
            )
        if isinstance(method, MAP):
            return replace(method, validation=VALIDATION)
        if getattr(method, "map", None) is not None:
            from posteria.methods.gaussians.laplace import default_map  # and all that it stands on

            is_auto = method.map == "auto"
            climb = replace(default_map(Target(model, data)), tune=None) if is_auto else method.map
            return replace(method, map=replace(climb, validation=VALIDATION))
        raise SettingError(
            f"early_stopping with {type(method).__name__}", "a method that climbs to a mode", "leave it out"
        )

    # ---- the posterior's verbs

    def diagnose(self, X: Rows) -> Diagnosis:
        """Convergence of the functions at X, of a posterior that is chains."""
        check_is_fitted(self, "posterior_")
        posterior = self._uncalibrated()
        if not hasattr(posterior, "diagnose") or isinstance(posterior, FoldsPosterior):
            raise SettingError(
                f"{posterior.facts['method']['name']} has no chains", "a sampler", 'method="nuts" has convergence'
            )
        return posterior.diagnose(self._inputs(X))

    def _uncalibrated(self) -> Any:
        return self.posterior_.inner if isinstance(self.posterior_, CalibratedPosterior) else self.posterior_

    def calibrate(self, X: Rows, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Calibrate on rows that were not fitted to: intervals (sets of classes) then hold what they promise.

        With `groups`, a label a row, within each of them: predictions then want the groups of their rows.
        """
        check_is_fitted(self, "posterior_")
        targets = self._targets(self._known(y))
        self.posterior_ = self.posterior_.calibrate(self._inputs(X), targets, groups=groups)
        return self

    def aleatoric(self, X: Rows, groups: ArrayLike | None = None) -> np.ndarray:
        """The part of the uncertainty that more rows would not remove: of numbers a variance, of classes an entropy."""
        return self._shaped(self._predict(X, groups).aleatoric)

    def epistemic(self, X: Rows, groups: ArrayLike | None = None) -> np.ndarray:
        """The part that more rows like these would remove; with `aleatoric` the whole, std**2 or `entropy`."""
        return self._shaped(self._predict(X, groups).epistemic)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values

    def thin(self, num_draws: int, X: Rows | None = None) -> Self:
        """Keep fewer draws, chosen to keep the predictions at X."""
        check_is_fitted(self, "posterior_")
        self.posterior_ = self.posterior_.thin(num_draws, None if X is None else self._inputs(X))
        return self

    def export(self, path: str | Path, **settings: Any) -> int:
        """Write a folder that predicts with JAX alone, from frames or CSVs; returns its size in bytes."""
        check_is_fitted(self, "posterior_")
        return self.posterior_.export(path, **settings)

    # ---- rows

    def _frame(self, X: Rows, reset: bool) -> "pd.DataFrame":
        """A frame with named columns; an array's are x0, x1, ..., as are those that are numbered 0, 1, ..."""
        import pandas as pd

        X = as_frame(X)
        if is_frame(X):
            check_names(X)
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
        if text := text_in(X):
            raise DataError(f"X is an array that holds {text!r}", "numbers", "a frame has columns of any kind")
        array = validate_data(
            self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2 if reset else 1
        )
        names = list(getattr(self, "feature_names_in_", [f"x{i}" for i in range(array.shape[1])]))
        return pd.DataFrame(array, columns=names)

    @property
    def _encoder(self) -> Encoder:
        encoder = self.preparation_.encoder
        assert encoder is not None  # a table's rows are encoded
        return encoder

    def _goes_by_position(self, names: list[str]) -> bool:
        """Columns with other names than the fit's, which had none of its own."""
        encoder = self._encoder
        known = {column.name for column in encoder.columns}
        return not hasattr(self, "feature_names_in_") and len(names) == self.n_features_in_ and not known & set(names)

    def _inputs(self, X: Rows) -> np.ndarray:
        check_is_fitted(self, "posterior_")
        return self.preparation_.inputs(self._frame(X, reset=False))

    def _predict(self, X: Rows, groups: ArrayLike | None = None) -> Any:
        """A Predictive, calibrated or not, in the data's units."""
        check_is_fitted(self, "posterior_")
        encoded = self.preparation_.encode(self._frame(X, reset=False))
        self._say_what_is_new(encoded)
        inputs = self.preparation_.standardised(encoded.x)
        if isinstance(self.posterior_, CalibratedPosterior):
            return in_units(self.posterior_.predict(inputs, groups=groups), self.preparation_.y)
        if groups is not None:
            raise DataError("groups, and nothing was calibrated by them", "no groups", "calibrate(X, y, groups=...)")
        return in_units(self.posterior_.predict(inputs), self.preparation_.y)

    def _known(self, y: ArrayLike) -> np.ndarray:
        """y as `fit` checked it."""
        return np.asarray(y)

    def _targets(self, y: np.ndarray) -> np.ndarray:
        """y as the likelihood wants it."""
        return self.preparation_.targets(y) if self.kind == "regression" else y

    def _say_what_was_imputed(self) -> None:
        encoder = self._encoder
        imputed = [column.name for column in encoder.columns if getattr(column, "has_indicator", False)]
        if imputed:
            warnings.warn(f"missing values of {imputed} take the median, with an indicator", stacklevel=4)
        for name, reason in encoder.dropped:
            if not reason.endswith("asked for"):
                warnings.warn(f"column {name!r} is left out: {reason}", stacklevel=4)
        for note in self.plan_.notes:
            warnings.warn(note, stacklevel=4)

    def _say_what_is_new(self, encoded: Encoded) -> None:
        """What rows have that the fit's had not: once for each column of a fit."""
        for name, line in self.preparation_.told_of(encoded).items():
            of, told = self.__dict__.get("_told_of", (None, set()))
            if of is not self.preparation_:
                of, told = self.preparation_, set()
            if name not in told:
                self._told_of = (of, told | {name})
                warnings.warn(line, stacklevel=5)

    def _target_kind(self, y: np.ndarray) -> str:
        """Counts, where the likelihood is of counts, or none is named and they look like it."""
        if self.likelihood is not None:
            return "counts" if getattr(self.likelihood, "kind", None) == "counts" else self.kind
        is_counts = self.kind == "regression" and y.ndim == 1 and is_counted(*np.unique(y, return_counts=True))
        return "counts" if is_counts else self.kind

    def __str__(self) -> str:
        learnt = self.posterior_.model.learnt if hasattr(self, "posterior_") else ""
        return f"{self!r}\nscales learnt: {learnt}" if learnt else repr(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def can_update(estimator: TableEstimator) -> bool:
    """Whether the method's posterior, a Gaussian over the weights, can be the prior of new rows."""
    method = None if estimator.method is None else registry.as_method(estimator.method)
    if not getattr(method, "is_updatable", False):
        raise SettingError(
            f"{estimator.method or estimator.quality!r} cannot be updated with new rows",
            "a method whose posterior is a Gaussian",
            'take method="mean-field", or fit all rows again',
        )
    return True


def check_lengths(num_rows: int, y: np.ndarray, what: str = "X") -> None:
    if num_rows != len(y):
        raise DataError(f"{what} has {num_rows} rows, y has {len(y)}", "the same number", "check how they were joined")


def _series(y: np.ndarray, class_names: tuple[str, ...]) -> "pd.Series | None":
    """One target as a column, classes by their names."""
    import pandas as pd

    if y.ndim > 1:
        return None
    return pd.Series(np.array(class_names, object)[y] if class_names else y)


def _seed(random_state: int | np.random.RandomState | None) -> int:
    """A whole number as it is; None is another for every fit."""
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(2**31 - 1))
    return int(random_state)
