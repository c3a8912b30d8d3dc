"""A precision matrix `sum_n J_n^T H_n J_n + diag(prior)` over the coordinates of a `FactoredNetwork`, H_n the
likelihood's Hessian in the outputs: what the four structures share, and the two plain ones, diagonal and full."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.typing import ArrayLike

from posteria.curvature.jacobian import Factors, Weight
from posteria.tree import Tree

T = TypeVar("T")
Sums = Tree  # of arrays, as the structure has them


@dataclass_transform(frozen_default=True, eq_default=False)
def pytree(cls: type[T]) -> type[T]:
    """A frozen dataclass of arrays that compiled functions take as an argument."""
    cls = dataclass(frozen=True, eq=False)(cls)
    names = list(cls.__dataclass_fields__)  # type: ignore[attr-defined]
    return partial(jax.tree_util.register_dataclass, data_fields=names, meta_fields=[])(cls)


class Precision(ABC):
    """The inverse covariance of the weights, at temperature 1."""

    structure: ClassVar[str]  # its name, as Laplace has it
    structures: ClassVar[dict[str, type["Precision"]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Precision.structures[cls.structure] = cls

    @abstractmethod
    def noise(self, key: jax.Array) -> jax.Array:
        """A draw with mean zero: (size,)."""

    @property
    @abstractmethod
    def variances(self) -> jax.Array:
        """Of each coordinate: (size,)."""

    @abstractmethod
    def covariance(self) -> jax.Array:
        """(size, size): for small networks."""

    @abstractmethod
    def log_det(self) -> float:
        """Of the precision."""

    @abstractmethod
    def output_covariance(self, weights: Sequence[Weight], jacobian: Sequence[Factors]) -> jax.Array:
        """J covariance J^T for each datum: (datum, output, output)."""

    @abstractmethod
    def output_variances(self, weights: Sequence[Weight], jacobian: Sequence[Factors]) -> jax.Array:
        """Its diagonal, (datum, output): what can be held where outputs are many."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """From which `from_arrays` makes it again."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> "Precision":
        """What `arrays` described."""


class Accumulated(ABC):
    """A structure that is a sum over the data: blocks are added up, and the whole is finished on the host."""

    @staticmethod
    @abstractmethod
    def block(weights: Sequence[Weight], jacobian: Sequence[Factors], hessians: jax.Array, counts: jax.Array) -> Sums:
        """The sums of one block: `hessians` is (datum, cotangent, cotangent), `counts` (datum,) is 0 for filling."""

    @classmethod
    @abstractmethod
    def finish(cls, weights: Sequence[Weight], sums: Sums, prior: np.ndarray, total: float) -> "Precision":
        """The precision from the sums of all blocks (float64) and the prior's precision (size,)."""


def weighted(factors: Factors, hessians: jax.Array) -> jax.Array:
    """H g: (datum, cotangent, position, column)."""
    return jnp.einsum("nrs,nstj->nrtj", hessians, factors.gradients)


def formed_jacobian(jacobian: Sequence[Factors]) -> jax.Array:
    """All weights side by side: (datum, cotangent, size)."""
    parts = [factors.formed() for factors in jacobian]
    return jnp.concatenate([part.reshape(*part.shape[:2], -1) for part in parts], axis=-1)


def as_array(values: np.ndarray) -> jax.Array:
    """What the host computed in float64, in JAX's own float."""
    return jax.device_put(np.asarray(values, jnp.result_type(float)))


# ---- a number a weight


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


# ---- the whole matrix, for small networks: exact where the model is linear and Gaussian

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
