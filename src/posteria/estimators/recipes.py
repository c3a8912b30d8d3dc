"""Ready choices for tables of real targets: a network, a likelihood, a prior and a method, by the table's size.

Each is made of parts that anyone can name. `benchmarks/honesty.py` judges them.
"""

import math
from typing import NamedTuple

import numpy as np

from posteria import nn
from posteria.methods.chains.mclmc import MCLMC
from posteria.models.likelihoods import Likelihood, VaryingNoise
from posteria.models.priors import FanIn, InputScales, Prior
from posteria.networks import Network
from posteria.settings import infer

HIDDEN = (16, 16)
NUM_CHAINS, NUM_DRAWS = 4, 60
NUM_WARMUP, THINNING = 3000, 30  # steps, up to so many rows:
FULL_ROWS = 2500
LEAST_WARMUP = 150
MOST_REPEATED = 0.5  # of the rows, that have a value of their own, where targets are taken to come in steps


class Recipe(NamedTuple):
    network: Network
    likelihood: Likelihood
    prior: Prior
    method: MCLMC


def balanced(num_rows: int, num_targets: int = 1, resolution: float = 0.0) -> Recipe:
    """Half a minute: microcanonical chains of a small smooth network whose noise follows the inputs.

    Layers' scales and one for each input are sampled with the weights, so that inputs which say nothing are left out.
    A step costs as much as there are rows; past `FULL_ROWS` there are as many fewer steps, and the climb that chains
    start from, which takes batches, has done more of the way. `resolution` is that of the targets, as `resolution_of`
    finds it: noise is never less than what rounding to it makes.
    """
    share = min(1.0, FULL_ROWS / num_rows)
    likelihood = VaryingNoise(floor=resolution / math.sqrt(12))
    return Recipe(
        network=nn.mlp(HIDDEN, outputs=likelihood.outputs_per_target * num_targets, activation="unit_swish"),
        likelihood=likelihood,
        prior=InputScales(FanIn(scale=infer)),
        method=MCLMC(
            num_chains=NUM_CHAINS,
            num_draws=NUM_DRAWS,
            num_warmup=max(LEAST_WARMUP, round(share * NUM_WARMUP)),
            thinning=max(1, round(share * THINNING)),
            start="ascent",
            drop_frozen=True,
        ),
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
