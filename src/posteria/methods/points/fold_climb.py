"""Modes of several subsets of the rows, climbed side by side, and ended where the rows left out are predicted best.

All of them are one compiled batch. Each is kept at some thirty moments, spaced geometrically, and one moment is chosen
for all by the likelihood of the rows that each left out: with more weights than rows a mode itself has learnt the noise
by heart. The likelihood's own parameters, such as the noise, are those of the rows left out as well.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data, parts, rows
from posteria.data.batches import drawn_indices, take
from posteria.engine.loop import Kernel, Run
from posteria.models.coordinates import coordinates
from posteria.models.target import Target
from posteria.posteriors.draws import forward

if TYPE_CHECKING:
    import optax

MOMENTS = 30
FIRST_MOMENT = 10  # steps
KEPT_BYTES = 256 * 2**20  # of weights at all moments
LARGEST_GRADIENT = 5.0  # a datum, in units of the prior
STILL_BETTER = 0.01  # nats a row, from the last moment but one to the last
OWN_STEPS = 30  # of Newton's method


class FoldClimb(NamedTuple):
    """What `climb` leaves: weights of each fold at the moment chosen, and what they say of the rows they left out."""

    flat: np.ndarray  # (fold, size), the likelihood's own parameters among them
    outputs: np.ndarray  # (repeat, row, output), each by the fold of that repeat that left it out
    log_likelihood: float  # a row left out
    num_steps: int  # at that moment
    is_last: bool  # it was still getting better when it ended


class State(NamedTuple):
    z: jax.Array
    optimizer: tree.Tree
    batch_key: jax.Array
    rows: jax.Array  # of this fold
    moment: jax.Array


class Info(NamedTuple):
    log_density: jax.Array
    num_gradients: jax.Array


def climb(
    key: jax.Array,
    target: Target,
    folds: list[np.ndarray],
    run: Run,
    *,
    num_repeats: int = 1,
    num_steps: int,
    batch_size: int,
    learning_rate: float,
    optimizer: "optax.GradientTransformation | None" = None,
    starts: tree.Params | None = None,
    is_counted: bool = True,
) -> FoldClimb:
    """`folds` are the rows that each leaves out; together they are all rows, `num_repeats` times, one after another.
    Gradients are counted where they are those of the user's own model."""
    key_start, key_loop = jax.random.split(key)
    num_rows, num_folds = target.num_data, len(folds)
    seen = [np.setdiff1d(np.arange(num_rows), left_out) for left_out in folds]
    num_trained = min(map(len, seen))  # as many for each: the batch has one shape
    trained = np.stack([part[:num_trained] for part in seen]).astype(np.int32)
    of_fold = Target(target.model, rows(target.data, trained[0])).without_data()
    if starts is None:
        starts, note = target.several_inits(key_start, num_folds)
        run.note(note)
    size = tree.size(target.structs)
    marks = _marks(num_steps, num_folds * size)
    kernel = _ascent(of_fold, optimizer, learning_rate, marks, min(batch_size, num_trained), is_counted)
    trace = run.loop(
        kernel,
        key_loop,
        (coordinates(of_fold).starts(starts), jax.device_put(trained)),
        target.data,
        num_steps=len(marks),
        keep=_z_of,
    )
    num_moments = trace.num_rows  # fewer, where time ran out
    weights = np.asarray(_to_weights(of_fold)(trace.kept.reshape(-1, size)))
    weights = weights.reshape(num_folds, num_moments, size)
    outputs = _left_out(target, weights, folds, num_repeats)  # (moment, repeat, row, output)
    _, y, weight = parts(jax.tree.map(np.asarray, target.data or (None, None)))
    y = np.concatenate([y] * num_repeats)
    weight = None if weight is None else np.concatenate([weight] * num_repeats)
    stacked = outputs.reshape(num_moments, len(y), *outputs.shape[3:])
    own, log_likelihoods = own_by_moment(of_fold)(own_of(target, weights.mean(0)), stacked, y, weight)
    log_likelihoods = np.where(np.isfinite(log_likelihoods), log_likelihoods, -np.inf)
    best = int(np.argmax(log_likelihoods))
    own = jax.tree.map(lambda leaf: np.asarray(leaf)[best], own)
    is_last = 0 < best == num_moments - 1 and log_likelihoods[best] > log_likelihoods[best - 1] + STILL_BETTER
    flat = with_own(target, weights[:, best], own)
    return FoldClimb(flat, outputs[best], float(log_likelihoods[best]), marks[best], is_last)


def num_steps_of(num_epochs: int, num_rows: int, batch_size: int) -> int:
    return num_epochs * math.ceil(num_rows / batch_size)


def _z_of(state: State) -> jax.Array:
    return state.z


def _marks(num_steps: int, size: int) -> tuple[int, ...]:
    """Moments at which all is kept, in steps from the start."""
    most = int(np.clip(KEPT_BYTES // (4 * size), 3, MOMENTS))
    spaced = np.geomspace(min(FIRST_MOMENT, num_steps), num_steps, most)
    return tuple(int(step) for step in np.unique(np.round(spaced)))


@kept
def _ascent(
    target: Target,
    optimizer: "optax.GradientTransformation | None",
    learning_rate: float,
    marks: tuple[int, ...],
    batch_size: int,
    is_counted: bool,
) -> Kernel:
    """A step of the loop is the way to the next moment. In units of the prior, where one rate serves all layers."""
    import optax

    place = coordinates(target)
    climber = optimizer if optimizer is not None else _default_optimizer(learning_rate, marks[-1])
    ends = np.asarray(marks, np.int32)
    num_data = target.num_data

    def init(key: jax.Array, start: Any, data: Data) -> State:
        z, own_rows = start
        return State(z, climber.init(z), jax.random.key_data(key), own_rows, jnp.asarray(0))

    def negative_log_density(z: jax.Array, batch: Data) -> jax.Array:
        return -place.log_density(z, batch) / num_data

    def step(key: jax.Array, state: State, data: Data) -> tuple[State, Info]:
        del key  # batches follow the chain's own key and the step's number
        first = jnp.where(state.moment == 0, 0, jnp.asarray(ends)[state.moment - 1])
        last = jnp.asarray(ends)[state.moment]

        def ascend(number: jax.Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
            z, optimizer_state, _ = carry
            chosen = state.rows
            if batch_size < num_data:
                chosen = take(state.rows, drawn_indices(state.batch_key, number, num_data, batch_size))
            value, gradient = jax.value_and_grad(negative_log_density)(z, take(data, chosen))
            updates, optimizer_state = climber.update(gradient, optimizer_state, z)
            return optax.apply_updates(z, updates), optimizer_state, value

        start = state.z, state.optimizer, jnp.zeros((), state.z.dtype)
        z, optimizer_state, value = jax.lax.fori_loop(first, last, ascend, start)
        info = Info(-value * num_data, last - first if is_counted else jnp.zeros_like(first))
        return state._replace(z=z, optimizer=optimizer_state, moment=state.moment + 1), info

    return Kernel(init, step)


def _default_optimizer(learning_rate: float, num_steps: int) -> Any:
    """Adam: a short warm-up, the rate held to 60 %, then falling to a twentieth."""
    import optax

    warm, held = min(50, max(1, num_steps // 10)), max(2, int(0.6 * num_steps))
    schedule = optax.join_schedules(
        [
            optax.linear_schedule(learning_rate / warm, learning_rate, warm),
            optax.constant_schedule(learning_rate),
            optax.linear_schedule(learning_rate, 0.05 * learning_rate, max(1, num_steps - held)),
        ],
        [warm, held],
    )
    return optax.chain(optax.clip_by_global_norm(LARGEST_GRADIENT), optax.adam(schedule))


@kept
def _to_weights(target: Target) -> Any:
    return jax.jit(lambda z: jax.lax.map(coordinates(target).to_weights, z))


def _left_out(target: Target, weights: np.ndarray, folds: list[np.ndarray], num_repeats: int) -> np.ndarray:
    """Outputs for every row by the fold that left it out: (moment, repeat, row, output)."""
    (x, *_), longest = target.data or (None,), max(map(len, folds))
    run = forward(target.without_data())
    of_folds = []
    for own_weights, left_out in zip(weights, folds):
        padded = np.resize(left_out, longest)  # one shape for all
        of_folds.append(np.asarray(run(own_weights, rows(x, padded))[0])[:, : len(left_out)])
    together = np.concatenate(of_folds, axis=1)
    together = together.reshape(len(together), num_repeats, target.num_data, *together.shape[2:])
    orders = np.concatenate(folds).reshape(num_repeats, target.num_data)
    return np.stack([together[:, i, np.argsort(order)] for i, order in enumerate(orders)], axis=1)


def own_of(target: Target, flat: np.ndarray) -> tree.Params:
    return tree.unraveller(target.structs)(flat)["likelihood"]


def with_own(target: Target, flat: np.ndarray, own: tree.Params) -> np.ndarray:
    params = tree.unraveller(target.structs)(flat)
    params["likelihood"] = jax.tree.map(lambda leaf, like: np.broadcast_to(leaf, like.shape), own, params["likelihood"])
    return np.asarray(tree.ravel_each(params))


@kept
def own_by_moment(target: Target) -> Any:
    """(starts, outputs (moment, row, output), y, weight) -> own parameters by rows left out, and log likelihoods."""
    likelihood = target.model.likelihood
    structs = target.structs["likelihood"]
    has_own = tree.size(structs) > 0
    unravel = tree.unraveller(structs) if has_own else lambda flat: {}

    def log_likelihood(flat: jax.Array, outputs: jax.Array, y: jax.Array, weight: jax.Array | None) -> jax.Array:
        return jnp.average(likelihood.log_prob(unravel(flat), outputs, y), weights=weight)

    def of_moment(
        start: jax.Array, outputs: jax.Array, y: jax.Array, weight: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        def newton(_: int, flat: jax.Array) -> jax.Array:
            slope = jax.grad(log_likelihood)(flat, outputs, y, weight)
            curvature, axes = jnp.linalg.eigh(jax.hessian(log_likelihood)(flat, outputs, y, weight))
            move = axes @ ((axes.T @ slope) / jnp.maximum(jnp.abs(curvature), 1e-3))
            return flat + jnp.clip(move, -1.0, 1.0)

        best = jax.lax.fori_loop(0, OWN_STEPS, newton, start) if has_own else start
        return best, log_likelihood(best, outputs, y, weight)

    def all_moments(
        start: tree.Params, outputs: jax.Array, y: jax.Array, weight: jax.Array | None
    ) -> tuple[tree.Params, jax.Array]:
        flat = jax.vmap(tree.ravel)(start) if has_own else jnp.zeros((len(outputs), 0))
        best, values = jax.lax.map(lambda each: of_moment(each[0], each[1], y, weight), (flat, outputs))
        return (jax.vmap(unravel)(best) if has_own else {}), values

    return jax.jit(all_moments)
