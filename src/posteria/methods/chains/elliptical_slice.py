"""Elliptical slice sampling. Murray, Adams & MacKay 2010; for any density, Nishihara, Murray & Adams 2014.

With a Gaussian q split off the density, a draw is uniform on the part of an ellipse, through the current point and a
draw from q, where the rest (log density - log q) is above a random level.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from posteria import tree
from posteria.compiled import kept
from posteria.engine.loop import Run
from posteria.methods.chain_costs import TrajectoryCosts
from posteria.methods.chains.warmup import Adaptation, Info, Sampler, Tuning, run_chains
from posteria.models.coordinates import LogDensity
from posteria.models.target import Density, Target
from posteria.posteriors.draws import Draws, DrawsPosterior
from posteria.settings import Count, Several, Start, Warmup, check_settings


@dataclass(frozen=True)
class EllipticalSlice(TrajectoryCosts):
    """Chains with no gradients and no step size: for a few dimensions, above all inside a subspace.

    The Gaussian is centred where warm-up ended, and is wide: `WIDTH` units of the prior, or of the subspace.
    `max_gradients` is of all chains together, and counts densities here: it ends warm-up in time and sets how many
    steps follow, as a budget does.
    """

    num_chains: Several = 4
    num_draws: Count = 500
    num_warmup: Warmup = 500
    thinning: Count = 5
    start: Start = "map"
    max_gradients: Count | None = None

    fidelity: ClassVar[str] = "exact"
    paper: ClassVar[str] = "Murray, Adams & MacKay 2010"

    def __post_init__(self) -> None:
        check_settings(self)

    def assumed_gradients(self) -> float:
        return ASSUMED_TRIES

    def fit(self, key: jax.Array, target: Target | Density, start: tree.Params, run: Run) -> Draws | DrawsPosterior:
        adaptation = Adaptation(
            num_steps=self.num_warmup,
            target_acceptance=1.0,
            first_step_size=WIDTH,
            adapts_step_size=False,
            adapts_variances=False,
        )
        return run_chains(self, slice_sampler(), adaptation, key, target, start, run)


ASSUMED_TRIES = 5  # points that a step tries
WIDTH = 2.0  # in units: a Gaussian narrower than the density would hold chains in its tails


class Slice(NamedTuple):
    position: jax.Array
    log_density: jax.Array
    centre: jax.Array  # of the Gaussian: where this chain began


@kept
def slice_sampler() -> Sampler:
    from blackjax.mcmc import elliptical_slice

    def init(position: jax.Array, log_density: LogDensity) -> Slice:
        return Slice(position, log_density(position), position)

    def move(key: jax.Array, inner: Slice, log_density: LogDensity, tuning: Tuning) -> tuple[Slice, Info]:
        def square(z: jax.Array) -> jax.Array:
            return 0.5 * ((z - inner.centre) ** 2).sum() / tuning.step_size**2

        def rest(z: jax.Array) -> jax.Array:
            value = log_density(z) + square(z)
            return jnp.where(jnp.isnan(value), -jnp.inf, value)  # BlackJAX would take it for a point on the slice

        kernel = elliptical_slice.build_kernel(tuning.step_size**2 * tuning.variances, inner.centre)
        before = elliptical_slice.EllipSliceState(inner.position, inner.log_density + square(inner.position))
        after, info = kernel(key, before, rest)
        moved = Slice(after.position, after.logdensity - square(after.position), inner.centre)
        none = jnp.asarray(0, jnp.int32)
        acceptance = 1.0 / jnp.asarray(info.subiter, jnp.float32)  # of the points that were tried
        num_tries = jnp.asarray(info.subiter, jnp.int32)
        return moved, Info(moved.log_density, acceptance, none, num_tries, none, tuning.step_size)

    return Sampler(init, move)
