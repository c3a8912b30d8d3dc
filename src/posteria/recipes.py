"""What a table gets where nobody says otherwise: a network, a likelihood, a prior and a method, by how long one is
willing to wait.

Each is made of parts that anyone can name. `benchmarks/honesty.py` judges them: they were chosen on one half of its
tables, and are reported on the other. Two choices have no such check: `MOST_BINNED` was decided on the tables of
`benchmarks/classes.py`, and the lengths of `best` on one split of airfoil.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from posteria import nn
from posteria.data.bins import NUM_BINS
from posteria.errors import SettingError
from posteria.methods.chains.mclmc import MCLMC
from posteria.methods.ensembles.folds import Folds
from posteria.methods.points.map import MAP
from posteria.models.likelihoods import Likelihood, VaryingNoise
from posteria.models.priors import FanIn, InputScales, Prior
from posteria.models.tabular import default_likelihood
from posteria.networks import Network
from posteria.settings import infer

QUALITIES = ("fast", "balanced", "best")
FOLD_STEPS = 4000  # of Adam, for each member
MOST_BINNED = 32  # columns: more of them hold the same again (pixels), and cost more
MANY_ROWS = 4000  # from which on batches are larger

HIDDEN = (16, 16)
NUM_CHAINS, NUM_DRAWS = 4, 60
NUM_WARMUP, THINNING = 3000, 30  # steps, up to so many rows:
FULL_ROWS = 5000
LEAST_WARMUP = 150
MOST_REPEATED = 0.5  # of the rows, that have a value of their own, where targets are taken to come in steps


class Effort(NamedTuple):
    """Of chains."""

    chains: int
    width: int  # of both hidden layers
    warmup: int  # steps
    thinning: int
    words: str


SOME = Effort(4, 16, 3000, 30, "about half a minute")
MANY = Effort(6, 32, 15_000, 100, "some minutes")


class Recipe(NamedTuple):
    network: Network
    likelihood: Likelihood
    prior: Prior
    method: Any
    most_binned: int = 0  # columns that get piecewise-linear features beside them, at most: with more, none does
    cost: str = ""  # in words, for the user

    def num_bins(self, num_columns: int) -> int:
        return NUM_BINS if num_columns <= self.most_binned else 0


def recipe_for(
    quality: str, kind: str, y: np.ndarray, num_outputs: int, likelihood: Likelihood | None = None
) -> Recipe:
    """Of a quality, for targets y as a network sees them; `kind` is "regression", "counts" or "classes"."""
    if quality not in QUALITIES:
        raise SettingError(f"quality is {quality!r}", f"one of {QUALITIES}", 'or name a method, as method="nuts"')
    if likelihood is None and quality != "fast" and kind == "regression":
        return (balanced if quality == "balanced" else best)(len(y), num_outputs, resolution_of(y))
    if likelihood is None:
        likelihood = default_likelihood(kind, num_outputs)
    outputs = num_outputs * getattr(likelihood, "outputs_per_target", 1)
    if quality == "fast":
        return fast(len(y), outputs, likelihood)
    return chains(len(y), outputs, likelihood, SOME if quality == "balanced" else MANY)


def fast(num_rows: int, outputs: int, likelihood: Likelihood) -> Recipe:
    """Seconds: ten networks, each without a fifth of the rows, ended where those rows are predicted best.

    Those rows set the noise and the widths too. Each input has a scale that is learnt, and piecewise-linear features.
    """
    batch_size = 64 if num_rows < MANY_ROWS else 256
    epochs = max(1, math.ceil(FOLD_STEPS * min(batch_size, num_rows) / num_rows))
    return Recipe(
        network=nn.mlp((50, 50), outputs=outputs, activation="swish"),
        likelihood=likelihood,
        prior=InputScales(FanIn(scale=3.0), log_std=0.5),
        method=Folds(MAP(num_epochs=epochs, batch_size=batch_size, learning_rate=0.015), num_repeats=2),
        most_binned=MOST_BINNED,
        cost=f"10 networks in folds, {FOLD_STEPS:,} steps each: some seconds",
    )


def balanced(num_rows: int, num_targets: int = 1, resolution: float = 0.0) -> Recipe:
    """Half a minute: microcanonical chains of a small smooth network whose noise follows the inputs.

    Layers' scales and one for each input are sampled with the weights, so that inputs which say nothing are left out.
    A step costs as much as there are rows; past `FULL_ROWS` there are as many fewer steps, and the climb that chains
    start from, which takes batches, has done more of the way. `resolution` is that of the targets, as `resolution_of`
    finds it: noise is never less than what rounding to it makes.
    """
    likelihood = VaryingNoise(floor=resolution / math.sqrt(12))
    return chains(num_rows, likelihood.outputs_per_target * num_targets, likelihood, SOME)


def best(num_rows: int, num_targets: int = 1, resolution: float = 0.0) -> Recipe:
    """Minutes: more chains, of a network twice as wide, each four times as long as in `balanced`."""
    likelihood = VaryingNoise(floor=resolution / math.sqrt(12))
    return chains(num_rows, likelihood.outputs_per_target * num_targets, likelihood, MANY)


def chains(num_rows: int, outputs: int, likelihood: Likelihood, effort: Effort) -> Recipe:
    """The same of any likelihood."""
    share = min(1.0, FULL_ROWS / num_rows)
    num_warmup, thinning = max(LEAST_WARMUP, round(share * effort.warmup)), max(1, round(share * effort.thinning))
    num_steps = num_warmup + NUM_DRAWS * thinning
    return Recipe(
        network=nn.mlp((effort.width,) * 2, outputs=outputs, activation="unit_swish"),
        likelihood=likelihood,
        prior=InputScales(FanIn(scale=infer)),
        method=MCLMC(
            num_chains=effort.chains,
            num_draws=NUM_DRAWS,
            num_warmup=num_warmup,
            thinning=thinning,
            start="ascent",
            drop_frozen=True,
        ),
        most_binned=MOST_BINNED,
        cost=f"{effort.chains} chains of {num_steps:,} steps: {effort.words}",
    )


def resolution_of(y: np.ndarray) -> float:
    """The step in which targets (standardised) were written down, by the least difference between two of them; 0 where
    most are different, or the steps are too fine to matter.

    A density knows no steps: whole numbers that are often 0 would be predicted with any certainty, at any price for
    those that are not.
    """
    values = [np.unique(column) for column in y.reshape(len(y), -1).T]
    if any(len(each) < 2 or len(each) > MOST_REPEATED * len(y) for each in values):
        return 0.0
    return float(min(np.diff(each).min() for each in values))
