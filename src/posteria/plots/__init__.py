"""Pictures. Matplotlib is imported when one is drawn."""

from posteria.plots.bands import bands

__all__ = ["bands"]
