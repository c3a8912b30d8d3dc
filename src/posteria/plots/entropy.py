"""Entropy of predictions for rows like the training data and for rows unlike them."""

from typing import TYPE_CHECKING

import numpy as np

from posteria.plots import theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 18


def entropy_in_and_out(axes: "Axes", inside: np.ndarray, outside: np.ndarray, num_classes: int) -> None:
    """Shares of rows by predictive entropy in nats; a method that knows what it does not know keeps the two apart."""
    most = np.log(num_classes)
    edges = np.linspace(0, most, BINS + 1)
    for values, colour, dash in ((inside, theme.BLUE, "-"), (outside, theme.VERMILLION, (0, (3, 1)))):
        share = np.histogram(np.clip(values, 0, most), edges)[0] / len(values)
        axes.stairs(share, edges, color=colour, fill=True, alpha=0.3, lw=0)
        axes.stairs(share, edges, color=colour, lw=1.2, ls=dash)
    axes.set_xlim(0, most)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}" if value else "0")
    axes.locator_params(axis="both", nbins=3)
    axes.set_xlabel("entropy, nats")
