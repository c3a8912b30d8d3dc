"""The diagonal of the precision: a number a weight."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from posteria.curvature.jacobian import Factors, Weight
from posteria.curvature.precision import Accumulated, Precision, Sums, as_array, pytree, weighted


@pytree
class Diagonal(Precision, Accumulated):
    """diag(sum_n J_n^T H_n J_n) + prior."""

    entries: jax.Array  # (size,)

    structure = "diagonal"

    @staticmethod
    def block(weights: Sequence[Weight], jacobian: Sequence[Factors], hessians: jax.Array, counts: jax.Array) -> Sums:
        return [squares(factors, hessians) for factors in jacobian]

    @classmethod
    def finish(cls, weights: Sequence[Weight], sums: Sums, prior: np.ndarray, total: float) -> "Diagonal":
        return cls(as_array(np.concatenate([part.reshape(-1) for part in sums]) + prior))

    def noise(self, key: jax.Array) -> jax.Array:
        return jax.random.normal(key, self.entries.shape, self.entries.dtype) / jnp.sqrt(self.entries)

    @property
    def variances(self) -> jax.Array:
        return 1 / self.entries

    def covariance(self) -> jax.Array:
        return jnp.diag(self.variances)

    def log_det(self) -> float:
        return float(np.log(np.asarray(self.entries, np.float64)).sum())

    def output_covariance(self, weights: Sequence[Weight], jacobian: Sequence[Factors]) -> jax.Array:
        variances = self.variances
        pairs = zip(weights, jacobian)
        return jnp.asarray(sum(spread_through(factors, weight.of(variances)) for weight, factors in pairs))

    def output_variances(self, weights: Sequence[Weight], jacobian: Sequence[Factors]) -> jax.Array:
        variances = self.variances
        pairs = zip(weights, jacobian)
        return jnp.asarray(sum(variances_through(factors, weight.of(variances)) for weight, factors in pairs))

    def arrays(self) -> dict[str, np.ndarray]:
        return {"entries": np.asarray(self.entries)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> "Diagonal":
        return cls(jnp.asarray(arrays["entries"]))


def squares(factors: Factors, hessians: jax.Array) -> jax.Array:
    """The diagonal of sum_n J_n^T H_n J_n for one weight: (row, column)."""
    if factors.meets_once:
        curvature = (factors.gradients * weighted(factors, hessians)).sum((1, 2))  # (datum, column)
        return jnp.einsum("ni,nj->ij", factors.inputs[:, 0] ** 2, curvature)
    formed = factors.formed()
    return jnp.einsum("nrij,nrs,nsij->ij", formed, hessians, formed)


def spread_through(factors: Factors, variances: jax.Array) -> jax.Array:
    """J diag(variances) J^T of one weight, variances (row, column): (datum, cotangent, cotangent)."""
    if factors.meets_once:
        by_column = factors.inputs[:, 0] ** 2 @ variances  # (datum, column)
        gradients = factors.gradients[:, :, 0]
        return jnp.einsum("nrj,nj,nsj->nrs", gradients, by_column, gradients)
    formed = factors.formed()
    return jnp.einsum("nrij,ij,nsij->nrs", formed, variances, formed)


def variances_through(factors: Factors, variances: jax.Array) -> jax.Array:
    """The diagonal of `spread_through`: (datum, cotangent)."""
    if factors.meets_once:
        by_column = factors.inputs[:, 0] ** 2 @ variances
        return jnp.einsum("nrj,nj->nr", factors.gradients[:, :, 0] ** 2, by_column)
    return jnp.einsum("nrij,ij->nr", factors.formed() ** 2, variances)
