"""How a fit went, by epoch: rows it trained on beside rows held out, or what it climbed."""

from typing import TYPE_CHECKING

import numpy as np

from posteria.plots import theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TAIL = 0.05  # of the values, the lowest, which may lie below the picture: a start is far below the rest
ROOM = 0.06


def by_epoch(axes: "Axes", epoch: np.ndarray, lines: dict[str, np.ndarray], stages: np.ndarray, colour: str) -> None:
    """One line, or two: the first in the method's colour, the second dashed; thin rules where a stage ends."""
    values = np.concatenate([line[np.isfinite(line)] for line in lines.values()])
    for place in np.flatnonzero(stages[1:] != stages[:-1]) + 1:
        axes.axvline(epoch[place], color=theme.RULE, lw=0.8)
    for number, (name, line) in enumerate(lines.items()):
        axes.plot(
            epoch,
            line,
            color=colour if number == 0 else theme.MUTED,
            ls="-" if number == 0 else (0, (3, 1.5)),
            lw=1.3,
            label=name,
        )
    low, high = float(np.quantile(values, TAIL)), float(values.max())
    room = ROOM * max(high - low, 1e-9)
    axes.set_ylim(low - room, high + room)
    axes.set_xlabel("epoch")
    axes.locator_params(axis="both", nbins=4)
    if len(lines) > 1:
        axes.legend(loc="lower right", handlelength=1.8, borderpad=0)
