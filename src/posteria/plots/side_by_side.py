"""All methods in one picture: cost against distance, error against rejection, quality against draws."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from posteria.plots import theme
from posteria.plots.svg import LEGEND_COLUMNS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.text import Annotation

FEWEST_KEPT = 10  # rows: the error of fewer is mostly chance
NAME_PLACES = (  # of a point's name, tried in order: points right and up, and where the name is anchored
    (7, 0, "left"),
    (-7, 0, "right"),
    (3, 10, "left"),
    (3, -10, "left"),
    (-3, 10, "right"),
    (-3, -10, "right"),
    (3, 19, "left"),
    (3, -19, "left"),
    (-3, 19, "right"),
    (-3, -19, "right"),
)


class Series(NamedTuple):
    label: str
    style: theme.Style
    x: np.ndarray
    y: np.ndarray


class Point(NamedTuple):
    label: str
    style: theme.Style
    x: float
    y: float
    error: float  # standard error of y, 0 if not known


def error_by_rejection(error: np.ndarray, uncertainty: np.ndarray, root: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Fractions rejected, most uncertain first, and the mean error (`root`: its square root) of the rows kept."""
    ascending = error[np.argsort(uncertainty, kind="stable")]
    mean_of_first = np.cumsum(ascending) / np.arange(1, len(error) + 1)
    fewest = min(FEWEST_KEPT, len(error))
    kept = np.unique(np.linspace(fewest, len(error), 40).astype(int))[::-1]
    values = mean_of_first[kept - 1]
    return 1 - kept / len(error), np.sqrt(values) if root else values


def lines(axes: "Axes", series: Sequence[Series], x_label: str, y_label: str) -> None:
    """One line a method, told apart by colour and dash, with a legend below."""
    top = _common_top(series)
    for one in series:
        is_short = len(one.x) <= 12
        axes.plot(
            one.x,
            one.y,
            color=one.style.colour,
            ls=one.style.dash,
            lw=1.5,
            marker=one.style.marker if is_short else None,
            ms=3.5,
            mew=0,
            label=f"{one.label} (off the scale)" if one.y.min() > top else one.label,
        )
    axes.set_ylim(top=top)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.figure.legend(loc="lower center", ncol=LEGEND_COLUMNS, handlelength=2.6, columnspacing=1.4, borderpad=0)


def _common_top(series: Sequence[Series]) -> float:
    """Where the axis ends: a range above the usual line, so that one line far above does not flatten all others."""
    highest = np.array([one.y.max() for one in series])
    lowest, usual = min(one.y.min() for one in series), np.median(highest)
    return float(min(highest.max(), usual + max(usual - lowest, 1e-9)) + 0.06 * max(usual - lowest, 1e-9))


def cost_against_distance(
    axes: "Axes", points: Sequence[Point], x_label: str, y_label: str, ceiling: float | None = None
) -> None:
    """Cheap is left, near is low, both scales logarithmic; the line is the reference's chains from one another."""
    for point in points:
        axes.errorbar(
            point.x,
            point.y,
            point.error or None,
            color=point.style.colour,
            marker=point.style.marker,
            ms=6.5,
            mew=0,
            elinewidth=0.8,
        )
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    heights = [point.y for point in points] + ([ceiling] if ceiling else [])
    _log_scale(axes, "x", [point.x for point in points])
    if min(heights) > 0:
        _log_scale(axes, "y", heights)
    if ceiling is not None:
        axes.axhline(ceiling, color=theme.MUTED, lw=0.8, ls=(0, (4, 2)))
        words = axes.annotate(
            "reference, chain against chain",
            (0, ceiling),
            xytext=(4, -3),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            va="top",
            color=theme.MUTED,
        )
        _name_points(axes, points, [words])
    else:
        _name_points(axes, points, [])


def _log_scale(axes: "Axes", name: Literal["x", "y"], values: Sequence[float]) -> None:
    """Logarithmic, with room at both ends, and 1, 2, 5 as ticks where decades are too few."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = min(values), max(values)
    room = max((high / low) ** 0.14, 1.35)
    axis: Axis = axes.xaxis if name == "x" else axes.yaxis
    axes.set(**{f"{name}scale": "log", f"{name}lim": (low / room, high * room)})
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 50 else (1,)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()


def _name_points(axes: "Axes", points: Sequence[Point], taken: "Sequence[Annotation]") -> None:
    """Each name at the first place around its point that is free of other names and marks, and inside the axes."""
    room = axes.get_window_extent()
    places = axes.transData.transform([(point.x, point.y) for point in points])
    half = 5.0 * axes.figure.dpi / 72  # half a mark, in pixels
    boxes = [(x - half, y - half, x + half, y + half) for x, y in places]
    boxes += [text.get_window_extent().extents for text in taken]
    for point in points:
        best, fewest = None, 10**9
        for shift_x, shift_y, side in NAME_PLACES:
            name = axes.annotate(
                point.label, (point.x, point.y), (shift_x, shift_y), textcoords="offset points", ha=side, va="center"
            )
            x0, y0, x1, y1 = name.get_window_extent().extents
            hits = sum(x0 < c and a < x1 and y0 < d and b < y1 for a, b, c, d in boxes)
            hits += 5 * (x0 < room.x0 or x1 > room.x1 or y0 < room.y0 or y1 > room.y1)
            if hits < fewest:
                if best is not None:
                    best.remove()
                best, fewest = name, hits
            else:
                name.remove()
            if fewest == 0:
                break
        assert best is not None
        boxes.append(best.get_window_extent().extents)
