"""Log densities that likelihoods and priors share, elementwise, normalised and stable in float32.

Each takes z = (x - location) / scale and the log of the scale.
"""

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

LOG_2PI = math.log(2 * math.pi)


def widen(x: ArrayLike) -> jax.Array:
    """`x` in at least float32: a sum of log densities in 16 bits means nothing."""
    x = jnp.asarray(x)
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def normal(z: jax.Array, log_scale: jax.Array | float) -> jax.Array:
    return -0.5 * z**2 - log_scale - 0.5 * LOG_2PI


def student_t(z: jax.Array, log_scale: jax.Array | float, df: float) -> jax.Array:
    constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    return constant - log_scale - (df + 1) / 2 * _log1p_square(z / math.sqrt(df))


def _log1p_square(r: jax.Array) -> jax.Array:
    """log(1 + r^2) where r^2 may overflow: for |r| > 1 it is 2 log|r| + log(1 + r^-2)."""
    is_large = jnp.abs(r) > 1
    large = jnp.where(is_large, jnp.abs(r), 1.0)
    return 2 * jnp.log(large) + jnp.log1p(jnp.where(is_large, 1 / large, r) ** 2)
