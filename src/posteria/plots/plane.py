"""The loss over a plane in weight space, with what lies on it or is projected onto it."""

from typing import TYPE_CHECKING

import numpy as np

from posteria.landscape.connect import Curve
from posteria.landscape.surface import Surface
from posteria.plots.theme import INK, METHODS, axes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUM_LEVELS = 12
ELLIPSE_STDS = 2.0


def plane(
    surface: Surface,
    *,
    names: tuple[str, ...] = (),
    curve: Curve | None = None,
    draws: dict[str, np.ndarray] | None = None,
    label: str = "loss (nats)",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw contours of the loss, the points with their `names`, and a `curve`.

    `draws` are flat weights (draw, size) by name: each is projected, with the ellipse of two standard deviations.
    Contours are closer together where the loss is low.
    """
    axes = axes_of(ax)
    losses = np.ma.masked_invalid(surface.losses.T)  # left white where they overflowed
    low, high = losses.min(), losses.max()
    rise = max(high - low, 1e-12)
    levels = low + rise * np.linspace(0.0, 1.0, NUM_LEVELS + 1) ** 3
    levels[0] -= 1e-6 * rise
    filled = axes.contourf(surface.x, surface.y, losses, levels=levels, cmap="YlGnBu")
    axes.contour(surface.x, surface.y, losses, levels=levels, colors=INK, linewidths=0.4, alpha=0.5)
    bar = axes.figure.colorbar(filled, ax=axes, shrink=0.85, format="%.2f", ticks=levels[::3])
    bar.set_label(label)
    for (name, flat), style in zip((draws or {}).items(), METHODS[1:]):
        places = surface.project(flat)
        axes.plot(*places.T, style.marker, color=style.colour, ms=3, alpha=0.6, label=name)
        if len(places) > 1:
            axes.plot(*_ellipse(places), color=style.colour, lw=1.6)
    if curve is not None:
        axes.plot(*surface.project(curve.flat(np.linspace(0.0, 1.0, 101))).T, color=INK, lw=2.2, label="curve")
        axes.plot(
            *surface.project(curve.straight.flat(np.arange(2.0))).T, "--", color=INK, lw=1.4, label="straight line"
        )
    for place, name in zip(surface.project(surface.points), names):
        axes.plot(*place, "o", color="white", mec=INK, ms=8)
        axes.annotate(name, place, xytext=(0, -14), textcoords="offset points", ha="center", fontsize=9, color=INK)
    axes.set_aspect("equal", adjustable="box")
    return axes


def _ellipse(places: np.ndarray) -> np.ndarray:
    """Two standard deviations around places (n, 2): (2, point)."""
    angle = np.linspace(0.0, 2.0 * np.pi, 101)
    values, vectors = np.linalg.eigh(np.cov(places.T))
    circle = np.stack([np.cos(angle), np.sin(angle)])
    return places.mean(0)[:, None] + ELLIPSE_STDS * vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * circle)
