"""A fitted curve: mean, band, some of the functions drawn, data."""

from typing import TYPE_CHECKING

import numpy as np

from posteria.plots import theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def curve(
    axes: "Axes",
    x: np.ndarray,
    mean: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    draws: np.ndarray | None = None,
    data: tuple[np.ndarray, np.ndarray] | None = None,
    colour: str = theme.BLUE,
) -> None:
    """All are (points,) over the sorted inputs x, draws (draw, points); data is (x, y) of the training rows."""
    axes.fill_between(x, lower, upper, color=colour, alpha=0.17, lw=0)
    if draws is not None:
        for draw in draws:
            axes.plot(x, draw, color=colour, lw=0.5, alpha=0.45)
    axes.plot(x, mean, color=colour, lw=1.8)
    if data is not None:
        axes.plot(*data, ".", color=theme.INK, ms=2.6, mew=0, alpha=0.75)
    axes.set_xlim(x[0], x[-1])


def shared_limits(lower: np.ndarray, upper: np.ndarray, train_y: np.ndarray) -> tuple[float, float]:
    """A range of y for panels side by side: the band given, from half to twice as far out as the data reach."""
    low, high = float(train_y.min()), float(train_y.max())
    reach = max(high - low, 1e-9)
    bottom, top = max(float(lower.min()), low - 2 * reach), min(float(upper.max()), high + 2 * reach)
    return min(bottom, low - reach / 2), max(top, high + reach / 2)
