"""Barker's proposal in units of the prior. Barker 1965; Livingstone & Zanella 2022.

Each coordinate is moved by a normal step z, towards the larger density with probability sigmoid(z * gradient): a
gradient that is too steep only decides the sign, and cannot throw the proposal far away as in Langevin's. With d the
whole move, it is accepted with probability min(1, p(y) / p(x) * prod (1 + exp(-d g(x))) / (1 + exp(d g(y)))).
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from posteria import tree
from posteria.compiled import kept
from posteria.engine.loop import Run
from posteria.methods.chain_costs import ChainCosts
from posteria.methods.chains.warmup import Adaptation, Info, Sampler, Tuning, run_chains
from posteria.models.coordinates import LogDensity
from posteria.models.target import Density, Target
from posteria.posteriors.draws import Draws, DrawsPosterior
from posteria.settings import Count, Positive, ProperShare, Several, Start, Warmup, check_settings, refuse_idle


@dataclass(frozen=True)
class Barker(ChainCosts):
    """Chains that take one gradient a step, as Langevin's, and forgive a step size that is too large.

    `step_size` is the standard deviation of a coordinate's step in units of the prior; None tunes it, and a scale for
    each coordinate, in warm-up to `target_acceptance`.
    """

    num_chains: Several = 4
    num_draws: Count = 500
    num_warmup: Warmup = 2000
    thinning: Count = 10
    step_size: Positive | None = None
    target_acceptance: ProperShare = 0.4
    start: Start = "map"

    fidelity: ClassVar[str] = "exact"
    paper: ClassVar[str] = "Livingstone & Zanella 2022"

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.step_size is not None, "target_acceptance", "the step_size")

    def fit(self, key: jax.Array, target: Target | Density, start: tree.Params, run: Run) -> Draws | DrawsPosterior:
        adaptation = Adaptation(
            num_steps=self.num_warmup,
            target_acceptance=self.target_acceptance,
            first_step_size=self.step_size or 0.1 * math.sqrt(target.temperature),
            adapts_step_size=self.step_size is None,
            adapts_variances=self.step_size is None,
        )
        return run_chains(self, barker_sampler(), adaptation, key, target, start, run)


class State(NamedTuple):
    position: jax.Array
    log_density: jax.Array
    gradient: jax.Array


@kept
def barker_sampler() -> Sampler:
    def init(position: jax.Array, log_density: LogDensity) -> State:
        return State(position, *jax.value_and_grad(log_density)(position))

    def move(key: jax.Array, state: State, log_density: LogDensity, tuning: Tuning) -> tuple[State, Info]:
        key_size, key_sign, key_accept = jax.random.split(key, 3)
        scale = tuning.step_size * jnp.sqrt(tuning.variances)
        size = scale * jax.random.normal(key_size, state.position.shape, state.position.dtype)
        is_kept = jax.random.bernoulli(key_sign, jax.nn.sigmoid(size * state.gradient))
        proposed = init(state.position + jnp.where(is_kept, size, -size), log_density)
        log_ratio = log_acceptance(state, proposed)
        is_accepted = jnp.log(jax.random.uniform(key_accept)) < log_ratio
        state = jax.tree.map(lambda new, old: jnp.where(is_accepted, new, old), proposed, state)
        none, one = jnp.asarray(0, jnp.int32), jnp.asarray(1, jnp.int32)
        acceptance = jnp.exp(jnp.minimum(0.0, log_ratio))
        return state, Info(state.log_density, acceptance, none, one, none, tuning.step_size)

    return Sampler(init, move)


def log_acceptance(state: State, proposed: State) -> jax.Array:
    """Log of the density's ratio times that of the proposals; -inf where the proposed density is not finite."""
    moved = proposed.position - state.position
    there, back = jax.nn.softplus(-moved * state.gradient), jax.nn.softplus(moved * proposed.gradient)
    log_ratio = proposed.log_density - state.log_density + jnp.sum(there - back)
    return jnp.where(jnp.isfinite(log_ratio), log_ratio, -jnp.inf)
