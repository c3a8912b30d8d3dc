"""Log densities and distribution functions that likelihoods and priors share: elementwise, stable in float32.

Those of reals take z = (x - location) / scale and the log of the scale. `matched_precision` is the step of expectation
propagation for a precision that is not known.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special
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


def poisson(log_rate: jax.Array, y: jax.Array) -> jax.Array:
    """y log_rate - exp(log_rate) - log y!, without the cancellation of its large terms (Loader 2000)."""
    positive = jnp.maximum(y, 1.0)
    excess = log_rate - jnp.log(positive)
    at_own_rate = jnp.where(  # log_prob(log y, y); -1 for y = 0
        positive < 10,
        positive * jnp.log(positive) - positive - special.gammaln(positive + 1),
        -0.5 * jnp.log(2 * jnp.pi * positive) - 1 / (12 * positive) + 1 / (360 * positive**3),
    )
    return at_own_rate + y * excess - positive * jnp.expm1(excess)


@jax.custom_jvp
def softplus(value: jax.Array) -> jax.Array:
    """log(1 + exp(value)) to 3e-7 of itself: a third of the time on a CPU that its logarithm would take."""
    e = jnp.exp(-jnp.abs(value))
    ratio = jnp.zeros_like(e)
    for coefficient in LOG1P_OVER_E:
        ratio = ratio * e + coefficient
    return jnp.maximum(value, 0) + e * ratio


@softplus.defjvp
def _softplus_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (value,) = primals
    e = jnp.exp(-jnp.abs(value))
    return softplus(value), tangents[0] * jnp.where(value > 0, 1, e) / (1 + e)


# log(1 + e) / e for e in [0, 1], highest power first: through the nine Chebyshev points
LOG1P_OVER_E = (
    0.0051261018961668015,
    -0.029074065387248993,
    0.0775160863995552,
    -0.13602247834205627,
    0.19076880812644958,
    -0.2483539879322052,
    0.3331812024116516,
    -0.4999944567680359,
    0.9999999403953552,
)


class Gamma(NamedTuple):
    """A precision's distribution; 1/precision has the mean rate / (shape - 1)."""

    shape: jax.Array
    rate: jax.Array


def matched_precision(precision: Gamma, variance: jax.Array, residual: jax.Array) -> tuple[jax.Array, Gamma]:
    """log Z and the Gamma that matches E[precision] and E[precision^2] after seeing residuals ~ N(0, variance + noise).

    noise is 1/precision, and Z is taken as normal with its mean; residuals (..., targets) share the precision.
    Hernandez-Lobato and Adams 2015, equations 8 and 9: with a = shape they need Z at the shapes a, a + 1 and a + 2.
    """
    shape, rate = precision.shape[..., None], precision.rate[..., None]
    first, second, third = (variance + rate / (shape + k) for k in (-1, 0, 1))  # at the three shapes
    log_z = normal(residual * first**-0.5, 0.5 * jnp.log(first)).sum(-1)

    def change(old: jax.Array, new: jax.Array, less: jax.Array) -> jax.Array:
        """Of log Z as the variance shrinks by `less`: a difference of logarithms would lose its digits."""
        return (-0.5 * jnp.log1p(-less / old) - 0.5 * residual**2 * less / (old * new)).sum(-1)

    to_second = change(first, second, rate / (shape * (shape - 1)))
    to_third = change(second, third, rate / (shape * (shape + 1)))
    shrink = jnp.expm1(to_third - to_second) * (precision.shape + 1) + 1
    return log_z, Gamma(precision.shape / shrink, precision.rate * jnp.exp(-to_second) / shrink)


# ---- distribution functions that JAX has not, or has without enough digits in float32

# Float32 series and fractions lose digits as their parameters grow; from here on an expansion is closer.
# At the switch the expansions err by 4e-5 (Poisson) and 4e-6 (Student-t), and less beyond.
LARGE_COUNT = 150.0
LARGE_DF = 150.0
LARGE_SIZE = 300.0  # of a negative binomial
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(16)


def student_t_cdf(t: jax.Array, df: float) -> jax.Array:
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


def poisson_cdf(rate: jax.Array, y: jax.Array) -> jax.Array:
    """Q(floor(y) + 1, rate), the regularised upper incomplete gamma function; Wilson and Hilferty 1931 when large."""
    a = jnp.maximum(jnp.floor(y), 0.0) + 1
    exact = special.gammaincc(jnp.minimum(a, LARGE_COUNT), jnp.where(a < LARGE_COUNT, rate, 1.0))
    cube_root_excess = jnp.expm1(jnp.log1p((rate - a) / a) / 3)  # (rate / a)^(1/3) - 1
    large = special.ndtr(-3 * jnp.sqrt(a) * (cube_root_excess + 1 / (9 * a)))
    return jnp.where(y < 0, 0.0, jnp.where(a < LARGE_COUNT, exact, large))


def negative_binomial_cdf(log_mean: jax.Array, log_size: jax.Array, y: jax.Array) -> jax.Array:
    """Incomplete beta of size and floor(y) + 1, right to 5e-4; when the size is large, the average of Poisson's over
    gamma rates, by quadrature in the normal score of Wilson and Hilferty 1931, right to 2e-5."""
    size = jnp.exp(log_size)
    count = jnp.maximum(jnp.floor(jax.lax.stop_gradient(y)), 0.0) + 1.0
    small = special.betainc(jnp.minimum(size, LARGE_SIZE), count, jax.nn.sigmoid(log_size - log_mean))
    large_size = jnp.maximum(size, LARGE_SIZE)
    nodes, shares = (jnp.asarray(each, size.dtype) for each in (NODES, WEIGHTS / WEIGHTS.sum()))
    nodes = nodes.reshape(-1, *[1] * jnp.ndim(log_mean))
    roots = 1.0 - 1.0 / (9.0 * large_size) + nodes / (3.0 * jnp.sqrt(large_size))
    large = jnp.tensordot(shares, poisson_cdf(jnp.exp(log_mean) * roots**3, count - 1.0), 1)
    return jnp.where(y < 0, 0.0, jnp.clip(jnp.where(size < LARGE_SIZE, small, large), 0.0, 1.0))
