"""The score every likelihood shares."""

import numpy as np
from numpy.typing import ArrayLike

from posteria.errors import DataError
from posteria.metrics import demands


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
