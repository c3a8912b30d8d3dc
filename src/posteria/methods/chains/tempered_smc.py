"""The evidence by tempered sequential Monte Carlo.

Particles drawn from the prior follow prior x likelihood^power as the power grows from 0 to 1, and the evidence is the
product of the mean weights along the way, without bias. Del Moral, Doucet and Jasra 2006.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.errors import SettingError
from posteria.models.coordinates import LogDensity, coordinates
from posteria.models.target import Target
from posteria.settings import MOST_AT_ONCE, Count, ProperShare, check_settings, up_to

MAX_POWERS = 2000
FIRST_STEP_SIZE = 0.5  # in standard deviations of the particles
TARGET_ACCEPTANCE = 0.8


@dataclass(frozen=True)
class TemperedSMC:
    """Settings of tempered sequential Monte Carlo: the yardstick for small networks.

    The next power is the one that leaves `target_ess` of the particles' effective number; then each makes `num_moves`
    moves of HMC, in units of the particles' own spread. The standard error comes from `num_runs` independent runs.
    """

    num_particles: Annotated[int, up_to(2, MOST_AT_ONCE)] = 500
    num_runs: Annotated[int, up_to(2, MOST_AT_ONCE)] = 8
    num_moves: Count = 5
    num_leapfrog: Count = 8
    target_ess: ProperShare = 0.8

    def __post_init__(self) -> None:
        check_settings(self)

    def log_evidence(self, key: jax.Array, target: Target) -> tuple[float, float]:
        """log p(y | x) and its standard error."""
        likelihood: Any = target.model.likelihood
        if not hasattr(likelihood, "sample_own"):
            raise SettingError(
                f"{type(likelihood).__name__} has no `sample_own`",
                "draws of its parameters' prior",
                "give it the method",
            )
        run = _smc_run(self, target.without_data())
        logs = np.array([run(k, target.data) for k in jax.random.split(key, self.num_runs)], np.float64)
        if not np.isfinite(logs).all():
            raise SettingError(
                f"the particles did not reach the posterior within {MAX_POWERS} powers",
                "a smoother path",
                "more particles",
            )
        weights = np.exp(logs - logs.max())
        value = logs.max() + np.log(weights.mean())  # Z has no bias, its logarithm has
        return float(value), float(weights.std(ddof=1) / weights.mean() / np.sqrt(len(logs)))


@kept
def _smc_run(smc: TemperedSMC, target: Target) -> Callable[[jax.Array, Data], jax.Array]:
    """(key, data) -> log of the estimated evidence."""
    import blackjax
    from blackjax.smc import adaptive_tempered, resampling

    flat = coordinates(target)
    hmc = blackjax.hmc.build_kernel()

    def move(
        key: jax.Array, state: tree.Tree, log_density: LogDensity, step_size: jax.Array, variances: jax.Array
    ) -> tuple[tree.Tree, tree.Tree]:
        moved: tuple[tree.Tree, tree.Tree] = hmc(key, state, log_density, step_size, variances, smc.num_leapfrog)
        return moved

    def draw(key: jax.Array) -> jax.Array:
        key_network, key_own = jax.random.split(key)
        params = target.sample_prior(key_network)
        return flat.to_units(params | {"likelihood": target.model.likelihood.sample_own(key_own)})  # type: ignore[attr-defined]

    @jax.jit
    def run(key: jax.Array, data: Data) -> jax.Array:
        key_prior, key_steps = jax.random.split(key)
        kernel = adaptive_tempered.build_kernel(
            flat.log_prior,
            lambda z: target.total_log_likelihood(flat.to_params(z), data)[0],
            move,
            blackjax.hmc.init,
            resampling.systematic,
            smc.target_ess,
        )

        Carry = tuple[tree.Tree, jax.Array, jax.Array, jax.Array]

        def step(carry: Carry) -> Carry:
            state, log_z, step_size, number = carry
            mean = state.weights @ state.particles
            variances = state.weights @ (state.particles - mean) ** 2
            tuning = {"step_size": step_size[None], "variances": variances[None]}
            state, info = kernel(jax.random.fold_in(key_steps, number), state, smc.num_moves, tuning)
            acceptance = info.update_info.acceptance_rate.mean()
            step_size *= jnp.exp(0.5 * (acceptance - TARGET_ACCEPTANCE))
            return state, log_z + info.log_likelihood_increment, step_size, number + 1

        def is_on_its_way(carry: Carry) -> jax.Array:
            state, log_z, _, number = carry
            is_going_on: jax.Array = (state.tempering_param < 1.0) & (number < MAX_POWERS) & jnp.isfinite(log_z)
            return is_going_on

        particles = jax.lax.map(draw, jax.random.split(key_prior, smc.num_particles))
        start = adaptive_tempered.init(particles), jnp.zeros(()), jnp.asarray(FIRST_STEP_SIZE), 0
        start = jax.tree.map(jnp.asarray, start)
        state, log_z, *_ = jax.lax.while_loop(is_on_its_way, step, start)
        return jnp.where(state.tempering_param < 1.0, jnp.nan, log_z)

    return run
