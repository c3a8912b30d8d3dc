"""Pictures of removing weights: how noisy they are, what removal costs, which are left, and learned dropout rates.

Every function draws on Matplotlib axes that it is given.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from posteria.errors import DataError
from posteria.plots import theme
from posteria.posteriors.base import Posterior
from posteria.posteriors.masks import MaskPosterior
from posteria.posteriors.pruned import THRESHOLD, dense_moments, slices_of, weights

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PATCH = 100  # rows and columns of a dense layer that are shown
FILTERS = 64  # of a convolution that are shown at most


def signal_to_noise(density: "Axes", cumulative: "Axes", posterior: Posterior) -> None:
    """The density of 10 log10(|mean| / std) over all weights of layers, and its cumulative. Blundell et al. 2015.

    Two peaks say that the weights between them can be told apart: those on the left can go.
    """
    mean, std = dense_moments(posterior)
    slices = slices_of(posterior.target)
    mean, std = (np.concatenate([v[slices[leaf.path]] for leaf in weights(posterior.target)]) for v in (mean, std))
    is_noisy = (std > 0) & (mean != 0)  # a point has no ratio, a removed weight none either
    if not is_noisy.any():
        raise DataError("no weight has noise", "a posterior with a spread", "fit MeanField or a dropout method")
    decibel = np.sort(10 * np.log10(np.abs(mean[is_noisy]) / std[is_noisy]))
    density.hist(decibel, bins=80, density=True, color=theme.BLUE, alpha=0.4, lw=0)
    density.set_ylabel("density")
    cumulative.plot(decibel, np.linspace(0, 1, len(decibel)), color=theme.BLUE)
    cumulative.set_ylabel("share of weights below")
    for axes in (density, cumulative):
        axes.set_xlabel("signal-to-noise ratio, dB")


def error_against_removed(axes: "Axes", curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    """Test error over the share of weights removed, a curve for each name: {name: (shares, errors in %)}."""
    for (name, (shares, errors)), style in zip(curves.items(), theme.styles(["method"] * len(curves))):
        axes.plot(100 * np.asarray(shares), errors, color=style.colour, marker=style.marker, ls=style.dash, label=name)
    axes.set_xlabel("weights removed, %")
    axes.set_ylabel("error, %")
    axes.set_ylim(0, 1.15 * max(max(errors) for _, errors in curves.values()) or None)
    if len(curves) > 1:
        axes.legend(frameon=False)


def sparsity_map(axes: "Axes", is_removed: np.ndarray, title: str = "") -> None:
    """Weights of one layer that are left, as ink: a 100 x 100 patch in the middle of a matrix (in, out), or a
    convolution's filters (height, width, in, out) side by side."""
    is_left = ~np.asarray(is_removed, bool)
    if is_left.ndim == 4:
        picture = _filters(is_left)
    elif is_left.ndim == 2:
        middle = tuple(slice(max(0, size - PATCH) // 2, max(0, size - PATCH) // 2 + PATCH) for size in is_left.shape)
        picture = is_left[middle].astype(float)
    else:
        raise DataError(f"a layer of shape {is_left.shape}", "a matrix or a convolution's kernel", "choose another")
    axes.imshow(picture, cmap="Greys", vmin=0, vmax=1, interpolation="nearest", aspect="equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title or f"{is_left.mean():.1%} left", fontsize="small")


def sparsity_over_training(axes: "Axes", history: Sequence[Mapping[str, np.ndarray]]) -> None:
    """The share of each layer's weights that could be removed, along `SparseVariationalDropout`'s training."""
    if not history:
        raise DataError("a history of no moment", "a fit that got past a 20th of its training", "give it more time")
    paths = list(history[0])
    progress = np.linspace(0, 100, len(history) + 1)[1:]
    for path, style in zip(paths, theme.styles(["method"] * len(paths))):
        shares = [100 * np.mean(moment[path]) for moment in history]
        axes.plot(progress, shares, color=style.colour, marker=style.marker, ls=style.dash, ms=3, label=path)
    axes.set_xlabel("training, %")
    axes.set_ylabel(f"weights with log alpha > {THRESHOLD:g}, %")
    axes.legend(frameon=False, fontsize="small")


def learned_rates(axes: "Axes", posterior: MaskPosterior) -> None:
    """The dropout rate of each layer; where every unit has its own, their distribution as a box."""
    names, values = zip(*((path, np.atleast_1d(rate)) for path, rate in posterior.rates.items()))
    places = np.arange(len(names))
    axes.boxplot(
        values,
        positions=places,
        orientation="horizontal",
        widths=0.5,
        showfliers=False,
        medianprops={"color": theme.VERMILLION},
    )
    axes.plot([value.mean() for value in values], places, "o", color=theme.BLUE)
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("dropout rate")


def _filters(is_left: np.ndarray) -> np.ndarray:
    """(height, width, in, out) as tiles with a grey line between them, in rows of about equal number."""
    tiles = np.moveaxis(is_left, (2, 3), (0, 1)).reshape(-1, *is_left.shape[:2])[:FILTERS].astype(float)
    across = int(np.ceil(np.sqrt(len(tiles))))
    down = -(-len(tiles) // across)
    height, width = tiles.shape[1:]
    picture = np.full((down * (height + 1) + 1, across * (width + 1) + 1), 0.3)
    for number, tile in enumerate(tiles):
        row, column = divmod(number, across)
        top, left = row * (height + 1) + 1, column * (width + 1) + 1
        picture[top : top + height, left : left + width] = tile
    return picture
