"""Gradient ascent on an objective that is itself an expectation over noise: what dropout methods are fitted by."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.data.batches import Augment, batch_of, num_steps_per_epoch, rows_ahead
from posteria.engine.loop import Kernel, Run
from posteria.methods.variational.bound import COSINE_MARK, estimate_elbo
from posteria.methods.watch import Draw, HeldOut
from posteria.methods.watch import loop as watch_loop
from posteria.models.target import Target
from posteria.tree import Json

if TYPE_CHECKING:
    import optax

# (key, parameters, batch or None, epochs done so far) -> an unbiased estimate of the objective, in nats of all data
Objective = Callable[[jax.Array, tree.Params, Data, jax.Array], jax.Array]
NUM_OBSERVATIONS = 20  # spread over the fit
DRIFT_STREAM = 5  # folded into the key of the climb


class Schedule(NamedTuple):
    """The settings that optimised methods share."""

    num_epochs: int
    batch_size: int | None
    learning_rate: float
    optimizer: tree.Tree
    patience: int

    @classmethod
    def of(cls, method: Any) -> "Schedule":
        """Those of a method."""
        return cls(method.num_epochs, method.batch_size, method.learning_rate, method.optimizer, method.patience)


class Ascended(NamedTuple):
    params: tree.Params
    observations: np.ndarray  # (observation, ...)
    facts: Json  # "drift" of the objective over the last tenth of the path, and its Monte Carlo error


def ascend(
    run: Run,
    key: jax.Array,
    target: Target,
    start: tree.Params,
    objective: Objective,
    schedule: Schedule,
    held: HeldOut | None,
    draw: Draw,
    observe: Callable[[tree.Params], jax.Array] = lambda params: jnp.zeros(0),
) -> Ascended:
    """Climb from `start` by Adam with a cosine decay, or the given optimiser; `observe` is called 20 times on the way.

    `held` and `draw` are those of `watch.loop`. Where no rows are held out, how far the objective still moved at the
    end is measured, and noted above 0.05 nats. `objective`, `draw` and `observe` must be the same objects for the same
    work: compiled code is kept by them.
    """
    batch_size = min(schedule.batch_size or target.num_data, target.num_data)
    steps_per_epoch = num_steps_per_epoch(target.num_data, batch_size) if batch_size else 1
    dtypes = tuple(jnp.result_type(leaf) for leaf in jax.tree.leaves(start))
    kernel = ascent(
        objective,
        observe,
        schedule.optimizer,
        schedule.learning_rate,
        schedule.num_epochs,
        steps_per_epoch,
        batch_size,
        target.num_data,
        dtypes,
        target.augment,
    )
    found, trace = watch_loop(
        run,
        kernel,
        key,
        tree.one_of_many(tree.as_wide(start)),
        target,
        held,
        draw=draw,
        part=_params_of,
        num_epochs=schedule.num_epochs,
        steps_per_epoch=steps_per_epoch,
        patience=schedule.patience,
    )
    state = tree.index(trace.state, 0)
    num_seen = int(state.step_number) // _interval(schedule.num_epochs * steps_per_epoch)  # time may have run out
    facts: Json = {}
    if run.is_whole and held is None:  # an end that rows chose is no optimum
        judge = _values(objective, schedule.num_epochs, batch_size, target.num_data, dtypes)
        key_drift = jax.random.fold_in(key, DRIFT_STREAM)
        measured = estimate_elbo(judge, key_drift, state.params, state.before, target.data, run, steps_per_epoch)
        facts = {name: value for name, value in measured.items() if name in ("drift", "drift_error")}
    return Ascended(tree.on_device(tree.index(found, 0)), np.asarray(state.observations)[:num_seen], facts)


class Ascent(NamedTuple):
    params: tree.Params
    before: tree.Params  # as they were where the last tenth of the path began
    optimizer: tree.Tree
    batch_key: jax.Array
    step_number: jax.Array
    observations: jax.Array


def _params_of(state: Ascent) -> tree.Params:
    return state.params


class Info(NamedTuple):
    log_density: jax.Array  # the objective, of a batch
    num_gradients: jax.Array


@kept
def ascent(
    objective: Objective,
    observe: Callable[[tree.Params], jax.Array],
    optimizer: "optax.GradientTransformation | None",
    learning_rate: float,
    num_epochs: int,
    steps_per_epoch: int,
    batch_size: int,
    num_data: int,
    dtypes: tuple[np.dtype, ...],
    augment: Augment | None,
) -> Kernel:
    """`dtypes` are those of the parameters' leaves where the objective sees them; they move in 32 bits at least."""
    import optax

    num_steps = num_epochs * steps_per_epoch
    interval = _interval(num_steps)
    mark = int((0.9 if optimizer is not None else COSINE_MARK) * num_steps)
    if optimizer is None:
        optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps))

    def init(key: jax.Array, start: tree.Params, data: Data) -> Ascent:
        seen = observe(start)
        observations = jnp.zeros((num_steps // interval, *seen.shape), seen.dtype)
        return Ascent(start, start, optimizer.init(start), jax.random.key_data(key), jnp.asarray(0), observations)

    def step(key: jax.Array, state: Ascent, data: Data) -> tuple[Ascent, Info]:
        batch = batch_of(data, state.batch_key, state.step_number, num_data, batch_size, augment)
        epoch = state.step_number / steps_per_epoch

        def negative_objective(params: tree.Params) -> jax.Array:
            """Per datum, so that a learning rate means the same for any amount of data."""
            return -objective(key, _narrow(params, dtypes), batch, epoch) / max(num_data, 1)

        value, gradient = jax.value_and_grad(negative_objective)(state.params)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        before = jax.tree.map(
            lambda now, old: jnp.where(state.step_number == mark, now, old), state.params, state.before
        )
        step_number = state.step_number + 1
        observations = jax.lax.cond(
            step_number % interval == 0,
            lambda seen: seen.at[step_number // interval - 1].set(observe(params)),
            lambda seen: seen,
            state.observations,
        )
        state = Ascent(params, before, optimizer_state, state.batch_key, step_number, observations)
        return state, Info(-value * max(num_data, 1), jnp.asarray(1))

    return Kernel(init, step, rows_ahead(num_data, batch_size))


def _narrow(params: tree.Params, dtypes: tuple[np.dtype, ...]) -> tree.Params:
    leaves, treedef = jax.tree.flatten(params)
    return treedef.unflatten(leaf.astype(dtype) for leaf, dtype in zip(leaves, dtypes))


class Judged(NamedTuple):
    params: tree.Params
    batch_key: jax.Array
    step_number: jax.Array


@kept
def _values(
    objective: Objective, num_epochs: int, batch_size: int, num_data: int, dtypes: tuple[np.dtype, ...]
) -> Kernel:
    """The objective of a finished fit, batch by batch."""

    def init(key: jax.Array, params: tree.Params, data: Data) -> Judged:
        return Judged(params, jax.random.key_data(key), jnp.asarray(0))

    def step(key: jax.Array, state: Judged, data: Data) -> tuple[Judged, Info]:
        batch = batch_of(data, state.batch_key, state.step_number, num_data, batch_size)
        value = objective(key, _narrow(state.params, dtypes), batch, jnp.asarray(float(num_epochs)))
        return state._replace(step_number=state.step_number + 1), Info(value, jnp.asarray(0))

    return Kernel(init, step, rows_ahead(num_data, batch_size))


def _interval(num_steps: int) -> int:
    """Steps between two observations."""
    return math.ceil(num_steps / NUM_OBSERVATIONS)
