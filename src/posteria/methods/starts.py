"""Where a method begins: the prior, modes, a fitted posterior, or given weights."""

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


def find_starts(
    key: jax.Array, target: Any, start: tree.Params, num: int, run: Run, climber: Any = None
) -> tree.Params:
    """`num` starting points: "prior"; "init", the network's initialiser; "map", modes that are found from there;
    a MAP that finds them; "ascent", a few hundred steps towards them; a fitted posterior; or weights, with or without a
    chain axis.

    `climber` is the MAP that finds modes, where the default would not do. Scales that the prior infers are 1 there,
    and "map" is the mode given that: the mode of scales and weights together is at scales of 0.
    """
    if hasattr(start, "climb"):
        start, climber = "map", start
    if isinstance(start, str) and start == "prior":
        return tree.stack([target.sample_prior(k) for k in jax.random.split(key, num)])
    if isinstance(start, str):
        from posteria.methods.points.map import MAP

        key_init, key_map = (key, key) if start == "init" else jax.random.split(key)
        inits, note = target.several_inits(key_init, num)
        run.note(note)
        if start == "init":
            return inits
        if start == "ascent":
            return ascend(key_map, target, inits, run.stage("ascent", share=0.2))
        stage = run.stage("map", share=0.2)
        return (climber or MAP()).climb(key_map, target.holding("prior"), inits, stage, final_when_late=True).params
    if hasattr(start, "sample_params"):
        return start.sample_params(key, num)
    return target.as_starts(start, num)


# ---- a short climb towards a mode, for samplers to start from: Adam, in the coordinates in which they move
#
# In units of the prior one learning rate serves all layers, and scales that are inferred climb with the weights:
# relative to their scales these do not draw them to 0. It is short on purpose. A chain has to leave the mode for where
# the posterior has its mass, and from the end of a long climb, where a network has learnt the noise by heart, that is
# far.

STEPS = 300
MOST_STEPS = 3000  # where rows are more than a batch, there are as many more steps
BATCH = 256
LEARNING_RATE = 0.02  # in units of the prior


def ascent_steps(num_data: int) -> int:
    """Of one start."""
    return min(MOST_STEPS, STEPS * max(1, num_data // BATCH))


def ascend(key: jax.Array, target: Any, starts: tree.Params, run: Run) -> tree.Params:
    """From every start (leading axis), so many steps up."""
    bare = target.without_data()
    flat = coordinates(bare)
    steps = ascent_steps(target.num_data)
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
