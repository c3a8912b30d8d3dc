"""A dropout rate for every weight, learned until most weights are noise and can be removed.

A weight is Normal(theta, sigma^2) with alpha = sigma^2 / theta^2, under the log-uniform prior or one whose scales are
learned; see `variational_dropout` for the bound. Optimised are theta and log sigma^2. Molchanov, Ashukha & Vetrov 2017.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.engine.loop import Run
from posteria.methods.costs import EpochCosts
from posteria.methods.dropout.fixed_rate import first_params
from posteria.methods.dropout.noisy_ascent import Objective, Schedule, ascend
from posteria.methods.dropout.variational_dropout import (
    LOG_UNIFORM,
    data_term,
    flat_stds,
    in_tree,
    log_uniform_kl,
    moved,
    noisy_leaves,
    note_prior,
    tempered_negative_kl,
)
from posteria.methods.watch import HOLD_OUT_STREAM, Draw, hold_out, random_draw
from posteria.models.target import Target
from posteria.posteriors.gaussian import Diagonal
from posteria.posteriors.pruned import SparsePosterior, log_alphas, removed_bits
from posteria.settings import Count, Optimizer, Positive, Share, Text, check_settings, refuse_idle, up_to
from posteria.trace import local

PRIORS = {"log-uniform": LOG_UNIFORM, "ard": "prior scales learned for each weight"}


@dataclass(frozen=True)
class SparseVariationalDropout(EpochCosts):
    """A network with few weights left: a dropout rate for every weight, most of which grow until it can go.

    `posterior.prune(by="log_alpha", threshold=3.0)` removes them. The prior is this method's own in place of the
    model's: "log-uniform", or "ard", a Normal for each weight whose variance is learned (Kharitonov et al. 2018). The
    divergence is phased in over the share `phase_in` of the epochs, so that weights are not removed before they have
    learned. `where` are globs of the leaves that carry noise (None: every weight of a layer); `estimator` as in
    MeanField: "local-independent" is the literature's for convolutions. `validation` and `patience` as in MAP.
    Tuning tries `learning_rate`.
    """

    prior: Literal["log-uniform", "ard"] = "log-uniform"
    phase_in: Annotated[float, up_to(0, 1)] = 0.5
    initial_log_variance: float = -10.0
    estimator: Literal["local", "local-independent"] = "local"
    where: Text | None = None
    num_epochs: Count = 2000
    batch_size: Count | None = None
    learning_rate: Positive = 0.02
    optimizer: Optimizer | None = None
    validation: Share = 0.0
    patience: Count = 50

    fidelity: ClassVar[str] = "procedure"
    paper: ClassVar[str] = "Molchanov et al. 2017"

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.optimizer is not None, "learning_rate", "the optimizer")

    @property
    def model_differs(self) -> str:
        """How the model that is fitted differs from the one that was given."""
        return PRIORS[self.prior]

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> SparsePosterior:
        target, held = hold_out(jax.random.fold_in(key, HOLD_OUT_STREAM), target, self.validation)
        leaves = noisy_leaves(target, self.where)
        note_prior(run, target, leaves, self.prior == "log-uniform", self.model_differs)
        key_start, key_ascent = jax.random.split(key)
        params = first_params(key_start, target, start, self.batch_size)
        flat = {leaf.path: jnp.full(leaf.shape, self.initial_log_variance) for leaf in leaves}
        bare = target.without_data()
        objective = _additive_objective(bare, self.prior, self.estimator, self.where, self.phase_in * self.num_epochs)
        ascended = ascend(
            run,
            key_ascent,
            target,
            {"params": params, "log_variance": flat},
            objective,
            Schedule.of(self),
            held,
            _drawn(bare),
            _removed_bits(bare, self.where),
        )
        params, log_variance = ascended.params["params"], ascended.params["log_variance"]
        stds = {path: jnp.exp(0.5 * value) for path, value in log_variance.items()}
        spread = Diagonal(flat_stds(target, params, stds))
        return SparsePosterior(target, tree.ravel(params), spread, ascended.facts, removals=ascended.observations)


def ard_kl(log_alpha: jax.Array) -> jax.Array:
    """KL(Normal(theta, alpha theta^2) | Normal(0, v)) with the v that makes it least, theta^2 (1 + alpha)."""
    return 0.5 * jax.nn.softplus(-log_alpha)


KLS: dict[str, Callable[[jax.Array], jax.Array]] = {"log-uniform": log_uniform_kl, "ard": ard_kl}


@kept
def _additive_objective(
    target: Target, prior: str, estimator: str, where: str | None, phase_in_epochs: float
) -> Objective:
    """Over theta and log sigma^2: its gradients do not carry the noise of a factor theta. Molchanov et al. 2017."""
    paths = {leaf.path for leaf in noisy_leaves(target, where)}
    points = frozenset(leaf.path for leaf in target.leaves) - paths
    noisy = local.noisy(target.model.network.apply, estimator, points)

    def objective(key: jax.Array, variational: tree.Params, batch: Data, epoch: jax.Array) -> jax.Array:
        params, log_variance = variational["params"], variational["log_variance"]
        stds = {path: jnp.exp(0.5 * value) for path, value in log_variance.items()}
        prior_term = sum(
            tempered_negative_kl(KLS[prior](log_alpha), log_variance[path], target.temperature)
            for path, log_alpha in log_alphas(params["network"], log_variance).items()
        )
        share = jnp.minimum(1.0, (epoch + 1.0) / (phase_in_epochs + 1.0))
        means = params["network"]
        fit = data_term(target, params, batch, paths, lambda x: noisy(means, in_tree(means, stds), x, key))
        return fit + share * prior_term

    return objective


@kept
def _drawn(target: Target) -> Draw:
    def draw(key: jax.Array, variational: tree.Params) -> tree.Params:
        stds = {path: jnp.exp(0.5 * value) for path, value in variational["log_variance"].items()}
        return moved(target, key, variational["params"], stds)

    return random_draw(draw)


@kept
def _removed_bits(target: Target, where: str | None) -> Callable[..., jax.Array]:
    """The weights that a threshold of 3 would remove, as bits, in the order of the leaves."""
    return lambda variational: removed_bits(
        log_alphas(variational["params"]["network"], variational["log_variance"]),
        [leaf.path for leaf in noisy_leaves(target, where)],
    )
