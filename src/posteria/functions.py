"""Priors over functions, in words: kernels of Gaussian processes, with sums and products.

    po.functions.RBF(length=0.5) + po.functions.Linear()
    po.functions.Periodic(period=1.0) * po.functions.RBF(length=5.0)

A kernel is a frozen dataclass of settings: `kernel(x, x')` is the matrix of covariances between rows, (n, m). x are
arrays (n, ...), whose rows are taken as flat vectors; `inputs` are the columns that a kernel sees (None: all).
Rasmussen & Williams 2006, chapter 4.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from posteria import settings
from posteria.errors import DataError, SettingError
from posteria.settings import CountFromZero, Positive, check_settings

Inputs = tuple[CountFromZero, ...] | None
NEAR = 1e-12  # a squared distance whose root has a gradient


@runtime_checkable
class FunctionPrior(Protocol):
    """A covariance between functions' values: `kernel(x, x') -> (n, m)`, and `diagonal(x) -> (n,)`."""

    def __call__(self, x: Any, other: Any) -> jax.Array: ...

    def diagonal(self, x: Any) -> jax.Array: ...


class _Algebra:
    """Sums and products of kernels are kernels."""

    def __post_init__(self) -> None:
        check_settings(self)

    def __add__(self, other: Any) -> "Sum":
        return Sum(self, other)

    def __mul__(self, other: Any) -> "Product":
        return Product(self, other)

    def diagonal(self, x: Any) -> jax.Array:
        """Prior variance of each row, (n,)."""
        kernel: Any = self
        variances: jax.Array = jax.vmap(lambda row: kernel(row[None], row[None])[0, 0])(_flat(x))
        return variances


@dataclass(frozen=True)
class RBF(_Algebra):
    """amplitude^2 exp(-|x - x'|^2 / (2 length^2)): smooth functions that forget after `length`."""

    length: Positive = 1.0
    amplitude: Positive = 1.0
    inputs: Inputs = None

    def __call__(self, x: Any, other: Any) -> jax.Array:
        return self.amplitude**2 * jnp.exp(-0.5 * _squares(x, other, self.inputs) / self.length**2)


@dataclass(frozen=True)
class Matern(_Algebra):
    """Functions that are 0, 1 or 2 times differentiable, for `order` "1/2", "3/2" and "5/2": rougher than RBF's."""

    length: Positive = 1.0
    amplitude: Positive = 1.0
    order: Literal["1/2", "3/2", "5/2"] = "5/2"
    inputs: Inputs = None

    def __call__(self, x: Any, other: Any) -> jax.Array:
        r = math.sqrt(float(self.order[0])) * jnp.sqrt(_squares(x, other, self.inputs) + NEAR) / self.length
        return self.amplitude**2 * matern(r, self.order)


def matern(r: jax.Array, order: str) -> jax.Array:
    """At distances r, in units of length / sqrt(2 order)."""
    polynomials = {"1/2": jnp.ones_like(r), "3/2": 1 + r, "5/2": 1 + r + r**2 / 3}
    return polynomials[order] * jnp.exp(-r)


@dataclass(frozen=True)
class Periodic(_Algebra):
    """amplitude^2 exp(-2 sum_j sin^2(pi (x_j - x_j') / period) / length^2): functions that repeat. MacKay 1998."""

    period: Positive = 1.0
    length: Positive = 1.0
    amplitude: Positive = 1.0
    inputs: Inputs = None

    def __call__(self, x: Any, other: Any) -> jax.Array:
        a, b = _columns(x, self.inputs), _columns(other, self.inputs)
        sines = jnp.sin(math.pi * (a[:, None] - b[None]) / self.period)
        return self.amplitude**2 * jnp.exp(-2 * (sines**2).sum(-1) / self.length**2)


@dataclass(frozen=True)
class Linear(_Algebra):
    """slope^2 x . x' + offset^2: straight lines."""

    slope: Positive = 1.0
    offset: Positive = 1.0
    inputs: Inputs = None

    def __call__(self, x: Any, other: Any) -> jax.Array:
        return self.slope**2 * _columns(x, self.inputs) @ _columns(other, self.inputs).T + self.offset**2


@dataclass(frozen=True)
class Sum(_Algebra):
    """Of independent functions."""

    left: Any
    right: Any
    sign: ClassVar[str] = "+"

    def __post_init__(self) -> None:
        _check_parts(self)

    def __call__(self, x: Any, other: Any) -> jax.Array:
        total: jax.Array = self.left(x, other) + self.right(x, other)
        return total


@dataclass(frozen=True)
class Product(_Algebra):
    """A function of one kind whose size is that of another: a wave that changes slowly."""

    left: Any
    right: Any
    sign: ClassVar[str] = "*"

    def __post_init__(self) -> None:
        _check_parts(self)

    def __call__(self, x: Any, other: Any) -> jax.Array:
        product: jax.Array = self.left(x, other) * self.right(x, other)
        return product


def as_function_prior(obj: object) -> FunctionPrior:
    if isinstance(obj, type) or not isinstance(obj, FunctionPrior):
        raise SettingError(
            f"{settings.shown(obj)} as a prior over functions",
            "a kernel such as po.functions.RBF(length=1.0), or sums and products of them",
            "see po.functions",
        )
    return obj


def _check_parts(owner: Any) -> None:
    for part in (owner.left, owner.right):
        as_function_prior(part)


def _flat(x: Any) -> jax.Array:
    leaves = jax.tree.leaves(x)
    if len(leaves) != 1:
        raise DataError(f"x is a tree of {len(leaves)} arrays", "one array, for a kernel", "pass one array")
    array = jnp.asarray(leaves[0])
    dtype = array.dtype if jnp.issubdtype(array.dtype, jnp.floating) else jnp.result_type(float)
    return array.reshape(array.shape[0], -1).astype(dtype)


def _columns(x: Any, inputs: tuple[int, ...] | None) -> jax.Array:
    flat = _flat(x)
    if inputs is None:
        return flat
    if max(inputs) >= flat.shape[1]:
        raise DataError(f"x has {flat.shape[1]} columns", f"at least {max(inputs) + 1}, for inputs={inputs}", "mend it")
    return flat[:, jnp.asarray(inputs)]


def _squares(x: Any, other: Any, inputs: tuple[int, ...] | None) -> jax.Array:
    """Squared distances between rows, (n, m), by differences: products would cancel."""
    a, b = _columns(x, inputs), _columns(other, inputs)
    return ((a[:, None] - b[None]) ** 2).sum(-1)


MEMBERS = {cls.__name__: cls for cls in (RBF, Matern, Periodic, Linear)}


def to_json(kernel: Any) -> dict[str, Any] | None:
    """{"name", "settings"}; None for a user's own kernel, or for one that holds one."""
    if isinstance(kernel, Sum | Product):
        left, right = to_json(kernel.left), to_json(kernel.right)
        return None if left is None or right is None else {kernel.sign: [left, right]}
    stored = settings.to_json(kernel, MEMBERS)
    if stored and stored["settings"]["inputs"] is not None:
        stored["settings"]["inputs"] = list(stored["settings"]["inputs"])
    return stored


def from_json(stored: dict[str, Any]) -> Any:
    """The kernel that `to_json` wrote."""
    for cls in (Sum, Product):
        if cls.sign in stored:
            return cls(*map(from_json, stored[cls.sign]))
    return settings.from_json(stored, MEMBERS)
