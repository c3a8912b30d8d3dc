"""Pictures. Each is drawn on `ax`, Matplotlib axes of yours, or on the current ones, which it returns."""

from posteria.plots.bands import bands
from posteria.plots.drawn_functions import before_and_after, functions
from posteria.plots.judged import predicted, quantiles_of_truth, reliability, rhat, traces
from posteria.plots.plane import plane

__all__ = [
    "bands",
    "before_and_after",
    "functions",
    "plane",
    "predicted",
    "quantiles_of_truth",
    "reliability",
    "rhat",
    "traces",
]
