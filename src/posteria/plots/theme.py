"""The colours of every picture, on light and on dark paper, and how series are told apart without colour.

A picture is drawn in the light colours. A page that holds it as inline SVG gives each colour's name to its own style
sheet, which knows both (`posteria.plots.svg`). Hues follow Okabe and Ito 2008, darkened or lightened until each
stands out from its paper.
"""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Colour(NamedTuple):
    light: str
    dark: str


PAPER = Colour("#fdfdfb", "#15181c")
COLOURS = {
    "ink": Colour("#1d2126", "#e9e7e2"),
    "muted": Colour("#63696f", "#a3a7ab"),
    "rule": Colour("#d4d7da", "#3b4148"),
    "blue": Colour("#0072b2", "#5cb3ec"),
    "vermillion": Colour("#d05a00", "#ff8f57"),
    "green": Colour("#00896a", "#35cfa2"),
    "purple": Colour("#b3578c", "#e8a3cb"),
    "orange": Colour("#b67a00", "#f2b632"),
    "sky": Colour("#2c92cc", "#9ad7fb"),
    "violet": Colour("#5a4fbf", "#b3abff"),
}
INK, MUTED, RULE = (COLOURS[name].light for name in ("ink", "muted", "rule"))
BLUE, VERMILLION, GREEN, ORANGE = (COLOURS[name].light for name in ("blue", "vermillion", "green", "orange"))


class Style(NamedTuple):
    """How one series looks: in its colour, and, for eyes or printers without colour, in marker and dash."""

    colour: str
    marker: str
    dash: "Dash"


_HUES = ("blue", "vermillion", "green", "purple", "orange", "sky", "violet")
Dash = str | tuple[float, tuple[float, ...]]
_SOLID: Dash = "-"
_DASHED: Dash = (0, (5, 1.5))
_DOTTED: Dash = (0, (1.2, 1.2))
_MIXED: Dash = (0, (6, 1.5, 1.2, 1.5))
REFERENCE = Style(INK, "*", _SOLID)
METHODS = tuple(  # past seven the hues come back with another marker and dash
    Style(COLOURS[hue].light, marker, dash)
    for hue, marker, dash in zip(
        _HUES * 2,
        ("o", "s", "^", "D", "v", "P", "X", "d", "p", "8", "h", "<", "H", ">"),
        (
            _SOLID,
            _DASHED,
            _DOTTED,
            _MIXED,
            _SOLID,
            _DASHED,
            _DOTTED,
            _DASHED,
            _DOTTED,
            _MIXED,
            _SOLID,
            _DASHED,
            _DOTTED,
            _MIXED,
        ),
    )
)
BASELINES = tuple(
    Style(MUTED, marker, dash) for marker, dash in (("<", (0, (3, 2))), (">", (0, (1, 1.5))), ("h", "-"), ("p", "-"))
)


def axes_of(ax: "Axes | None") -> "Axes":
    """Those given, else the current ones of pyplot, as a notebook has them."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.gca()


def styles(roles: list[str]) -> list[Style]:
    """A style for each row, in order, from its role: "reference", "method" or "baseline"."""
    kinds = {"reference": (REFERENCE,), "baseline": BASELINES}
    seen: dict[str, int] = {}
    found = []
    for role in roles:
        choices = kinds.get(role, METHODS)
        found.append(choices[seen.get(role, 0) % len(choices)])
        seen[role] = seen.get(role, 0) + 1
    return found
