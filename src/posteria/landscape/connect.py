"""Curves of low loss between two modes. Garipov et al. 2018; Draxler et al. 2018.

With the ends fixed, the points in between minimise the mean of the negative log density over t ~ U(0, 1) along the
curve, by Adam: one t and one mini-batch a step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from posteria import tree
from posteria.compiled import kept
from posteria.curvature.stiffness import energy
from posteria.data.arrays import Data
from posteria.data.batches import batch_of
from posteria.engine.loop import Kernel, Run
from posteria.landscape.flatness import loss
from posteria.models.target import Density, Target, check_starts
from posteria.random import as_key
from posteria.settings import Count, Positive, check_arguments

Form = Literal["bezier", "polygonal"]


@dataclass(frozen=True, eq=False)
class Curve:
    """A path through weight space: `curve(t)` are the parameters at t in [0, 1], with leading axes where t has them.

    `points` (point, size) are its flat control points, the ends among them; a Bezier curve touches only the ends.
    """

    target: Target | Density
    points: jax.Array
    form: str

    def __call__(self, t: ArrayLike) -> tree.Params:
        return tree.unraveller(self.target.structs)(self.flat(t))

    def flat(self, t: ArrayLike) -> jax.Array:
        """The same as flat vectors: (..., size)."""
        return weights(self.form, len(self.points), jnp.asarray(t, jnp.float32)) @ self.points

    def losses(self, t: ArrayLike, data: Data = None) -> np.ndarray:
        """Mean negative log likelihood at each of t (without data: the negative log density), in nats: (t,)."""
        data = self.target.data if data is None else Target(self.target.model, data).data  # type: ignore[union-attr]
        return np.asarray(losses_at(self.target.without_data())(self.flat(np.atleast_1d(t)), data))

    @property
    def straight(self) -> "Curve":
        """The straight line between its ends."""
        return Curve(self.target, self.points[jnp.asarray([0, -1])], "polygonal")

    def excess(self, num: int = 61, data: Data = None) -> float:
        """How far the loss rises along the curve above the worse of its ends, at `num` places."""
        found = self.losses(np.linspace(0.0, 1.0, num), data)
        return float(found.max() - max(found[0], found[-1]))

    def barrier(self, num: int = 61, data: Data = None) -> float:
        """The same of the straight line."""
        return self.straight.excess(num, data)


def connect(
    params_a: tree.Params,
    params_b: tree.Params,
    target: Target | Density,
    *,
    form: Form = "bezier",
    num_bends: Count = 1,
    num_steps: Count = 2000,
    batch_size: Count | None = None,
    learning_rate: Positive = 0.01,
    key: int | jax.Array = 0,
    progress: bool = False,
) -> Curve:
    """A curve from one mode to another along which the loss stays low: `curve.excess()` against `curve.barrier()`.

    `params` are the network's weights, those with the likelihood's own parameters, or flat vectors of all; `target` is
    `po.Target(model, data)`. The curve has `num_bends` free points between its ends.
    """
    form, num_bends, num_steps, batch_size, learning_rate = check_arguments(
        connect,
        form=form,
        num_bends=num_bends,
        num_steps=num_steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
    )
    first, last = (flat_params(target, params) for params in (params_a, params_b))
    settings = Settings(form, num_steps, batch_size or target.num_data, learning_rate)
    return bend(as_key(key), first, last, target, Run(None, progress), num_bends, settings)


def flat_params(target: Target | Density, params: tree.Params) -> jax.Array:
    """Parameters as one flat vector; the likelihood's part of a tree may be left out."""
    if isinstance(params, np.ndarray | jax.Array) and params.shape == (tree.size(target.structs),):
        return jnp.asarray(params)
    return tree.ravel(tree.index(target.as_starts(params, 1), 0))


class Settings(NamedTuple):
    form: str
    num_steps: int
    batch_size: int
    learning_rate: float


DEFAULT = Settings("bezier", 2000, 128, 0.01)


def bend(
    key: jax.Array,
    flat_a: ArrayLike,
    flat_b: ArrayLike,
    target: Target | Density,
    run: Run,
    num_bends: int = 1,
    settings: Settings = DEFAULT,
) -> Curve:
    """Bend the straight line between flat weights to where the density is high."""
    target.check_proper()
    target = target.holding("prior")  # scales follow the straight line: where they are free, they fall to 0
    ends = jnp.stack([jnp.asarray(flat_a), jnp.asarray(flat_b)])
    check_starts(target, tree.unraveller(target.structs)(ends))
    at = jnp.linspace(0.0, 1.0, num_bends + 2)[1:-1, None]
    bends = (1.0 - at) * ends[0] + at * ends[1]
    batch_size = min(settings.batch_size, target.num_data)
    trace = run.loop(
        bending(target.without_data(), settings._replace(batch_size=batch_size)),
        key,
        (ends[None], bends[None]),
        target.data,
        num_steps=settings.num_steps,
        final_when_late=True,
    )
    bends = jnp.asarray(trace.state.bends[0])
    return Curve(target, jnp.concatenate([ends[:1], bends, ends[1:]]), settings.form)


def weights(form: str, num_points: int, t: jax.Array) -> jax.Array:
    """How much of each control point is in the curve at t: (..., point), summing to one."""
    if form == "bezier":
        degree = num_points - 1
        terms = [comb(degree, i) * t**i * (1.0 - t) ** (degree - i) for i in range(num_points)]
        return jnp.stack(terms, axis=-1)
    return jnp.maximum(0.0, 1.0 - jnp.abs(t[..., None] * (num_points - 1) - jnp.arange(num_points)))


@kept
def losses_at(target: Target | Density) -> Callable[[jax.Array, Data], jax.Array]:
    """(flat weights (n, size), data) -> losses (n,)."""
    unravel = tree.unraveller(target.structs)
    return jax.jit(lambda flat, data: jax.lax.map(lambda row: loss(target, unravel(row), data), flat))


class Bending(NamedTuple):
    ends: jax.Array  # (2, size)
    bends: jax.Array  # (bend, size)
    optimizer: tree.Tree
    batch_key: jax.Array
    step_number: jax.Array


class Info(NamedTuple):
    log_density: jax.Array
    num_gradients: jax.Array


@kept
def bending(target: Target | Density, settings: Settings) -> Kernel:
    import optax

    unravel = tree.unraveller(target.structs)
    optimizer = optax.adam(optax.cosine_decay_schedule(settings.learning_rate, settings.num_steps))

    def init(key: jax.Array, start: tuple[jax.Array, jax.Array], data: Data) -> Bending:
        ends, bends = start
        return Bending(ends, bends, optimizer.init(bends), jax.random.key_data(key), jnp.asarray(0))

    def step(key: jax.Array, state: Bending, data: Data) -> tuple[Bending, Info]:
        batch = batch_of(data, state.batch_key, state.step_number, target.num_data, settings.batch_size)
        t = jax.random.uniform(key)

        def energy_at_t(bends: jax.Array) -> jax.Array:
            points = jnp.concatenate([state.ends[:1], bends, state.ends[1:]])
            return energy(target, unravel(weights(settings.form, len(points), t) @ points), batch)

        value, gradient = jax.value_and_grad(energy_at_t)(state.bends)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.bends)
        bends = optax.apply_updates(state.bends, updates)
        state = state._replace(bends=bends, optimizer=optimizer_state, step_number=state.step_number + 1)
        return state, Info(-value * max(target.num_data, 1), jnp.asarray(1))

    return Kernel(init, step)
