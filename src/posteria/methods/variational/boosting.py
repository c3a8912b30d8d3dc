"""Variational boosting: Gaussians added one after another, each where the bound gains most from it.

    q_new = (1 - share) q + share N(mean, std^2),   all of q held, share, mean and std by ascent of the bound

Miller, Foti & Adams 2017, Variational Boosting: Iteratively Refining Posterior Approximations.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.data.batches import batch_of
from posteria.engine.loop import Kernel, Run
from posteria.methods.variational.bound import Info
from posteria.methods.variational.families import softplus_inverse
from posteria.models.densities import softplus
from posteria.models.target import Target
from posteria.posteriors.gaussian import mixture_log_prob
from posteria.random import fast_normal

CANDIDATES = 64  # draws, of a wider q and of the prior each, of which the best is where a component starts
WIDER = 3.0  # times q's standard deviations
UNSEEN = 2.0  # nats by which the density is above q, where q has not been
FIRST_SHARE = 0.2
FASTER = 5.0  # than the means, in units of the learning rate, the logit of a share moves
BOUND_DRAWS = 2000  # from which the bound is estimated, with and without a component


class Mixture(NamedTuple):
    """Room for all components; those that are not there have a log share of -inf."""

    log_shares: jax.Array  # (component,)
    means: jax.Array  # (component, size)
    stds: jax.Array

    def with_component(self, number: int, share: float, mean: jax.Array, std: jax.Array) -> "Mixture":
        log_shares = (self.log_shares + np.log1p(-share)).at[number].set(np.log(share))
        return Mixture(log_shares, self.means.at[number].set(mean), self.stds.at[number].set(std))


def boosted(
    key: jax.Array,
    target: Target,
    first: tuple[jax.Array, jax.Array],
    run: Run,
    num_components: int,
    num_steps: int,
    batch_size: int,
    num_samples: int,
    learning_rate: float,
) -> tuple[Mixture, dict[str, float]]:
    """From a first Gaussian (mean, std), flat; and its bound, with the Monte Carlo error."""
    mean, std = first
    mixture = Mixture(
        jnp.full(num_components, -jnp.inf).at[0].set(0.0),
        jnp.tile(mean, (num_components, 1)),
        jnp.tile(std, (num_components, 1)),
    )
    bare = target.without_data()
    values = _bound(bare)(mixture, jax.random.fold_in(key, 0), target.data)
    for number in range(1, num_components):
        key_start, key_fit, key_bound = jax.random.split(jax.random.fold_in(key, number), 3)
        start = _best_start(bare)(mixture, values.mean(), key_start, target.data)
        logit = np.log(FIRST_SHARE / (1 - FIRST_SHARE)) / FASTER
        phi = {
            "mean": start,
            "rho": softplus_inverse(std),
            "logit": jnp.asarray(logit, jnp.float32),
        }
        trace = run.stage(f"component {number + 1}", share=1 / (num_components - number)).loop(
            _ascent(bare, num_steps, batch_size, num_samples, learning_rate),
            key_fit,
            jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (phi, mixture)),
            target.data,
            num_steps=num_steps,
            final_when_late=True,
        )
        phi = jax.tree.map(jnp.asarray, tree.index(trace.state.phi, 0))
        share = float(jax.nn.sigmoid(FASTER * phi["logit"]))
        wider = mixture.with_component(number, share, phi["mean"], softplus(phi["rho"]))
        found = _bound(bare)(wider, key_bound, target.data)
        if not found.mean() > values.mean():
            run.note(f"a component {number + 1} would not raise the bound: there are {number}")
            break
        mixture, values = wider, found
    return mixture, {"elbo": float(values.mean()), "elbo_error": float(values.std() / np.sqrt(len(values)))}


class State(NamedTuple):
    phi: dict[str, jax.Array]
    mixture: Mixture
    optimizer: tree.Tree
    batch_key: jax.Array
    step_number: jax.Array


@kept
def _ascent(target: Target, num_steps: int, batch_size: int, num_samples: int, learning_rate: float) -> Kernel:
    import optax

    # from a far start gradients fall by orders: a longer memory of how large they were would hold up the end
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps), b2=0.99)
    unravel, num_data = tree.unraveller(target.structs), max(1, target.num_data)

    def negative_bound(phi: dict[str, jax.Array], mixture: Mixture, key: jax.Array, batch: Data) -> jax.Array:
        key_old, key_new = jax.random.split(key)
        mean, std, share = phi["mean"], softplus(phi["rho"]), jax.nn.sigmoid(FASTER * phi["logit"])

        def gain(flat: jax.Array) -> jax.Array:
            old = jnp.log1p(-share) + mixture_log_prob(*mixture, flat)
            new = jnp.log(share) + mixture_log_prob(jnp.zeros(1), mean[None], std[None], flat)
            return target.log_density(unravel(flat), batch) - jnp.logaddexp(old, new)

        olds = jax.vmap(lambda k: _draw(mixture, k))(jax.random.split(key_old, num_samples))
        news = mean + std * fast_normal(key_new, (num_samples, len(mean)))
        value = (1 - share) * jax.vmap(gain)(olds).mean() + share * jax.vmap(gain)(news).mean()
        return -value / num_data

    def init(key: jax.Array, start: tuple[dict[str, jax.Array], Mixture], data: Data) -> State:
        phi, mixture = start
        return State(phi, mixture, optimizer.init(phi), jax.random.key_data(key), jnp.asarray(0))

    def step(key: jax.Array, state: State, data: Data) -> tuple[State, Info]:
        batch = batch_of(data, state.batch_key, state.step_number, target.num_data, batch_size)
        value, gradient = jax.value_and_grad(negative_bound)(state.phi, state.mixture, key, batch)
        updates, rest = optimizer.update(gradient, state.optimizer, state.phi)
        phi = optax.apply_updates(state.phi, updates)
        moved = state._replace(phi=phi, optimizer=rest, step_number=state.step_number + 1)
        return moved, Info(-value * num_data, jnp.asarray(2 * num_samples))

    return Kernel(init, step)


def _draw(mixture: Mixture, key: jax.Array, wider: float = 1.0) -> jax.Array:
    key_component, key_noise = jax.random.split(key)
    which = jax.random.categorical(key_component, mixture.log_shares)
    return mixture.means[which] + wider * mixture.stds[which] * jax.random.normal(key_noise, mixture.means.shape[1:])


@kept
def _bound(target: Target) -> Callable[[Mixture, jax.Array, Data], Any]:
    unravel = tree.unraveller(target.structs)

    def values(mixture: Mixture, key: jax.Array, data: Data) -> jax.Array:
        def one(key: jax.Array) -> jax.Array:
            flat = _draw(mixture, key)
            return target.log_density(unravel(flat), data) - mixture_log_prob(*mixture, flat)

        found: jax.Array = jax.lax.map(one, jax.random.split(key, BOUND_DRAWS))
        return found

    compiled = jax.jit(values)
    return lambda *args: np.asarray(compiled(*args), np.float64)


@kept
def _best_start(target: Target) -> Callable[..., jax.Array]:
    """Of draws of a wider q, and of the prior with q's other parameters: the densest where q has hardly been."""
    unravel = tree.unraveller(target.structs)
    treedef = jax.tree.structure(target.structs["network"])

    def best(mixture: Mixture, bound: jax.Array, key: jax.Array, data: Data) -> jax.Array:
        key_wide, key_prior = jax.random.split(key)
        wide = jax.vmap(lambda k: _draw(mixture, k, WIDER))(jax.random.split(key_wide, CANDIDATES))

        def of_prior(key: jax.Array) -> jax.Array:
            drawn = target.model.sample_prior(key, target.leaves, treedef)
            return tree.ravel(unravel(mixture.means[0]) | drawn)

        candidates = jnp.concatenate([wide, jax.lax.map(of_prior, jax.random.split(key_prior, CANDIDATES))])

        def score(flat: jax.Array) -> jax.Array:
            density = target.log_density(unravel(flat), data)
            above = density - mixture_log_prob(*mixture, flat) - bound  # 0 where q is as it should be
            return jnp.where(above > UNSEEN, density, -1e30 + above)

        found = jax.lax.map(score, candidates)
        return candidates[jnp.argmax(jnp.where(jnp.isfinite(found), found, -jnp.inf))]

    return jax.jit(best)
