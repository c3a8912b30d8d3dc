"""Probabilistic backpropagation, the kernel of `ExpectationPropagation` on ReLU networks.

Weights are independent Gaussians, in units of the prior: w = unit z. A pass takes each datum once: the outputs'
moments (`trace/moments.py`), log Z, its gradients by every weight's mean and variance, and the update that matches
moments; then the prior's factors are refined, one a weight, with the Gamma over the prior's precision.
Hernandez-Lobato and Adams 2015, sections 3 and 4.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.data.batches import take
from posteria.engine.loop import Kernel
from posteria.errors import SettingError
from posteria.models.densities import Gamma, matched_precision
from posteria.models.priors import normal_of
from posteria.models.target import Target
from posteria.trace.moments import moments

MAX_CAVITY_VARIANCE = 1e5  # in prior variances: beyond it the data say nothing of a weight, and its factor stays


class PriorSites(NamedTuple):
    """The prior's factor for each weight, in natural parameters, and what it adds to the Gamma's shape and rate."""

    precision: jax.Array
    shift: jax.Array
    shape: jax.Array
    rate: jax.Array


class State(NamedTuple):
    mean: jax.Array  # (size,)
    variance: jax.Array  # (size,)
    prior_sites: PriorSites
    noise: Gamma | None
    prior: Gamma


class Info(NamedTuple):
    log_density: jax.Array  # the sum of log Z
    num_gradients: jax.Array  # of all data


def unit_vector(target: Target) -> jax.Array:
    """The standard deviation of each weight's prior, which must be normal around zero: (size,)."""
    normals: list[Any] = [normal_of(target.model.prior, leaf) for leaf in target.leaves]
    if any(normal is None or np.any(np.asarray(normal[0]) != 0) for normal in normals):
        raise SettingError(
            f"the prior {type(target.model.prior).__name__}", "one that is normal around zero", "take po.priors.FanIn()"
        )
    return jnp.concatenate(
        [jnp.broadcast_to(std, leaf.shape).ravel() for (_, std), leaf in zip(normals, target.leaves)]
    )


def first_means(key: jax.Array, target: Target, start: tree.Params) -> jax.Array:
    """Where the means start, in prior units: `start`, or N(0, 1/fan-in), to break the symmetry between units."""
    if start is not None:
        return tree.ravel(tree.index(target.as_starts(start, 1), 0)["network"]) / unit_vector(target)
    leaves = target.leaves
    keys = jax.random.split(key, len(leaves))
    return jnp.concatenate(
        [
            jnp.zeros(leaf.shape).ravel()
            if leaf.fan_in is None
            else leaf.fan_in**-0.5 * jax.random.normal(k, leaf.shape).ravel()
            for k, leaf in zip(keys, leaves)
        ]
    )


@kept
def backprop_kernel(target: Target) -> Kernel:
    """A step is a pass over the data, in a random order."""
    unit = unit_vector(target)
    unravel = tree.unraveller(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), target.structs["network"]))
    forward = moments(target.model.network.apply)
    update = target.model.likelihood.moment_update  # type: ignore[attr-defined]

    def init(key: jax.Array, begin: tree.Tree, data: Data) -> State:
        mean, noise, prior = begin
        variance = jnp.full_like(mean, prior.rate / (prior.shape - 1))
        zeros = jnp.zeros_like(mean)
        return State(mean, variance, PriorSites(1 / variance, zeros, zeros, zeros), noise, prior)

    def visit(data: Data, state: State, i: jax.Array) -> tuple[State, jax.Array]:
        x, y = take(data, i[None])
        noise = jax.tree.map(lambda leaf: leaf[None], state.noise)

        def log_z(mean: jax.Array, variance: jax.Array) -> tuple[jax.Array, Gamma | None]:
            outputs, variances = forward(unravel(unit * mean), unravel(unit**2 * variance), x)
            value, matched = update(noise, outputs, variances, y)
            return value[0], matched

        (value, matched), (slope, slope_variance) = jax.value_and_grad(log_z, (0, 1), has_aux=True)(
            state.mean, state.variance
        )
        mean, variance = match(state.mean, state.variance, slope, slope_variance)
        if noise is not None:
            is_valid = (matched.shape[0] > 1) & (matched.rate[0] > 0)
            matched = jax.tree.map(lambda new, old: jnp.where(is_valid, new[0], old), matched, state.noise)
        return state._replace(mean=mean, variance=variance, noise=matched), value

    def step(key: jax.Array, state: State, data: Data) -> tuple[State, Info]:
        order = jax.random.permutation(key, target.num_data)
        state, log_zs = jax.lax.scan(lambda state, i: visit(data, state, i), state, order)
        return refine_prior(state), Info(log_zs.sum(), jnp.asarray(1))

    return Kernel(init, step)


def match(
    mean: jax.Array, variance: jax.Array, slope: jax.Array, slope_variance: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The moments of N(mean, variance) times a factor with these derivatives of log Z; unchanged where there are none
    (a variance below zero)."""
    new_variance = variance - variance**2 * (slope**2 - 2 * slope_variance)
    is_valid = (new_variance > 0) & jnp.isfinite(slope)
    return jnp.where(is_valid, mean + variance * slope, mean), jnp.where(is_valid, new_variance, variance)


def refine_prior(state: State) -> State:
    """Take each weight's prior factor out, and put it back with the moments it should have now."""

    def refine(prior: Gamma, weight: tree.Tree) -> tuple[Gamma, tree.Tree]:
        mean, variance, site = weight
        precision, shift = 1 / variance - site.precision, mean / variance - site.shift
        cavity = Gamma(prior.shape - site.shape, prior.rate - site.rate)
        cavity_variance, cavity_mean = 1 / precision, shift / precision
        _, new = matched_precision(cavity, cavity_variance[None], cavity_mean[None])
        # N(0, prior variance) times the cavity, the prior's variance taken at its mean
        prior_variance = cavity.rate / (cavity.shape - 1)
        new_variance = 1 / (precision + 1 / prior_variance)
        new_site = PriorSites(1 / prior_variance, jnp.zeros(()), new.shape - cavity.shape, new.rate - cavity.rate)
        is_valid = (precision > 1 / MAX_CAVITY_VARIANCE) & (cavity.shape > 1) & (cavity.rate > 0)
        is_valid &= (new.shape > 1) & (new.rate > 0)
        old = prior, mean, variance, site
        prior, *rest = jax.tree.map(
            lambda new, old: jnp.where(is_valid, new, old), (new, new_variance * shift, new_variance, new_site), old
        )
        return prior, rest

    weights = state.mean, state.variance, state.prior_sites
    final: Any = jax.lax.scan(refine, state.prior, weights)
    prior, (mean, variance, sites) = final
    return State(mean, variance, sites, state.noise, prior)
