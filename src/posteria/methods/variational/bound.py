"""What variational methods share: estimates of the evidence lower bound

    ELBO(q) = E_q[log p(w) + sum_n log p(y_n | x_n, w)] / T + entropy(q).

A family (`families.py`) makes draws from q's own parameters `phi`; `Bound` estimates the ELBO from a batch. The prior's
part is in closed form for leaves whose prior is Normal, and at a draw elsewhere.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data, parts, weighted
from posteria.data.batches import batch_of, rows_ahead
from posteria.engine.loop import Kernel, Run
from posteria.methods.chain_costs import CLIMB_SHARE, short_start, start_gradients
from posteria.methods.costs import EpochCosts, stretched
from posteria.methods.points.map import MAP
from posteria.methods.variational.families import DiagonalFamily, Marginals, Phi
from posteria.methods.watch import Draw, random_draw
from posteria.models.densities import LOG_2PI
from posteria.models.likelihoods import factor_of
from posteria.models.priors import normal_of
from posteria.models.target import Target
from posteria.random import fast_normal
from posteria.trace.local import Noise, noisy
from posteria.trace.moments import moments

FIT_SHARE = 0.95  # of max_seconds; the rest estimates the ELBO
SCALES_STREAM = 2  # folded into a step's key
NOISE_STREAM = 4  # folded into a chain's key
TURNS = 16  # steps over which each noise is spread evenly over its distribution: about as many as Adam averages
ENOUGH = 0.05  # nats; a larger drift is told to the user
COSINE_MARK = 0.6  # of the steps, after which a tenth of a cosine's learning rates is left
LEAST_ELBO_STEPS = 64  # draws from which a fit's ELBO is estimated; at least an epoch of batches

# ---- the bound


class Bound:
    """Unbiased estimates of the ELBO from a batch; `estimator` says how the likelihood's part is drawn."""

    def __init__(self, target: Target, family: DiagonalFamily, estimator: str) -> None:
        self.target, self.family, self.estimator = target, family, estimator
        network, structs = target.model.network, target.structs["network"]

        def apply(params: tree.Params, x: Data) -> jax.Array:
            return network.apply(jax.tree.map(lambda leaf, s: leaf.astype(s.dtype), params, structs), x)

        if estimator == "moments":
            self._moments = moments(apply)
        elif estimator not in ("weights", "path"):
            self._noisy = noisy(apply, estimator)

    def __call__(
        self,
        phi: Phi,
        key: jax.Array,
        batch: Data,
        kl_weight: jax.Array | float = 1.0,
        turn: jax.Array | int = 0,
    ) -> jax.Array:
        """`batch` stands for all N data (None: there are none). The KL divergence counts `kl_weight` times; `turn`
        is that of the likelihood's noise (`fast_normal`), where each datum has its own."""
        if self.estimator == "path":
            return self._along_the_path(phi, key, batch, kl_weight)
        marginals = self.family.marginals(phi)  # once: each call would keep intermediate results of its own
        log_likelihood = None if batch is None else self.log_likelihood(phi, key, batch, marginals, turn)
        # the same key: where the likelihood's draw is of the weights, it is this one
        log_prior = self.expected_log_prior(phi, key, marginals) + self.family.own_log_prior(phi)
        entropy = self.family.entropy(phi, marginals)
        return self.target.tempered(kl_weight * log_prior, log_likelihood) + kl_weight * entropy

    def _along_the_path(self, phi: Phi, key: jax.Array, batch: Data, kl_weight: jax.Array | float) -> jax.Array:
        """log joint - log q at a draw. Its gradient, through the draw alone, has no noise where q is the posterior.

        Roeder, Wu & Duvenaud 2017, Sticking the Landing.
        """
        draw = self.family.draw(phi, key)
        relative = self.cast(draw)
        log_q = self.family.log_prob_at_draw(phi, key, draw)
        log_likelihood = None if batch is None else self.target.log_likelihood(self.target.absolute(relative), batch)
        log_prior = self.target.relative_log_prior(relative)
        return self.target.tempered(kl_weight * log_prior, log_likelihood) - kl_weight * log_q

    def expected_log_prior(self, phi: Phi, key: jax.Array, marginals: Marginals | None = None) -> jax.Array:
        mean, std = marginals or self.family.marginals(phi)
        normals = prior_normals(self.target)
        closed = [
            expected_normal(m, s, *normal)
            for m, s, normal in zip(jax.tree.leaves(mean), jax.tree.leaves(std), normals)
            if normal is not None
        ]
        total = sum(closed, start=jnp.zeros(()))
        if all(normal is not None for normal in normals):
            return total
        if self.estimator == "weights" or hasattr(self.target.model.prior, "joint_log_prob"):
            draw = self.family.prior_draw(phi, key)
        else:
            draw = self._draw_for_prior(phi, (mean, std), key)
        return total + log_prior_where_not_normal(self.target, self.cast(draw), normals)

    def _draw_for_prior(self, phi: Phi, marginals: Marginals, key: jax.Array) -> tree.Params:
        """Of which every weight by itself has its distribution."""
        return draw_each(*marginals, key)

    def log_likelihood(
        self,
        phi: Phi,
        key: jax.Array,
        batch: Data,
        marginals: Marginals | None = None,
        turn: jax.Array | int = 0,
        factors: Noise | None = None,
    ) -> jax.Array:
        """One term a datum, times its weight: (batch,). `factors` are those of `noisy`."""
        if self.estimator == "weights":
            relative = self.cast(self.family.draw(phi, key))
            return self.target.log_likelihood(self.target.absolute(relative), batch)
        x, y, _ = parts(batch)
        key_network, key_own = jax.random.split(key)
        mean, std = self._given_scales(marginals or self.family.marginals(phi), key)
        noise = fast_normal(key_own, (tree.length(x), tree.size(mean["likelihood"])), turn)
        own = jax.vmap(lambda e: _moved(mean["likelihood"], std["likelihood"], e))(noise)  # one draw a datum
        if self.estimator == "moments":
            variances = jax.tree.map(jnp.square, std["network"])
            return weighted(self._by_cubature(own, *self._moments(mean["network"], variances, x), y), batch)
        outputs = self._noisy(mean["network"], std["network"], x, key_network, turn, factors)
        return weighted(self._log_prob(own, outputs[:, None] if outputs.ndim == 1 else outputs, y), batch)

    def _given_scales(self, marginals: Marginals, key: jax.Array) -> Marginals:
        """Of the weights, given a draw of their scales: relative to these they are independent of them."""
        mean, std = marginals
        if not self.target.scales:
            return mean, std
        noise = fast_normal(jax.random.fold_in(key, SCALES_STREAM), (tree.size(mean["prior"]),))
        own = _moved(mean["prior"], std["prior"], noise)
        of_mean, of_std = (self.target.scales.scaled(part["network"], own) for part in (mean, std))
        return {**mean, "network": of_mean}, {**std, "network": of_std}

    def _log_prob(self, own: tree.Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        likelihood = self.target.model.likelihood
        if not jax.tree.leaves(own):
            return factor_of(likelihood, own, outputs, y)
        return jax.vmap(lambda own, f, y: factor_of(likelihood, own, f[None], y[None])[0])(own, outputs, y)

    def _by_cubature(self, own: tree.Params, mean: jax.Array, variance: jax.Array, y: jax.Array) -> jax.Array:
        """E log p(y | f) for f ~ N(mean, variance) by 2k points, exact where log p is of third degree in f at most."""
        num_outputs = mean.shape[-1]
        distance = jnp.sqrt(num_outputs * jnp.where(variance > 0, variance, 1e-30))  # (batch, output)
        corners = jnp.concatenate([jnp.eye(num_outputs), -jnp.eye(num_outputs)])  # (point, output)
        return jax.vmap(lambda corner: self._log_prob(own, mean + distance * corner, y))(corners).mean(0)

    def cast(self, params: tree.Params) -> tree.Params:
        if self.target.scales:  # relative weights are no leaves of the network's yet
            return params
        return jax.tree.map(lambda leaf, s: leaf.astype(s.dtype), params, self.target.structs)


Normals = list[tuple[ArrayLike, ArrayLike] | None]  # mean and standard deviation of each leaf's prior


def prior_normals(target: Target) -> Normals:
    """Mean and standard deviation of each leaf's prior, in the order of `target.structs`; None if it is not Normal."""
    prior: Any = target.model.prior
    is_known = hasattr(prior, "joint_log_prob") and prior.is_factorised

    def of_own(part: str) -> Normals:
        paths = tree.paths({part: target.structs.get(part, {})})
        return [prior.own_normal(path) if is_known else None for path in paths]

    return of_own("likelihood") + [normal_of(prior, leaf) for leaf in target.leaves] + of_own("prior")


def log_prior_where_not_normal(target: Target, relative: tree.Params, normals: Normals) -> jax.Array:
    """Of the leaves for which `normals` (of `prior_normals`) has None."""
    prior: Any = target.model.prior
    if hasattr(prior, "joint_log_prob"):  # correlated: no sum over leaves
        return jnp.zeros(()) if prior.is_factorised else target.relative_log_prior(relative)
    own = normals[: len(jax.tree.leaves(relative["likelihood"]))]
    total = target.model.likelihood.log_prior(relative["likelihood"]) if None in own else jnp.zeros(())
    if target.scales:
        total += target.scales.log_prior(relative["prior"])
    leaves = zip(jax.tree.leaves(relative["network"]), target.leaves, normals[len(own) :])
    return sum((prior.log_prob(value, leaf) for value, leaf, normal in leaves if normal is None), start=total)


def draw_each(mean: tree.Params, std: tree.Params, key: jax.Array) -> tree.Params:
    """Every weight from its N(mean, std^2), but those of a matrix together: a normal a column times a sign a row.

    For densities that are sums over weights. Normals for all weights would cost as much as the network itself.
    """
    leaves, treedef = jax.tree.flatten(mean)
    noise = []
    for leaf, own_key in zip(leaves, jax.random.split(key, len(leaves))):
        key_columns, key_rows = jax.random.split(own_key)
        signs = jax.random.rademacher(key_rows, leaf.shape[:-1] + (1,) * (leaf.ndim > 0), jnp.float32)
        noise.append(signs * fast_normal(key_columns, leaf.shape[-1:]))
    return jax.tree.map(lambda m, s, e: m + s * e, mean, std, treedef.unflatten(noise))


def expected_normal(mean: jax.Array, std: jax.Array, prior_mean: ArrayLike, prior_std: ArrayLike) -> jax.Array:
    """E log N(w; prior_mean, prior_std^2) for w ~ N(mean, std^2), summed."""
    constant = np.broadcast_to(np.log(prior_std), mean.shape).sum(dtype=np.float64) + 0.5 * LOG_2PI * mean.size
    squares = (mean - prior_mean) ** 2 + std**2
    # one number for all weights is divided by once
    total = squares.sum() / np.square(prior_std) if np.ndim(prior_std) == 0 else (squares / np.square(prior_std)).sum()
    return -0.5 * total - float(constant)


def _moved(mean: tree.Params, std: tree.Params, flat_noise: jax.Array) -> tree.Params:
    noise = tree.unraveller(mean)(flat_noise)
    return jax.tree.map(lambda m, s, e: m + s * e, mean, std, noise)


# ---- costs


class VariationalCosts(EpochCosts):
    """Of epochs from a start; a subclass has its `gradients_a_step`."""

    def climber(self: Any) -> MAP:
        """That finds the mode of `start="map"`."""
        return MAP(batch_size=self.batch_size)

    def expected_gradients(self: Any, num_data: int) -> float:
        own = EpochCosts.expected_gradients(self, num_data)
        return own + start_gradients(self.start, num_data, self.climber())

    def with_budget(self: Any, gradients: float, num_data: int) -> Any:
        start = short_start(self.start, CLIMB_SHARE * gradients, num_data, self.climber())
        return stretched(dataclasses.replace(self, start=start), gradients, num_data)


# ---- steps


class State(NamedTuple):
    phi: Phi
    rest: tree.Tree  # of the optimiser
    batch_key: jax.Array
    step_number: jax.Array
    before: Phi = None  # as it was where the last part of the path began


class Info(NamedTuple):
    log_density: jax.Array  # the step's estimate of the ELBO
    num_gradients: jax.Array


def phi_of(state: State) -> Phi:
    return state.phi


@kept
def draw_of(target: Target, family: DiagonalFamily) -> Draw:
    """Parameters of the network from q, for the scores of an epoch."""
    cast = Bound(target, family, "path").cast
    return random_draw(lambda key, phi: target.absolute(cast(family.draw(phi, key))))


def steps_per_epoch(target: Target, batch_size: int) -> int:
    return math.ceil(target.num_data / batch_size) if batch_size else 1


def remembered(state: State, num_steps: int, has_cosine: bool) -> Phi:
    """What `before` is in the state that follows: a tenth of the path is left there, by the learning rates."""
    mark = int((COSINE_MARK if has_cosine else 0.9) * num_steps)
    return jax.tree.map(lambda now, old: jnp.where(state.step_number == mark, now, old), state.phi, state.before)


def estimate_elbo(
    kernel: Kernel, key: jax.Array, phi: Phi, before: Phi | None, data: Data, run: Run, num_steps: int
) -> dict[str, float]:
    """The ELBO of a finished fit, and its drift since `before`, with their Monte Carlo errors; of the tempered density
    where T is not 1."""

    def values(name: str, phi: Phi) -> np.ndarray:
        starts = tree.one_of_many(phi)
        trace = run.stage(name).loop(kernel, key, starts, data, num_steps=max(num_steps, LEAST_ELBO_STEPS))
        return np.asarray(trace.info.log_density[0], np.float64)

    last = values("elbo", phi)
    if len(last) < 2:  # time ran out
        return {}
    facts = {"elbo": float(last.mean()), "elbo_error": _error(last)}
    if not run.is_whole or before is None:
        return facts
    first = values("elbo before", before)
    if len(first) == len(last):
        gains = last - first  # by the same draws
        facts |= {"drift": float(gains.mean()), "drift_error": _error(gains)}
        if abs(facts["drift"]) > max(ENOUGH, 2 * facts["drift_error"]):
            verb = "rose" if facts["drift"] > 0 else "fell"
            run.note(
                f"the bound is not at its optimum: over the last tenth of the path it still {verb} by "
                f"{abs(facts['drift']):.2g} nats; more epochs come closer"
            )
    return facts


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values)))


@kept
def elbo_kernel(target: Target, family: DiagonalFamily, batch_size: int) -> Kernel:
    """Estimates from draws of the weights, whatever the fit was made with."""
    bound = Bound(target, family, "path")

    def init(key: jax.Array, phi: Phi, data: Data) -> State:
        return State(phi, None, jax.random.key_data(key), jnp.asarray(0))

    def step(key: jax.Array, state: State, data: Data) -> tuple[State, Info]:
        value = bound(state.phi, key, batch_of(data, state.batch_key, state.step_number, target.num_data, batch_size))
        return state._replace(step_number=state.step_number + 1), Info(value, jnp.asarray(0))

    return Kernel(init, step, rows_ahead(target.num_data, batch_size))


def average(value: Callable[[jax.Array], jax.Array], key: jax.Array, num_samples: int) -> jax.Array:
    """Over several keys."""
    if num_samples == 1:
        return value(key)
    return jax.vmap(value)(jax.random.split(key, num_samples)).mean()
