"""Distribution functions that JAX has not, or has without enough digits in float32; elementwise."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special

# Float32 series and fractions lose digits as their parameters grow; from here on an expansion is closer.
# At the switch the expansions err by 4e-5 (Poisson) and 4e-6 (Student-t), and less beyond.
LARGE_COUNT = 150.0
LARGE_DF = 150.0
LARGE_SIZE = 300.0  # of a negative binomial
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(16)


def student_t(t: jax.Array, df: float) -> jax.Array:
    """P(T <= t) of Student's t, by the incomplete beta function."""
    if df > LARGE_DF:  # Fisher's normal approximation, in error by O(df^-2)
        return special.ndtr(t * (1 - 1 / (4 * df)) / jnp.sqrt(1 + t**2 / (2 * df)))
    square = t**2
    is_central = square < df  # of the two incomplete betas that add up to 1, the one that keeps its digits
    beta = special.betainc(
        jnp.where(is_central, 0.5, df / 2),
        jnp.where(is_central, df / 2, 0.5),
        jnp.where(is_central, square, df) / (df + square),
    )
    upper = 0.5 + 0.5 * jnp.where(is_central, beta, 1 - beta)  # at |t|
    lower = jnp.where(is_central, 0.5 - 0.5 * beta, 0.5 * beta)  # at -|t|
    return jnp.where(t < 0, lower, upper)


def poisson(rate: jax.Array, y: jax.Array) -> jax.Array:
    """Q(floor(y) + 1, rate), the regularised upper incomplete gamma function; Wilson and Hilferty 1931 when large."""
    a = jnp.maximum(jnp.floor(y), 0.0) + 1
    exact = special.gammaincc(jnp.minimum(a, LARGE_COUNT), jnp.where(a < LARGE_COUNT, rate, 1.0))
    cube_root_excess = jnp.expm1(jnp.log1p((rate - a) / a) / 3)  # (rate / a)^(1/3) - 1
    large = special.ndtr(-3 * jnp.sqrt(a) * (cube_root_excess + 1 / (9 * a)))
    return jnp.where(y < 0, 0.0, jnp.where(a < LARGE_COUNT, exact, large))


def negative_binomial(log_mean: jax.Array, log_size: jax.Array, y: jax.Array) -> jax.Array:
    """Incomplete beta of size and floor(y) + 1, right to 5e-4; when the size is large, the average of Poisson's over
    gamma rates, by quadrature in the normal score of Wilson and Hilferty 1931, right to 2e-5."""
    size = jnp.exp(log_size)
    count = jnp.maximum(jnp.floor(jax.lax.stop_gradient(y)), 0.0) + 1.0
    small = special.betainc(jnp.minimum(size, LARGE_SIZE), count, jax.nn.sigmoid(log_size - log_mean))
    large_size = jnp.maximum(size, LARGE_SIZE)
    nodes, shares = (jnp.asarray(each, size.dtype) for each in (NODES, WEIGHTS / WEIGHTS.sum()))
    nodes = nodes.reshape(-1, *[1] * jnp.ndim(log_mean))
    roots = 1.0 - 1.0 / (9.0 * large_size) + nodes / (3.0 * jnp.sqrt(large_size))
    large = jnp.tensordot(shares, poisson(jnp.exp(log_mean) * roots**3, count - 1.0), 1)
    return jnp.where(y < 0, 0.0, jnp.clip(jnp.where(size < LARGE_SIZE, small, large), 0.0, 1.0))
