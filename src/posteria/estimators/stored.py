"""Fitted estimators on disk and in pickles: as their posterior is, with what else they were made of."""

import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from posteria import disk, nn
from posteria.data.preparation import Preparation
from posteria.errors import DataError, SettingError
from posteria.methods import registry
from posteria.models.likelihoods import Likelihood
from posteria.models.priors import Prior
from posteria.posteriors import saving
from posteria.posteriors.base import Posterior
from posteria.tree import Json


class StoredEstimator(BaseEstimator):
    """`posterior_` and `preparation_` are the fitted estimator; its settings are attached to the posterior."""

    network: Any
    likelihood: Likelihood | None
    prior: Prior | None
    n_features_in_: int
    posterior_: Posterior
    preparation_: Preparation

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")  # the setting `as_` ends as fitted attributes do

    def save(self, path: str | Path, if_exists: str = "error") -> None:
        """Write the fitted estimator to a folder; `load` reads it."""
        check_is_fitted(self, "posterior_")
        self.posterior_.save(path, if_exists)

    @classmethod
    def load(
        cls,
        path: str | Path,
        network: Any = None,
        likelihood: Likelihood | None = None,
        prior: Prior | None = None,
    ) -> Self:
        """The fitted estimator again; pass what could not be written down: your own network, likelihood or prior."""
        posterior = saving.load(path, network, likelihood, prior)
        settings = dict(posterior.attached.get("estimator", {}))
        if settings.pop("class", None) != cls.__name__:
            raise DataError(f"{path} does not hold a {cls.__name__}", "a folder that its save wrote", "use po.load")
        for name in ("method", "network"):  # "mypkg:Mine" was the user's word; from a file it imports nothing
            if _is_own(settings.get(name)):
                del settings[name]
        fitted = {name: settings.pop(name) for name in list(settings) if name.endswith("_")}
        model = posterior.model
        parts = {"network": model.network, "likelihood": model.likelihood, "prior": model.prior}
        objects = {name: part for name, part in parts.items() if name not in settings}
        given = {"network": network, "likelihood": likelihood, "prior": prior}
        estimator = cls(**settings | objects | {name: part for name, part in given.items() if part is not None})
        if "method" not in settings:
            estimator.method = _method_of(posterior)
        estimator.posterior_ = posterior
        with disk.refuse_damage(Path(path)):
            estimator.preparation_ = Preparation.from_json(posterior.attached["preparation"])
        if estimator.preparation_.plan is not None:
            estimator.plan_ = estimator.preparation_.plan
        for name, value in fitted.items():
            setattr(estimator, name, np.asarray(value, object) if name == "feature_names_in_" else value)
        estimator._restore_classes()
        return estimator

    def _restore_classes(self) -> None:
        pass

    def _settings(self) -> Json:
        """What can be written down of this estimator."""
        plain = {name: value for name, value in self.get_params(deep=False).items() if _is_plain(value)}
        names = getattr(self, "feature_names_in_", None)
        fitted = {"n_features_in_": self.n_features_in_} | ({} if names is None else {"feature_names_in_": list(names)})
        return {"class": type(self).__name__} | plain | fitted

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "posterior_" in state:
            state["posterior_"] = saving.pack(state["posterior_"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "posterior_" in state:
            network = None if isinstance(self.network, str) else self.network  # a spelling is in the pack
            self.posterior_ = saving.unpack(state["posterior_"], network, self.likelihood, self.prior)


def _method_of(posterior: Posterior) -> Any:
    """The method that fitted it; the default, and said so, where that could not be written down."""
    stored = posterior.facts["method"]
    try:
        return registry.from_json(stored)
    except SettingError as told:
        warnings.warn(f"{told}; before another fit, set_params(method=...)", stacklevel=3)
        return "laplace"


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(each, str) for pair in value.items() for each in pair)
    return value is None or isinstance(value, bool | int | float | str)


def _is_own(value: object) -> bool:
    return isinstance(value, str) and nn.is_own(value)
