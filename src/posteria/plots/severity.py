"""Scores as data stop being like those of the fit: a line a method, from rows as they came to the most severe."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from posteria.plots import theme
from posteria.plots.side_by_side import Series
from posteria.plots.svg import LEGEND_COLUMNS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOM = 0.06  # of the range, above and below


def by_severity(axes: "Axes", series: Sequence[Series], x_label: str, goal: float | None = None) -> None:
    """No legend: several of these share one. `goal` is a line where a share should stay."""
    if goal is not None:
        axes.axhline(goal, color=theme.MUTED, lw=0.8, ls=(0, (4, 2)))
    for one in series:
        axes.plot(
            one.x,
            one.y,
            color=one.style.colour,
            ls=one.style.dash,
            lw=1.3,
            marker=one.style.marker,
            ms=3.0,
            mew=0,
            clip_on=True,
        )
    low, high = limits(series, is_share=goal is not None)
    axes.set_ylim(low, high)
    axes.set_xlabel(x_label)
    axes.set_xticks(series[0].x)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.locator_params(axis="y", nbins=4)


def limits(series: Sequence[Series], is_share: bool = False) -> tuple[float, float]:
    """All of a share's; else up to two ranges above what the middle line reaches, so that none flattens the others."""
    if is_share:
        return -0.02, 1.02
    values = np.concatenate([one.y[np.isfinite(one.y)] for one in series])
    if not len(values):
        return 0.0, 1.0
    highest = np.array([np.nanmax(one.y) for one in series if np.isfinite(one.y).any()])
    low, usual = float(values.min()), float(np.median(highest))
    top = min(float(highest.max()), usual + 2 * max(usual - low, 1e-9))
    room = ROOM * max(top - low, 1e-9)
    return low - room, top + room


def legend(axes: "Axes", labels: Sequence[tuple[str, theme.Style]]) -> None:
    """Which line is which, and nothing else."""
    axes.set_axis_off()
    for label, style in labels:
        axes.plot([], [], color=style.colour, ls=style.dash, lw=1.5, marker=style.marker, ms=4, mew=0, label=label)
    axes.figure.legend(loc="center", ncol=LEGEND_COLUMNS, handlelength=2.8, columnspacing=1.4, borderpad=0)
