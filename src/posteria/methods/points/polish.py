"""From near a mode to it: L-BFGS on all rows, in units of the prior, until a Newton step would gain next to nothing.

Liu & Nocedal 1989, as Optax has it; its line search compares slopes where values of float32 tell no better than their
rounding (Hager & Zhang 2005).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.curvature.decrement import ENOUGH, decrement, is_dear, part_names
from posteria.data.arrays import Data, is_source, parts, rows
from posteria.engine.loop import Kernel, Run
from posteria.models.coordinates import coordinates
from posteria.models.sums import all_rows
from posteria.models.target import Target, log_densities
from posteria.posteriors.draws import forward
from posteria.tree import Json

SHARE = 0.2  # of the epochs that came before, in steps; a step takes one gradient, seldom more
FREE_WORK, MOST_SHARE = 1e10, 2.0  # multiplications, about a second of them, that are free; of the epochs, at most
CERTAIN = 1e-5  # nats that a Newton step could gain at most, by the prior's curvature alone: it is at the mode
LEAST_GAIN, PATIENCE = 1e-4, 30  # nats, and steps without as many after which it stops
MEMORY, MOST_ELEMENTS = 20, 2**24  # pairs of steps and changes of the gradient; numbers in them
MOST_TRIES = 15  # of one line search


class Polished(NamedTuple):
    params: tree.Params  # with a leading axis of starts
    log_density: np.ndarray  # (start,)


def num_steps(target: Target, num_epochs: int) -> int:
    """A share of the epochs, or what takes about a second, where that is more."""
    work = 6 * max(1, target.num_data) * tree.size(target.structs["network"])
    return int(np.clip(FREE_WORK / work, SHARE * num_epochs, MOST_SHARE * num_epochs))


def polish(
    key: jax.Array, target: Target, params: tree.Params, run: Run, num_epochs: int, held: Sequence[str] = ()
) -> Polished:
    """Modes from `params` (leading axis) after `num_epochs` of another ascent; the parts `held` stay as they are,
    and scales of the prior: the joint mode has them at 0."""
    flat = coordinates(target.without_data())
    trace = run.stage("polish").loop(
        lbfgs(target.without_data(), tuple(held)),
        key,
        flat.starts(params),
        all_rows(target.data),
        num_steps=num_steps(target, num_epochs),
        is_over=lambda info: bool(np.all(info.is_stopped)),
    )
    found = flat.several_params(trace.state.best)
    if target.scales:  # where the density over the coordinates is another
        return Polished(found, log_densities(target, found))
    return Polished(found, -np.asarray(trace.state.best_value))


def measured(target: Target, params: tree.Params, run: Run, held: Sequence[str], remedy: str) -> Json:
    """Facts: how far the set of `params` (leading axis) that is furthest from a mode is; told where it matters."""
    if not run.is_whole or is_source(target.data):  # it would read a source many times over
        return {}
    if is_dear(target):
        run.note("how far the weights are from a mode was not measured: it would take longer than most fits")
        return {}
    found = (decrement(target, tree.one(params, i), held) for i in range(tree.length(params)))
    worst = max(found, key=lambda one: one.nats)
    if worst.nats == np.inf:
        run.note("how far the weights are from a mode was not measured: their curvature is not finite")
        return {}
    if not worst.nats <= ENOUGH:
        about = "an estimated " if worst.is_estimate else ""
        run.note(f"the weights are not at a mode: a Newton step would gain {about}{worst.nats:.2g} nats; {remedy}")
    constant = always_the_same(target, params)
    run.note(constant)
    return {"decrement": worst.nats, "decrement_is_estimate": worst.is_estimate, "is_constant": bool(constant)}


class State(NamedTuple):
    """Values are of the negative log density. At kinks a step may lead to a higher one: the best is kept."""

    position: jax.Array
    value: jax.Array
    gradient: jax.Array
    optimizer: Any
    best: jax.Array
    best_value: jax.Array
    value_before: jax.Array  # the last best that was lower than those before by enough
    num_stale: jax.Array  # steps since
    is_stopped: jax.Array


class Info(NamedTuple):
    log_density: jax.Array
    num_gradients: jax.Array
    is_stopped: jax.Array


@kept
def lbfgs(target: Target, held: tuple[str, ...]) -> Kernel:
    import optax

    flat = coordinates(target)
    is_moving = ~np.isin(part_names(target), (*held, "prior"))
    memory = int(np.clip(MOST_ELEMENTS // (2 * len(is_moving)), 1, MEMORY))
    search = optax.scale_by_zoom_linesearch(MOST_TRIES, initial_guess_strategy="one")
    optimizer = optax.lbfgs(memory_size=memory, linesearch=search)

    def negative_log_density(position: jax.Array, data: Data) -> jax.Array:
        position = jnp.where(is_moving, position, jax.lax.stop_gradient(position))
        return -flat.log_density(position, data)

    def is_certain(gradient: jax.Array) -> jax.Array:
        return 0.5 * target.temperature * (gradient @ gradient) < CERTAIN

    def init(key: jax.Array, position: jax.Array, data: Data) -> State:
        del key
        value, gradient = jax.value_and_grad(negative_log_density)(position, data)
        rest, zero = optimizer.init(position), jnp.asarray(0)
        return State(position, value, gradient, rest, position, value, value, zero, is_certain(gradient))

    def advance(state: State, data: Data) -> tuple[State, Info]:
        updates, rest = optimizer.update(
            state.gradient,
            state.optimizer,
            state.position,
            value=state.value,
            grad=state.gradient,
            value_fn=lambda position: negative_log_density(position, data),
        )
        position = optax.apply_updates(state.position, updates)
        found = rest[-1]  # of the line search
        is_better = found.value < state.best_value
        best = jnp.where(is_better, position, state.best)
        best_value = jnp.where(is_better, found.value, state.best_value)
        resolution = 2 * jnp.finfo(best_value.dtype).eps * jnp.abs(best_value)
        is_gain = state.value_before - best_value > jnp.maximum(LEAST_GAIN, resolution)
        before = jnp.where(is_gain, best_value, state.value_before)
        num_stale = jnp.where(is_gain, 0, state.num_stale + 1)
        is_there = is_certain(found.grad)
        best, best_value = (
            jnp.where(is_there, here, best) for here, best in ((position, best), (found.value, best_value))
        )
        is_stopped = is_there | (num_stale >= PATIENCE) | ~jnp.isfinite(found.value)
        state = State(position, found.value, found.grad, rest, best, best_value, before, num_stale, is_stopped)
        return state, Info(-best_value, found.info.num_linesearch_steps, is_stopped)

    def step(key: jax.Array, state: State, data: Data) -> tuple[State, Info]:
        del key
        # one that has stopped stands still, so that the loop may end it whenever it next looks
        idle = Info(-state.best_value, jnp.asarray(0), jnp.asarray(True))
        taken: tuple[State, Info] = jax.lax.cond(
            state.is_stopped, lambda s: (s, idle), lambda s: advance(s, data), state
        )
        return taken

    return Kernel(init, step)


# ---- modes that are not to be taken at their word: what is odd about one, said in words

ROWS_LOOKED_AT = 1000
CONSTANT = 0.01  # of the targets' standard deviation (of logits and logarithms: of 1), between rows


def always_the_same(target: Target, params: tree.Params) -> str:
    """Where each of `params` (leading axis) says the same of every row, why that may be; empty where one does not.

    With few rows the joint mode of weights and noise may lie where all weights are next to 0: the prior gains more by
    it than the rows lose, though most of the posterior is elsewhere.
    """
    if target.data is None or target.num_data < 3:
        return ""
    x, y, _ = parts(target.data)
    some = np.linspace(0, target.num_data - 1, min(target.num_data, ROWS_LOOKED_AT)).astype(int)
    of_some: Any = rows(x, some)
    if len(np.unique(np.asarray(jax.tree.leaves(of_some)[0]).reshape(len(some), -1), axis=0)) == 1:
        return ""
    outputs, _ = forward(target.without_data())(np.asarray(tree.ravel_each(params)), of_some)
    unit = np.std(np.asarray(rows(y, some), np.float64)) if target.model.likelihood.kind == "regression" else 1.0
    if np.std(np.asarray(outputs, np.float64), axis=1).max() > CONSTANT * unit or not unit > 0:
        return ""
    return (
        f"the mode predicts the same for every row: either x says nothing of y, or the prior outweighs "
        f"{target.num_data:,} rows; give the noise, take a smaller network, or a method that is no mode"
    )


def learnt_by_heart(target: Target) -> str:
    """Where noise is set at one mode with more weights than rows: these fit part of it, and it comes out too small."""
    has_noise = bool(jax.tree.leaves(target.structs["likelihood"]))
    num_weights = tree.size(target.structs["network"])
    if target.data is None or not has_noise or target.scales or num_weights < target.total_weight:
        return ""
    return (
        f"noise was set with {num_weights:,} weights by {target.num_data:,} rows, of which they may have learnt some: "
        "intervals may be too narrow until `calibrate` has checked them"
    )
