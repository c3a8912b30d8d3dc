"""The evidence of a Gaussian process at every noise at once, and its best one; exactly, or by inducing rows.

With the eigenvalues of the kernel of the rows and y in their basis, a noise costs n operations. Inducing rows Z put
K_XZ K_ZZ^-1 K_ZX in the kernel's place, whose eigenvalues are those of a matrix of their own size, and take away
trace(K - K_XZ K_ZZ^-1 K_ZX) / (2 noise^2): a lower bound of the evidence, and the evidence where Z are all rows.
Titsias 2009, Variational Learning of Inducing Variables in Sparse Gaussian Processes.
"""

import math
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from posteria import tree
from posteria.data.arrays import Data, num_rows, rows
from posteria.errors import SettingError
from posteria.models.target import Target
from posteria.posteriors.process import Noise, cholesky

SMALLEST, LARGEST = 1e-12, 1e4  # of the noise's variance, over the mean of the kernel's
GRID_STEP = math.log(LARGEST / SMALLEST) / 1599
ABOVE_Y = 10.0  # of the noise's variance, over the mean square of y, where that is the larger bound
BLOCK_ROWS = 4096  # whose kernel with the inducing rows is held at once


def has_gaussian_noise(likelihood: Any) -> bool:
    """One noise for all rows, added to the outputs; told by what such a likelihood can do, not by its name."""
    return hasattr(likelihood, "noise_std") and hasattr(likelihood, "moment_update")


def check_one_noise(target: Target) -> None:
    """Targets share the process's kernel and its factor, and so their noise."""
    num_noises = tree.size(target.structs["likelihood"])
    if has_gaussian_noise(target.model.likelihood) and num_noises > 1:
        raise SettingError(
            f"{num_noises} noises to infer, one for each target",
            "one noise for all targets, which share the process",
            "take po.likelihoods.Gaussian() with num_noises=1, or fit each target on its own",
        )


class Spectrum(NamedTuple):
    """Eigenvalues of the rows' kernel, and what y has along each."""

    values: np.ndarray  # (m,)
    counts: np.ndarray  # how often each is there, (m,)
    power: np.ndarray  # of y, summed over its columns, (m,)
    num_columns: int
    total_weight: float  # of the rows
    log_variances: np.ndarray  # a grid of the noise's
    lost: float = 0.0  # variance of the rows that inducing ones do not explain

    @classmethod
    def of(cls, matrix: np.ndarray, y: np.ndarray, total_weight: float) -> "Spectrum":
        values, vectors = scipy.linalg.eigh(matrix)
        power = ((vectors.T @ y) ** 2).sum(1)
        grid = _grid(float(np.mean(np.diag(matrix))), power.sum() / max(total_weight * y.shape[1], 1e-300))
        return cls(np.maximum(values, 0.0), np.ones(len(values)), power, y.shape[1], total_weight, grid)

    @property
    def num_rows(self) -> float:
        return float(self.counts.sum())

    def log_likelihoods(self) -> np.ndarray:
        """Of y, or their lower bound, at each noise of the grid."""
        total = self.values[:, None] + np.exp(self.log_variances)
        dets = self.num_columns * (self.counts[:, None] * np.log(2 * math.pi * total)).sum(0)
        rows = -0.5 * (dets + (self.power[:, None] / total).sum(0)) - self._loss()
        missing = self.num_columns * (self.num_rows - self.total_weight)  # rows that count as less than one, or more
        return np.asarray(rows + 0.5 * missing * (math.log(2 * math.pi) + self.log_variances))

    def _loss(self) -> np.ndarray:
        return np.asarray(0.5 * self.num_columns * self.lost / np.exp(self.log_variances))

    def scaled(self) -> tuple[np.ndarray, np.ndarray]:
        """Of y / scale, whose scale is free: at each noise of the grid, the log evidence at its best scale, up to a
        constant, and that scale."""
        total = self.values[:, None] + np.exp(self.log_variances)
        count = self.total_weight * self.num_columns  # a row of weight 2 is two rows
        variances = (self.power[:, None] / total).sum(0) / count
        dets = self.num_columns * (self.counts[:, None] * np.log(total)).sum(0)
        missing = self.num_columns * (self.num_rows - self.total_weight) * self.log_variances
        return -0.5 * (count * np.log(variances) + dets - missing) - self._loss(), np.sqrt(variances)

    def best_scale(self) -> tuple[Noise, float]:
        """The noise and the scale of largest evidence; the noise is in units of the scale. Labels have no scale."""
        evidence, scales = self.scaled()
        best = int(np.argmax(evidence))
        return Noise(math.exp(0.5 * self.log_variances[best])), float(scales[best])

    def inferred(self, target: Target) -> tuple[Noise, float]:
        """The mode of the noise under the evidence and its prior; and log p(y) - log p(y | that noise)."""
        grid = self.log_variances
        own = tree.unraveller(target.structs["likelihood"])(jnp.asarray(-grid, jnp.float32)[:, None])
        log_prior = np.asarray(jax.vmap(target.model.likelihood.log_prior)(own), np.float64)
        log_likelihood = self.log_likelihoods()
        log_joint = log_likelihood + log_prior
        best = int(np.argmax(log_joint))
        weights = np.exp(log_joint - log_joint[best])
        mean = np.average(grid, weights=weights)
        std = math.sqrt(np.average((grid - mean) ** 2, weights=weights))
        correction = log_joint[best] + math.log(weights.sum() * (grid[1] - grid[0])) - log_likelihood[best]
        return Noise(math.exp(0.5 * grid[best]), std), float(correction)


def _grid(mean_variance: float, mean_square: float) -> np.ndarray:
    """Of the logarithm of the noise's variance: up to where y, in whatever units, is noise alone."""
    first = math.log(mean_variance or 1.0) + math.log(SMALLEST)
    last = max(first + math.log(LARGEST / SMALLEST), math.log(ABOVE_Y * mean_square or 1e-300))
    return first + GRID_STEP * np.arange(math.ceil((last - first) / GRID_STEP) + 1)


class RowKernel(Protocol):
    """Covariances of a process, whatever it reads its rows by."""

    def cross(self, a: Any, b: Any) -> np.ndarray: ...

    def diagonal(self, x: Any) -> np.ndarray: ...


class Inducing(NamedTuple):
    """What is kept of all rows: with A = L^-1 K_ZX and L L^T = K_ZZ, the eigenvalues and vectors of A A^T, and A y."""

    inverse: np.ndarray  # L^-1, (m, m)
    values: np.ndarray  # (m,)
    vectors: np.ndarray  # (m, m)
    along: np.ndarray  # vectors^T A y, (m, output)
    squares: float  # of y
    lost: float
    variance: float  # of all rows together, before any is explained
    num_rows: int
    total_weight: float
    jitter: float

    @classmethod
    def of(cls, kernel: RowKernel, inducing: Data, x: Data, y: np.ndarray, root: np.ndarray) -> "Inducing":
        """`root`: of the rows' weights, (n,), as if all had one noise. K_ZX is never held whole."""
        factor, jitter = cholesky(kernel.cross(inducing, inducing))
        m, n = len(factor), num_rows(x)
        gram, along = np.zeros((m, m)), np.zeros((m, y.shape[1]))
        explained = variance = 0.0
        for first in range(0, n, BLOCK_ROWS):
            part = slice(first, first + BLOCK_ROWS)
            block = rows(x, part)
            weight = root[part]
            a = scipy.linalg.solve_triangular(factor, kernel.cross(inducing, block), lower=True, overwrite_b=True)
            a *= weight
            gram += a @ a.T
            along += a @ (weight[:, None] * y[part])
            explained += float((a**2).sum())
            variance += float((weight**2 * kernel.diagonal(block)).sum())
        values, vectors = scipy.linalg.eigh(gram, overwrite_a=True)
        inverse = scipy.linalg.solve_triangular(factor, np.eye(m), lower=True)
        squares = float(((root[:, None] * y) ** 2).sum())
        lost = max(variance - explained, 0.0)
        total = float((root**2).sum())
        return cls(
            inverse, np.maximum(values, 0.0), vectors, vectors.T @ along, squares, lost, variance, n, total, jitter
        )

    def spectrum(self) -> Spectrum:
        """All other eigenvalues are 0, and have what is left of y."""
        m, num_columns = self.along.shape
        is_there = self.values > 1e-12 * self.values.max(initial=1e-300)
        power = np.where(is_there, (self.along**2).sum(1) / np.where(is_there, self.values, 1.0), 0.0)
        rest = max(self.squares - float(power.sum()), 0.0)
        return Spectrum(
            np.append(self.values, 0.0),
            np.append(np.ones(m), self.num_rows - m),
            np.append(power, rest),
            num_columns,
            self.total_weight,
            _grid(self.variance / max(self.num_rows, 1), self.squares / max(self.total_weight * num_columns, 1e-300)),
            self.lost,
        )

    def bound(self, noise: float) -> float:
        """Of log p(y | noise)."""
        exact = self.spectrum()._replace(log_variances=np.array([2 * math.log(noise)]))
        return float(exact.log_likelihoods()[0])

    def summary(self, noise: float, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """alpha of y / scale, (m, output), and R with R^T R = B, (m, m)."""
        total = self.values + noise**2
        back = self.vectors.T @ self.inverse
        alpha = back.T @ (self.along / total[:, None]) / scale
        return alpha, np.sqrt(self.values / total)[:, None] * back
