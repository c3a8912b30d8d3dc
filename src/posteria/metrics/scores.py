"""Scores of predictions by what came true: of numbers, of classes, and of several targets together.

Of numbers `y` is (n,) or (n, outputs), and a result is the mean over points and outputs.
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from posteria.errors import DataError, SettingError
from posteria.metrics import demands

BLOCK_VALUES = 2**18  # values worked on at once, 2 MB
WEIGHT_TOLERANCE = 1e-4  # of the sum of mixture weights, which may come in float32


def negative_log_likelihood(log_prob: ArrayLike) -> float:
    """Mean over points of minus the log predictive density, in nats a point; log_prob is (n,).

    A point that was held impossible (-inf) makes it inf: that is its value, not an error.
    """
    log_prob = demands.real("log_prob", log_prob)
    if log_prob.ndim != 1:
        fix = "sum over the outputs of a point first"
        raise DataError(f"log_prob is {log_prob.shape}", "one value a point, (n,)", fix)
    if np.isnan(log_prob).any() or (log_prob == np.inf).any():
        raise DataError("log_prob holds nan or +inf", "log densities", "look for a scale that is zero or not finite")
    return float(-log_prob.mean())


def rmse(mean: ArrayLike, y: ArrayLike) -> float:
    """Root of the mean squared error, in the units of y."""
    mean, y = demands.numbers("mean", mean), demands.numbers("y", y)
    demands.same_shape("mean", mean, "y", y)
    return float(np.sqrt(((mean - y) ** 2).mean()))


def coverage(lower: ArrayLike, upper: ArrayLike, y: ArrayLike) -> float:
    """Fraction of y inside [lower, upper], ends included, 0 to 1."""
    lower, upper = _interval(lower, upper)
    y = demands.numbers("y", y)
    demands.same_shape("lower", lower, "y", y)
    return float(((lower <= y) & (y <= upper)).mean())


def width(lower: ArrayLike, upper: ArrayLike) -> float:
    """Mean width of the intervals, in the units of y."""
    lower, upper = _interval(lower, upper)
    return float((upper - lower).mean())


def crps_gaussian_mixture(means: ArrayLike, stds: ArrayLike, y: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Continuous ranked probability score of a mixture of Gaussians, in the units of y. Grimit et al. 2006.

    means and stds are (draw, *y.shape), weights (draw,) or None for equal ones. In closed form, with
    A(m, s) = E|N(m, s^2)|, it is
    sum_i w_i A(y - mean_i, std_i) - 1/2 sum_ij w_i w_j A(mean_i - mean_j, sqrt(std_i^2 + std_j^2)):
    the time grows with the square of the number of draws, the memory does not.
    """
    means, stds, y = demands.numbers("means", means), demands.numbers("stds", stds), demands.numbers("y", y)
    demands.same_shape("means", means, "stds", stds)
    demands.draws_of("means", means, y.shape)
    if stds.min() <= 0:
        raise DataError(f"stds reach down to {stds.min():.3g}", "positive", "score point masses by crps_from_samples")
    num_draws = len(means)
    weights = _weights(weights, num_draws)
    means, stds, y = means.reshape(num_draws, -1), stds.reshape(num_draws, -1), y.reshape(-1)
    block = max(BLOCK_VALUES // num_draws, 1)
    total = 0.0
    for start in range(0, len(y), block):
        points = slice(start, start + block)
        total += _crps_of_points(means[:, points], stds[:, points], y[points], weights).sum()
    return float(total / len(y))


def _crps_of_points(means: np.ndarray, stds: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    distance_to_y = weights @ _mean_absolute(y - means, stds)
    variances = stds**2
    half_spread = weights**2 @ _mean_absolute(np.zeros_like(means), np.sqrt(2) * stds) / 2
    for i in range(len(means) - 1):
        # every pair once, where the formula's half counts it twice
        pair_std = np.sqrt(variances[i] + variances[i + 1 :])
        half_spread += weights[i] * (weights[i + 1 :] @ _mean_absolute(means[i] - means[i + 1 :], pair_std))
    return distance_to_y - half_spread


def _mean_absolute(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """E|X| for X ~ N(mean, std^2)."""
    from scipy.special import erf

    z = mean / std
    return mean * erf(z / np.sqrt(2)) + std * np.sqrt(2 / np.pi) * np.exp(-(z**2) / 2)


def crps_from_samples(samples: ArrayLike, y: ArrayLike) -> float:
    """Continuous ranked probability score from draws of the predictive, (draw, *y.shape), in the units of y.

    E|X - y| - 1/2 E|X - X'| over pairs of different draws: the fair, unbiased estimate (Ferro 2014) of the score of the
    distribution that was drawn from. With few draws and a sharp forecast it can fall below zero.
    """
    samples, y = demands.numbers("samples", samples), demands.numbers("y", y)
    demands.draws_of("samples", samples, y.shape)
    num_draws = len(samples)
    if num_draws < 2:
        raise DataError("one draw", "at least two", "the spread of a distribution takes two draws")
    error = np.sort(samples - y, axis=0)
    # sum over pairs of |X - X'| = sum_i (2 i - m - 1) X_(i), i = 1 ... m
    rank_weight = 2 * np.arange(1, num_draws + 1) - num_draws - 1
    spread = np.tensordot(rank_weight / (num_draws * (num_draws - 1)), error, axes=1)
    return float((np.abs(error).mean(0) - spread).mean())


def crps_from_quantiles(quantiles: ArrayLike, y: ArrayLike) -> float:
    """Continuous ranked probability score from quantiles (level, *y.shape) at `quantile_levels(len(quantiles))`.

    Twice the integral over levels of the quantile score (Laio & Tamea 2007), by the midpoint rule: for a Gaussian, 100
    levels are high by less than 0.1 %.
    """
    return float(quantile_losses(quantiles, y).mean())


def quantile_losses(quantiles: ArrayLike, y: ArrayLike) -> np.ndarray:
    """The score of `crps_from_quantiles` for each value of y."""
    quantiles, y = demands.numbers("quantiles", quantiles), demands.numbers("y", y)
    demands.draws_of("quantiles", quantiles, y.shape)
    levels = ((np.arange(len(quantiles)) + 0.5) / len(quantiles)).reshape(-1, *([1] * y.ndim))
    error = y - quantiles
    return np.asarray(2 * np.maximum(levels * error, (levels - 1) * error).mean(0))


def _interval(lower: ArrayLike, upper: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    lower, upper = demands.numbers("lower", lower), demands.numbers("upper", upper)
    demands.same_shape("lower", lower, "upper", upper)
    if (lower > upper).any():
        raise DataError(f"{(lower > upper).sum()} intervals end before they start", "lower <= upper", "swap the two")
    return lower, upper


def _weights(weights: ArrayLike | None, num_draws: int) -> np.ndarray:
    if weights is None:
        return np.full(num_draws, 1 / num_draws)
    weights = demands.numbers("weights", weights)
    if weights.shape != (num_draws,):
        raise DataError(f"weights is {weights.shape}", f"({num_draws},)", "pass one weight a draw")
    if weights.min() < 0 or abs(weights.sum() - 1) > WEIGHT_TOLERANCE:
        raise DataError(
            f"weights from {weights.min():.3g}, sum {weights.sum():.3g}", "a distribution", "normalise them"
        )
    return weights


# ---- of class probabilities: `probs` is (n, classes), `y` is (n,) integer labels


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


# ---- of several targets together: they see what predictions at different inputs have to do with each other


def joint_log_loss(log_probs: ArrayLike, groups: ArrayLike) -> float:
    """Nats a target by which the targets of a group were unexpected, all together, on average over groups.

        -log mean_draw prod_{i in group} p(y_i | x_i, draw) / size of a group

    `log_probs` is (draw, n), of each target under each draw of the function; `groups` (group, size) are row numbers.
    Groups of one row give the negative log likelihood. A prediction that is right about each row alone loses here if it
    does not know what two rows have in common: an average over draws of whole functions does. Osband et al. 2022, The
    Neural Testbed: Evaluating Joint Predictions.
    """
    from scipy.special import logsumexp

    log_probs = demands.real("log_probs", log_probs)
    groups = np.asarray(groups)
    if log_probs.ndim != 2:
        raise DataError(f"log_probs is {log_probs.shape}", "(draw, n)", "keep the draws apart")
    if np.isnan(log_probs).any():
        raise DataError("log_probs has nan", "log densities, -inf where there is none", "see where they come from")
    if groups.ndim != 2 or not np.issubdtype(groups.dtype, np.integer) or not groups.size:
        raise DataError(f"groups are {groups.shape} of {groups.dtype}", "row numbers (group, size)", "see neighbours()")
    if groups.min() < 0 or groups.max() >= log_probs.shape[1]:
        raise DataError(f"groups name rows {groups.min()} to {groups.max()}", f"of 0 to {log_probs.shape[1] - 1}")
    together = log_probs[:, groups].sum(-1)  # (draw, group)
    return float(-(logsumexp(together, axis=0) - np.log(len(log_probs))).mean() / groups.shape[1])


def neighbours(x: ArrayLike, size: int = 10, num_groups: int = 100, seed: int = 0) -> np.ndarray:
    """Groups of rows that lie close together: random rows, each with those nearest to it, (group, size).

    Rows far apart have little in common, and are nearly the same together as alone.
    """
    x = np.asarray(x, np.float64).reshape(len(np.asarray(x)), -1)
    if not 1 <= size <= len(x):
        raise DataError(f"groups of {size}", f"1 to {len(x)} rows, of those that there are", "take smaller groups")
    centres = np.random.default_rng(seed).permutation(len(x))[:num_groups]
    groups = []
    for centre in centres:
        distances = ((x - x[centre]) ** 2).sum(-1)
        distances[centre] = -1.0  # itself first, also where rows are equal
        groups.append(np.argsort(distances, kind="stable")[:size])
    return np.stack(groups)
