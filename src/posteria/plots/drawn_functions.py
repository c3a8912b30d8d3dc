"""Functions drawn from a prior or a posterior, over one input: before any data, and after."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from posteria.errors import DataError
from posteria.plots import panels, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NUM_SHOWN = 8  # functions drawn as lines
COLUMN_INCHES, ROW_INCHES = 3.6, 2.7


def functions(
    x: np.ndarray,
    draws: Any,
    data: tuple[np.ndarray, np.ndarray] | None = None,
    level: float = 0.9,
    colour: str = theme.BLUE,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the central `level` of functions at each x, their median, and a few of them.

    `x` is (n,) or (n, 1), sorted; `draws` are (draw, n) or (draw, n, 1), as `model.prior_functions(key, x, 100)` and
    `posterior.functions(key, x, 100)` return them.
    """
    x, draws = np.asarray(x), np.asarray(draws)
    line = x[:, 0] if x.ndim == 2 and x.shape[1] == 1 else x
    values = draws[..., 0] if draws.ndim == 3 and draws.shape[2] == 1 else draws
    if line.ndim != 1 or values.ndim != 2 or values.shape[1] != len(line):
        raise DataError(
            f"x is {x.shape} and the functions are {draws.shape}",
            "(n,) or (n, 1), and (draw, n)",
            "functions are drawn over one input, and one output at a time: draws[..., 0]",
        )
    lower, middle, upper = np.quantile(values, [(1 - level) / 2, 0.5, (1 + level) / 2], axis=0)
    axes = theme.axes_of(ax)
    panels.curve(axes, line, middle, lower, upper, values[:NUM_SHOWN], data, colour)
    return axes


def _intervals(axes: "Axes", x: np.ndarray, draws: np.ndarray, level: float, colour: str) -> None:
    """The same at values that have no line between them."""
    lower, middle, upper = np.quantile(draws, [(1 - level) / 2, 0.5, (1 + level) / 2], axis=0)
    axes.vlines(x, lower, upper, color=colour, lw=9, alpha=0.25)
    for draw in draws[:NUM_SHOWN]:
        axes.plot(x, draw, ".", color=colour, ms=4, alpha=0.6, mew=0)
    axes.plot(x, middle, "_", color=colour, ms=13, mew=2)


@dataclass(frozen=True, eq=False)
class Line:
    """Functions along one input, all else held."""

    name: str
    x: np.ndarray  # (n,), numbers, or positions of `labels`
    before: np.ndarray  # (draw, n)
    after: np.ndarray | None = None
    rows: np.ndarray | None = None  # where data are along it
    y: np.ndarray | None = None  # of those rows, where it is the only input
    labels: tuple[str, ...] = ()


def before_and_after(lines: Sequence[Line], y_name: str, after: str = "", level: float = 0.9) -> "Figure":
    """A figure, with a column of panels for each line: prior functions above, and below, where there are any, those
    after data."""
    from matplotlib.figure import Figure

    titles = ["before any data", f"after: {after}"][: 1 + (lines[0].after is not None)]
    size = COLUMN_INCHES * len(lines) + 0.4, ROW_INCHES * len(titles) + 0.5
    figure = Figure(figsize=size, layout="constrained")
    grid: Any = figure.subplots(len(titles), len(lines), squeeze=False, sharex="col", sharey="col")
    for number, (panel_row, title) in enumerate(zip(grid, titles)):
        for axes, line in zip(panel_row, lines):
            _panel(axes, line, level, is_after=number == 1)
        panel_row[0].set_ylabel(_plain(f"{y_name}\n{title}"))
    for axes, line in zip(grid[-1], lines):
        axes.set_xlabel(_plain(line.name))
    return figure


def _plain(text: str) -> str:
    """No formula, whatever dollars a name has."""
    return text.replace("$", r"\$")


def _panel(axes: "Axes", line: Line, level: float, is_after: bool) -> None:
    draws, colour = (line.after, theme.BLUE) if is_after else (line.before, theme.MUTED)
    assert draws is not None
    data = (line.rows, line.y) if is_after and line.rows is not None and line.y is not None else None
    if line.labels:
        _intervals(axes, line.x, draws, level, colour)
        axes.set_xticks(line.x, list(map(_plain, line.labels)))
        axes.set_xlim(-0.5, len(line.x) - 0.5)
    else:
        functions(line.x, draws, data, level, colour, axes)
    if line.rows is not None and data is None:
        below = axes.get_xaxis_transform()
        places = np.zeros(len(line.rows))
        axes.plot(line.rows, places, "|", color=theme.INK, ms=5, mew=0.6, alpha=0.4, transform=below, clip_on=False)
    axes.spines[["top", "right"]].set_visible(False)
