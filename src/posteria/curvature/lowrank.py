"""The prior's precision and the leading directions in which the data add to it, by Lanczos' iteration.

In units of the prior the precision is I + V diag(values) V^T: what Lanczos does not find is left at the prior.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from posteria.curvature.jacobian import Factors, Weight
from posteria.curvature.precision import Precision, as_array, pytree, spread_through, variances_through
from posteria.tree import Tree

ROUNDING = 1e-7  # of the largest value: below it, rows in float32 say nothing
BREAKDOWN = 1e-5  # of the largest entry: below it, Lanczos has found all there is


@pytree
class LowRank(Precision):
    """prior^(1/2) (I + V diag(values) V^T) prior^(1/2)."""

    prior: jax.Array  # (size,)
    values: jax.Array  # (rank,)
    vectors: jax.Array  # (rank, size), orthonormal rows

    structure = "lowrank"

    def noise(self, key: jax.Array) -> jax.Array:
        unit = jax.random.normal(key, self.prior.shape, self.prior.dtype)
        shrink = 1 - 1 / jnp.sqrt(1 + self.values)
        return (unit - (shrink * (self.vectors @ unit)) @ self.vectors) / jnp.sqrt(self.prior)

    @property
    def variances(self) -> jax.Array:
        return (1 - self._shares @ self.vectors**2) / self.prior

    def covariance(self) -> jax.Array:
        unit = jnp.sqrt(self.prior)
        kept = jnp.eye(len(unit)) - (self.vectors.T * self._shares) @ self.vectors
        return kept / jnp.outer(unit, unit)

    def log_det(self) -> float:
        prior, values = (np.asarray(part, np.float64) for part in (self.prior, self.values))
        return float(np.log(prior).sum() + np.log1p(values).sum())

    def output_covariance(self, weights: Sequence[Weight], jacobian: Sequence[Factors]) -> jax.Array:
        variances = 1 / self.prior
        total: Any = sum(spread_through(factors, w.of(variances)) for w, factors in zip(weights, jacobian))
        along = self._along(weights, jacobian)
        return total - jnp.einsum("nrk,k,nsk->nrs", along, self._shares, along)

    def output_variances(self, weights: Sequence[Weight], jacobian: Sequence[Factors]) -> jax.Array:
        variances = 1 / self.prior
        total: Any = sum(variances_through(factors, w.of(variances)) for w, factors in zip(weights, jacobian))
        return total - self._along(weights, jacobian) ** 2 @ self._shares

    def _along(self, weights: Sequence[Weight], jacobian: Sequence[Factors]) -> jax.Array:
        """J times the directions, in the weights' own units: (datum, output, rank)."""
        directions = self.vectors / jnp.sqrt(self.prior)
        parts = [
            jnp.einsum("nti,kij,nrtj->nrk", factors.inputs, weight.of(directions), factors.gradients)
            for weight, factors in zip(weights, jacobian)
        ]
        return jnp.asarray(sum(parts))

    @property
    def _shares(self) -> jax.Array:
        """Of the prior variance that the data remove in each direction."""
        return self.values / (1 + self.values)

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(getattr(self, name)) for name in ("prior", "values", "vectors")}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> "LowRank":
        return cls(*(jnp.asarray(arrays[name]) for name in ("prior", "values", "vectors")))


Tridiagonal = tuple[jax.Array, tuple[jax.Array, jax.Array]]  # the basis (rank, size), and the two diagonals in it


def tridiagonaliser(multiply: Callable[..., jax.Array], rank: int) -> Callable[..., Tridiagonal]:
    """(start (size,), *args) -> the orthonormal basis (rank, size) and the two diagonals of a symmetric matrix in it,
    of which `multiply(vector, *args)` is the product with a vector. Lanczos 1950."""
    from matfree import decomp

    tridiagonal = decomp.tridiag_sym(rank, materialize=False, custom_vjp=False)

    @jax.jit
    def run(start: jax.Array, *args: Tree) -> Tridiagonal:
        basis, diagonals, *_ = tridiagonal(multiply, start, *args)
        return basis, diagonals

    return run


def leading(basis: jax.Array, diagonals: tuple[jax.Array, jax.Array]) -> tuple[np.ndarray, np.ndarray]:
    """Values (k,) and orthonormal vectors (k, size) that the iteration found."""
    vectors, diagonal, beside = (np.asarray(part, np.float64) for part in (basis, *diagonals))
    small = np.flatnonzero(~(np.abs(beside) > BREAKDOWN * np.abs(diagonal).max()))
    depth = int(small[0]) + 1 if len(small) else len(diagonal)
    beside = beside[: depth - 1]
    values, turn = np.linalg.eigh(np.diag(diagonal[:depth]) + np.diag(beside, 1) + np.diag(beside, -1))
    is_curved = values > 0
    return values[is_curved], turn.T[is_curved] @ vectors[:depth]


def all_directions(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values (k,) and orthonormal vectors (k, size) of rows^T rows, by the smaller rows rows^T: (row, size)."""
    rows = np.asarray(rows, np.float64)
    values, turn = np.linalg.eigh(rows @ rows.T)
    is_curved = values > ROUNDING * max(values.max(initial=0.0), 1.0)
    values, turn = values[is_curved], turn[:, is_curved]
    return values, turn.T @ rows / np.sqrt(values)[:, None]


def low_rank(prior: np.ndarray, values: np.ndarray, vectors: np.ndarray) -> LowRank:
    return LowRank(as_array(prior), as_array(values), as_array(vectors))
