"""The network at infinite width, where it is a Gaussian process: its posterior in closed form.

    f ~ GP(0, k),    k read off the network and its prior (`trace/kernels.py`)
    log p(y | x) = log N(y; 0, K + noise^2)

Neal 1996; Williams 1997; Lee et al. 2018; Matthews et al. 2018.
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from posteria import tree
from posteria.data.arrays import Data, num_rows, rows
from posteria.engine.loop import Run
from posteria.errors import SettingError, TooLargeError
from posteria.machine import readable
from posteria.methods.chains.elliptical_slice import EllipticalSlice
from posteria.methods.costs import Costed
from posteria.methods.functions.latent import LATENT_ROWS, sample_latent
from posteria.models.limit import LimitKernel, in_float64, limit_kernel
from posteria.models.target import Target
from posteria.posteriors.base import Posterior
from posteria.posteriors.process import Noise, ProcessPosterior, cholesky
from posteria.settings import Count, check_settings, refuse_idle

MOST_ROWS = 12_000  # whose kernel is factorised
NOISE_ROWS = 2000  # by whose evidence an inferred noise is chosen: it takes all eigenvalues of their kernel
LOG_GRID = np.linspace(math.log(1e-12), math.log(1e4), 1600)  # of the noise's variance, over the mean of the kernel's


@dataclass(frozen=True)
class InfiniteWidth(Costed):
    """The Gaussian process that the network becomes at infinite width: no training at all, and no weights.

    `kernel`: "auto" reads it off the network where that can be followed, and else estimates it from `num_functions`
    draws of the network; "walk" and "monte-carlo" insist. Inferred noise is at the mode of its posterior under the
    evidence. `classes`: "regression" on centred labels as in Lee et al. 2018; "latent" draws the latent function by
    `sampler`, as under any likelihood that is not Gaussian; "auto" is latent up to 2,000 rows. Up to 12,000 rows, in
    float64 on the host.
    """

    kernel: Literal["auto", "walk", "monte-carlo"] = "auto"
    num_functions: Count = 1000
    classes: Literal["auto", "regression", "latent"] = "auto"
    sampler: EllipticalSlice = field(default_factory=lambda: EllipticalSlice(num_draws=200, thinning=10))

    fidelity: ClassVar[str] = "exact"
    paper: ClassVar[str] = "Lee et al. 2018; Matthews et al. 2018"
    model_differs: ClassVar[str] = "the network at infinite width"

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.kernel == "walk", "num_functions", 'kernel="walk"')

    def expected_gradients(self, num_data: int) -> float:
        return 0.0  # it takes none

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> Posterior:
        bare = target.without_data()
        if target.blank_input is None:
            raise SettingError("data is None", "an x for its shapes", "pass data=(x, None) for the prior")
        kernel, note = limit_kernel(target, self.kernel, self.num_functions)
        run.note(note)
        if target.data is None:
            x = rows(target.blank_input, slice(0, 0))
            return ProcessPosterior(bare, kernel, x, np.zeros((0, target.num_outputs or 1)), Noise(_given_noise(bare)))
        data: Any = target.data
        x, y, weight = data if len(data) == 3 else (*data, None)
        n = num_rows(x)
        likelihood: Any = target.model.likelihood
        if hasattr(likelihood, "probs") and self.classes != "latent" and (self.classes != "auto" or n > LATENT_ROWS):
            _check_size(n, MOST_ROWS)
            run.note("classes were fitted as numbers, centred labels, by regression")
            labels = _centred_labels(np.asarray(y), target.num_outputs or 1)
            return self._regression(bare, kernel, x, labels, weight, run, is_labels=True)
        if _has_gaussian_noise(likelihood):
            _check_size(n, MOST_ROWS)
            return self._regression(bare, kernel, x, np.asarray(y, np.float64), weight, run, is_labels=False)
        _check_size(n, LATENT_ROWS)
        return sample_latent(self.sampler, key, target, kernel, run)

    def _regression(
        self, target: Target, kernel: LimitKernel, x: Data, y: np.ndarray, weight: Any, run: Run, *, is_labels: bool
    ) -> ProcessPosterior:
        root = np.ones(len(y)) if weight is None else np.sqrt(np.asarray(weight, np.float64))
        matrix, correction = kernel.cross(x, x), 0.0
        matrix *= np.outer(root, root)  # as if all rows had one noise
        if is_labels or jax.tree.leaves(target.structs["likelihood"]):
            chosen = np.random.default_rng(0).permutation(len(y))[:NOISE_ROWS]
            if len(y) > NOISE_ROWS:
                run.note(f"the noise was chosen by the evidence of {NOISE_ROWS:,} rows of {len(y):,}")
            spectrum = Spectrum.of(matrix[np.ix_(chosen, chosen)], (root[:, None] * y)[chosen], (root**2)[chosen].sum())
            if is_labels:
                noise, scale = spectrum.best_scale()
                y = y / scale
            else:
                _check_temperature(target)
                noise, correction = _inferred(target, spectrum)
        else:
            noise = Noise(_given_noise(target))
        posterior = ProcessPosterior(target, kernel, x, y, noise, weight=root**2, is_labels=is_labels)
        matrix[np.diag_indices_from(matrix)] += noise.std**2
        posterior.factor, jitter = cholesky(matrix)
        if jitter:
            run.note(f"{jitter:.1e} was added to the kernel's diagonal, which rounding had made indefinite")
        if not is_labels and target.temperature == 1.0:
            missing = 0.5 * y.shape[1] * (len(y) - (root**2).sum()) * math.log(2 * math.pi * noise.std**2)
            posterior._log_evidence = _log_normal(posterior.factor, root[:, None] * y) + missing + correction
        return posterior


def _has_gaussian_noise(likelihood: Any) -> bool:
    """One noise for all rows, added to the outputs; told by what such a likelihood can do, not by its name."""
    return hasattr(likelihood, "noise_std") and hasattr(likelihood, "moment_update")


def _given_noise(target: Target) -> float:
    likelihood: Any = target.model.likelihood
    if not _has_gaussian_noise(likelihood):
        return 1.0
    with in_float64():
        return float(likelihood.noise_std(likelihood.init(jax.random.key(0))))


def _check_size(n: int, most: int) -> None:
    if n > most:
        raise TooLargeError(
            f"{n:,} rows, whose kernel would take {readable(8.0 * n**2)} and {n**3 / 3:.1e} multiplications",
            f"at most {most:,}",
            "take a part of the rows, or po.DeepKernel, which goes on with inducing points",
        )


def _check_temperature(target: Target) -> None:
    if target.temperature != 1.0:
        raise SettingError(
            f"temperature {target.temperature}, and a noise to infer",
            "temperature 1, or a given noise",
            "give the noise as a number, or take temperature 1",
        )


def _centred_labels(y: np.ndarray, num_outputs: int) -> np.ndarray:
    """One column a class, of mean 0 over the classes; of one output, -1/2 and 1/2."""
    if num_outputs == 1:
        return np.asarray(y[:, None] - 0.5)
    return np.asarray(np.eye(num_outputs)[y] - 1 / num_outputs)


def _log_normal(factor: np.ndarray, y: np.ndarray) -> float:
    """Of the columns of y under N(0, factor factor^T)."""
    white = scipy.linalg.solve_triangular(factor, y, lower=True, check_finite=False)
    log_det = np.log(np.diag(factor)).sum()
    return float(-0.5 * (white**2).sum() - y.shape[1] * (log_det + 0.5 * len(y) * math.log(2 * math.pi)))


class Spectrum(NamedTuple):
    """With a kernel's eigenvalues and y in their basis, the evidence of every noise costs n operations."""

    values: np.ndarray  # (n,)
    power: np.ndarray  # of y, summed over its columns, (n,)
    num_columns: int
    total_weight: float  # of the rows
    log_variances: np.ndarray  # a grid of the noise's

    @classmethod
    def of(cls, matrix: np.ndarray, y: np.ndarray, total_weight: float) -> "Spectrum":
        values, vectors = scipy.linalg.eigh(matrix)
        grid = LOG_GRID + math.log(float(np.mean(np.diag(matrix))) or 1.0)
        return cls(np.maximum(values, 0.0), ((vectors.T @ y) ** 2).sum(1), y.shape[1], total_weight, grid)

    def log_likelihoods(self) -> np.ndarray:
        """Of y, at each noise of the grid."""
        total = self.values[:, None] + np.exp(self.log_variances)
        rows = -0.5 * (self.num_columns * np.log(2 * math.pi * total) + self.power[:, None] / total).sum(0)
        missing = self.num_columns * (len(self.values) - self.total_weight)  # rows that count as less than one, or more
        return np.asarray(rows + 0.5 * missing * (math.log(2 * math.pi) + self.log_variances))

    def best_scale(self) -> tuple[Noise, float]:
        """Of y / scale, whose scale is free: the noise and the scale of largest evidence. Labels have no scale."""
        total = self.values[:, None] + np.exp(self.log_variances)
        count = len(self.values) * self.num_columns
        variances = (self.power[:, None] / total).sum(0) / count
        evidence = -0.5 * (count * np.log(variances) + self.num_columns * np.log(total).sum(0))
        best = int(np.argmax(evidence))
        return Noise(math.exp(0.5 * self.log_variances[best])), math.sqrt(variances[best])


def _inferred(target: Target, spectrum: Spectrum) -> tuple[Noise, float]:
    """The mode of the noise under the evidence and its prior; and log p(y) - log p(y | that noise), by the grid."""
    grid = spectrum.log_variances
    own = tree.unraveller(target.structs["likelihood"])(jnp.asarray(-grid, jnp.float32)[:, None])
    log_prior = np.asarray(jax.vmap(target.model.likelihood.log_prior)(own), np.float64)
    log_likelihood = spectrum.log_likelihoods()
    log_joint = log_likelihood + log_prior
    best = int(np.argmax(log_joint))
    weights = np.exp(log_joint - log_joint[best])
    mean = np.average(grid, weights=weights)
    std = math.sqrt(np.average((grid - mean) ** 2, weights=weights))
    correction = log_joint[best] + math.log(weights.sum() * (grid[1] - grid[0])) - log_likelihood[best]
    return Noise(math.exp(0.5 * grid[best]), std), float(correction)
