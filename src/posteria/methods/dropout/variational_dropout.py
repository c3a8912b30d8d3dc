"""Dropout whose strength is learned: the noise is a variational posterior under a prior that prefers no scale.

A weight is Normal(theta, alpha theta^2). Under the log-uniform prior p(w) = 1/|w| the divergence depends on alpha
alone and is approximated to 0.009 by

    -KL = k1 sigmoid(k2 + k3 log alpha) - log(1 + 1/alpha) / 2 - k1,

zero for alpha -> infinity, where the weight is noise and can be removed. Maximised is
(E_q[log p(data | w)] + E_q[log p(w)]) / T + entropy(q), the bound at T = 1. Leaves without noise are points, under the
model's prior where it is proper. Kingma, Salimans & Welling 2015; the approximation is Molchanov et al.'s, 2017.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data, parts, weighted
from posteria.engine.loop import Run
from posteria.errors import SettingError
from posteria.methods.costs import EpochCosts
from posteria.methods.dropout.fixed_rate import first_params, masked
from posteria.methods.dropout.noisy_ascent import Objective, Schedule, ascend
from posteria.methods.watch import HOLD_OUT_STREAM, Draw, hold_out, random_draw
from posteria.models.densities import softplus, widen
from posteria.models.likelihoods import factor_of
from posteria.models.priors import ByPath, Leaf, LogUniform
from posteria.models.target import Target
from posteria.posteriors.base import Posterior
from posteria.posteriors.gaussian import Diagonal, GaussianPosterior
from posteria.posteriors.masks import MaskPosterior, selected_units
from posteria.posteriors.pruned import TINY
from posteria.random import fast_normal
from posteria.settings import Count, Optimizer, Positive, ProperShare, Share, Text, check_settings, refuse_idle
from posteria.trace import dropout, local

LOG_UNIFORM = "log-uniform prior"  # how the model that is fitted differs from the one that was given


@dataclass(frozen=True)
class VariationalDropout(EpochCosts):
    """Dropout that learns how much noise each layer, unit or weight bears, between none and a rate of one half.

    The noise is Normal(1, alpha) with alpha up to 1, and the prior the log-uniform one in place of the model's.
    `granularity`: an alpha for each "layer" or input "unit", with noise on the inputs (the paper's type A), or for each
    "weight", with independent noise on the weights (type B). `where` are globs of the leaves that carry noise.
    `validation` and `patience` as in MAP.
    Tuning tries `learning_rate`.
    """

    granularity: Literal["layer", "unit", "weight"] = "layer"
    initial_alpha: ProperShare = 0.1
    where: Text | None = None
    num_epochs: Count = 1000
    batch_size: Count | None = None
    learning_rate: Positive = 0.01
    optimizer: Optimizer | None = None
    validation: Share = 0.0
    patience: Count = 50

    fidelity: ClassVar[str] = "procedure"
    paper: ClassVar[str] = "Kingma, Salimans & Welling 2015"
    model_differs: ClassVar[str] = LOG_UNIFORM

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.optimizer is not None, "learning_rate", "the optimizer")

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> Posterior:
        target, held = hold_out(jax.random.fold_in(key, HOLD_OUT_STREAM), target, self.validation)
        shapes = _alpha_shapes(target, self.granularity, self.where)
        leaves = [leaf for leaf in target.leaves if leaf.path in shapes]
        note_prior(run, target, leaves, True, self.model_differs)
        if self.granularity != "weight":
            run.note(selected_units(target, self.where)[1])
        key_start, key_ascent = jax.random.split(key)
        params = first_params(key_start, target, start, self.batch_size)
        first = jax.scipy.special.logit(jnp.asarray(self.initial_alpha))
        logits = {path: jnp.full(shape, first) for path, shape in shapes.items()}
        objective = _multiplicative_objective(target.without_data(), self.granularity, self.where)
        start = {"params": params, "logit_alpha": logits}
        draw = _drawn(target.without_data(), self.granularity, self.where)
        ascended = ascend(run, key_ascent, target, start, objective, Schedule.of(self), held, draw)
        params = ascended.params["params"]
        alphas = {path: jax.nn.sigmoid(logit) for path, logit in ascended.params["logit_alpha"].items()}
        if self.granularity == "weight":
            spread = Diagonal(flat_stds(target, params, _multiplied(params["network"], alphas)))
            return GaussianPosterior(target, tree.ravel(params), spread, ascended.facts)
        return MaskPosterior(target, tree.ravel(params), "gaussian", alphas, ascended.facts)


# ---- divergences

K1, K2, K3 = 0.63576, 1.87320, 1.48695  # Molchanov et al. 2017, equation 14


@jax.custom_jvp
def log_uniform_kl(log_alpha: jax.Array) -> jax.Array:
    """KL(Normal(theta, alpha theta^2) | 1/|w|), up to the constant that makes it 0 for alpha -> infinity."""
    return K1 - K1 * jax.nn.sigmoid(K2 + K3 * log_alpha) + 0.5 * softplus(-log_alpha)


@log_uniform_kl.defjvp
def _log_uniform_kl_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (log_alpha,) = primals
    share = jax.nn.sigmoid(K2 + K3 * log_alpha)
    slope = -K1 * K3 * share * (1 - share) - 0.5 * jax.nn.sigmoid(-log_alpha)
    return log_uniform_kl(log_alpha), slope * tangents[0]


def tempered_negative_kl(kl: jax.Array, log_variance: jax.Array, temperature: float) -> jax.Array:
    """E_q[log p] / T + entropy, from KL = -E_q[log p] - entropy of Gaussians; up to a constant."""
    entropy = 0.5 * log_variance.sum()
    return -kl.sum() / temperature + (1.0 - 1.0 / temperature) * entropy


# ---- objectives


@kept
def _multiplicative_objective(target: Target, granularity: str, where: str | None) -> Objective:
    selected = {} if granularity == "weight" else selected_units(target, where)[0]
    shapes = _alpha_shapes(target, granularity, where)
    points = frozenset(leaf.path for leaf in target.leaves) - set(shapes)
    noisy = local.noisy(target.model.network.apply, "local", points)

    def objective(key: jax.Array, variational: tree.Params, batch: Data, epoch: jax.Array) -> jax.Array:
        params, logits = variational["params"], variational["logit_alpha"]
        network, alphas = params["network"], jax.tree.map(jax.nn.sigmoid, logits)
        log_alpha = jax.tree.map(jax.nn.log_sigmoid, logits)
        prior_term = jnp.zeros(())
        for path in shapes:  # the noise is over units, each with its layer's alpha or its own; or over weights
            if granularity == "weight":
                log_variance = log_alpha[path] + jnp.log(jnp.square(widen(_leaf(network, path))) + TINY)
            else:
                log_variance = jnp.broadcast_to(log_alpha[path], (selected[path].count,))
            kl = jnp.broadcast_to(log_uniform_kl(log_alpha[path]), log_variance.shape)
            prior_term += tempered_negative_kl(kl, log_variance, target.temperature)

        def outputs(x: Data) -> jax.Array:
            if granularity == "weight":
                return noisy(network, in_tree(network, _multiplied(network, alphas)), x, key)
            return dropout.noisy_outputs(target.model.network, "gaussian", key, network, x, selected, alphas)

        return data_term(target, params, batch, set(shapes), outputs) + prior_term

    return objective


@kept
def _drawn(target: Target, granularity: str, where: str | None) -> Draw:
    selected = {} if granularity == "weight" else selected_units(target, where)[0]

    def draw(key: jax.Array, variational: tree.Params) -> tree.Params:
        params, alphas = variational["params"], jax.tree.map(jax.nn.sigmoid, variational["logit_alpha"])
        if granularity == "weight":
            return moved(target, key, params, _multiplied(params["network"], alphas))
        return masked(target, "gaussian", key, params, selected, alphas)

    return random_draw(draw)


def moved(target: Target, key: jax.Array, params: tree.Params, stds: dict[str, jax.Array]) -> tree.Params:
    """Parameters of which some weights, by path, have Gaussian noise of their own."""
    network = params["network"]
    flat = tree.ravel(network)
    noise = fast_normal(key, flat.shape) * tree.ravel(in_tree(network, stds))
    return tree.cast_like(params | {"network": tree.unraveller(network)(flat + noise)}, target.structs)


def data_term(
    target: Target, params: tree.Params, batch: Data, noisy_paths: set[str], outputs: Callable[[Data], jax.Array]
) -> jax.Array:
    """E_q[log likelihood] / T of a batch, with the log prior of what carries no noise."""
    log_prior = target.model.likelihood.log_prior(params["likelihood"])
    for value, leaf in zip(jax.tree.leaves(params["network"]), target.leaves):
        if leaf.path not in noisy_paths and prior_of(target, leaf).is_proper:
            log_prior += prior_of(target, leaf).log_prob(value, leaf)
    if batch is None:
        return target.tempered(log_prior, None)
    x, y, _ = parts(batch)
    out = outputs(x)
    out = out[:, None] if out.ndim == 1 else out
    log_likelihood = factor_of(target.model.likelihood, params["likelihood"], out, y)
    return target.tempered(log_prior, weighted(log_likelihood, batch))


# ---- leaves


def noisy_leaves(target: Target, where: str | None) -> list[Leaf]:
    """The weights of layers, or those that a glob names."""
    weights = [leaf for leaf in target.leaves if leaf.fan_in is not None]
    patterns = ["*"] if where is None else [pattern.strip() for pattern in where.split(",")]
    chosen = [leaf for leaf in weights if any(fnmatchcase(leaf.path, pattern) for pattern in patterns)]
    if not chosen or not all(any(fnmatchcase(leaf.path, pattern) for leaf in weights) for pattern in patterns):
        raise SettingError(
            f"where={where!r} does not name weights of layers", f"globs of {[leaf.path for leaf in weights]}", "mend it"
        )
    return chosen


def _alpha_shapes(target: Target, granularity: str, where: str | None) -> dict[str, tuple[int, ...]]:
    if granularity == "weight":
        return {leaf.path: leaf.shape for leaf in noisy_leaves(target, where)}
    selected, _ = selected_units(target, where)
    return {path: () if granularity == "layer" else (units.count,) for path, units in selected.items()}


def prior_of(target: Target, leaf: Leaf) -> Any:
    prior = target.model.prior
    return prior.prior_of(leaf) if isinstance(prior, ByPath) else prior


def note_prior(run: Run, target: Target, leaves: list[Leaf], is_log_uniform: bool, own: str) -> None:
    others = {type(prior).__name__ for leaf in leaves if not isinstance(prior := prior_of(target, leaf), LogUniform)}
    if others or not is_log_uniform:
        run.note(f"{own} in place of the model's {', '.join(sorted(others)) or 'LogUniform'}")


def _leaf(network: tree.Params, path: str) -> jax.Array:
    leaf: jax.Array = jax.tree.leaves(network)[tree.paths(network).index(path)]
    return leaf


def _multiplied(network: tree.Params, alphas: dict[str, jax.Array]) -> dict[str, jax.Array]:
    return {path: jnp.sqrt(alpha) * jnp.abs(_leaf(network, path)) for path, alpha in alphas.items()}


def in_tree(network: tree.Params, by_path: dict[str, jax.Array]) -> tree.Params:
    """Those leaves, and zeros for the others, in the network's tree."""
    leaves, treedef = jax.tree.flatten(network)
    return treedef.unflatten(by_path.get(p, jnp.zeros(jnp.shape(leaf))) for p, leaf in zip(tree.paths(network), leaves))


def flat_stds(target: Target, params: tree.Params, stds: dict[str, jax.Array]) -> np.ndarray:
    """Over all parameters, zero where there is no noise."""
    own = jax.tree.map(jnp.zeros_like, params["likelihood"])
    return np.asarray(tree.ravel({"network": in_tree(params["network"], stds), "likelihood": own}))
