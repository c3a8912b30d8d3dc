"""What every posterior can do. A method's posterior says how it draws functions; the rest follows."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.cards import Card, Shown
from posteria.data import arrays, sources
from posteria.data.arrays import Data
from posteria.errors import DataError, SettingError
from posteria.models.model import Model
from posteria.models.target import Target
from posteria.posteriors.predictive import Predictive, half_widths_of
from posteria.posteriors.scale_summary import in_words
from posteria.posteriors.telling import posterior_card
from posteria.random import as_key
from posteria.tree import Arrays, Json

PREDICT_KEY = 0  # predictions of sampled posteriors are the same every time
PREDICT_DRAWS = 100  # of posteriors that hold no fixed set of draws


class Posterior(Shown, ABC):
    """A distribution over functions. Holds the model, and no training data unless it says so.

    `holds_training_data`: a Gaussian process predicts from the rows it was fitted to.
    """

    holds_training_data: ClassVar[bool] = False

    kind: ClassVar[str]  # its name in the store
    kinds: ClassVar[dict[str, type["Posterior"]]] = {}  # all that were imported, by that name

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in vars(cls):
            Posterior.kinds[cls.kind] = cls

    def __init__(self, target: Target, facts: Json | None = None) -> None:
        self.target = target.without_data()
        self.facts = facts or {}  # method, settings, seconds, gradients, notes: what `fit` recorded
        self.attached: Json = {}  # JSON of the user's that travels with it: how a table was prepared
        # what was measured each epoch, as columns "stage", "chain", "epoch" and numbers; empty where there were none
        self.history: Arrays = {}

    def _card(self) -> Card:
        return posterior_card(self)

    @property
    def model(self) -> Model:
        scales = self.facts.get("prior_scales")
        return self.target.model.having_learnt(in_words(scales)) if scales else self.target.model

    @property
    def num_draws(self) -> int:
        """How many draws a prediction averages over, unless told otherwise."""
        return int(self.facts.get("predict_draws", PREDICT_DRAWS))

    @abstractmethod
    def draws(self, key: jax.Array, x: Data, num_draws: int) -> tuple[jax.Array, tree.Params]:
        """Outputs (draw, batch, output), and the likelihood's own parameters with a leading draw axis."""

    @abstractmethod
    def state(self) -> tuple[Json, Arrays]:
        """Settings (JSON) and arrays from which `from_state(target, settings, arrays)` makes the posterior again."""

    @classmethod
    @abstractmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "Posterior":
        """The posterior that `state` described."""

    def functions(self, key: int | jax.Array, x: Data, num_draws: int) -> jax.Array:
        """Network outputs under draws from the posterior: (draw, batch, output)."""
        return self.draws(as_key(key), self.check_x(x), check_num_draws(num_draws))[0]

    def predict(self, x: Data, num_draws: int | None = None) -> Predictive:
        """The Bayesian model average at x. All stored draws are used, or `num_draws` (spread over chains)."""
        x = self.check_x(x)
        num_draws = self.num_draws if num_draws is None else check_num_draws(num_draws)
        key = as_key(PREDICT_KEY)
        num_outputs = self.target.num_outputs or self.draws(key, arrays.rows(x, slice(1)), 1)[0].shape[-1]
        return Predictive(self.model.likelihood, lambda x: self.draws(key, x, num_draws), x, num_draws, num_outputs)

    def save(self, path: str | Path, if_exists: str = "error") -> None:
        """Write to a folder from which `po.load` reads; `if_exists="replace"` replaces another posterior there."""
        _verb("save")(self, Path(path), if_exists)

    def half_widths_of(self, x: Data, own: tree.Params, outputs: jax.Array) -> tuple[jax.Array, ...]:
        """As `Predictive.half_widths`, of what a block of `draws` gave; inside compiled code."""
        return half_widths_of(self.model.likelihood, own, outputs, None, jnp.zeros(1))

    def calibrate(self, x: Data, y: Any, groups: Any = None) -> "Calibrated":
        """Predictions (or sets of classes) that hold what they promise, from rows that were not fitted to.

        With `groups`, a label for each row, they hold it within each group; `predict` then wants the groups too.
        """
        calibrated: Calibrated = _verb("calibrate")(self, x, y, groups)
        return calibrated

    def thin(self, num_draws: int, x: Data = None) -> "Posterior":
        """Fewer draws, chosen to keep the prediction at x (evenly, where no x is given)."""
        thinned: Posterior = _verb("thin")(self, num_draws, x)
        return thinned

    def prune(self, by: str = "snr", *, fraction: float | None = None, threshold: float | None = None) -> "Pruned":
        """Remove the weights of layers that their noise drowns: see `posteria.posteriors.pruned.prune`."""
        pruned: Pruned = _verb("prune")(self, by, fraction, threshold)
        return pruned

    def export(self, path: str | Path, num_draws: int | None = None, if_exists: str = "error") -> int:
        """Write a folder that predicts with JAX alone; returns its size in bytes."""
        num_bytes: int = _verb("export")(self, path, num_draws, if_exists)
        return num_bytes

    def check_x(self, x: Data) -> Any:
        """x as arrays, refused where its features are not those of the fit."""
        if arrays.is_frame(x) and self.target.columns is not None:
            if missing := [name for name in self.target.columns if name not in x.columns]:
                raise DataError(f"x lacks the columns {missing}", "the features of the fit", "add them")
            x = x[self.target.columns]  # by name, in the order of the fit
        x = arrays.check_x(x) if arrays.in_memory(x) else sources.checked_inputs(x)
        shown = x.first if arrays.is_source(x) else x
        got, wanted = (
            jax.tree.map(lambda leaf: np.shape(leaf)[1:], rows)
            for rows in (shown, shown if self.target.num_outputs is None else self.target.blank_input)
        )
        if got != wanted:
            raise DataError(
                f"x has rows of {got}", f"{wanted}, as in the fit", "pass the same features, in the same order"
            )
        return x


class Calibrated(Posterior):
    """What `calibrate` returns."""

    inner: Posterior
    scores: np.ndarray  # of the rows that it was calibrated on
    temperature: float  # of the probabilities of classes
    coverage: dict[float, dict[str, float]]  # {level: {"before": share, "after": share}}, on rows not calibrated on


class Pruned(Posterior):
    """What `prune` returns: a Gaussian over the weights that are left."""

    kept: np.ndarray  # places in the flat parameters that are not removed, (left,)
    mean: np.ndarray  # of them
    std: np.ndarray

    @abstractmethod
    def sparsity(self) -> dict[str, float]:
        """The share of each layer's weights that is removed."""

    @property
    @abstractmethod
    def compression(self) -> float:
        """Weights of all layers for each one that is left."""

    def compressed(self) -> "Pruned":
        """The same distribution, computed from sparse arrays."""
        compressed: Pruned = _verb("compress")(self)
        return compressed


def check_num_draws(num_draws: int) -> int:
    if not isinstance(num_draws, int | np.integer) or num_draws < 1:
        raise SettingError(f"num_draws is {num_draws!r}", "a whole number of at least 1", "100 is usual")
    return int(num_draws)


# ---- verbs: who does what can be done with a posterior. A module is imported when its verb is first used, as the
# methods on the shelf are: what every posterior is knows none of them.

VERBS = {
    "calibrate": "posteria.posteriors.calibrated",
    "compress": "posteria.posteriors.compressed",
    "export": "posteria.posteriors.export",
    "prune": "posteria.posteriors.pruned",
    "save": "posteria.posteriors.saving",
    "thin": "posteria.posteriors.thinning",
}


def _verb(name: str) -> Callable[..., Any]:
    """The function of this name, in the module above."""
    found: Callable[..., Any] = getattr(import_module(VERBS[name]), name)
    return found
