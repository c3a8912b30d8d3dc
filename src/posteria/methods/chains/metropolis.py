"""Random-walk Metropolis-Hastings in units of the prior.

Metropolis et al. 1953; Hastings 1970; scaled as Roberts & Rosenthal 2001.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

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
class MetropolisHastings(ChainCosts):
    """Chains of random-walk proposals, no gradients: exact, and slow in more than a few dozen dimensions.

    `step_size` is the proposal's standard deviation in units of the prior, tuned in warm-up to `target_acceptance`
    when None.
    """

    num_chains: Several = 4
    num_draws: Count = 1000
    num_warmup: Warmup = 5000
    thinning: Count = 20
    step_size: Positive | None = None
    target_acceptance: ProperShare = 0.234
    start: Start = "map"

    fidelity: ClassVar[str] = "exact"
    paper: ClassVar[str] = "Metropolis et al. 1953; Hastings 1970; Roberts & Rosenthal 2001"

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
        return run_chains(self, metropolis_sampler(), adaptation, key, target, start, run)


@kept
def metropolis_sampler() -> Sampler:
    from blackjax.mcmc import random_walk

    kernel = random_walk.build_additive_step()

    def move(key: jax.Array, inner: tree.Tree, log_density: LogDensity, tuning: Tuning) -> tuple[tree.Tree, Info]:
        spread = tuning.step_size * jnp.sqrt(tuning.variances)
        inner, info = kernel(key, inner, log_density, random_walk.normal(spread))
        none, one = jnp.asarray(0, jnp.int32), jnp.asarray(1, jnp.int32)
        return inner, Info(inner.logdensity, info.acceptance_rate, none, one, none, tuning.step_size)

    return Sampler(random_walk.init, move)
