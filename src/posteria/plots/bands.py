"""A predictive distribution over one input, as bands around its mean."""

from typing import TYPE_CHECKING

import numpy as np

from posteria.errors import DataError
from posteria.plots import theme
from posteria.posteriors.predictive import Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette, told apart with any colour vision
BLUE, VERMILLION, BLACK = "#0072B2", "#D55E00", "#000000"


def bands(
    x: np.ndarray,
    predictive: Predictive,
    data: tuple[np.ndarray, np.ndarray] | None = None,
    level: float = 0.9,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the mean, the central `level` interval of y, and within it the part that is not noise.

    `x` is (n, 1), sorted, and `predictive` belongs to it. The inner band is the mean ± the epistemic std times the
    Normal's quantile for `level`: where a method is sure of its function, it vanishes.
    """
    from scipy.stats import norm

    x = np.asarray(x)
    if x.ndim != 2 or x.shape[1] != 1:
        raise DataError(f"x is {x.shape}", "(n, 1)", "bands are drawn over one input")
    axes = theme.axes_of(ax)
    line = x[:, 0]
    mean = predictive.mean[:, 0]
    lower, upper = predictive.interval(level)
    spread = norm.ppf((1 + level) / 2) * np.sqrt(predictive.epistemic[:, 0])
    axes.fill_between(line, lower[:, 0], upper[:, 0], color=BLUE, alpha=0.18, lw=0, label=f"{level:.0%} interval of y")
    axes.fill_between(line, mean - spread, mean + spread, color=BLUE, alpha=0.38, lw=0, label="of the function alone")
    axes.plot(line, mean, color=VERMILLION, lw=2, label="mean")
    if data is not None:
        axes.plot(data[0][:, 0], data[1], ".", color=BLACK, ms=5, label="data")
    return axes
