"""Targets that may be better taken on a log scale: prices, durations, concentrations are never negative, and vary by
shares. Box & Cox 1964."""

import numpy as np

SCALES = ("auto", "linear", "log")
SKEWED = 1.0  # skewness of the target from which on logarithms are tried
FEWEST_ROWS = 50
NOTE = (
    "the target is taken on a log scale: it is positive and skewed, and rows left out do not tell against it; "
    'if not: target_scale="linear" (--target-scale linear)'
)


def may_suit(y: np.ndarray) -> bool:
    """Positive, skewed, and less so on a log scale."""
    if y.ndim != 1 or len(y) < FEWEST_ROWS or y.min() <= 0:
        return False
    skewness = _skewness(y)
    return skewness >= SKEWED and abs(_skewness(np.log(y))) <= skewness


def _skewness(values: np.ndarray) -> float:
    centred = values - values.mean()
    return float((centred**3).mean() / max((centred**2).mean() ** 1.5, 1e-300))
