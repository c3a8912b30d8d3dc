"""Posteriors of dropout methods: the weights with noise drawn into their rows."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.models.target import Target
from posteria.posteriors.base import Posterior, check_num_draws
from posteria.random import as_key
from posteria.trace import dropout
from posteria.tree import Arrays, Json


class MaskPosterior(Posterior):
    """Weights whose rows are multiplied by independent noise: the distribution that dropout trains under.

    `strengths` has, for each leaf that carries noise, its rate ("bernoulli", "concrete") or variance ("gaussian"): one
    for the leaf, or one for each input unit.
    """

    kind = "masks"

    def __init__(
        self,
        target: Target,
        center: ArrayLike,
        noise: str,
        strengths: Mapping[str, ArrayLike],
        facts: Json | None = None,
    ) -> None:
        super().__init__(target, facts)
        self.center = jnp.asarray(center)  # (size,), flat
        self.noise = noise
        self.strengths = {path: jnp.asarray(strength) for path, strength in strengths.items()}

    @property
    def mean_params(self) -> tree.Params:
        """The weights without noise, which are their mean, in the network's own tree."""
        return tree.unraveller(self.target.structs)(self.center)["network"]

    @property
    def rates(self) -> Arrays:
        """The dropout rate of each leaf (or unit): for Gaussian noise the one of the same variance."""
        found = {path: np.asarray(strength) for path, strength in self.strengths.items()}
        return {path: value / (1 + value) for path, value in found.items()} if self.noise == "gaussian" else found

    def draws(self, key: jax.Array, x: Data, num_draws: int) -> tuple[jax.Array, tree.Params]:
        keys = jax.random.split(key, num_draws)
        return _forward(self.target, self.noise, self._paths)(self.center, self.strengths, keys, x)

    def sample(self, key: int | jax.Array, num_draws: int) -> tree.Params:
        """Weight draws in the network's own tree with a leading draw axis."""
        return self.sample_params(as_key(key), check_num_draws(num_draws))["network"]

    def sample_params(self, key: jax.Array, num_draws: int) -> tree.Params:
        """Draws of the network's and the likelihood's parameters, with a leading draw axis."""
        keys = jax.random.split(key, num_draws)
        return _sampler(self.target, self.noise, self._paths)(self.center, self.strengths, keys)

    @property
    def _paths(self) -> tuple[str, ...]:
        return tuple(self.strengths)

    def state(self) -> tuple[Json, Arrays]:
        numbered = {f"strength.{i}": np.atleast_1d(value) for i, value in enumerate(self.strengths.values())}
        return {"noise": self.noise, "leaves": list(self.strengths)}, {"center": np.asarray(self.center)} | numbered

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "MaskPosterior":
        stored = (arrays[f"strength.{i}"] for i in range(len(settings["leaves"])))
        strengths = {path: value[0] if len(value) == 1 else value for path, value in zip(settings["leaves"], stored)}
        return cls(target, arrays["center"], settings["noise"], strengths, facts)


def selected_units(target: Target, where: str | None) -> tuple[dropout.Selected, str]:
    """The input units of the network's layers, and a note on weights that can carry no noise."""
    return dropout.select(target.model.network, target.structs["network"], target.blank_input, where)


@kept
def _noisy_params(target: Target, noise: str, paths: tuple[str, ...]) -> Any:
    everywhere, _ = selected_units(target, None)
    selected = {path: everywhere[path] for path in paths}
    unravel = tree.unraveller(target.structs)

    def one(center: jax.Array, strengths: dict[str, jax.Array], key: jax.Array) -> tree.Params:
        params = unravel(center)
        return params | {"network": dropout.noisy_weights(noise, key, params["network"], selected, strengths)}

    return one


@kept
def _sampler(target: Target, noise: str, paths: tuple[str, ...]) -> Any:
    one = _noisy_params(target, noise, paths)
    return jax.jit(lambda center, strengths, keys: jax.lax.map(lambda key: one(center, strengths, key), keys))


@kept
def _forward(target: Target, noise: str, paths: tuple[str, ...]) -> Any:
    """Draw by draw, so that all draws' weights are never held at once."""
    one = _noisy_params(target, noise, paths)

    def outputs(
        center: jax.Array, strengths: dict[str, jax.Array], key: jax.Array, x: Data
    ) -> tuple[jax.Array, tree.Params]:
        params = one(center, strengths, key)
        return target.model.outputs(params["network"], x), params["likelihood"]

    return jax.jit(lambda center, strengths, keys, x: jax.lax.map(lambda key: outputs(center, strengths, key, x), keys))
