"""Weights that are points times noise of rank one: W * (1 + rows e)(1 + columns e')^T for every matrix W."""

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from posteria import tree
from posteria.models.target import Target
from posteria.posteriors.gaussian import GaussianPosterior, Spread
from posteria.tree import Arrays, Json


def matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """A leaf as a matrix, its axes split where the two vectors are shortest; (0, 0) if it has fewer than two axes."""
    if len(shape) < 2:
        return 0, 0
    splits = [(math.prod(shape[:i]), math.prod(shape[i:])) for i in range(1, len(shape))]
    return min(splits, key=sum)


@partial(jax.tree_util.register_dataclass, data_fields=["centre", "std", "rows", "columns"], meta_fields=["leaves"])
@dataclass(frozen=True, eq=False)
class RankOne(Spread):
    """Multiplicative noise on matrices, and independent noise of `std` on all else. Not Gaussian: a product of two."""

    centre: ArrayLike  # (size,)
    std: ArrayLike  # of the leaves that are no matrices, one after the other
    rows: ArrayLike  # relative standard deviations, of all matrices one after the other
    columns: ArrayLike
    leaves: tuple[tuple[int, int, int], ...]  # size, rows and columns of each leaf (0, 0: no matrix)

    kind = "rank one"

    def noise(self, key: jax.Array) -> jax.Array:
        keys = jax.random.split(key, 3)
        parts = map(jnp.asarray, (self.std, self.rows, self.columns))
        own, rows, columns = (part * jax.random.normal(k, part.shape) for part, k in zip(parts, keys))
        return jnp.concatenate(
            [
                own[i] if w is None else w * ((1 + rows[r])[:, None] * (1 + columns[c]) - 1).ravel()
                for w, i, r, c in self._parts()
            ]
        )

    @property
    def variances(self) -> jax.Array:
        own, rows, columns = (jnp.asarray(p) ** 2 for p in (self.std, self.rows, self.columns))
        return jnp.concatenate(
            [
                own[i] if w is None else w**2 * ((1 + rows[r])[:, None] * (1 + columns[c]) - 1).ravel()
                for w, i, r, c in self._parts()
            ]
        )

    def covariance(self) -> jax.Array:
        own, rows, columns = (jnp.asarray(p) ** 2 for p in (self.std, self.rows, self.columns))
        blocks = [
            jnp.diag(own[i])
            if w is None
            else jnp.outer(w, w) * (jnp.kron(1 + jnp.diag(rows[r]), 1 + jnp.diag(columns[c])) - 1)
            for w, i, r, c in self._parts()
        ]
        return jax.scipy.linalg.block_diag(*blocks)

    def arrays(self) -> Arrays:
        return super().arrays() | {"leaves": np.asarray(self.leaves, np.int64)}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "RankOne":
        leaves = tuple((int(size), int(rows), int(columns)) for size, rows, columns in arrays["leaves"])
        return cls(arrays["centre"], arrays["std"], arrays["rows"], arrays["columns"], leaves)

    def _parts(self) -> list[tuple[jax.Array | None, slice, slice, slice]]:
        """Of each leaf: its centre (None if it is no matrix), and its slices of `std`, `rows` and `columns`."""
        parts, at = [], np.zeros(4, int)
        for size, rows, columns in self.leaves:
            steps = np.array([size, 0 if rows else size, rows, columns])
            centre, own, of_rows, of_columns = (slice(first, last) for first, last in zip(at, at + steps))
            parts.append((jnp.asarray(self.centre)[centre] if rows else None, own, of_rows, of_columns))
            at += steps
        return parts


class RankOnePosterior(GaussianPosterior):
    """A posterior with that spread; the file holds the weights once."""

    kind = "rank one"

    def state(self) -> tuple[Json, Arrays]:
        settings, arrays = super().state()
        del arrays["spread.centre"]
        return settings, arrays

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> GaussianPosterior:
        return super().from_state(target, settings, arrays | {"spread.centre": arrays["mean"]}, facts)


def leaves_of(structs: tree.Params) -> tuple[tuple[int, int, int], ...]:
    """Size, rows and columns of each leaf, in flatten order."""
    return tuple((math.prod(leaf.shape), *matrix_shape(leaf.shape)) for leaf in jax.tree.leaves(structs))
