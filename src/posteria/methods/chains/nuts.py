"""The No-U-Turn Sampler in units of the prior. Hoffman & Gelman 2014, with Betancourt's multinomial proposals."""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp

from posteria import tree
from posteria.compiled import kept
from posteria.engine.loop import Run
from posteria.methods.chain_costs import TrajectoryCosts
from posteria.methods.chains.hmc import FIRST_STEP_SIZE
from posteria.methods.chains.warmup import Adaptation, Info, Sampler, Tuning, run_chains
from posteria.models.coordinates import LogDensity
from posteria.models.target import Density, Target
from posteria.posteriors.draws import Draws, DrawsPosterior
from posteria.settings import Count, Positive, ProperShare, Several, Start, Warmup, check_settings, refuse_idle, up_to


@dataclass(frozen=True)
class NUTS(TrajectoryCosts):
    """The exact posterior of small networks with nothing to tune: the reference of a comparison.

    Trajectories are as long as they go on leaving; step size and variances are tuned in warm-up.
    `step_size` is in units of the prior; a trajectory has at most 2 ** `max_doublings` leapfrog steps.
    `max_gradients`, of all chains together, ends warm-up in time and sets how many steps follow: what a budget sets.
    """

    num_chains: Several = 4
    num_draws: Count = 500
    num_warmup: Warmup = 500
    thinning: Count = 1
    step_size: Positive | None = None
    max_doublings: Annotated[int, up_to(1, 20)] = 10
    target_acceptance: ProperShare = 0.8
    start: Start = "map"
    max_gradients: Count | None = None

    fidelity: ClassVar[str] = "exact"
    paper: ClassVar[str] = "Hoffman & Gelman 2014; Betancourt 2017"

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.step_size is not None, "target_acceptance", "the step_size")

    def fit(self, key: jax.Array, target: Target | Density, start: tree.Params, run: Run) -> Draws | DrawsPosterior:
        root_temperature = math.sqrt(target.temperature)
        adaptation = Adaptation(
            num_steps=self.num_warmup,
            target_acceptance=self.target_acceptance,
            first_step_size=self.step_size or FIRST_STEP_SIZE * root_temperature,
            adapts_step_size=self.step_size is None,
        )
        return run_chains(self, nuts_sampler(self.max_doublings), adaptation, key, target, start, run)


@kept
def nuts_sampler(max_doublings: int) -> Sampler:
    from blackjax.mcmc import nuts

    kernel = nuts.build_kernel()

    def move(key: jax.Array, inner: tree.Tree, log_density: LogDensity, tuning: Tuning) -> tuple[tree.Tree, Info]:
        inner, info = kernel(key, inner, log_density, tuning.step_size, tuning.variances, max_doublings)
        is_capped = (info.num_trajectory_expansions == max_doublings) & ~info.is_turning
        return inner, Info(
            inner.logdensity,
            info.acceptance_rate,
            info.is_divergent.astype(jnp.int32),
            jnp.asarray(info.num_integration_steps, jnp.int32),
            is_capped.astype(jnp.int32),
            tuning.step_size,
        )

    return Sampler(nuts.init, move)
