"""E[f(z) f(z')] of a scalar function of two numbers that are jointly Gaussian with mean 0.

In closed form for lines with a bend at 0 (identity, ReLU, leaky ReLU, the absolute value: Cho & Saul 2009), the error
function (Williams 1997) and sine and cosine (Rahimi & Recht 2007). All else by its expansion in Hermite polynomials,
    E[f(s u) f(s' u')] = sum_k a_k(s) a_k(s') rho^k,    a_k(s) = E[f(s u) he_k(u)],    rho = corr(u, u'),
whose coefficients are sums over a fine grid (Mehler 1866): what is left out after `NUM_TERMS` is known where rho is 1,
and put there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from posteria.compiled import kept

NUM_TERMS = 64  # of the expansion
UNROLLED = 16  # of them, that are compiled as one
NUM_NODES, REACH = 800, 9.0  # of the grid, in standard deviations; an even number, since functions jump at 0
PROBES = np.array([1e-3, 0.1, 1.0, 3.0, 30.0])  # where a function is looked at, to see whether it is a bent line


@dataclass(frozen=True)
class Form:
    """outer * g(scale * z + shift) + offset, where g is "line", "erf" or "sin"."""

    name: str
    scale: float = 1.0
    shift: float = 0.0
    outer: float = 1.0
    offset: float = 0.0

    def times(self, factor: float) -> "Form":
        return Form(self.name, self.scale, self.shift, factor * self.outer, factor * self.offset)

    def plus(self, number: float) -> "Form":
        return Form(self.name, self.scale, self.shift, self.outer, self.offset + number)

    def inside(self, name: str, shift: float = 0.0) -> "Form | None":
        """This line as the argument of another function."""
        if self.name != "line":
            return None
        scale, inner = self.outer * self.scale, self.outer * self.shift + self.offset
        return None if name == "erf" and inner != 0.0 else Form(name, scale, inner + shift)


@dataclass(frozen=True, eq=False)
class Scalar:
    """A function that is applied to every element, and its form where that is known."""

    call: Callable[[jax.Array], jax.Array]
    form: Form | None = None


IDENTITY = Scalar(lambda z: z, Form("line"))


def second_moment(f: Scalar, covariance: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
    """E[f(z) f(z')] for z, z' with these variances and covariance, each element by itself; shapes broadcast."""
    form = f.form
    if form is not None and form.name == "sin":
        return _of_sine(form, covariance, left, right)
    if form is not None and form.name == "erf":
        return _of_erf(form, covariance, left, right)
    std = jnp.sqrt(left) * jnp.sqrt(right)
    rho = jnp.where(std > 0, jnp.clip(covariance / jnp.where(std > 0, std, 1.0), -1.0, 1.0), 0.0)
    slopes = slopes_at_zero(f)
    if slopes is not None:
        below, above = slopes
        if below == above:
            return above**2 * covariance
        return std * ((above**2 + below**2) * _rectified(rho) - 2 * above * below * _rectified(-rho))
    a, rest_a = coefficients(f, left)
    b, rest_b = coefficients(f, right)
    start = jnp.broadcast_to(jnp.sqrt(rest_a * rest_b), jnp.broadcast_shapes(rho.shape, left.shape, right.shape))

    def horner(total: jax.Array, terms: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        for k in reversed(range(UNROLLED)):
            total = total * rho + terms[0][..., k] * terms[1][..., k]
        return total, None

    total, _ = jax.lax.scan(horner, start, (_in_chunks(a), _in_chunks(b)), reverse=True)
    return total


def square(f: Scalar, variance: jax.Array) -> jax.Array:
    """E[f(z)^2]."""
    is_closed = (f.form is not None and f.form.name != "line") or slopes_at_zero(f) is not None
    if is_closed:
        return second_moment(f, variance, variance, variance)
    nodes, weights, _ = hermite_grid()
    values = f.call(jnp.sqrt(variance)[..., None] * jnp.asarray(nodes, variance.dtype))
    return values**2 @ jnp.asarray(weights, variance.dtype)


def _in_chunks(a: jax.Array) -> jax.Array:
    """(..., term) -> (chunk, ..., term of the chunk)."""
    return jnp.moveaxis(a.reshape(*a.shape[:-1], -1, UNROLLED), -2, 0)


def _rectified(rho: jax.Array) -> jax.Array:
    """E[max(u, 0) max(u', 0)] at unit variances."""
    angle = jnp.arccos(rho)
    return (jnp.sqrt((1 - rho) * (1 + rho)) + (math.pi - angle) * rho) / (2 * math.pi)


def _of_erf(form: Form, covariance: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
    twice = 2 * form.scale**2
    share = twice * covariance / jnp.sqrt((1 + twice * left) * (1 + twice * right))
    return form.outer**2 * (2 / math.pi) * jnp.arcsin(jnp.clip(share, -1.0, 1.0)) + form.offset**2


def _of_sine(form: Form, covariance: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
    half = 0.5 * form.scale**2
    difference = jnp.exp(-half * jnp.maximum(left + right - 2 * covariance, 0.0))
    total = jnp.exp(-half * (left + right + 2 * covariance))
    means = math.sin(form.shift) * (jnp.exp(-half * left) + jnp.exp(-half * right))
    product = 0.5 * (difference - math.cos(2 * form.shift) * total)
    return form.outer**2 * product + form.outer * form.offset * means + form.offset**2


def slopes_at_zero(f: Scalar) -> tuple[float, float] | None:
    """(below, above), where f(z) is a line from 0 to either side; seen at a few points."""
    with jax.ensure_compile_time_eval():
        above, below = (np.asarray(f.call(jnp.asarray(sign * PROBES)), np.float64) / PROBES for sign in (1.0, -1.0))
    if not (np.allclose(above, above[2], rtol=1e-5, atol=1e-7) and np.allclose(below, below[2], rtol=1e-5, atol=1e-7)):
        return None
    return -float(below[2]), float(above[2])


def coefficients(f: Scalar, variance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """a_k, with k as the last axis, and what of E[f^2] they leave out."""
    nodes, weights, polynomials = hermite_grid()
    values = f.call(jnp.sqrt(variance)[..., None] * jnp.asarray(nodes, variance.dtype))
    a = values @ jnp.asarray(weights[:, None] * polynomials, variance.dtype)
    rest = values**2 @ jnp.asarray(weights, variance.dtype) - (a**2).sum(-1)
    return a, jnp.maximum(rest, 0.0)


@kept
def hermite_grid() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes u, weights of the standard normal, and its orthonormal polynomials there, (node, term)."""
    nodes = np.linspace(-REACH, REACH, NUM_NODES)
    weights = np.exp(-0.5 * nodes**2)
    polynomials = [np.ones(NUM_NODES), nodes]
    for k in range(1, NUM_TERMS - 1):
        polynomials.append((nodes * polynomials[k] - math.sqrt(k) * polynomials[k - 1]) / math.sqrt(k + 1))
    return nodes, weights / weights.sum(), np.stack(polynomials, axis=1)
