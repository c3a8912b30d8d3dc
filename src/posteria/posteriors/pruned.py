"""Removing weights from a Gaussian posterior: what is left is a posterior again, stored and computed sparsely.

A weight goes if its noise drowns it: `snr` = |mean| / std is small (Blundell et al. 2015), or log alpha =
log(std^2 / mean^2) large (Molchanov et al. 2017), which are the same order. A removed weight is exactly 0.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.errors import SettingError
from posteria.models.priors import Leaf
from posteria.models.target import Target
from posteria.posteriors.base import Pruned, check_num_draws
from posteria.posteriors.gaussian import Diagonal, GaussianPosterior, RelativeGaussianPosterior
from posteria.random import as_key
from posteria.tree import Arrays, Json

THRESHOLD = 3.0  # of log alpha: a dropout rate of 0.95. Molchanov et al. 2017
TINY = 1e-30  # keeps the logarithm of a mean that is 0 finite
ORDERS = ("snr", "log_alpha")


class SparsePosterior(GaussianPosterior):
    """A Gaussian that was trained to be sparse, with the weights that could go at 20 moments of its training."""

    kind = "sparse gaussian"

    def __init__(self, target: Target, mean: ArrayLike, spread: Any, facts: Json | None = None, *, removals: Any):
        super().__init__(target, mean, spread, facts)
        self._bits = np.asarray(removals)  # (moment, byte)

    @property
    def removals(self) -> list[Arrays]:
        """At each moment, for each leaf that carries noise, which weights could be removed."""
        std = np.sqrt(np.asarray(self.spread.variances))
        parts = {path: slice_ for path, slice_ in slices_of(self.target).items() if std[slice_].any()}
        shapes = {leaf.path: leaf.shape for leaf in self.target.leaves}
        moments = []
        for row in np.unpackbits(self._bits, axis=1).astype(bool):
            removed, first = {}, 0
            for path, part in parts.items():
                count = part.stop - part.start
                removed[path] = row[first : first + count].reshape(shapes[path])
                first += count
            moments.append(removed)
        return moments

    def state(self) -> tuple[Json, Arrays]:
        settings, arrays = super().state()
        return settings, arrays | {"history": self._bits}

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "SparsePosterior":
        return cls(target, arrays["mean"], Diagonal(arrays["spread.std"]), facts, removals=arrays["history"])


class PrunedPosterior(Pruned):
    """A Gaussian over the weights that are left, independent of each other; all others are 0.

    `kept` are the places in the flat parameters that are not removed, (left,); `mean` and `std` belong to them.
    """

    kind = "pruned"

    def __init__(
        self, target: Target, kept: ArrayLike, mean: ArrayLike, std: ArrayLike, facts: Json | None = None
    ) -> None:
        super().__init__(target, facts)
        self.kept = np.asarray(kept, np.int32)
        self.mean, self.std = np.asarray(mean, np.float32), np.asarray(std, np.float32)

    @property
    def mean_params(self) -> tree.Params:
        """The mean, in the network's own tree."""
        return _params(self.target)(self.kept, self.mean)["network"]

    def sparsity(self) -> dict[str, float]:
        """The share of each layer's weights that is removed."""
        return {path: 1 - self._left(path) / part_size for path, part_size in self._sizes().items()}

    @property
    def compression(self) -> float:
        """Weights of all layers for each one that is left."""
        sizes = self._sizes()
        return sum(sizes.values()) / max(1, sum(self._left(path) for path in sizes))

    def draws(self, key: jax.Array, x: Data, num_draws: int) -> tuple[jax.Array, tree.Params]:
        return _forward(self.target)(self.kept, self.mean, self.std, jax.random.split(key, num_draws), x)

    def sample(self, key: int | jax.Array, num_draws: int) -> tree.Params:
        """Weight draws in the network's own tree with a leading draw axis."""
        return self.sample_params(as_key(key), check_num_draws(num_draws))["network"]

    def sample_params(self, key: jax.Array, num_draws: int) -> tree.Params:
        """Draws of the network's and the likelihood's parameters, with a leading draw axis."""
        values = jax.lax.map(lambda k: draw_values(self.mean, self.std, k), jax.random.split(key, num_draws))
        return jax.vmap(lambda row: _params(self.target)(self.kept, row))(values)

    def state(self) -> tuple[Json, Arrays]:
        return {}, {"kept": self.kept, "mean": self.mean, "std": self.std}

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "PrunedPosterior":
        return cls(target, arrays["kept"], arrays["mean"], arrays["std"], facts)

    def _sizes(self) -> dict[str, int]:
        slices = slices_of(self.target)
        return {leaf.path: slices[leaf.path].stop - slices[leaf.path].start for leaf in weights(self.target)}

    def _left(self, path: str) -> int:
        part = slices_of(self.target)[path]
        return int(((self.kept >= part.start) & (self.kept < part.stop)).sum())


def prune(
    posterior: Any, by: str = "snr", fraction: float | None = None, threshold: float | None = None
) -> PrunedPosterior:
    """Remove the weights of layers whose noise drowns them; no training follows. Biases and the like stay.

    `by="snr"`: those whose |mean| / std is below `threshold`; `by="log_alpha"`: whose log(std^2 / mean^2) is above it.
    `fraction` instead removes that share of all weights, the noisiest first; what is removed already counts.
    """
    if by not in ORDERS:
        raise SettingError(f"by is {by!r}", f"one of {ORDERS}", '"snr" is the default')
    if (fraction is None) == (threshold is None):
        raise SettingError(
            f"fraction is {fraction}, threshold is {threshold}",
            "one of the two",
            'as in prune(by="snr", fraction=0.95) or prune(by="log_alpha", threshold=3.0)',
        )
    if fraction is not None and not 0.0 <= fraction <= 1.0:
        raise SettingError(f"fraction is {fraction}", "a share in [0, 1]", "0.95 removes 95 %")
    if threshold is not None and not (threshold >= 0.0 if by == "snr" else threshold == threshold):
        raise SettingError(
            f"threshold is {threshold}",
            "a ratio of at least 0" if by == "snr" else "a number",
            'as in prune(by="snr", threshold=1.0) or prune(by="log_alpha", threshold=3.0)',
        )
    mean, std = dense_moments(posterior)
    slices = slices_of(posterior.target)
    if not weights(posterior.target):
        raise SettingError("the network has no layer", "weights that multiply inputs", "there is nothing to remove")
    places = np.concatenate([np.arange(*slices[leaf.path].indices(len(mean))) for leaf in weights(posterior.target)])
    noise = log_alpha(mean[places], std[places])
    if threshold is None:
        removed = np.argsort(-noise, kind="stable")[: round((fraction or 0.0) * len(places))]
    else:
        with np.errstate(divide="ignore"):
            limit = -2 * np.log(threshold) if by == "snr" else threshold
        removed = np.flatnonzero(noise > limit)
    is_kept = np.ones(len(mean), bool)
    is_kept[places[removed]] = False
    if isinstance(posterior, PrunedPosterior):  # what was removed has mean 0 and no noise
        is_kept &= np.isin(np.arange(len(mean)), posterior.kept)
    kept = np.flatnonzero(is_kept)
    facts = {name: value for name, value in posterior.facts.items() if name not in ("elbo", "elbo_error")}
    pruned = PrunedPosterior(posterior.target, kept, mean[kept], std[kept], facts)
    pruned.attached = posterior.attached
    return pruned


def log_alpha(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """log(std^2 / mean^2): -infinity for a weight without noise, +infinity for one that is 0."""
    mean, std = np.abs(np.asarray(mean, np.float64)), np.asarray(std, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(mean == 0, np.inf, 2 * (np.log(std) - np.log(mean)))


def dense_moments(posterior: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every parameter, flat."""
    if isinstance(posterior, PrunedPosterior):
        moments = np.zeros((2, tree.size(posterior.target.structs)), np.float32)
        moments[:, posterior.kept] = posterior.mean, posterior.std
        return moments[0], moments[1]
    if isinstance(posterior, RelativeGaussianPosterior):
        raise SettingError(
            "a posterior of weights whose scales are inferred: they are no Gaussian",
            "a Gaussian with independent weights",
            "fit with scales that are given, as those in facts['prior_scales']",
        )
    if not isinstance(posterior, GaussianPosterior) or not isinstance(posterior.spread, Diagonal):
        raise SettingError(
            f"the posterior is {type(posterior).__name__}",
            "a Gaussian with independent weights",
            "fit MeanField or SparseVariationalDropout",
        )
    return np.asarray(posterior.mean), np.asarray(posterior.spread.std)


def log_alphas(network: tree.Params, log_variance: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """log(sigma^2 / theta^2) of each leaf that has a log variance, inside compiled code."""
    theta = dict(zip(tree.paths(network), jax.tree.leaves(network)))
    return {
        path: value - jnp.log(jnp.square(theta[path].astype(value.dtype)) + TINY)
        for path, value in log_variance.items()
    }


def removed_bits(log_alpha_by_path: dict[str, jax.Array], paths: list[str]) -> jax.Array:
    """Which weights the usual threshold removes, one bit each: (byte,)."""
    return jnp.packbits(jnp.concatenate([(log_alpha_by_path[path] > THRESHOLD).ravel() for path in paths]))


# ---- places in the flat parameters


def weights(target: Target) -> list[Leaf]:
    return [leaf for leaf in target.leaves if leaf.fan_in is not None]


@kept
def slices_of(target: Target) -> dict[str, slice]:
    """Where each leaf of the network is in the flat parameters."""
    first = tree.size(target.structs["likelihood"])  # "likelihood" comes before "network"
    slices = {}
    for leaf in target.leaves:
        count = int(np.prod(leaf.shape))
        slices[leaf.path] = slice(first, first + count)
        first += count
    return slices


@kept
def _params(target: Target) -> Any:
    """(places, values) -> parameters, zero elsewhere."""
    unravel, size = tree.unraveller(target.structs), tree.size(target.structs)
    return jax.jit(lambda kept, values: unravel(jnp.zeros(size, values.dtype).at[kept].set(values)))


def draw_values(mean: ArrayLike, std: ArrayLike, key: jax.Array) -> jax.Array:
    center = jnp.asarray(mean)
    return center + jnp.asarray(std) * jax.random.normal(key, center.shape)


@kept
def _forward(target: Target) -> Any:
    def one(kept: jax.Array, values: jax.Array, x: Data) -> tuple[jax.Array, tree.Params]:
        params = _params(target)(kept, values)
        return target.model.outputs(params["network"], x), params["likelihood"]

    def forward(
        kept: jax.Array, mean: jax.Array, std: jax.Array, keys: jax.Array, x: Data
    ) -> tuple[jax.Array, tree.Params]:
        return jax.lax.map(lambda key: one(kept, draw_values(mean, std, key), x), keys)

    return jax.jit(forward)
