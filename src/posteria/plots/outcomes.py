"""Predictions beside what came true, and what they hang on: the pictures that need no statistics."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from posteria.plots import theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 400
MOST_ALONG = 120  # rows drawn one beside the other
MOST_BARS = 8
MOST_CLASSES = 12  # of a picture of mistakes
MOST_LETTERS = 40  # of a name beside a bar


def spread_over(count: int, most: int) -> np.ndarray:
    """Places, evenly spread, no more than so many."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def against_truth(axes: "Axes", y: np.ndarray, mean: np.ndarray, is_inside: np.ndarray, colour: str) -> None:
    """A point a row; on the line, the prediction is right."""
    chosen = spread_over(len(y), MOST_POINTS)
    y, mean, is_inside = y[chosen], mean[chosen], is_inside[chosen]
    low, high = min(y.min(), mean.min()), max(y.max(), mean.max())
    axes.plot([low, high], [low, high], color=theme.MUTED, linewidth=0.8, linestyle=(0, (4, 2)))
    axes.plot(mean[is_inside], y[is_inside], "o", color=colour, markersize=3, alpha=0.6, markeredgewidth=0)
    axes.plot(mean[~is_inside], y[~is_inside], "x", color=theme.VERMILLION, markersize=4, markeredgewidth=1)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    axes.locator_params(axis="both", nbins=5)


def along_rows(
    axes: "Axes", y: np.ndarray, mean: np.ndarray, lower: np.ndarray, upper: np.ndarray, colour: str
) -> None:
    """Rows one beside the other in the order of their prediction, each with its interval and what came true."""
    order = np.argsort(mean, kind="stable")[spread_over(len(y), MOST_ALONG)]
    y, mean, lower, upper = y[order], mean[order], lower[order], upper[order]
    place = np.arange(len(y))
    axes.vlines(place, lower, upper, color=colour, alpha=0.35, linewidth=max(0.8, 180 / len(y) / 1.6))
    axes.plot(place, mean, "_", color=colour, markersize=3)
    is_inside = (lower <= y) & (y <= upper)
    axes.plot(place[is_inside], y[is_inside], "o", color=theme.INK, markersize=1.8, markeredgewidth=0)
    axes.plot(place[~is_inside], y[~is_inside], "x", color=theme.VERMILLION, markersize=4, markeredgewidth=1)
    axes.set_xlabel("held-out rows, lowest prediction first")
    axes.set_xticks([])
    axes.locator_params(axis="y", nbins=5)


def sureness(axes: "Axes", confidence: np.ndarray, is_right: np.ndarray, colour: str) -> None:
    """Rows from the least sure to the surest: how sure it was of the class it named, and whether it was right."""
    order = np.argsort(confidence, kind="stable")[spread_over(len(confidence), MOST_POINTS)]
    confidence, is_right = confidence[order], is_right[order]
    place = np.arange(len(order))
    axes.plot(place[is_right], confidence[is_right], "o", color=colour, markersize=2.4, alpha=0.7, markeredgewidth=0)
    axes.plot(place[~is_right], confidence[~is_right], "x", color=theme.VERMILLION, markersize=4.5, markeredgewidth=1)
    axes.set_xlabel("held-out rows, from the least sure to the surest")
    axes.set_ylabel("how sure it was")
    axes.set_ylim(0, 1.03)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xticks([])


def bars(axes: "Axes", names: Sequence[str], values: np.ndarray, x_label: str, colour: str) -> None:
    """The largest, the first on top."""
    order = np.argsort(-values, kind="stable")[:MOST_BARS][::-1]
    place = np.arange(len(order))
    axes.barh(place, values[order], color=colour, alpha=0.75, height=0.3)
    for height, i in zip(place, order):
        axes.text(0.0, height + 0.2, f" {shortened(names[i])}", va="bottom", ha="left", fontsize=7.5)
    axes.set_yticks([])
    axes.set_ylim(-0.4, len(order) - 0.15)
    axes.set_xlabel(x_label)
    axes.set_xlim(0, max(float(values.max()) * 1.05, 1e-9))
    axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")


def shortened(name: str) -> str:
    return name if len(name) <= MOST_LETTERS else name[: MOST_LETTERS - 1] + "…"


def confused(axes: "Axes", y: np.ndarray, said: np.ndarray, names: Sequence[str], colour: str) -> np.ndarray:
    """Counts by true class (down) and by the class that was named (across): (class, class)."""
    from matplotlib.colors import to_rgb

    counts = np.zeros((len(names), len(names)))
    np.add.at(counts, (y, said), 1)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    for (i, j), value in np.ndenumerate(counts):
        if not value:
            continue
        tone = colour if i == j else theme.VERMILLION
        axes.fill_between([j - 0.48, j + 0.48], i - 0.46, i + 0.46, color=to_rgb(tone), alpha=0.12 + 0.45 * share[i, j])
        axes.text(j, i, f"{int(value)}", ha="center", va="center", fontsize=7.5)
    short = [name[:14] if len(names) < 5 else name[:7] for name in names]
    axes.set_xticks(range(len(names)), short)
    axes.set_yticks(range(len(names)), short)
    axes.tick_params(length=0)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("said")
    axes.set_ylabel("true")
    return counts
