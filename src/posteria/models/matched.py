"""The prior of the weights whose functions are nearest to a Gaussian process.

Each leaf of the network has a Normal with a scale of its own: those at which draws of the network's functions, at
inputs like the data's, have the least sliced Wasserstein-2 distance from draws of the process (Bonneel et al. 2015).
Tran, Rossi, Milios & Filippone 2022, All You Need is a Good Functional Prior for Bayesian Deep Learning, whose distance
is Wasserstein-1 by a critic network: it has the same minimum where the process can be reached.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data, check_x, num_rows, rows
from posteria.errors import SettingError
from posteria.functions import FunctionPrior, as_function_prior
from posteria.models.factorised import Normal
from posteria.models.leaf import Prior
from posteria.networks import Network, as_batch_of_one
from posteria.networks import network as as_network
from posteria.random import as_key
from posteria.settings import Count, Positive, Several, check_arguments
from posteria.trace import linear

MOST_ROWS = 1000  # of x, from which the inputs of a step are drawn
JITTER = 1e-4  # of the process's mean variance, in 32 bits


def matched_scales(
    network: Any,
    kernel: FunctionPrior,
    x: Data,
    num_steps: Count = 1000,
    num_functions: Several = 128,
    num_inputs: Several = 32,
    learning_rate: Positive = 0.03,
    key: int | jax.Array = 0,
) -> dict[str, Prior]:
    """{path: Normal(std)} of every leaf. A step draws `num_functions` of either kind at `num_inputs` rows of x."""
    num_steps, num_functions, num_inputs, learning_rate = check_arguments(
        matched_scales,
        num_steps=num_steps,
        num_functions=num_functions,
        num_inputs=num_inputs,
        learning_rate=learning_rate,
    )
    kernel, net = as_function_prior(kernel), as_network(network)
    x = check_x(x)
    n = num_rows(x)
    pool = rows(x, np.random.default_rng(0).permutation(n)[:MOST_ROWS])
    structs, first = _starts(net, pool)
    covariance = jnp.asarray(kernel(pool, pool), jnp.float32)
    if not np.isfinite(np.asarray(covariance)).all():
        raise SettingError("the kernel is not finite at x", "finite covariances", "check its settings")
    fitted = _matcher(
        net, tree.signature(structs), num_steps, num_functions, min(num_inputs, len(covariance)), learning_rate
    )
    log_stds, _ = fitted(as_key(key), first, pool, covariance)
    return {path: Normal(float(np.exp(value))) for path, value in zip(tree.paths(structs), np.asarray(log_stds))}


def _starts(network: Network, x: Data) -> tuple[tree.Params, jax.Array]:
    """Shapes of the parameters, and logarithms of scales to begin with: those of fan-in."""
    one = as_batch_of_one(x)
    structs = jax.eval_shape(lambda key: network.init(key, one), jax.random.key(0))
    found = linear.find(network.apply, structs, one)
    fans = [found[path].uses[0].fan_in if found[path].uses else 1 for path in tree.paths(structs)]
    return structs, jnp.asarray([-0.5 * math.log(fan) for fan in fans], jnp.float32)


@kept
def _matcher(
    network: Network, signature: Any, num_steps: int, num_functions: int, num_inputs: int, learning_rate: float
) -> Callable[..., Any]:
    import optax

    treedef, leaves = signature
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps))
    size = sum(math.prod(shape) for shape, _ in leaves)
    owner = np.repeat(np.arange(len(leaves)), [math.prod(shape) for shape, _ in leaves])

    def functions(key: jax.Array, log_stds: jax.Array, x: Data) -> jax.Array:
        """(function x output, input)."""

        def one(key: jax.Array) -> jax.Array:
            flat = jnp.exp(log_stds)[owner] * jax.random.normal(key, (size,))
            parts = jnp.split(flat, np.cumsum([math.prod(shape) for shape, _ in leaves])[:-1])
            params = treedef.unflatten(p.reshape(s).astype(d) for p, (s, d) in zip(parts, leaves))
            outputs = network.apply(params, x)
            return outputs.reshape(outputs.shape[0], -1).T

        drawn = jax.vmap(one)(jax.random.split(key, num_functions))
        return drawn.reshape(-1, drawn.shape[-1])[:num_functions].astype(jnp.float32)

    def distance(log_stds: jax.Array, key: jax.Array, pool: Data, covariance: jax.Array) -> jax.Array:
        key_rows, key_network, key_process, key_slices = jax.random.split(key, 4)
        chosen = jax.random.randint(key_rows, (num_inputs,), 0, len(covariance))
        between = covariance[chosen][:, chosen]
        jitter = JITTER * jnp.trace(between) / num_inputs * jnp.eye(num_inputs)
        factor = jnp.linalg.cholesky(between + jitter)
        wanted = jax.random.normal(key_process, (num_functions, num_inputs)) @ factor.T
        drawn = functions(key_network, log_stds, jax.tree.map(lambda leaf: jnp.asarray(leaf)[chosen], pool))
        slices = jax.random.normal(key_slices, (num_inputs, 2 * num_inputs))
        slices = slices / jnp.linalg.norm(slices, axis=0)
        return ((jnp.sort(drawn @ slices, axis=0) - jnp.sort(wanted @ slices, axis=0)) ** 2).mean()

    @jax.jit
    def fit(key: jax.Array, log_stds: jax.Array, pool: Data, covariance: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            log_stds, state, average = carry
            value, gradient = jax.value_and_grad(distance)(log_stds, key, pool, covariance)
            updates, state = optimizer.update(gradient, state)
            return (log_stds + updates, state, 0.98 * average + 0.02 * (log_stds + updates)), value

        keys = jax.random.split(key, num_steps)
        (_, _, average), values = jax.lax.scan(step, (log_stds, optimizer.init(log_stds), log_stds), keys)
        return average, values

    return fit
