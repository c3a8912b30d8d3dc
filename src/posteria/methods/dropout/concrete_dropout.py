"""Dropout whose rates are learned: one for each layer, by gradients through a smooth version of its mask.

Maximised is (E[log p(data | w)] + E[log p(w)]) / T + entropy of the masks, over weights and rates. The entropy of one
unit's mask is that of a coin: a rate of one half is preferred unless the data speak against it. Gal, Hron & Kendall
2017.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.engine.loop import Run
from posteria.methods.costs import EpochCosts
from posteria.methods.dropout.fixed_rate import first_params, masked, noisy_log_density
from posteria.methods.dropout.noisy_ascent import Objective, Schedule, ascend
from posteria.methods.watch import HOLD_OUT_STREAM, Draw, hold_out, random_draw
from posteria.models.target import Target
from posteria.posteriors.masks import MaskPosterior, selected_units
from posteria.settings import Count, Optimizer, Positive, ProperShare, Share, Text, check_settings, refuse_idle


@dataclass(frozen=True)
class ConcreteDropout(EpochCosts):
    """Dropout that finds its own rates, one for each layer: more data or a wider layer change them by themselves.

    Training and prediction draw the same smooth masks (temperature 0.1). `where` are globs of the leaves that carry
    noise (None: every weight of a layer); `posterior.rates` are the rates found. `validation` and `patience` as in
    MAP.
    Tuning tries `learning_rate`.
    """

    initial_rate: ProperShare = 0.1
    where: Text | None = None
    num_epochs: Count = 2000
    batch_size: Count | None = None
    learning_rate: Positive = 0.01
    optimizer: Optimizer | None = None
    validation: Share = 0.0
    patience: Count = 50

    fidelity: ClassVar[str] = "procedure"
    paper: ClassVar[str] = "Gal, Hron & Kendall 2017"

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.optimizer is not None, "learning_rate", "the optimizer")

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> MaskPosterior:
        target.check_proper()
        target, held = hold_out(jax.random.fold_in(key, HOLD_OUT_STREAM), target, self.validation)
        selected, note = selected_units(target, self.where)
        run.note(note)
        key_start, key_ascent = jax.random.split(key)
        params = first_params(key_start, target, start, self.batch_size)
        first = jax.scipy.special.logit(jnp.asarray(self.initial_rate))
        ascended = ascend(
            run,
            key_ascent,
            target,
            {"params": params, "logit_rate": {path: first for path in selected}},
            _objective(target.without_data(), self.where),
            Schedule.of(self),
            held,
            _drawn(target.without_data(), self.where),
        )
        rates = {path: jax.nn.sigmoid(logit) for path, logit in ascended.params["logit_rate"].items()}
        return MaskPosterior(target, tree.ravel(ascended.params["params"]), "concrete", rates, ascended.facts)


@kept
def _objective(target: Target, where: str | None) -> Objective:
    selected, _ = selected_units(target, where)

    def objective(key: jax.Array, variational: tree.Params, batch: Data, epoch: jax.Array) -> jax.Array:
        rates = jax.tree.map(jax.nn.sigmoid, variational["logit_rate"])
        entropy = sum(units.count * _coin_entropy(variational["logit_rate"][path]) for path, units in selected.items())
        return noisy_log_density(target, "concrete", key, variational["params"], batch, selected, rates) + entropy

    return objective


@kept
def _drawn(target: Target, where: str | None) -> Draw:
    selected, _ = selected_units(target, where)

    def draw(key: jax.Array, variational: tree.Params) -> tree.Params:
        rates = jax.tree.map(jax.nn.sigmoid, variational["logit_rate"])
        return masked(target, "concrete", key, variational["params"], selected, rates)

    return random_draw(draw)


def _coin_entropy(logit: jax.Array) -> jax.Array:
    rate = jax.nn.sigmoid(logit)
    return -rate * jax.nn.log_sigmoid(logit) - (1.0 - rate) * jax.nn.log_sigmoid(-logit)
