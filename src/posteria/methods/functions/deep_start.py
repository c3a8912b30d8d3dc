"""Where a deep kernel begins: all but the weights at its best given the first weights.

Length, amplitude and noise are those of largest evidence of the process on the first features, or of its bound by
inducing points where the process will have these: what they cannot explain is noise. Inducing values have their optimum
given these. Nothing is set by hand but the grid of lengths, in units of the features' distances.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.methods.functions.spectrum import Inducing, Spectrum
from posteria.models.target import Target
from posteria.posteriors.deep_process import (
    KernelParams,
    amplitude,
    first_kernel,
    kernel_matrix,
    typical_distance,
)
from posteria.posteriors.process import cholesky

JITTER = 1e-4  # of the kernel's mean variance, in 32 bits: no smaller noise can be told
START_LENGTHS = tuple(2.0**power for power in range(-2, 4))  # times the typical distance of features


class OnFeatures(NamedTuple):
    """A kernel with its parameters."""

    name: str
    params: KernelParams

    def cross(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return kernel_matrix(self.name, self.params, a, b)

    def diagonal(self, x: np.ndarray) -> np.ndarray:
        return np.full(len(x), float(amplitude(self.params)))


def best_process(
    kernel: str,
    sample: np.ndarray,
    y: np.ndarray,
    given: float | None,
    weight: np.ndarray | None = None,
    inducing: np.ndarray | None = None,
) -> tuple[float, float, float]:
    """Length, noise and amplitude of largest evidence given features, or of its bound; a `given` noise is kept."""
    typical, best = typical_distance(sample), (-math.inf, 1.0, 1.0, 1.0)
    root = np.ones(len(y)) if weight is None else np.sqrt(weight)
    if not np.any(y):  # nothing to explain: any amplitude will do
        return typical, 1.0 if given is None else given, 1.0
    for factor in START_LENGTHS:
        length = factor * typical
        of = OnFeatures(kernel, first_kernel(kernel, sample.shape[1], length))
        if inducing is None:
            matrix = np.outer(root, root) * of.cross(sample, sample)
            spectrum = Spectrum.of(matrix, root[:, None] * y, float((root**2).sum()))
        else:
            spectrum = Inducing.of(of, inducing, sample, y, root).spectrum()
        spectrum = spectrum._replace(log_variances=spectrum.log_variances[spectrum.log_variances > math.log(JITTER)])
        evidence, scales = spectrum.scaled()
        stds = np.exp(0.5 * spectrum.log_variances) * scales
        at = int(np.argmax(evidence)) if given is None else int(np.argmin(np.abs(np.log(stds / given))))
        best = max(best, (float(evidence[at]), length, float(stds[at]), float(scales[at])))
    _, length, noise, scale = best
    return length, noise if given is None else given, scale


def given_std(target: Target) -> float | None:
    likelihood: Any = target.model.likelihood
    if jax.tree.leaves(target.structs["likelihood"]):
        return None
    return float(likelihood.noise_std(likelihood.init(jax.random.key(0))))


def with_noise(target: Target, own: tree.Params, noise: float) -> tree.Params:
    """The likelihood's log precisions at that noise."""
    return jax.tree.map(lambda leaf: jnp.full_like(leaf, -2 * math.log(noise)), own)


def at_prior(inducing: np.ndarray, num_outputs: int) -> dict[str, jax.Array]:
    """Features of some rows; white values there with the prior's distribution, of which nothing is to be unlearnt."""
    m = len(inducing)
    return {
        "inducing": jnp.asarray(inducing, jnp.float32),
        "mean": jnp.zeros((m, num_outputs)),
        "factor": jnp.tile(jnp.eye(m), (num_outputs, 1, 1)),
    }


def at_optimum(
    kuu: np.ndarray, kuf: np.ndarray, y: np.ndarray, noise: float, times: float | np.ndarray
) -> dict[str, jax.Array]:
    """The best q of white inducing values, by rows that stand for so many `times` rows each. Titsias 2009."""
    factor, _ = cholesky(kuu + JITTER * np.mean(np.diag(kuu)) * np.eye(len(kuu)))
    root = np.sqrt(np.broadcast_to(times, len(y))) / noise
    white = np.linalg.solve(factor, kuf) * root
    precision = np.eye(len(kuu)) + white @ white.T
    covariance = np.linalg.inv(precision)
    mean = covariance @ (white @ (root[:, None] * y))
    spread, _ = cholesky(0.5 * (covariance + covariance.T))
    return {
        "mean": jnp.asarray(mean, jnp.float32),
        "factor": jnp.tile(jnp.asarray(spread, jnp.float32), (y.shape[1], 1, 1)),
    }
