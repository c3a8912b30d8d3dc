"""Scores of class probabilities with their errors: over test points, and over chains where there are several."""

from typing import NamedTuple

import numpy as np
from scipy import optimize

import posteria as po
from posteria.posteriors.draws import Draws, DrawsPosterior

NUM_ERRORS = 2  # standard errors that count as noise
LEAST = 1e-30  # a probability: few draws of a hot posterior may hold a class impossible


class Score(NamedTuple):
    is_right: np.ndarray  # (n,)
    ece: float
    log_likelihoods: np.ndarray  # (n,), of all chains
    without: np.ndarray  # (chain, n), of all chains but one


def score(posterior: po.Posterior, x: np.ndarray, y: np.ndarray, power: float = 1.0) -> Score:
    """Of the average over draws, sharpened by `power`."""
    chains = by_chain(posterior, x)
    probs = sharpened(chains.mean(0), power)
    rest = sharpened((chains.sum(0) - chains) / (len(chains) - 1), power)
    rows = np.arange(len(y))
    return Score(
        probs.argmax(1) == y,
        float(po.metrics.ece(probs, y)),
        np.log(np.maximum(probs[rows, y], LEAST)),
        np.log(np.maximum(rest[:, rows, y], LEAST)),
    )


def sharpened(probs: np.ndarray, power: float) -> np.ndarray:
    """Proportional to probs ** power: above 1 it is surer of itself, and as often right."""
    raised = np.maximum(probs, LEAST) ** power
    return raised / raised.sum(-1, keepdims=True)


def best_power(posterior: po.Posterior, x: np.ndarray, y: np.ndarray) -> float:
    """That gives these rows the highest log-likelihood."""
    probs = by_chain(posterior, x).mean(0).astype(np.float64)

    def loss(log_power: float) -> float:
        return -float(np.mean(np.log(sharpened(probs, np.exp(log_power))[np.arange(len(y)), y])))

    return float(np.exp(optimize.minimize_scalar(loss, bounds=(-2.0, 2.0), method="bounded").x))


def by_chain(posterior: po.Posterior, x: np.ndarray, num_draws: int | None = None) -> np.ndarray:
    """Class probabilities by each chain alone, or by its last draws: (chain, n, class)."""
    stored = posterior.stored
    parts = [Draws(stored.structs, chain[None, -(num_draws or len(chain)) :], {}) for chain in stored.flat]
    return np.stack([np.asarray(DrawsPosterior(posterior.target, part).predict(x).probs) for part in parts])


def difference(best: Score, other: Score) -> tuple[float, float]:
    """Of mean log-likelihoods, and its standard error: over test points, and over chains by the jackknife."""
    behind = best.log_likelihoods - other.log_likelihoods
    variance = behind.var() / len(behind)
    if best is not other:
        for each in (best, other):
            means = each.without.mean(1)
            variance += (len(means) - 1) / len(means) * ((means - means.mean()) ** 2).sum()
    return float(behind.mean()), float(np.sqrt(variance))


def points_lost(rows: list[Score], row: Score) -> tuple[float, float]:
    """Accuracy behind that of the best temperature, in points, and its standard error over test points."""
    best = max(rows, key=lambda each: each.is_right.mean())
    lost = 100.0 * (best.is_right.astype(float) - row.is_right)
    return float(lost.mean()), float(lost.std() / np.sqrt(len(lost)))
