"""Posteriors of folds: members that each left some of the rows out, and widths that were learnt from those rows."""

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import nn, tree
from posteria.data.arrays import Data
from posteria.models import priors
from posteria.models.error_size import ErrorSize
from posteria.models.model import Model
from posteria.models.target import Target
from posteria.posteriors.base import Posterior
from posteria.posteriors.draws import forward
from posteria.posteriors.mixture import MixturePosterior
from posteria.posteriors.predictive import Predictive, half_widths_of
from posteria.tree import Arrays, Json

WIDTHS_HIDDEN = (32,)
MOST_WIDENED = 4.0  # the logarithm of a width is within this


class Widths:
    """log width(x, centre), the mean of several small networks' outputs."""

    def __init__(self, target: Target, flat: np.ndarray, centre: np.ndarray, spread: np.ndarray) -> None:
        self.target = target.without_data()
        self.flat = flat  # (member, size)
        self.centre, self.spread = centre, spread  # (target,): of the centres that it was fitted to

    def inputs(self, x: Any, centre: Any) -> jax.Array:
        return jnp.concatenate([x, (centre - self.centre) / self.spread], axis=1, dtype=jnp.float32)

    def log_widths(self, x: Any, centre: Any) -> jax.Array:
        """(row, target)."""
        outputs, _ = forward(self.target)(self.flat, self.inputs(x, centre))
        return jnp.clip(outputs, -MOST_WIDENED, MOST_WIDENED).mean(0)


class FoldsPosterior(MixturePosterior):
    """An equal mixture of members of which each left a fold of the rows out.

    Its prediction, once calibrated, has the average centre of the members and the average of their widths: each row
    left out was predicted by one member, so the scores of those rows are of such widths.
    """

    kind = "folds"

    def __init__(
        self, target: Target, members: list[Posterior], widths: Widths | None = None, facts: Json | None = None
    ) -> None:
        super().__init__(target, members, facts)
        self.widths = widths

    def predict(self, x: Data, num_draws: int | None = None) -> Predictive:
        """The average over the members; of `num_draws` so many as divide evenly over them."""
        num_members = len(self.members)
        if num_draws is not None:
            num_draws = max(1, num_draws // num_members) * num_members
        plain = super().predict(x, num_draws)
        return FoldsPredictive(plain, self.check_x(x), num_members, self.widths)

    def half_widths_of(self, x: Data, own: tree.Params, outputs: jax.Array) -> tuple[jax.Array, ...]:
        likelihood, members = self.model.likelihood, jnp.zeros(len(self.members))
        centre, below, above = half_widths_of(likelihood, own, outputs, None, members)
        if self.widths is None:
            return centre, below, above
        factor = jnp.exp(self.widths.log_widths(x, centre))
        return centre, below * factor, above * factor

    def state(self) -> tuple[Json, Arrays]:
        settings, arrays = super().state()
        if self.widths is not None:
            of_widths = {"flat": self.widths.flat, "centre": self.widths.centre, "spread": self.widths.spread}
            arrays |= {f"widths.{name}": array for name, array in of_widths.items()}
        return settings | {"has_widths": self.widths is not None}, arrays

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "FoldsPosterior":
        plain = MixturePosterior.from_state(target, settings, arrays, facts)
        widths = None
        if settings["has_widths"]:
            flat, centre, spread = (arrays[f"widths.{name}"] for name in ("flat", "centre", "spread"))
            num_columns = np.shape(target.blank_input)[1] + len(centre)
            widths = Widths(widths_target(num_columns, len(centre)), flat, centre, spread)
        return cls(target, plain.members, widths, facts)


class FoldsPredictive(Predictive):
    """A mixture of the members' predictions; its half-widths are the members' on average, times the learnt widths."""

    def __init__(self, plain: Predictive, x: Data, num_members: int, widths: Widths | None) -> None:
        self.__dict__.update(plain.__dict__, _num_members=num_members)
        self._widths = widths

    @cached_property
    def half_widths(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        centre, below, above = super().half_widths
        if self._widths is None:
            return centre, below, above
        factor = np.exp(np.asarray(self._widths.log_widths(self._x, centre), np.float64))
        return centre, below * factor, above * factor


def widths_target(num_columns: int, num_targets: int, data: Data = None) -> Target:
    """A small network of the size of errors; without data, for its shapes."""
    model = Model(
        nn.mlp(WIDTHS_HIDDEN, outputs=num_targets, activation="swish"),
        ErrorSize(),
        priors.InputScales(priors.FanIn(scale=2.0)),
    )
    return Target(model, (np.zeros((1, num_columns), np.float32), None) if data is None else data)
