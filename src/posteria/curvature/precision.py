"""What the four structures share: a precision matrix `sum_n J_n^T H_n J_n + diag(prior)` over the coordinates of a
`FactoredNetwork`, H_n the likelihood's Hessian in the outputs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
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
