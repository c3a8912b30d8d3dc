"""Scores of class probabilities: `probs` is (n, classes), `y` is (n,) integer labels."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from posteria.errors import DataError, SettingError
from posteria.metrics import demands


def accuracy(probs: ArrayLike, y: ArrayLike) -> float:
    """Fraction of points whose most probable class (the first of equals) is the true one, 0 to 1."""
    probs = demands.probabilities("probs", probs)
    return float((probs.argmax(1) == demands.labels(y, probs)).mean())


def brier(probs: ArrayLike, y: ArrayLike) -> float:
    """Mean squared distance from the one-hot truth, summed over all classes, 0 to 2. Brier 1950.

    For two classes that is twice the score of the positive class alone.
    """
    probs = demands.probabilities("probs", probs)
    one_hot = np.eye(probs.shape[1])[demands.labels(y, probs)]
    return float(((probs - one_hot) ** 2).sum(1).mean())


def ece(probs: ArrayLike, y: ArrayLike, bins: int = 15, mode: Literal["width", "mass"] = "width") -> float:
    """Expected calibration error of the most probable class, 0 to 1. Guo et al. 2017.

    The mean over points of |accuracy - confidence| of the bin a point is in. "width": bins ((k-1)/bins, k/bins], with
    confidence 0 in the first. "mass": bins of equally many points (Nguyen and O'Connor 2015); equal confidences share a
    bin, so that the order of the points does not matter.
    """
    probs = demands.probabilities("probs", probs)
    is_correct = probs.argmax(1) == demands.labels(y, probs)
    if bins < 1:
        raise SettingError(f"{bins} bins", "at least one", "15 is usual")
    confidence = probs.max(1)
    bin_of_point = np.searchsorted(_inner_edges(confidence, bins, mode), confidence, side="left")
    gap = np.bincount(bin_of_point, weights=is_correct - confidence)
    return float(np.abs(gap).sum() / len(confidence))


def _inner_edges(confidence: np.ndarray, bins: int, mode: str) -> np.ndarray:
    """Upper ends of all bins but the last, to which they belong."""
    if mode == "width":
        return np.arange(1, bins) / bins
    if mode == "mass":
        last = -(-np.arange(1, bins) * len(confidence) // bins) - 1  # rounded up, in integers
        return np.sort(confidence)[last]
    raise SettingError(f"mode is {mode!r}", '"width" or "mass"', "choose one")


def auroc(scores_in: ArrayLike, scores_out: ArrayLike) -> float:
    """Probability that an out-of-distribution point scores higher than an in-distribution one, ties half, 0 to 1.

    A larger score means "more foreign" (entropy, mutual information, variance); 0.5 is chance. The area under the ROC
    curve, as the Mann-Whitney statistic. Both are one-dimensional, of any lengths.
    """
    scores_in, scores_out = demands.numbers("scores_in", scores_in), demands.numbers("scores_out", scores_out)
    for name, scores in (("scores_in", scores_in), ("scores_out", scores_out)):
        if scores.ndim != 1:
            raise DataError(f"{name} is {scores.shape}", "one score a point, (n,)", "reduce it to one score a point")
    ascending = np.sort(scores_in)
    below = np.searchsorted(ascending, scores_out, side="left")
    not_above = np.searchsorted(ascending, scores_out, side="right")
    return float((below + not_above).mean() / (2 * len(ascending)))
