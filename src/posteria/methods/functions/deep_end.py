"""What rows say to a deep kernel given its weights, kernel and noise, in float64; and whether its noise has settled.

At the largest evidence, or bound, a noise's variance is the mean of E (y - f)^2 at its own rows: where the two are far
apart the fit has not converged, and bars are too narrow or too wide for rows that it has been shown.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria.methods.functions.deep_start import JITTER
from posteria.methods.functions.spectrum import has_gaussian_noise
from posteria.models.target import Target
from posteria.posteriors.deep_process import Summary, amplitude, exact_summary, kernel_matrix, sparse_summary
from posteria.posteriors.process import cholesky

UNSETTLED = 0.05  # nats a row, that another noise would gain, that the user is told of
FAR = 1.5  # times the noise's variance: what the rows have, where the two are far apart


def summed_up(
    kernel: str, found: Any, phi: np.ndarray, y: np.ndarray, weight: Any, is_exact: bool, target: Target
) -> tuple[np.ndarray, Summary, str]:
    """Inducing features, what is known at them, and a note."""
    likelihood: Any = target.model.likelihood
    is_gaussian = has_gaussian_noise(likelihood)
    inducing = phi if is_exact else np.asarray(found["inducing"], np.float64)

    def k(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return kernel_matrix(kernel, found["kernel"], a, b)

    if not is_gaussian:
        return inducing, _of_inducing(k(inducing, inducing), found), ""
    noise = float(likelihood.noise_std(found["params"]["likelihood"]))
    columns = y.shape[1]
    root = np.ones((len(y), 1)) if weight is None else np.sqrt(np.asarray(weight, np.float64))[:, None]
    missing = 0.5 * (len(y) - (root**2).sum()) * math.log(2 * math.pi * noise**2)
    if is_exact:
        plain = exact_summary(root * root.T * k(phi, phi), root * y, noise)
        summary = Summary(root * plain.alpha, root * root.T * plain.inner, plain.log_evidence)
        left = noise**4 * (plain.alpha**2).sum()  # of y - f, squared
        left += columns * (len(y) * noise**2 - noise**4 * np.trace(plain.inner))
    else:
        # weighted rows are as rows of another noise: their variance is counted as often
        cross = root.T * k(inducing, phi)
        plain = sparse_summary(k(inducing, inducing), cross, 0.0, root * y, noise)
        variance = (root**2).sum() * float(amplitude(found["kernel"]))
        summary = plain._replace(log_evidence=plain.log_evidence - 0.5 * columns * variance / noise**2)
        left = ((root * y - cross.T @ plain.alpha) ** 2).sum()
        left += columns * (variance - ((plain.inner @ cross) * cross).sum())
    summary = summary._replace(log_evidence=summary.log_evidence + columns * missing)
    return inducing, summary, _noise_note(left, noise, columns * float((root**2).sum()), found, target)


def _noise_note(left: float, noise: float, count: float, found: Any, target: Target) -> str:
    """`left`: the sum of E (y - f)^2 over so many values of y."""
    own = found["params"]["likelihood"]
    if not jax.tree.leaves(own) or not count:
        return ""

    def log_prior(change: float) -> jax.Array:  # in the log noise
        return jnp.asarray(target.model.likelihood.log_prior(jax.tree.map(lambda leaf: leaf - 2 * change, own)))

    ratio = left / noise**2 / count
    gradient = count * (ratio - 1) + float(jax.grad(log_prior)(0.0))  # of the evidence, by the log noise
    gain = gradient**2 / (4 * count)  # to second order: the curvature is 2 for each value
    if gain < UNSETTLED * count or 1 / FAR < ratio < FAR:  # of few rows its prior may hold a noise off
        return ""
    wrong = "narrow" if gradient > 0 else "wide"
    return (
        f"the noise has not settled: it is {noise:.2g}, where errors at the fit's own rows are "
        f"{math.sqrt(left / count):.2g}, so that bars are too {wrong}; more epochs come closer"
    )


def _of_inducing(kuu: np.ndarray, found: Any) -> Summary:
    """q(v) = N(mean, factor factor^T) of white inducing values, as alpha and inner."""
    factor, _ = cholesky(kuu + JITTER * np.mean(np.diag(kuu)) * np.eye(len(kuu)))
    back = np.linalg.inv(factor)
    spread = np.tril(np.asarray(found["factor"], np.float64))
    inner = np.stack([back.T @ (np.eye(len(kuu)) - each @ each.T) @ back for each in spread])
    return Summary(back.T @ np.asarray(found["mean"], np.float64), inner, math.nan)
