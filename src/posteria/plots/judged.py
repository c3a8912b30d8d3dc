"""Predictions beside the truth, and chains beside one another, from the objects that users have."""

from typing import TYPE_CHECKING, Any

import numpy as np

from posteria.errors import CapabilityError, DataError
from posteria.plots import calibration, mixing, outcomes, theme
from posteria.posteriors.diagnosis import Diagnosis

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def reliability(predictive: Any, y: Any, ax: "Axes | None" = None) -> "Axes":
    """How often stated probabilities come true: of numbers, the central intervals of all levels; of classes, the
    likeliest one by how sure it was. On the diagonal, promises are kept; the grey is what chance alone would make."""
    axes = theme.axes_of(ax)
    if _is_classes(predictive):
        calibration.reliability_of_classes(axes, np.asarray(predictive.probs), np.asarray(y))
    else:
        calibration.reliability_of_intervals(axes, _pit(predictive, y))
    return axes


def quantiles_of_truth(predictive: Any, y: Any, ax: "Axes | None" = None) -> "Axes":
    """A histogram of the predictive distribution function at the truth: flat where predictions are right, a U where
    they are too sure, a hill where they are too wide. Dawid 1984."""
    axes = theme.axes_of(ax)
    calibration.pit_histogram(axes, _pit(predictive, y))
    return axes


def predicted(predictive: Any, y: Any, level: float = 0.9, ax: "Axes | None" = None) -> "Axes":
    """The truth over the predicted mean, a point a row; a cross where the `level` interval missed it."""
    if _is_classes(predictive):
        raise CapabilityError("a prediction of classes", "numbers", "po.plots.reliability has classes")
    axes = theme.axes_of(ax)
    truth = _first(y)
    lower, upper = predictive.interval(level)
    is_inside = (lower[:, 0] <= truth) & (truth <= upper[:, 0])
    outcomes.against_truth(axes, truth, np.asarray(predictive.mean)[:, 0], is_inside, theme.BLUE)
    return axes


def rhat(diagnosis: Diagnosis, ax: "Axes | None" = None) -> "Axes":
    """Shares of all values by their R-hat, of `posterior.diagnose(x)`; chains have mixed left of the line."""
    if diagnosis.is_point:
        raise CapabilityError("a diagnosis without chains", "chains", "fit HMC, NUTS, or another sampler")
    axes = theme.axes_of(ax)
    mixing.rhat_histogram(axes, np.ravel(diagnosis.rhat), f"R-hat of {diagnosis.space}")
    return axes


def traces(posterior: Any, of: str = "log_density", ax: "Axes | None" = None) -> "Axes":
    """What chains recorded at each draw, a line a chain: `of` is the log density, or another of `stored.info`."""
    stored = getattr(posterior, "stored", posterior)
    info = getattr(stored, "info", {})
    if of not in info:
        raise DataError(f"of={of!r}", f"one of {sorted(info)}" if info else "a posterior of chains", "name one of them")
    axes = theme.axes_of(ax)
    mixing.trace(axes, np.asarray(info[of]))
    axes.set_ylabel(of.replace("_", " "))
    return axes


def _is_classes(predictive: Any) -> bool:
    try:
        return bool(np.ndim(predictive.probs))
    except (AttributeError, CapabilityError):
        return False


def _first(y: Any) -> np.ndarray:
    array = np.asarray(y, np.float64)
    if array.ndim == 2 and array.shape[1] > 1:
        raise DataError(f"y has {array.shape[1]} targets", "one", "pictures are of one target")
    return array.reshape(len(array))


def _pit(predictive: Any, y: Any) -> np.ndarray:
    return np.asarray(predictive.cdf(_first(y)), np.float64).reshape(-1)
