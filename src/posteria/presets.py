"""What a table gets where nobody says otherwise: a network, its prior and a method, by how long one is willing to wait.

Each is made of parts that anyone can name. They were chosen by `benchmarks/honesty.py` on one half of its tables and
are reported on the other.
"""

import math
from dataclasses import dataclass
from typing import Any

from posteria import nn
from posteria.errors import SettingError
from posteria.methods.ensembles.folds import Folds
from posteria.methods.points.map import MAP
from posteria.models import likelihoods, priors

QUALITIES = ("fast",)
STEPS = 6000  # of Adam, for each fold
MANY_ROWS = 4000


@dataclass(frozen=True)
class Preset:
    network: Any
    likelihood: Any
    prior: Any
    method: Any
    has_bins: bool  # piecewise-linear features beside the columns
    cost: str  # in words


def preset(quality: str, kind: str, num_outputs: int, num_rows: int, likelihood: Any = None) -> Preset:
    """For a table's rows; `kind` is "regression" or "classes"."""
    if quality not in QUALITIES:
        raise SettingError(f"quality is {quality!r}", f"one of {QUALITIES}", 'or name a method, as method="nuts"')
    if likelihood is None:
        likelihood = likelihoods.Gaussian() if kind == "regression" else likelihoods.Categorical()
    outputs = num_outputs * getattr(likelihood, "outputs_per_target", 1)
    return _fast(likelihood, outputs, num_rows)


def _fast(likelihood: Any, outputs: int, num_rows: int) -> Preset:
    """Five networks, each without a fifth of the rows, ended where those rows are predicted best."""
    batch_size = 64 if num_rows < MANY_ROWS else 256
    epochs = max(1, math.ceil(STEPS * min(batch_size, num_rows) / num_rows))
    return Preset(
        network=nn.mlp((50, 50), outputs=outputs, activation="swish"),
        likelihood=likelihood,
        prior=priors.InputScales(priors.FanIn(scale=3.0), log_std=0.5),
        method=Folds(MAP(num_epochs=epochs, batch_size=batch_size, learning_rate=0.01), num_repeats=2),
        has_bins=True,
        cost="10 networks, 6,000 steps each: some seconds",
    )
