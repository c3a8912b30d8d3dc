"""A prior for the first layer that knows which directions of the inputs have data."""

import fnmatch
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from scipy.linalg import solve_triangular

from posteria.errors import DataError, SettingError
from posteria.models import densities
from posteria.models.factorised import FanIn
from posteria.models.leaf import Leaf, Prior, normal_of
from posteria.settings import Positive, checked

MOST_ROWS = 20_000  # of which patches are counted
MOST_PATCHES = 2_000_000


class EmpiricalCovariance:
    """First-layer weights w ~ N(0, scale^2 (C / mean variance + epsilon I) / fan-in), C that of the inputs x.

    Where inputs have no variance (pixels that are always dark, columns that are sums of others) the data say nothing of
    the weights: their posterior is their prior, and a shift along such a direction is multiplied by weights that
    nobody has learnt. Here these weights are next to zero. All other leaves have `rest`. C is the second moment, so
    that a constant input counts as data. The linear operation that the inputs meet is found; of a convolution say which
    leaf it is (`leaf="layers/0/kernel"`, shell globs allowed), of shape (height, width, channels, outputs): C is then
    that of patches. EmpCov: Izmailov et al. 2021b, Dangers of Bayesian Model Averaging under Covariate Shift.

    Samplers move in coordinates in which it is white (w = L z, L the Cholesky factor), so that directions of little
    variance do not shorten their steps. Compared by identity; a posterior fitted with it is loaded with `prior=`.
    """

    is_proper: ClassVar[bool] = True
    meets_inputs: ClassVar[bool] = True

    def __init__(
        self,
        x: ArrayLike,
        scale: float = 1.0,
        epsilon: float = 1e-4,
        rest: Prior | None = None,
        leaf: str | None = None,
    ) -> None:
        self.scale = checked("EmpiricalCovariance", "scale", scale, Positive, 1.0)
        self.epsilon = checked("EmpiricalCovariance", "epsilon", epsilon, Positive, 1e-4)
        self.rest = FanIn() if rest is None else rest
        self.leaf = leaf
        if hasattr(self.rest, "joint_log_prob") or not hasattr(self.rest, "log_prob"):
            raise SettingError(f"{self.rest!r} beside it", "a prior that is asked leaf by leaf", "as FanIn()")
        self._x = np.asarray(x)
        is_real = np.issubdtype(self._x.dtype, np.number) and not np.iscomplexobj(self._x)
        if self._x.ndim < 2 or not len(self._x) or not is_real or not np.isfinite(self._x).all():
            raise DataError(f"x is {self._x.dtype} {self._x.shape}", "finite rows, as the network sees them", "pass x")
        self._factors: dict[tuple[int, ...], np.ndarray] = {}
        self._inverses: dict[tuple[int, ...], np.ndarray] = {}

    def check(self, leaves: Sequence[Leaf]) -> None:
        own: Any = getattr(self.rest, "init", lambda leaf: {})
        if any(own(leaf) for leaf in leaves):
            raise SettingError(f"{self.rest!r} beside it", "a prior whose scales are given", "as FanIn()")
        hit = [leaf for leaf in leaves if self._is_first(leaf)]
        if not hit:
            raise SettingError(
                "no weights that are known to meet the inputs first",
                "a network that begins with a dense layer, or the leaf's name",
                "name it: leaf=" + " or ".join(repr(leaf.path) for leaf in leaves[:2]),
            )
        for leaf in hit:
            self.factor(leaf)

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        if not self._is_first(leaf):
            return self.rest.log_prob(value, leaf)
        white = self._columns(self.whitened(value, leaf), leaf)
        return densities.normal(white, jnp.log(jnp.diag(self.factor(leaf)))[:, None]).sum()

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        if not self._is_first(leaf):
            return self.rest.sample(key, leaf)
        return self.coloured(jax.random.normal(key, leaf.shape), leaf).astype(leaf.dtype)

    def unit(self, leaf: Leaf) -> float:
        if not self._is_first(leaf):
            return self.rest.unit(leaf)
        return float(np.sqrt(np.mean(self.factor(leaf).astype(np.float64) ** 2) * len(self.factor(leaf))))

    def normal(self, leaf: Leaf) -> tuple[ArrayLike, ArrayLike] | None:
        return None if self._is_first(leaf) else normal_of(self.rest, leaf)

    # ---- coordinates in which a draw of a leaf is independent standard Normals: samplers move in them

    def correlates(self, leaf: Leaf) -> bool:
        return self._is_first(leaf)

    def whitened(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        inverse = jnp.asarray(self._inverse(leaf))
        return self._as_leaf(inverse @ self._columns(densities.widen(value), leaf), leaf)

    def coloured(self, white: jax.Array, leaf: Leaf) -> jax.Array:
        """The way back."""
        return self._as_leaf(jnp.asarray(self.factor(leaf)) @ self._columns(densities.widen(white), leaf), leaf)

    # ---- the leaf that meets the inputs

    def _is_first(self, leaf: Leaf) -> bool:
        return leaf.input_axis is not None if self.leaf is None else fnmatch.fnmatchcase(leaf.path, self.leaf)

    def _axis(self, leaf: Leaf) -> int | None:
        """Along which the inputs come; None of a convolution, where they come along all axes but the last."""
        return leaf.input_axis if len(leaf.shape) != 4 else None

    def _columns(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        """(inputs, outputs)."""
        axis = self._axis(leaf)
        first = value if axis is None else jnp.moveaxis(value, axis, 0)
        return first.reshape(len(self.factor(leaf)), -1)

    def _as_leaf(self, columns: jax.Array, leaf: Leaf) -> jax.Array:
        """From columns, as `_columns` made them."""
        axis = self._axis(leaf)
        if axis is None:
            return columns.reshape(leaf.shape)
        shape = leaf.shape[axis], *leaf.shape[:axis], *leaf.shape[axis + 1 :]
        return jnp.moveaxis(columns.reshape(shape), 0, axis)

    def factor(self, leaf: Leaf) -> np.ndarray:
        """Lower triangular, of the covariance of one output's weights: (inputs, inputs)."""
        if leaf.shape not in self._factors:
            rows = self._inputs(leaf).astype(np.float64)
            moment = rows.T @ rows / len(rows)
            size = len(moment)
            level = np.trace(moment) / size
            if not level > 0:
                raise DataError("inputs that are all 0", "inputs that vary", "pass the training inputs")
            covariance = self.scale**2 / size * (moment / level + self.epsilon * np.eye(size))
            self._factors[leaf.shape] = np.linalg.cholesky(covariance).astype(np.float32)
        return self._factors[leaf.shape]

    def _inverse(self, leaf: Leaf) -> np.ndarray:
        """Of the factor: a product with it is much faster on a CPU than XLA's triangular solver."""
        if leaf.shape not in self._inverses:
            factor = self.factor(leaf).astype(np.float64)
            identity = np.eye(len(factor))
            self._inverses[leaf.shape] = solve_triangular(factor, identity, lower=True).astype(np.float32)
        return self._inverses[leaf.shape]

    def _inputs(self, leaf: Leaf) -> np.ndarray:
        """What one output's weights meet: rows, or patches of images."""
        axis = self._axis(leaf)
        if axis is not None or self._x.ndim == 2:
            width = leaf.shape[0 if axis is None else axis]
            if self._x.ndim != 2 or self._x.shape[1] != width:
                raise SettingError(
                    f"x is {self._x.shape} and {leaf.path} {leaf.shape}", f"rows of {width}", "pass the network's own x"
                )
            return self._x
        if len(leaf.shape) != 4 or self._x.ndim != 4 or self._x.shape[-1] != leaf.shape[2]:
            raise SettingError(
                f"x is {self._x.shape} and {leaf.path} {leaf.shape}",
                "images (n, height, width, channels) and a kernel (height, width, channels, outputs)",
                "pass the network's own x, and the leaf of its first convolution",
            )
        return _patches(self._x[:MOST_ROWS], leaf.shape[:2])

    def __repr__(self) -> str:
        settings = f"scale={self.scale}, epsilon={self.epsilon}, rest={self.rest!r}"
        return f"EmpiricalCovariance(x of {self._x.shape}, {settings})"


def _patches(images: np.ndarray, shape: tuple[int, ...]) -> Any:
    """(patch, height * width * channels), of images that are dark outside of themselves; evenly some of many."""
    height, width = shape
    around = [(0, 0), (height // 2, (height - 1) // 2), (width // 2, (width - 1) // 2), (0, 0)]
    padded = np.pad(images, around)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(1, 2))
    windows = np.moveaxis(windows, 3, -1)  # (image, row, column, height, width, channel)
    every = max(1, math.ceil(math.prod(windows.shape[:3]) / MOST_PATCHES))
    chosen = windows[::every]
    return chosen.reshape(math.prod(chosen.shape[:3]), -1)
