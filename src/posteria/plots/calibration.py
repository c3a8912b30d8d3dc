"""Whether stated probabilities come true: the numbers, and their pictures.

`pit` is the predictive distribution function at the truth, (n,): uniform when predictions are right (Dawid 1984).
"""

from typing import TYPE_CHECKING

import numpy as np

from posteria.plots import theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVELS = np.linspace(0.05, 0.95, 19)
PIT_BINS = 10
CONFIDENCE_BINS = 10
QUINTILES = 5
TWO_SIGMA = 2.0  # about 95 % of a Normal


def central_coverage(pit: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Fraction of truths inside the central interval of each level."""
    return (np.abs(2 * pit - 1)[:, None] <= levels).mean(0)


def coverage_by_spread(pit: np.ndarray, std: np.ndarray, level: float) -> np.ndarray:
    """Coverage of the central interval in fifths of the rows, from the narrowest predicted spread to the widest."""
    is_inside = np.abs(2 * pit - 1) <= level
    return np.array([is_inside[part].mean() for part in np.array_split(np.argsort(std, kind="stable"), QUINTILES)])


def accuracy_by_confidence(probs: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean confidence, accuracy and number of rows, in the bins of confidence that hold any."""
    confidence, is_correct = probs.max(1), probs.argmax(1) == y
    bin_of_row = np.minimum((confidence * CONFIDENCE_BINS).astype(int), CONFIDENCE_BINS - 1)
    count = np.bincount(bin_of_row, minlength=CONFIDENCE_BINS)
    kept = count > 0
    mean_confidence = np.bincount(bin_of_row, confidence, CONFIDENCE_BINS)[kept] / count[kept]
    accuracy = np.bincount(bin_of_row, is_correct, CONFIDENCE_BINS)[kept] / count[kept]
    return mean_confidence, accuracy, count[kept]


def likely_share(share: np.ndarray, count: float) -> tuple[np.ndarray, np.ndarray]:
    """Where the true share may lie when `share` of `count` was seen: about 95 %, inside 0 to 1. Wilson 1927."""
    doubt = TWO_SIGMA**2 / count
    middle = (share + doubt / 2) / (1 + doubt)
    half = np.sqrt(doubt * share * (1 - share) + doubt**2 / 4) / (1 + doubt)
    return middle - half, middle + half


def reliability_of_intervals(axes: "Axes", pit: np.ndarray, colour: str = theme.BLUE) -> None:
    """Observed against stated coverage; in the grey, a difference that chance alone would make."""
    chance = TWO_SIGMA * np.sqrt(LEVELS * (1 - LEVELS) / len(pit))
    axes.fill_between(LEVELS, LEVELS - chance, LEVELS + chance, color=theme.RULE, alpha=0.55, lw=0)
    axes.plot([0, 1], [0, 1], color=theme.MUTED, lw=0.7)
    axes.plot(LEVELS, central_coverage(pit, LEVELS), color=colour, lw=1.8)
    _unit_square(axes, "stated", "observed")


def reliability_of_classes(axes: "Axes", probs: np.ndarray, y: np.ndarray, colour: str = theme.BLUE) -> None:
    """Accuracy against confidence of the most probable class; a mark's area grows with its number of rows."""
    confidence, accuracy, count = accuracy_by_confidence(probs, y)
    axes.plot([0, 1], [0, 1], color=theme.MUTED, lw=0.7)
    axes.plot(confidence, accuracy, color=colour, lw=1.2)
    axes.scatter(confidence, accuracy, s=4 + 60 * count / count.sum(), color=colour, lw=0, zorder=3)
    _unit_square(axes, "confidence", "accuracy")


def pit_histogram(axes: "Axes", pit: np.ndarray, colour: str = theme.BLUE) -> None:
    """Share of truths in each tenth of their predictive distribution; in the grey, what chance alone would make."""
    share = np.histogram(pit, bins=PIT_BINS, range=(0, 1))[0] / len(pit)
    expected = 1 / PIT_BINS
    chance = TWO_SIGMA * np.sqrt(expected * (1 - expected) / len(pit))
    axes.bar((np.arange(PIT_BINS) + 0.5) / PIT_BINS, share, width=0.94 / PIT_BINS, color=colour, alpha=0.75, lw=0)
    axes.axhspan(expected - chance, expected + chance, color=theme.MUTED, alpha=0.28, lw=0)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, max(0.32, share.max() * 1.05))
    axes.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    axes.yaxis.set_major_formatter(_percent)
    axes.locator_params(axis="y", nbins=4)
    axes.set_xlabel("quantile of the truth")


def spread_quintiles(axes: "Axes", pit: np.ndarray, std: np.ndarray, level: float, colour: str = theme.BLUE) -> None:
    """Coverage where a method is surest, ..., least sure; bars are what the true share may be."""
    covered = coverage_by_spread(pit, std, level)
    lower, upper = likely_share(covered, len(pit) / QUINTILES)
    axes.axhline(level, color=theme.MUTED, lw=0.7)
    places = np.arange(QUINTILES)
    axes.vlines(places, lower, upper, color=colour, lw=1.0)
    axes.plot(places, covered, "o", color=colour, ms=4, mew=0)
    axes.set_xlim(-0.5, QUINTILES - 0.5)
    axes.set_ylim(0, 1.03)
    axes.set_xticks([0, QUINTILES - 1], ["surest", "least sure"])
    axes.set_yticks([0, 0.5, 1], ["0", "50%", "100%"])


def _percent(value: float, place: float) -> str:
    return f"{value:.0%}" if value else "0"


def _unit_square(axes: "Axes", x_label: str, y_label: str) -> None:
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    ticks = [0, 0.5, 1]
    axes.set_xticks(ticks, ["0", "50%", "100%"])
    axes.set_yticks(ticks, ["0", "50%", "100%"])
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
