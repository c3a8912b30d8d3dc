"""Tests of draws against known moments, as one number each."""

import numpy as np
from scipy import stats

from posteria import diagnostics

LEAST_P_VALUE = 1e-4  # seeds are fixed: a right sampler fails one law in ten thousand when its seed is changed


def moments_p_value(draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> float:
    """Of mean and full covariance of chains (chain, draw, size) at once: a joint chi-square.

    The draws are whitened by the known moments; then every coordinate has mean 0 and every product of two coordinates
    mean 1 or 0, each with its own Monte Carlo error, and nearly no correlation between them.
    """
    size = len(mean)
    white = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).reshape(-1, size).T).T.reshape(draws.shape)
    rows, columns = np.triu_indices(size)
    values = np.concatenate([white, white[..., rows] * white[..., columns]], axis=-1)
    expected = np.concatenate([np.zeros(size), (rows == columns).astype(float)])
    errors = (values.mean((0, 1)) - expected) / diagnostics.mcse_mean(values)
    return float(stats.chi2.sf(np.sum(errors**2), len(errors)))


def uniform_p_value(ranks: np.ndarray, num_ranks: int, num_bins: int = 10) -> float:
    """That ranks in 0..num_ranks-1 are uniform: a chi-square over bins of equal size (num_bins divides num_ranks)."""
    counts = np.bincount(np.asarray(ranks) * num_bins // num_ranks, minlength=num_bins)
    return float(stats.chisquare(counts).pvalue)
