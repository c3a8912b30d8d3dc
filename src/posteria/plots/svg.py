"""Matplotlib figures as inline SVG for a web page: text stays text, colours follow the page's, nothing clashes.

Two pictures in one page share its names, so every id is made the picture's own; colours of the theme become
`var(--name)`, so that one picture serves light and dark paper.
"""

import hashlib
import html
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posteria import disk
from posteria.plots import theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALL = (2.1, 1.6)  # inches: two abreast on a phone at a readable size
MIDDLE = (3.3, 2.2)
LARGE = (4.4, 3.0)
FONT_POINTS = 8.0
POINTS_PER_INCH = 72.0
LEGEND_COLUMNS, LEGEND_LINE = 3, 11.5  # points
CACHE = Path("matplotlib's cache")
_STYLE: Any = {
    "font.size": FONT_POINTS,
    "axes.labelsize": FONT_POINTS,
    "xtick.labelsize": FONT_POINTS - 0.5,
    "ytick.labelsize": FONT_POINTS - 0.5,
    "legend.fontsize": FONT_POINTS - 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.edgecolor": theme.RULE,
    "axes.labelcolor": theme.MUTED,
    "xtick.color": theme.RULE,
    "ytick.color": theme.RULE,
    "xtick.labelcolor": theme.MUTED,
    "ytick.labelcolor": theme.MUTED,
    "text.color": theme.INK,
    "legend.frameon": False,
    "axes.linewidth": 0.7,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.pad": 2.0,
    "ytick.major.pad": 2.0,
    "axes.labelpad": 2.0,
    "axes.unicode_minus": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "posteria",
}


class Canvas:
    """A styled figure with its axes side by side: `with Canvas(SMALL) as canvas: ...; text = canvas.svg(alt)`."""

    def __init__(self, size: tuple[float, float], columns: int = 1, share_y: bool = False) -> None:
        with disk.refusing(CACHE):  # which matplotlib makes when it is first imported
            import matplotlib
            from matplotlib.figure import Figure

        self._context = matplotlib.rc_context(_STYLE)
        self._size, self._columns, self._share_y = size, columns, share_y
        self._figure_class = Figure

    def __enter__(self) -> "Canvas":
        self._context.__enter__()
        self.figure = self._figure_class(figsize=self._size)
        grid = self.figure.subplots(1, self._columns, sharey=self._share_y, squeeze=False)
        self.axes: list[Axes] = list(grid[0])
        _set_margins(self.figure, self.axes)  # for what is placed by its size; legends and labels are yet to come
        return self

    def __exit__(self, *problem: Any) -> None:
        self._context.__exit__(*problem)

    def svg(self, alt: str) -> str:
        """The figure as an `<svg>` element that says `alt` to those who do not see it. Call it inside the `with`."""
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        _set_margins(self.figure, self.axes)
        text = io.StringIO()
        FigureCanvasSVG(self.figure).print_svg(
            text, metadata={"Date": None, "Creator": None, "Type": None, "Format": None}
        )
        return inline(text.getvalue(), alt)


def inline(svg: str, alt: str) -> str:
    """Matplotlib's SVG document as an element that may stand beside others in one page."""
    svg = svg[svg.index("<svg") :]
    view = re.search(r'viewBox="([^"]+)"', svg)
    assert view is not None, "Matplotlib writes a viewBox"
    body = svg[svg.index(">") + 1 : svg.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.S)
    body = re.sub(r"<defs>\s*</defs>", "", body)
    body = re.sub(r"font-family: [^;\"]*;? ?", "", body)  # the page's
    body = re.sub(r' d="([^"]*)"', lambda found: f' d="{_short_path(found[1])}"', body)
    body = re.sub(r' (x|y)="(-?\d+\.\d+)"', lambda found: f' {found[1]}="{float(found[2]):.1f}"', body)
    for name, colour in theme.COLOURS.items():
        body = body.replace(colour.light, f"var(--{name})")
    body = _own_ids(body, alt)
    body = re.sub(r">\s+<", "><", body).strip()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{view[1]}" '
        f'role="img" aria-label="{html.escape(alt)}">{body}</svg>'
    )


def _set_margins(figure: "Figure", axes: "list[Axes]") -> None:
    """The same in every picture, so that panels line up; a legend at the foot gets its lines."""
    width, height = figure.get_size_inches() * POINTS_PER_INCH
    left = 41.0 if axes[0].get_ylabel() else 30.0
    bottom = 27.0 if axes[0].get_xlabel() else 15.0
    for legend in figure.legends:
        bottom += LEGEND_LINE * -(-len(legend.texts) // LEGEND_COLUMNS) + 4.0
    figure.subplots_adjust(left / width, bottom / height, 1 - 9.0 / width, 1 - 6.0 / height, wspace=0.3)


def _short_path(path: str) -> str:
    """A tenth of a point is below what is seen; repeated L are understood."""
    path = re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), path)
    path = re.sub(r"\s+", " ", path).strip()
    return re.sub(r"(?<=\d) ?([A-Za-z]) ", r"\1", path) if "C" in path else re.sub(r" L ", " ", path).replace("M ", "M")


def _own_ids(body: str, alt: str) -> str:
    """Drop ids nothing refers to; give the rest names of this picture's own: of what is drawn, and of what it says."""
    referred = set(re.findall(r'(?:href="|url\()#([^")]+)', body))
    mark = "p" + hashlib.sha256(f"{alt}\n{body}".encode()).hexdigest()[:8]
    own = {name: f"{mark}{number}" for number, name in enumerate(sorted(referred))}
    body = re.sub(r' id="([^"]*)"', lambda found: f' id="{own[found[1]]}"' if found[1] in own else "", body)
    return re.sub(r'((?:href="|url\()#)([^")]+)', lambda found: found[1] + own[found[2]], body)
