"""What the average of all members is worth, where each row was left out by few of them: repeats of the folds tell."""

import math

import numpy as np

from posteria.posteriors import calibrated
from posteria.posteriors.conformal import repeated
from posteria.posteriors.mixture import Widths


def gain_of_all(
    shape: list[np.ndarray], y: np.ndarray, num_members: int, weight: np.ndarray | None = None
) -> np.ndarray:
    """The size of the errors of all members' average, in those of one average of repeats: (target,).

    An average of m members has the squared error e + v / m, where v is their variance about their mean: repeats show
    both. A hundredth of the rows, with the largest errors, is left aside.
    """
    num_repeats = len(shape[0])
    if num_repeats == 1:
        return np.ones(shape[0].shape[-1])
    centre, below, above = shape
    errors = (y.reshape(centre.shape[1:]) - centre) / (0.5 * (below + above)).mean(0)
    of_average = errors.mean(0) ** 2
    is_usual = of_average <= np.quantile(repeated(of_average, weight), 0.99, axis=0)
    one, average = (
        np.average(np.where(is_usual, part, 0.0), axis=0, weights=weight) for part in ((errors**2).mean(0), of_average)
    )
    variance = (one - average) * num_repeats / (num_repeats - 1)
    common = np.maximum(one - variance, 0.0)
    ratio = (common + variance / num_members) / np.maximum(common + variance / num_repeats, 1e-300)
    gain: np.ndarray = np.sqrt(np.clip(ratio, 0.25, 1.0))
    return gain


def widths_of_all(
    widths: Widths, x: np.ndarray, centres: np.ndarray, num_members: int, weight: np.ndarray | None
) -> np.ndarray:
    """Learnt widths about all members' average, in those about the average of repeats: (target,).

    Widths know the centre. Where large errors are those of large centres, the average of more members has both smaller,
    and `gain_of_all` would count that twice.
    """
    num_repeats = len(centres)
    if num_repeats == 1:
        return np.ones(centres.shape[-1])
    average = np.asarray(widths.log_widths(x, centres.mean(0)), np.float64)
    one = np.mean([np.asarray(widths.log_widths(x, centre), np.float64) for centre in centres], axis=0)
    ratio = np.exp(2 * np.average(one - average, axis=0, weights=weight))
    slope = (ratio - 1) / (1 - 1 / num_repeats)  # of squared widths, in 1 / members
    found: np.ndarray = np.sqrt(np.clip(1 + slope * (1 / num_members - 1 / num_repeats), 0.25, 1.0))
    return found


def temperature_of_all(probs: np.ndarray, y: np.ndarray, num_members: int, weight: np.ndarray | None = None) -> float:
    """Of the average of all members' probabilities, which is less sure than one of few: by what one and the average of
    repeats show, as `gain_of_all` has it of errors."""
    num_repeats = len(probs)
    average = math.log(calibrated.best_temperature(probs.mean(0), y, weight))
    if num_repeats == 1:
        return math.exp(average)
    each = None if weight is None else np.tile(weight, num_repeats)
    one = math.log(calibrated.best_temperature(probs.reshape(-1, probs.shape[-1]), np.tile(y, num_repeats), each))
    slope = (one - average) / (1 - 1 / num_repeats)  # in 1 / members
    return math.exp(average + slope * (1 / num_members - 1 / num_repeats))
