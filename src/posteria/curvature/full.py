"""The whole precision matrix, for small networks: exact where the model is linear and Gaussian."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.typing import ArrayLike

from posteria.curvature.jacobian import Factors, Weight
from posteria.curvature.precision import Accumulated, Precision, Sums, as_array, formed_jacobian, pytree

ROUNDING = 1e-6  # of float32


@pytree
class Full(Precision, Accumulated):
    """sum_n J_n^T H_n J_n + diag(prior), as a factor of its inverse."""

    factor: jax.Array  # (size, size): covariance = factor factor^T
    log_determinant: jax.Array  # of the precision, as the host found it in float64

    structure = "full"

    @staticmethod
    def block(weights: Sequence[Weight], jacobian: Sequence[Factors], hessians: jax.Array, counts: jax.Array) -> Sums:
        formed = formed_jacobian(jacobian)
        left = jnp.einsum("nrs,nsp->nrp", hessians, formed)
        return left.reshape(-1, left.shape[-1]).T @ formed.reshape(-1, formed.shape[-1])

    @classmethod
    def finish(cls, weights: Sequence[Weight], sums: Sums, prior: np.ndarray, total: float) -> "Full":
        unit = np.sqrt(prior)
        scaled = (sums + sums.T) / 2 / np.outer(unit, unit)
        scaled[np.diag_indices_from(scaled)] += 1.0
        factor, log_det = inverse_root(scaled)
        return cls(as_array(factor / unit[:, None]), as_array(log_det + np.log(prior).sum()))

    def noise(self, key: jax.Array) -> jax.Array:
        return self.factor @ jax.random.normal(key, self.factor.shape[1:], self.factor.dtype)

    @property
    def variances(self) -> jax.Array:
        return (self.factor**2).sum(1)

    def covariance(self) -> jax.Array:
        return self.factor @ self.factor.T

    def log_det(self) -> float:
        return float(self.log_determinant)

    def output_covariance(self, weights: Sequence[Weight], jacobian: Sequence[Factors]) -> jax.Array:
        through = formed_jacobian(jacobian) @ self.factor  # (datum, output, size)
        return jnp.einsum("nrp,nsp->nrs", through, through)

    def output_variances(self, weights: Sequence[Weight], jacobian: Sequence[Factors]) -> jax.Array:
        return ((formed_jacobian(jacobian) @ self.factor) ** 2).sum(-1)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"factor": np.asarray(self.factor), "log_determinant": np.asarray(self.log_determinant)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> "Full":
        return cls(jnp.asarray(arrays["factor"]), jnp.asarray(arrays["log_determinant"]))


def inverse_root(scaled: np.ndarray) -> tuple[np.ndarray, float]:
    """A factor of the inverse of a precision in units of the prior, and its log determinant.

    No eigenvalue of it is below 1, but sums in float32 have rounding errors of the largest eigenvalue's size: where a
    variance is above the prior's, or the matrix not positive, eigenvalues below 1 are taken as 1.
    """
    try:
        lower = np.linalg.cholesky(scaled)
        inverse = scipy.linalg.solve_triangular(lower, np.eye(len(lower)), lower=True)  # scaled = L L^T
        if (inverse**2).sum(0).max(initial=0.0) <= 1 + ROUNDING:
            return inverse.T, 2 * np.log(np.diag(lower)).sum()
    except np.linalg.LinAlgError:
        pass
    values, vectors = np.linalg.eigh(scaled)
    values = values.clip(1.0)
    return vectors / np.sqrt(values), np.log(values).sum()
