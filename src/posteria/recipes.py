"""What a table gets where nobody says otherwise: a network, a likelihood, a prior and a method, by how long one is
willing to wait.

Each is made of parts that anyone can name. `benchmarks/honesty.py` judges them: they were chosen on one half of its
tables, and are reported on the other; what concerns classes was chosen on the other tables of `classes_tables.py`.
Three choices have no such check: `MOST_BINNED` was decided on the tables of `benchmarks/classes.py`, that temperatures
of classes have a prior was seen to matter on one of them, and the lengths and the depth of `best` rest on one split of
airfoil. On two other tables longer chains helped at 1,000 and 2,000 rows, and hurt on one at 200; a third layer helped
on one, and hurt on the other, at 200 rows much, at 2,000 little (`docs/results/airfoil.txt`).
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from posteria import nn
from posteria.data.arrays import Data, rows
from posteria.data.preparation import Preparation
from posteria.data.standardise import NUM_BINS
from posteria.data.table_target import ON_LOG_SCALE, TARGET_SCALES, may_suit_logs
from posteria.engine.loop import Run
from posteria.errors import SettingError
from posteria.methods.chains.mclmc import MCLMC
from posteria.methods.ensembles.folds import Folds
from posteria.methods.points.map import MAP
from posteria.models.likelihoods import Likelihood, VaryingNoise
from posteria.models.model import Model, default_likelihood
from posteria.models.priors import FanIn, InputScales, Prior
from posteria.models.target import Target
from posteria.networks import Network
from posteria.settings import infer

QUALITIES = ("fast", "balanced", "best")
NUM_FOLDS = 5
FOLD_STEPS = 4000  # of Adam, for each member
MOST_BINNED = 32  # columns: more of them hold the same again (pixels), and cost more
MANY_ROWS = 4000  # from which on batches are larger
MOST_TRIED = 2000  # rows, where a scale of the target is chosen

NUM_CHAINS, NUM_DRAWS = 6, 60
FEW = (32, 32), 15_000, 100  # hidden units, steps of warm-up, and steps from draw to draw
MANY = (32, 32, 32), 40_000, 350  # errors go on falling for long; of fewer rows these learn what says nothing by heart
MANY_ROWS_FOR_CHAINS, FULL_ROWS = 1000, 1750
LEAST_WARMUP = 150
MOST_REPEATED = 0.5  # of the rows, that have a value of their own, where targets are taken to come in steps


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
    quality: str, kind: str, y: np.ndarray, num_outputs: int, likelihood: Likelihood | None = None, num_columns: int = 0
) -> Recipe:
    """Of a quality, for targets y as a network sees them; `kind` is "regression", "counts" or "classes".

    `num_columns` are the columns of a table, which come before their piecewise-linear features: of classes a linear
    function of them stands beside the layers.
    """
    if quality not in QUALITIES:
        raise SettingError(f"quality is {quality!r}", f"one of {QUALITIES}", 'or name a method, as method="nuts"')
    if likelihood is None and quality != "fast" and kind == "regression":
        likelihood = VaryingNoise(floor=resolution_of(y) / math.sqrt(12))  # never less than what rounding makes
    elif likelihood is None:
        likelihood = default_likelihood(kind, num_outputs)
    outputs = num_outputs * getattr(likelihood, "outputs_per_target", 1)
    if quality == "best":
        return best(len(y), outputs, likelihood)
    recipe = {"fast": fast, "balanced": balanced}[quality]
    return recipe(len(y), outputs, likelihood, num_columns if kind == "classes" else 0)


def fast(num_rows: int, outputs: int, likelihood: Likelihood, skip: int = 0) -> Recipe:
    """Seconds: ten networks, each without a fifth of the rows, ended where those rows are predicted best.

    Those rows set the noise and the widths too. Each input has a scale that is learnt, and piecewise-linear features.
    Of classes they say as well how much a linear function of the columns counts, which is fitted beside each network.
    """
    return folds(num_rows, outputs, likelihood, num_repeats=2, words="some seconds", skip=skip)


def balanced(num_rows: int, outputs: int, likelihood: Likelihood, skip: int = 0) -> Recipe:
    """Half a minute: twenty such networks; of numbers each with a noise that follows the inputs, so that rows which
    are mostly noise have less to say."""
    return folds(num_rows, outputs, likelihood, num_repeats=4, words="about half a minute", skip=skip)


def folds(num_rows: int, outputs: int, likelihood: Likelihood, num_repeats: int, words: str, skip: int = 0) -> Recipe:
    """Of any likelihood: five folds (fewer than ten rows: fewer), `num_repeats` times, each time with other rows
    together."""
    num_folds = max(2, min(NUM_FOLDS, num_rows // 2))
    batch_size = 64 if num_rows < MANY_ROWS else 256
    epochs = max(1, math.ceil(FOLD_STEPS * min(batch_size, num_rows) / num_rows))
    return Recipe(
        network=nn.mlp((50, 50), outputs=outputs, activation="swish", skip=skip),
        likelihood=likelihood,
        prior=InputScales(FanIn(scale=3.0), log_std=0.5),
        method=Folds(
            MAP(num_epochs=epochs, batch_size=batch_size, learning_rate=0.015),
            num_folds=num_folds,
            num_repeats=num_repeats,
        ),
        most_binned=MOST_BINNED,
        cost=f"{num_folds * num_repeats} networks in folds, {FOLD_STEPS:,} steps each: {words}",
    )


def best(num_rows: int, outputs: int, likelihood: Likelihood) -> Recipe:
    """Minutes: microcanonical chains of a smaller smooth network; of numbers with a noise that follows the inputs.

    Layers' scales and one for each input are sampled with the weights, so that inputs which say nothing are left out.
    A step costs as much as there are rows; past `FULL_ROWS` there are as many fewer steps, and the climb that chains
    start from, which takes batches, has done more of the way. Their widths are the posterior's own: no rows left out
    have checked them.
    """
    share = min(1.0, FULL_ROWS / num_rows)
    hidden, num_warmup, thinning = MANY if num_rows >= MANY_ROWS_FOR_CHAINS else FEW
    num_warmup, thinning = max(LEAST_WARMUP, round(share * num_warmup)), max(1, round(share * thinning))
    num_steps = num_warmup + NUM_DRAWS * thinning
    return Recipe(
        network=nn.mlp(hidden, outputs=outputs, activation="unit_swish"),
        likelihood=likelihood,
        prior=InputScales(FanIn(scale=infer)),
        method=MCLMC(
            num_chains=NUM_CHAINS,
            num_draws=NUM_DRAWS,
            num_warmup=num_warmup,
            thinning=thinning,
            start="ascent",
            drop_frozen=True,
        ),
        most_binned=MOST_BINNED,
        cost=f"{NUM_CHAINS} chains of {num_steps:,} steps: some minutes",
    )


def with_target_scale(
    preparation: Preparation,
    scale: str,
    inputs: Callable[[], Data],
    y: np.ndarray,
    is_free: bool,
    *,
    y_often: np.ndarray | None = None,
    max_seconds: float | None = None,
    seed: int = 0,
) -> Preparation:
    """With the target on the scale that is asked for; "auto" chooses where it `is_free` to, and its plan says so.

    `inputs()` are those of the training rows, y (n,) is in its own units, and `y_often` has rows as often as they
    weigh. A trial takes at most half of `max_seconds`.
    """
    often = y if y_often is None else y_often
    if scale not in TARGET_SCALES:
        raise SettingError(f"target_scale is {scale!r}", f"one of {TARGET_SCALES}", '"auto" looks at the rows')
    if scale == "log" and preparation.kind != "regression":
        raise SettingError(f"a log scale of {preparation.kind}", "a target of real numbers", "leave target_scale out")
    if scale == "log":
        return preparation.with_logs(often)
    may_be_logs = scale == "auto" and is_free and may_suit_logs(y)
    if may_be_logs and _suits_logs(preparation, inputs(), y, seed, max_seconds):
        return preparation.with_logs(often, ON_LOG_SCALE)
    return preparation


def _suits_logs(preparation: Preparation, x: Data, y: np.ndarray, seed: int, max_seconds: float | None) -> bool:
    """Whether rows left out have no less density on a log scale, but for a standard error: a short `fast` on each.

    Logarithms have the benefit of the doubt: on the linear scale intervals of what is positive reach below 0.
    The density of a logarithm is that of the target itself, Jacobian and all: log p(y) = log p(log y) - log y.
    """
    some = np.random.default_rng(seed).permutation(len(y))[:MOST_TRIED]
    x, y = rows(x, some), y[some]
    recipe = fast(len(y), 1, default_likelihood("regression"))
    climb = replace(recipe.method.method, num_epochs=math.ceil(recipe.method.method.num_epochs / 2))
    model, method = Model(recipe.network, recipe.likelihood, recipe.prior), replace(recipe.method, method=climb)
    scores = []
    for each, jacobian in ((preparation, 0.0), (preparation.with_logs(y), -np.log(y).mean())):
        assert each.y is not None
        target = Target(model, (x, each.targets(y)))
        run = Run(max_seconds=None if max_seconds is None else max_seconds / 4)
        facts = method.fit(jax.random.key(seed), target, None, run).facts
        scores.append((facts["left_out_log_likelihood"] + jacobian - np.log(each.y.std), facts["left_out_error"]))
    (linear, error), (logs, error_of_logs) = scores
    return bool(logs - linear > -math.hypot(error, error_of_logs))


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
