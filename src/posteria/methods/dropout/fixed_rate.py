"""Dropout as inference: noise with mean 1 on the inputs of every layer, in training and in prediction alike.

The weights are found by maximising E[log p(data | w) + log p(w)] / T over the noise, where w is the weight whose rows
the noise multiplies; the noise has a fixed strength, so its entropy is a constant. No dropout layer is needed in the
network: its linear operations are found.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data, parts, weighted
from posteria.engine.loop import Run
from posteria.methods.costs import HALVES, EpochCosts
from posteria.methods.dropout.noisy_ascent import Objective, Schedule, ascend
from posteria.methods.watch import HOLD_OUT_STREAM, Draw, hold_out, random_draw
from posteria.models.likelihoods import factor_of
from posteria.models.target import Target, check_starts
from posteria.posteriors.masks import MaskPosterior, selected_units
from posteria.settings import Count, Optimizer, Positive, ProperShare, Share, Text, check_settings, refuse_idle
from posteria.trace import dropout


@dataclass(frozen=True)
class MCDropout(EpochCosts):
    """Uncertainty at the price of one training: dropout that stays on when predicting, on any network.

    Each input of a layer is dropped with probability `rate`. `where` are globs of the leaves that carry noise
    ("layers/1/*,layers/2/*"; None: every weight of a layer). Spreads follow from `rate`, not from the data: compare it
    with a reference before trusting them. `validation` and `patience` as in MAP.
    Tuning tries `rate`.
    """

    rate: ProperShare = 0.1
    where: Text | None = None
    num_epochs: Count = 1000
    batch_size: Count | None = None
    learning_rate: Positive = 0.01
    optimizer: Optimizer | None = None
    validation: Share = 0.0
    patience: Count = 50

    fidelity: ClassVar[str] = "procedure"
    paper: ClassVar[str] = "Gal & Ghahramani 2016"
    tuned: ClassVar[dict[str, tuple[float, ...]]] = {"rate": HALVES}

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.optimizer is not None, "learning_rate", "the optimizer")

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> MaskPosterior:
        return _fit(key, target, start, run, "bernoulli", self.rate, self.where, Schedule.of(self), self.validation)


@dataclass(frozen=True)
class GaussianDropout(EpochCosts):
    """Dropout with smooth noise: each input of a layer is multiplied by Normal(1, alpha), in prediction too.

    alpha = rate / (1 - rate) has the variance of dropout. `where` are globs of the leaves that carry noise (None: every
    weight of a layer). `validation` and `patience` as in MAP.
    Tuning tries `alpha`.
    """

    alpha: Positive = 0.1
    where: Text | None = None
    num_epochs: Count = 1000
    batch_size: Count | None = None
    learning_rate: Positive = 0.01
    optimizer: Optimizer | None = None
    validation: Share = 0.0
    patience: Count = 50

    fidelity: ClassVar[str] = "procedure"
    paper: ClassVar[str] = "Wang & Manning 2013"
    tuned: ClassVar[dict[str, tuple[float, ...]]] = {"alpha": HALVES}

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.optimizer is not None, "learning_rate", "the optimizer")

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> MaskPosterior:
        return _fit(key, target, start, run, "gaussian", self.alpha, self.where, Schedule.of(self), self.validation)


def _fit(
    key: jax.Array,
    target: Target,
    start: tree.Params,
    run: Run,
    noise: str,
    strength: float,
    where: str | None,
    schedule: Schedule,
    validation: float,
) -> MaskPosterior:
    target.check_proper()
    target, held = hold_out(jax.random.fold_in(key, HOLD_OUT_STREAM), target, validation)
    selected, note = selected_units(target, where)
    run.note(note)
    key_start, key_ascent = jax.random.split(key)
    params = first_params(key_start, target, start, schedule.batch_size)
    objective = _expected_log_density(target.without_data(), noise, strength, where)
    draw = _drawn(target.without_data(), noise, strength, where)
    ascended = ascend(run, key_ascent, target, params, objective, schedule, held, draw)
    strengths = {path: jnp.asarray(strength) for path in selected}
    return MaskPosterior(target, tree.ravel(ascended.params), noise, strengths, ascended.facts)


def first_params(key: jax.Array, target: Target, start: tree.Params, num_rows: int | None) -> tree.Params:
    """One set of parameters to start from, checked on a batch: given ones, or the network's own initial ones."""
    target.check_no_scales("dropout methods have the spread of their noise, and climb: scales would fall to 0")
    starts = tree.stack([target.init(key)]) if start is None else target.as_starts(start, 1)
    check_starts(target, starts, num_rows)
    return tree.index(starts, 0)


@kept
def _expected_log_density(target: Target, noise: str, strength: float, where: str | None) -> Objective:
    selected, _ = selected_units(target, where)
    strengths = {path: jnp.asarray(strength) for path in selected}

    def objective(key: jax.Array, params: tree.Params, batch: Data, epoch: jax.Array) -> jax.Array:
        return noisy_log_density(target, noise, key, params, batch, selected, strengths)

    return objective


@kept
def _drawn(target: Target, noise: str, strength: float, where: str | None) -> Draw:
    selected, _ = selected_units(target, where)
    strengths = {path: jnp.asarray(strength) for path in selected}
    return random_draw(lambda key, params: masked(target, noise, key, params, selected, strengths))


def masked(
    target: Target,
    noise: str,
    key: jax.Array,
    params: tree.Params,
    selected: dropout.Selected,
    strengths: dropout.Strengths,
) -> tree.Params:
    """Parameters under one mask for all data, as a prediction draws them."""
    params = tree.cast_like(params, target.structs)
    return params | {"network": dropout.noisy_weights(noise, key, params["network"], selected, strengths)}


def noisy_log_density(
    target: Target,
    noise: str,
    key: jax.Array,
    params: tree.Params,
    batch: Data,
    selected: dropout.Selected,
    strengths: dropout.Strengths,
) -> jax.Array:
    """An unbiased estimate of E[log joint] / T: the likelihood under a mask a datum, the prior under one more."""
    key_data, key_prior = jax.random.split(key)
    weights = dropout.noisy_weights(noise, key_prior, params["network"], selected, strengths)
    log_prior = target.log_prior(params | {"network": weights})
    if batch is None:
        return target.tempered(log_prior, None)
    x, y, _ = parts(batch)
    outputs = dropout.noisy_outputs(target.model.network, noise, key_data, params["network"], x, selected, strengths)
    outputs = outputs[:, None] if outputs.ndim == 1 else outputs
    log_likelihood = factor_of(target.model.likelihood, params["likelihood"], outputs, y)
    return target.tempered(log_prior, weighted(log_likelihood, batch))
