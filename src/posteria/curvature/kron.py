"""Kronecker factors: a block a weight, `A (x) G + prior`, kept in the eigenbases of A and G.

A = sum over data and positions of a a^T, G = the mean over data and positions of g H g^T. Where positions share the
weight they count as data do (KFAC-expand). Martens & Grosse 2015; Eschenhagen et al. 2023 for shared weights.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from posteria.curvature.jacobian import Factors, Weight
from posteria.curvature.precision import (
    Accumulated,
    Precision,
    Sums,
    as_array,
    pytree,
    spread_through,
    squares,
    variances_through,
    weighted,
)

MAX_DENSE = 1024  # entries of a leaf that the walk leaves and that still gets a dense block, as biases do


class Block(NamedTuple):
    """Q (values_i values_j + prior) R^T: one weight's precision, in the basis where it is diagonal."""

    rows: jax.Array  # Q, (row, i); where the prior differs between rows, scaled by its standard deviations
    entries: jax.Array  # (i, j)
    columns: jax.Array | None  # R, (column, j); None for the columns as they are
    log_volume: jax.Array | None = None  # what that scaling adds to the precision's log determinant

    def turned(self, factors: Factors) -> Factors:
        """The factors of the gradients, in the basis."""
        gradients = factors.gradients if self.columns is None else factors.gradients @ self.columns
        return Factors(factors.inputs @ self.rows, gradients)

    def back(self, values: jax.Array, power: int = 1) -> jax.Array:
        """Coordinates (i, j) of the basis as flat coordinates of the weight; with power 2, as variances turn."""
        values = self.rows**power @ values
        return (values if self.columns is None else values @ self.columns.T**power).reshape(-1)


class Solved(NamedTuple):
    """A factor whose eigenvectors are known already."""

    matrix: np.ndarray
    values: np.ndarray
    vectors: np.ndarray


@pytree
class Kron(Precision, Accumulated):
    """Independent weights, each Kronecker-factored; a leaf that the walk leaves has a dense block, or a diagonal."""

    blocks: tuple[Block, ...]

    structure = "kron"

    @staticmethod
    def block(weights: Sequence[Weight], jacobian: Sequence[Factors], hessians: jax.Array, counts: jax.Array) -> Sums:
        return [_sums(weight, factors, hessians, counts) for weight, factors in zip(weights, jacobian)]

    @classmethod
    def finish(cls, weights: Sequence[Weight], sums: Sums, prior: np.ndarray, total: float) -> "Kron":
        return cls(tuple(_block(weight, part, weight.of(prior), total) for weight, part in zip(weights, sums)))

    @staticmethod
    def solved(sums: Sums) -> Sums:
        """Sums that are finished again and again, under one prior after another."""
        return [
            tuple(Solved(m, *np.linalg.eigh(m)) for m in part) if isinstance(part, tuple) else part for part in sums
        ]

    def noise(self, key: jax.Array) -> jax.Array:
        keys = jax.random.split(key, len(self.blocks))
        return jnp.concatenate([_noise(block, k) for block, k in zip(self.blocks, keys)])

    @property
    def variances(self) -> jax.Array:
        return jnp.concatenate([block.back(1 / block.entries, power=2) for block in self.blocks])

    def covariance(self) -> jax.Array:
        from jax.scipy.linalg import block_diag

        bases = [jnp.kron(b.rows, jnp.eye(b.entries.shape[1]) if b.columns is None else b.columns) for b in self.blocks]
        return block_diag(*(basis / b.entries.reshape(-1) @ basis.T for basis, b in zip(bases, self.blocks)))

    def log_det(self) -> float:
        volumes = (0.0 if block.log_volume is None else float(block.log_volume) for block in self.blocks)
        return float(sum(np.log(np.asarray(block.entries, np.float64)).sum() for block in self.blocks) + sum(volumes))

    def output_covariance(self, weights: Sequence[Weight], jacobian: Sequence[Factors]) -> jax.Array:
        """sum_ij (q_i . a)^2 (r_j . g)^2 / entries_ij: in the eigenbases no Jacobian is formed."""
        pairs = zip(jacobian, self.blocks)
        return jnp.asarray(sum(spread_through(block.turned(factors), 1 / block.entries) for factors, block in pairs))

    def output_variances(self, weights: Sequence[Weight], jacobian: Sequence[Factors]) -> jax.Array:
        pairs = zip(jacobian, self.blocks)
        return jnp.asarray(sum(variances_through(block.turned(factors), 1 / block.entries) for factors, block in pairs))

    def arrays(self) -> dict[str, np.ndarray]:
        parts = {f"{i}.{name}": value for i, b in enumerate(self.blocks) for name, value in b._asdict().items()}
        return {name: np.asarray(value) for name, value in parts.items() if value is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> "Kron":
        num = sum(name.endswith(".rows") for name in arrays)
        values = {name: jnp.asarray(array) for name, array in arrays.items()}
        parts: list[Any] = [[values.get(f"{i}.{name}") for name in Block._fields] for i in range(num)]
        return cls(tuple(Block(*part) for part in parts))


def is_factored(weight: Weight) -> bool:
    """Whether it has a factor for its columns; otherwise a diagonal."""
    return weight.is_walked or weight.size <= MAX_DENSE


def _sums(weight: Weight, factors: Factors, hessians: jax.Array, counts: jax.Array) -> Sums:
    if not is_factored(weight):
        return squares(factors, hessians)
    inputs = (factors.inputs * jnp.sqrt(counts)[:, None, None]).reshape(-1, weight.rows)
    left = factors.gradients.reshape(-1, weight.columns)
    return inputs.T @ inputs, left.T @ weighted(factors, hessians).reshape(-1, weight.columns)


def _block(weight: Weight, sums: Sums, prior: np.ndarray, total: float) -> Block:
    if not is_factored(weight):
        return Block(as_array(np.eye(1)), as_array(sums + prior), None)
    row_sums, column_sums = sums
    # one number for a row: only in its units do the eigenbases stay those of the factors
    shares = prior.mean(1) / prior.mean()
    is_even = np.allclose(shares, 1.0, rtol=1e-6)
    units = np.ones(len(shares)) if is_even else shares**-0.5
    if not is_even:
        matrix = row_sums.matrix if isinstance(row_sums, Solved) else row_sums
        row_sums = units[:, None] * matrix * units
    (row_values, rows), (column_values, columns) = _eigen(row_sums), _eigen(column_sums)
    column_values = column_values / max(total * weight.positions, 1e-30)
    entries = np.outer(row_values.clip(0), column_values.clip(0)) + prior.mean()
    if is_even:
        return Block(as_array(rows), as_array(entries), as_array(columns))
    log_volume = as_array(weight.columns * np.log(shares).sum())
    return Block(as_array(units[:, None] * rows), as_array(entries), as_array(columns), log_volume)


def _eigen(factor: np.ndarray | Solved) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(factor, Solved):
        return factor.values, factor.vectors
    values, vectors = np.linalg.eigh(factor)
    return values, vectors


def _noise(block: Block, key: jax.Array) -> jax.Array:
    return block.back(jax.random.normal(key, block.entries.shape, block.entries.dtype) / jnp.sqrt(block.entries))
