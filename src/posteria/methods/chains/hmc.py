"""Hamiltonian Monte Carlo in units of the prior. Neal 2011; Izmailov et al. 2021.

A draw follows Hamiltonian dynamics on -log density for a fixed time by leapfrog steps, and is accepted with
probability min(1, exp(-energy error)); a rejection counts the current state again.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from posteria import tree
from posteria.compiled import kept
from posteria.engine.loop import Run
from posteria.errors import SettingError
from posteria.methods.chain_costs import TrajectoryCosts
from posteria.methods.chains.warmup import Adaptation, Info, Sampler, Tuning, run_chains
from posteria.models.coordinates import LogDensity
from posteria.models.target import Density, Target
from posteria.posteriors.draws import Draws, DrawsPosterior
from posteria.settings import (
    LARGEST_INT,
    Count,
    Positive,
    ProperShare,
    Several,
    Share,
    Start,
    Warmup,
    check_settings,
    refuse_idle,
)

FIRST_STEP_SIZE = 0.1  # in units of the prior, at temperature 1
JITTER = 0.5  # of a trajectory, on either side
MAX_LEAPFROG = 1000


@dataclass(frozen=True)
class HMC(TrajectoryCosts):
    """The exact posterior of networks that can be sampled for long: the literature's reference for all other methods.

    `trajectory` and `step_size` are in units of the prior; the default trajectory is pi/2 * sqrt(temperature), a
    quarter of the prior's own period. Each is stretched by a factor drawn from 1 ± `jitter` (None: 0.5), so that no
    direction of the posterior is in resonance with it, and cut at `max_leapfrog` steps. `num_leapfrog` fixes the number
    of steps instead: so many are taken, neither cut nor, unless `jitter` is given too, stretched. `step_size=None` is
    tuned in warm-up to `target_acceptance`. `max_gradients`, of all chains together, ends warm-up in time and sets how
    many steps follow: what a budget sets.
    """

    num_chains: Several = 4
    num_draws: Count = 300
    num_warmup: Warmup = 150
    thinning: Count = 1
    step_size: Positive | None = None
    trajectory: Positive | None = None
    num_leapfrog: Count | None = None
    jitter: Share | None = None
    max_leapfrog: Count = MAX_LEAPFROG
    target_acceptance: ProperShare = 0.7
    start: Start = "map"
    max_gradients: Count | None = None

    fidelity: ClassVar[str] = "exact"
    paper: ClassVar[str] = "Neal 2011; Izmailov et al. 2021"

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.step_size is not None, "target_acceptance", "the step_size")
        if self.trajectory is not None and self.num_leapfrog is not None:
            raise SettingError("both trajectory and num_leapfrog are given", "one of them", "leave one out")
        if self.max_leapfrog != MAX_LEAPFROG and (self.num_leapfrog or 0) > self.max_leapfrog:
            raise SettingError(
                f"num_leapfrog is {self.num_leapfrog} and max_leapfrog {self.max_leapfrog}",
                "no more than at most",
                "leave max_leapfrog out: it cuts trajectories of a given length",
            )

    def assumed_gradients(self) -> float:
        return self.num_leapfrog or super().assumed_gradients()

    def fit(self, key: jax.Array, target: Target | Density, start: tree.Params, run: Run) -> Draws | DrawsPosterior:
        root_temperature = math.sqrt(target.temperature)
        if self.num_leapfrog is not None:
            sampler = hmc_sampler(self.num_leapfrog, self.jitter or 0.0, is_in_steps=True)
        else:
            trajectory = self.trajectory or math.pi / 2 * root_temperature
            jitter = JITTER if self.jitter is None else self.jitter
            sampler = hmc_sampler(trajectory, jitter, self.max_leapfrog)
        adaptation = Adaptation(
            num_steps=self.num_warmup,
            target_acceptance=self.target_acceptance,
            first_step_size=self.step_size or FIRST_STEP_SIZE * root_temperature,
            adapts_step_size=self.step_size is None,
            adapts_variances=False,  # the mass is the prior's precision
        )
        return run_chains(self, sampler, adaptation, key, target, start, run)


@kept
def hmc_sampler(length: float, jitter: float, max_leapfrog: int = LARGEST_INT, is_in_steps: bool = False) -> Sampler:
    """`length` of a trajectory, in units of the prior or in leapfrog steps."""
    from blackjax.mcmc import hmc

    kernel = hmc.build_kernel()

    def move(key: jax.Array, inner: tree.Tree, log_density: LogDensity, tuning: Tuning) -> tuple[tree.Tree, Info]:
        key_length, key_move = jax.random.split(key)
        if is_in_steps and jitter == 0.0:
            steps = jnp.asarray(length, jnp.int32)
        else:
            wanted = length if is_in_steps else length / tuning.step_size
            stretch = jax.random.uniform(key_length, minval=1.0 - jitter, maxval=1.0 + jitter)
            steps = jnp.maximum(1, jnp.ceil(wanted * stretch)).astype(jnp.int32)
        inner, info = kernel(
            key_move, inner, log_density, tuning.step_size, tuning.variances, jnp.minimum(steps, max_leapfrog)
        )
        return inner, Info(
            inner.logdensity,
            info.acceptance_rate,
            info.is_divergent.astype(jnp.int32),
            info.num_integration_steps,
            (steps > max_leapfrog).astype(jnp.int32),
            tuning.step_size,
        )

    return Sampler(hmc.init, move)
