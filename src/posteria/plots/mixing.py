"""Chains beside one another: R-hat of functions and of weights, and traces."""

from typing import TYPE_CHECKING

import numpy as np

from posteria.plots import theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

THRESHOLD = 1.05  # of R-hat, drawn as a line
NEAREST, FARTHEST = 1e-3, 1.0  # R-hat - 1 below and above are counted in the outermost bins
BINS = np.geomspace(NEAREST, FARTHEST, 25)
CHAIN_COLOURS = tuple(style.colour for style in theme.METHODS[:7])


def rhat_histogram(axes: "Axes", rhat: np.ndarray, name: str, colour: str = theme.BLUE) -> None:
    """Share of quantities by their R-hat, on a logarithmic scale of R-hat - 1; chains have mixed left of the line."""
    above_one = np.clip(np.nan_to_num(rhat, nan=np.inf, posinf=np.inf) - 1, NEAREST, FARTHEST)
    axes.hist(
        above_one, BINS.tolist(), weights=np.full(len(rhat), 1 / max(len(rhat), 1)), color=colour, alpha=0.75, lw=0
    )
    axes.axvline(THRESHOLD - 1, color=theme.MUTED, lw=0.8, ls=(0, (4, 2)))
    axes.set_xscale("log")
    axes.set_xlim(NEAREST, FARTHEST)
    axes.set_xticks([0.001, 0.01, 0.1, 1], ["1.001", "1.01", "1.1", "2"])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}" if value else "0")
    axes.locator_params(axis="y", nbins=4)
    axes.set_xlabel(name)


def trace(axes: "Axes", values: np.ndarray, most_points: int = 250) -> None:
    """values is (chain, draw); long chains are thinned to be drawn."""
    step = max(1, -(-values.shape[1] // most_points))
    draws = np.arange(0, values.shape[1], step)
    for number, chain in enumerate(values):
        axes.plot(draws, chain[::step], color=CHAIN_COLOURS[number % len(CHAIN_COLOURS)], lw=0.6, alpha=0.85)
    axes.set_xlim(0, max(values.shape[1] - 1, 1))
    axes.set_xlabel("draw")
    axes.locator_params(axis="both", nbins=4)
