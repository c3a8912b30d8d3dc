"""Element by element: arithmetic, comparisons, activations. Results are cast to PyTorch's dtype by whoever calls."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Operand = jax.Array | float | int | bool
Limit = jax.Array | float | None
Table = dict[str, Callable[..., Any]]


def add(x: Operand, y: Operand, *, alpha: float = 1) -> jax.Array:
    return jnp.add(x, y if alpha == 1 else alpha * y)


def subtract(x: Operand, y: Operand, *, alpha: float = 1) -> jax.Array:
    return jnp.subtract(x, y if alpha == 1 else alpha * y)


def divide(x: Operand, y: Operand, *, rounding_mode: str | None = None) -> jax.Array:
    if rounding_mode == "floor":
        return jnp.floor_divide(x, y)
    return jnp.trunc(jnp.divide(x, y)) if rounding_mode == "trunc" else jnp.divide(x, y)


def power(x: Operand, exponent: Operand) -> jax.Array:
    """A whole exponent stays a Python number: its derivative is a product, also at 0."""
    if isinstance(exponent, float) and exponent.is_integer():
        exponent = int(exponent)
    if isinstance(exponent, float) and exponent == 0.5:
        return jnp.sqrt(x)
    if isinstance(exponent, int) and _is_floating(x):
        return jax.lax.integer_pow(x, exponent)
    return jnp.power(x, exponent)


def clamp(x: jax.Array, min: Limit = None, max: Limit = None) -> jax.Array:
    return jnp.clip(x, min, max)


def hardtanh(x: jax.Array, min_val: float = -1.0, max_val: float = 1.0) -> jax.Array:
    return jnp.clip(x, min_val, max_val)


def elu(x: jax.Array, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> jax.Array:
    negative = alpha * jnp.expm1(input_scale * jnp.minimum(x, 0))
    return scale * jnp.where(x > 0, x, negative)


def leaky_relu(x: jax.Array, negative_slope: float = 0.01) -> jax.Array:
    return jnp.where(x > 0, x, negative_slope * x)


def gelu(x: jax.Array, *, approximate: str = "none") -> jax.Array:
    return jax.nn.gelu(x, approximate=approximate == "tanh")


def softplus(x: jax.Array, beta: float = 1.0, threshold: float = 20.0) -> jax.Array:
    return jnp.where(beta * x > threshold, x, jax.nn.softplus(beta * x) / beta)


def nan_to_num(
    x: jax.Array, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> jax.Array:
    return jnp.nan_to_num(x, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf)


def _is_floating(x: Operand) -> bool:
    return jnp.issubdtype(jnp.result_type(x), jnp.floating)


TABLE: Table = {
    "abs": jnp.abs,
    "acos": jnp.arccos,
    "acosh": jnp.arccosh,
    "add": add,
    "asin": jnp.arcsin,
    "asinh": jnp.arcsinh,
    "atan": jnp.arctan,
    "atan2": jnp.arctan2,
    "atanh": jnp.arctanh,
    "bitwise_and": jnp.bitwise_and,
    "bitwise_not": jnp.bitwise_not,
    "bitwise_or": jnp.bitwise_or,
    "bitwise_xor": jnp.bitwise_xor,
    "ceil": jnp.ceil,
    "clamp": clamp,
    "cos": jnp.cos,
    "cosh": jnp.cosh,
    "div": divide,
    "elu": elu,
    "eq": jnp.equal,
    "erf": jax.scipy.special.erf,
    "erfc": jax.scipy.special.erfc,
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "floor": jnp.floor,
    "fmod": jnp.fmod,
    "ge": jnp.greater_equal,
    "gelu": gelu,
    "gt": jnp.greater,
    "hypot": jnp.hypot,
    "hardtanh": hardtanh,
    "isinf": jnp.isinf,
    "isnan": jnp.isnan,
    "le": jnp.less_equal,
    "leaky_relu": leaky_relu,
    "lgamma": jax.scipy.special.gammaln,
    "log": jnp.log,
    "log10": jnp.log10,
    "log1p": jnp.log1p,
    "log2": jnp.log2,
    "logical_and": jnp.logical_and,
    "logical_not": jnp.logical_not,
    "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor,
    "lt": jnp.less,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
    "mul": jnp.multiply,
    "ne": jnp.not_equal,
    "neg": jnp.negative,
    "pow": power,
    "reciprocal": jnp.reciprocal,
    "relu": jax.nn.relu,
    "remainder": jnp.remainder,
    "round": jnp.round,
    "rsqrt": jax.lax.rsqrt,
    "sigmoid": jax.nn.sigmoid,
    "sign": jnp.sign,
    "sin": jnp.sin,
    "sinh": jnp.sinh,
    "sqrt": jnp.sqrt,
    "sub": subtract,
    "tan": jnp.tan,
    "tanh": jnp.tanh,
    "trunc": jnp.trunc,
    "where": jnp.where,
}
