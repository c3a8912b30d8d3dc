"""The latent function of a Gaussian process under any likelihood, sampled exactly by elliptical slices.

    f = L u,    u ~ N(0, 1),    y ~ p(y | f);    a step turns u towards a fresh draw, as far as the likelihood lets it

Murray, Adams & MacKay 2010: no step size, no gradient.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria.compiled import kept
from posteria.data.arrays import Data, weighted
from posteria.engine.loop import Kernel, Run
from posteria.errors import SettingError
from posteria.methods.chains.elliptical_slice import EllipticalSlice
from posteria.models.likelihoods import factor_of
from posteria.models.limit import LimitKernel
from posteria.models.target import Target
from posteria.posteriors.latent_process import LatentProcessPosterior
from posteria.posteriors.process import cholesky

LATENT_ROWS = 2000  # at most
WARMUP_SHARE = 0.3  # of max_seconds


class Latent(NamedTuple):
    white: jax.Array  # u, (n, output)
    outputs: jax.Array  # L u
    log_likelihood: jax.Array


class Info(NamedTuple):
    log_density: jax.Array
    acceptance: jax.Array  # 1 over the points that were tried
    num_gradients: jax.Array


def sample_latent(
    sampler: EllipticalSlice, key: jax.Array, target: Target, kernel: LimitKernel, run: Run
) -> LatentProcessPosterior:
    if jax.tree.leaves(target.structs["likelihood"]):
        raise SettingError(
            f"{type(target.model.likelihood).__name__} with a scale to infer, and a latent function",
            "a likelihood that is given, or a Gaussian one",
            "give its scale as a number",
        )
    data: Any = target.data
    x, *rest = data
    factor, jitter = cholesky(kernel.cross(x, x))
    if jitter:
        run.note(f"{jitter:.1e} was added to the kernel's diagonal, which rounding had made indefinite")
    scaled = (math.sqrt(target.temperature) * factor).astype(np.float32)
    key_start, key_warmup, key_draws = jax.random.split(key, 3)
    shape = sampler.num_chains, len(factor), target.num_outputs or 1
    starts = jax.random.normal(key_start, shape)
    chain, seen = latent_kernel(target.without_data()), (scaled, *rest)
    warm = run.stage("warm-up", WARMUP_SHARE).loop(
        chain, key_warmup, starts, seen, num_steps=sampler.num_warmup, final_when_late=True
    )
    trace = run.stage("draws").loop(
        chain,
        key_draws,
        jnp.asarray(warm.state.white),
        seen,
        num_steps=sampler.num_draws * sampler.thinning,
        thinning=sampler.thinning,
        keep=lambda state: state.white,
    )
    draws = np.asarray(trace.kept)  # (chain, draw, n, output)
    info = {"acceptance": np.asarray(trace.info.acceptance)}
    return LatentProcessPosterior(target.without_data(), kernel, x, draws, info, factor=factor)


@kept
def latent_kernel(target: Target) -> Kernel:
    def log_likelihood(outputs: jax.Array, data: Data) -> jax.Array:
        value = weighted(factor_of(target.model.likelihood, {}, outputs, data[1]), data).sum() / target.temperature
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    def init(key: jax.Array, white: jax.Array, data: Data) -> Latent:
        outputs = data[0] @ white
        return Latent(white, outputs, log_likelihood(outputs, data))

    def step(key: jax.Array, state: Latent, data: Data) -> tuple[Latent, Info]:
        key_normal, key_level, key_angle, key_shrink = jax.random.split(key, 4)
        fresh = jax.random.normal(key_normal, state.white.shape)
        towards = data[0] @ fresh
        level = state.log_likelihood + jnp.log(jax.random.uniform(key_level, minval=1e-30))
        angle = jax.random.uniform(key_angle, maxval=2 * math.pi)

        def at(angle: jax.Array) -> tuple[jax.Array, jax.Array]:
            outputs = jnp.cos(angle) * state.outputs + jnp.sin(angle) * towards
            return outputs, log_likelihood(outputs, data)

        def is_below(carry: Any) -> jax.Array:
            is_lower: jax.Array = ~(carry[4] >= level)  # also where it is no number
            return is_lower

        def shrink(carry: Any) -> Any:
            angle, low, high, _, _, count = carry
            low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
            angle = jax.random.uniform(jax.random.fold_in(key_shrink, count), minval=low, maxval=high)
            return angle, low, high, *at(angle), count + 1

        start = angle, angle - 2 * math.pi, angle, *at(angle), jnp.asarray(1)
        angle, _, _, outputs, value, count = jax.lax.while_loop(is_below, shrink, start)
        white = jnp.cos(angle) * state.white + jnp.sin(angle) * fresh
        return Latent(white, outputs, value), Info(value - 0.5 * (white**2).sum(), 1.0 / count, jnp.asarray(0))

    return Kernel(init, step)
