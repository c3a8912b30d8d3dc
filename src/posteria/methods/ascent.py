"""A short climb towards a mode, for samplers to start from: Adam, in the coordinates in which they move.

In units of the prior one learning rate serves all layers, and scales that are inferred climb with the weights: relative
to their scales these do not draw them to 0. It is short on purpose. A chain has to leave the mode for where the
posterior has its mass, and from the end of a long climb, where a network has learnt the noise by heart, that is far.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.data.batches import batch_of
from posteria.engine.loop import Kernel, Run
from posteria.models.coordinates import coordinates
from posteria.models.target import Target

STEPS = 300
MOST_STEPS = 3000  # where rows are more than a batch, there are as many more steps
BATCH = 256
LEARNING_RATE = 0.02  # in units of the prior


def num_steps(num_data: int) -> int:
    """Of one start."""
    return min(MOST_STEPS, STEPS * max(1, num_data // BATCH))


def ascend(key: jax.Array, target: Any, starts: tree.Params, run: Run) -> tree.Params:
    """From every start (leading axis), so many steps up."""
    bare = target.without_data()
    flat = coordinates(bare)
    steps = num_steps(target.num_data)
    ended = run.loop(_climb(bare, steps), key, flat.starts(starts), target.data, num_steps=steps, final_when_late=True)
    params: tree.Params = flat.several_params(ended.state.position)
    return params


class State(NamedTuple):
    position: jax.Array
    optimizer: tree.Tree
    batch_key: jax.Array
    step_number: jax.Array


class Info(NamedTuple):
    log_density: jax.Array
    num_gradients: jax.Array


@kept
def _climb(target: Target, num_steps: int) -> Kernel:
    import optax

    flat, num_data = coordinates(target), max(target.num_data, 1)
    optimizer = optax.adam(optax.linear_schedule(LEARNING_RATE, 0.1 * LEARNING_RATE, num_steps // 2, num_steps // 2))

    def init(key: jax.Array, start: jax.Array, data: Data) -> State:
        return State(start, optimizer.init(start), jax.random.key_data(key), jnp.asarray(0))

    def step(key: jax.Array, state: State, data: Data) -> tuple[State, Info]:
        del key  # batches follow the chain's own key and the step's number
        batch = batch_of(data, state.batch_key, state.step_number, target.num_data, BATCH)
        value, gradient = jax.value_and_grad(lambda z: -flat.log_density(z, batch) / num_data)(state.position)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer)
        moved = State(state.position + updates, optimizer_state, state.batch_key, state.step_number + 1)
        return moved, Info(-value * num_data, jnp.asarray(1))

    return Kernel(init, step)
