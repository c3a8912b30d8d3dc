"""Pictures. Matplotlib is imported when one is drawn."""

from posteria.plots.bands import bands
from posteria.plots.plane import plane

__all__ = ["bands", "plane"]
