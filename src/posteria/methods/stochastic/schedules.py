"""Step sizes over a run of stochastic-gradient MCMC, as factors of the first."""

import jax
import jax.numpy as jnp

DECAY_POWER = 0.55  # in (0.5, 1]: the steps then sum to infinity and their squares do not


def factor(schedule: str, step: jax.Array, num_warmup: int, thinning: int) -> jax.Array:
    """The factor of step number `step`, counted from the first of warm-up.

    `polynomial` is (1 + step / num_warmup) ** -0.55, Welling & Teh 2011. `cyclical` falls as a cosine from 1 to nearly
    0 over `thinning` steps after warm-up, again and again, so that a draw is kept at each cycle's end: Zhang et al.
    2020, as Izmailov et al. 2021 use it.
    """
    if schedule == "polynomial":
        return (1.0 + step / max(1, num_warmup)) ** -DECAY_POWER
    if schedule == "cyclical":
        position = ((step - num_warmup) % thinning) / thinning
        return jnp.where(step < num_warmup, 1.0, 0.5 * (1.0 + jnp.cos(jnp.pi * position)))
    return jnp.ones(())


def begins_cycle(step: jax.Array, num_warmup: int, thinning: int) -> jax.Array:
    """Whether a cycle of the cyclical schedule begins with this step."""
    return (step >= num_warmup) & ((step - num_warmup) % thinning == 0)
