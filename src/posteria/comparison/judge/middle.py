"""Where a prediction of numbers has its middle and how wide it is, also where it has no mean or no variance."""

from typing import Any

import numpy as np

ONE_STD = (0.15865525393145707, 0.8413447460685429)  # the levels one std below and above a Gaussian's mean


def centre(predictive: Any) -> np.ndarray:
    """The mean, or the median where a mean does not exist: (n, targets)."""
    mean = np.asarray(predictive.mean, np.float64)
    return mean if np.isfinite(mean).all() else np.asarray(predictive.quantile_table([0.5]), np.float64)[0]


def spread(predictive: Any) -> np.ndarray:
    """The std, or half of the middle 68 % where it is infinite: (n, targets)."""
    std = np.asarray(predictive.std, np.float64)
    if np.isfinite(std).all():
        return std
    lower, upper = np.asarray(predictive.quantile_table(ONE_STD), np.float64)
    return (upper - lower) / 2
