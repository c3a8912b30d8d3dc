"""Scales that are inferred with the weights: w = scale * z, where z follows the prior as it is at scale 1.

A scale and its many weights form a funnel: as the scale falls, the weights are held to a neck that no one step size
fits, and their joint density grows without bound. So whatever moves them moves z, the weights relative to their scale,
beside the scale's logarithm, which are independent before there are data. Neal 1996, Bayesian Learning for Neural
Networks; Fortuin et al. 2022 and Tran et al. 2022 for what the scale decides.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria.models.densities import normal, widen
from posteria.models.leaf import Leaf
from posteria.settings import Infer, infer
from posteria.tree import Params

HALF_NORMAL_STD = 2.0

Own = dict[str, Any]  # of a leaf: "scale", a logarithm; "inputs", of each input


def given(setting: float | Infer) -> float:
    """A prior's own scale: what was given, and 1 where it is to be inferred."""
    return 1.0 if setting is infer else float(setting)


class LearntScale:
    """The part of a prior's contract that concerns a scale to infer: one for each leaf that has one to infer.

    So the weights of a linear operation share one scale, and the biases beside them another. Its prior is half-normal
    with standard deviation 2. Near 0 that is flat, so a layer without a signal may shrink to nothing, as it may not
    under a density of the logarithm, such as a log-normal; and its tail is light, so that few data do not buy
    functions of a hundred standard deviations, as a half-Cauchy lets them. Half of its mass is above 1.35, 5 % above
    3.9: of fixed scales, 1 to 3 were best for standardised tables with fan-in.
    """

    scale: Any

    def infers(self, leaf: Leaf) -> bool:
        return self.scale is infer

    def init(self, leaf: Leaf) -> Own:
        return {"scale": np.zeros((), jnp.result_type(float))} if self.infers(leaf) else {}

    def log_prior(self, own: Own, leaf: Leaf) -> jax.Array:
        if not own:
            return jnp.zeros(())
        size = jnp.exp(own["scale"]) / HALF_NORMAL_STD
        return normal(size, math.log(HALF_NORMAL_STD / 2)) + own["scale"]  # the last is the logarithm's Jacobian

    def sample_own(self, key: jax.Array, leaf: Leaf) -> Own:
        scale = math.log(HALF_NORMAL_STD) + jnp.log(jnp.abs(jax.random.normal(key)))
        return {"scale": scale} if self.infers(leaf) else {}

    def log_scale(self, own: Own, leaf: Leaf) -> jax.Array:
        return own["scale"]


class Scales:
    """All scales that a prior infers for a network's leaves; false where there are none.

    `own` is {path of a leaf: what is inferred for it}.
    """

    def __init__(self, prior: Any, leaves: Sequence[Leaf]) -> None:
        self._prior = prior
        self._leaves = leaves
        found = {leaf.path: prior.init(leaf) for leaf in leaves} if hasattr(prior, "log_scale") else {}
        self._first = {path: own for path, own in found.items() if own}

    def __bool__(self) -> bool:
        return bool(self._first)

    def init(self) -> dict[str, Own]:
        """Where they start: scale 1."""
        return jax.tree.map(np.array, self._first)

    def log_prior(self, own: dict[str, Own]) -> jax.Array:
        return sum((self._prior.log_prior(own[leaf.path], leaf) for leaf in self._learnt), start=jnp.zeros(()))

    def sample(self, key: jax.Array) -> dict[str, Own]:
        keys = jax.random.split(key, max(1, len(self._first)))
        return {leaf.path: self._prior.sample_own(k, leaf) for k, leaf in zip(keys, self._learnt)}

    def logs(self, own: dict[str, Own]) -> list[Any]:
        """The logarithm for each leaf, in a shape that broadcasts to it; 0.0 where nothing is inferred."""
        return [self._prior.log_scale(own[leaf.path], leaf) if leaf.path in own else 0.0 for leaf in self._leaves]

    def log(self, path: str, own: Own) -> jax.Array:
        """Of one leaf."""
        return self._prior.log_scale(own, next(leaf for leaf in self._learnt if leaf.path == path))

    def log_volume(self, own: dict[str, Own]) -> jax.Array:
        """log |dw / dz|: the logarithms of all weights' scales, summed."""
        terms = (jnp.broadcast_to(log, leaf.shape).sum() for log, leaf in zip(self.logs(own), self._leaves))
        return sum(terms, start=jnp.zeros(()))

    def scaled(self, relative: Params, own: dict[str, Own]) -> Params:
        """w = scale * z, in 32 bits at least."""
        leaves, treedef = jax.tree.flatten(relative)
        return treedef.unflatten(widen(z) * jnp.exp(jnp.asarray(log)) for z, log in zip(leaves, self.logs(own)))

    def absolute(self, relative: Params, own: dict[str, Own]) -> Params:
        """The same, in the leaves' own dtypes."""
        leaves, treedef = jax.tree.flatten(self.scaled(relative, own))
        return treedef.unflatten(w.astype(leaf.dtype) for w, leaf in zip(leaves, self._leaves))

    def relative(self, network: Params, own: dict[str, Own]) -> Params:
        """z = w / scale, in 32 bits at least."""
        leaves, treedef = jax.tree.flatten(network)
        return treedef.unflatten(widen(w) * jnp.exp(-jnp.asarray(log)) for w, log in zip(leaves, self.logs(own)))

    @property
    def _learnt(self) -> list[Leaf]:
        return [leaf for leaf in self._leaves if leaf.path in self._first]
