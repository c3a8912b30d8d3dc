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
from posteria.methods.chains.warmup import Adaptation, Info, Sampler, Tuning, run_chains
from posteria.models.coordinates import LogDensity
from posteria.models.target import Density, Target
from posteria.posteriors.draws import Draws, DrawsPosterior
from posteria.settings import Count, Positive, ProperShare, Several, Share, Start, Warmup, check_settings


@dataclass(frozen=True)
class HMC:
    """Chains of HMC: the reference that other methods are graded against.

    `trajectory` and `step_size` are in units of the prior; the default trajectory is pi/2 * sqrt(temperature), a
    quarter of the prior's own period. `num_leapfrog` fixes the number of steps instead. Each trajectory is stretched
    by a factor drawn from 1 ± `jitter`, so that no direction of the posterior is in resonance with it; no more than
    `max_leapfrog` steps are taken. `step_size=None` is tuned in warm-up to `target_acceptance`.
    """

    num_chains: Several = 4
    num_draws: Count = 300
    num_warmup: Warmup = 150
    thinning: Count = 1
    step_size: Positive | None = None
    trajectory: Positive | None = None
    num_leapfrog: Count | None = None
    jitter: Share = 0.5
    max_leapfrog: Count = 1000
    target_acceptance: ProperShare = 0.7
    start: Start = "map"

    fidelity: ClassVar[str] = "exact"

    def __post_init__(self) -> None:
        check_settings(self)
        if self.trajectory is not None and self.num_leapfrog is not None:
            raise SettingError("both trajectory and num_leapfrog are given", "one of them", "leave one out")

    def fit(self, key: jax.Array, target: Target | Density, start: tree.Params, run: Run) -> Draws | DrawsPosterior:
        root_temperature = math.sqrt(target.temperature)
        trajectory = self.trajectory or math.pi / 2 * root_temperature
        sampler = hmc_sampler(trajectory, self.num_leapfrog, self.jitter, self.max_leapfrog)
        adaptation = Adaptation(
            num_steps=self.num_warmup,
            target_acceptance=self.target_acceptance,
            first_step_size=self.step_size or FIRST_STEP_SIZE * root_temperature,
            adapts_step_size=self.step_size is None,
            adapts_variances=False,  # the mass is the prior's precision
        )
        return run_chains(self, sampler, adaptation, key, target, start, run)


FIRST_STEP_SIZE = 0.1  # in units of the prior, at temperature 1


@kept
def hmc_sampler(trajectory: float, num_leapfrog: int | None, jitter: float, max_leapfrog: int) -> Sampler:
    from blackjax.mcmc import hmc

    kernel = hmc.build_kernel()

    def move(key: jax.Array, inner: tree.Tree, log_density: LogDensity, tuning: Tuning) -> tuple[tree.Tree, Info]:
        key_length, key_move = jax.random.split(key)
        wanted = trajectory / tuning.step_size if num_leapfrog is None else jnp.asarray(float(num_leapfrog))
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
