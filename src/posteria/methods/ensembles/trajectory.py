"""Weights along stochastic gradient descent whose step stays large: what SWAG, FGE and subspaces are made of."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.curvature.stiffness import energy, largest_curvature
from posteria.data.arrays import Data, is_source
from posteria.data.batches import batch_of, num_steps_per_epoch, rows_ahead, sampled
from posteria.engine.loop import Kernel, Run
from posteria.methods.costs import THIRDS, Costed, num_batches, varied, varied_inside
from posteria.methods.points.learnt_scales import settled
from posteria.methods.points.map import MAP
from posteria.models.densities import widen
from posteria.models.target import Target, check_starts

# of 1 / the largest curvature, a constant step and the top of a cycle: a mini-batch's curvature may be a few times more
STABLE_SHARE = {"constant": 0.2, "cyclical": 1.0}
LOWEST = 0.01  # a cyclical step's least, as a share of its greatest (Garipov et al. 2018: 0.0005 of 0.05)
TRAINING_SHARE = 0.7  # of max_seconds that training may use
CURVATURE_ROWS = 4096  # at most, that the curvature is measured on
AT_LEAST_FALLEN = 20.0  # nats on average, beyond what draws of a posterior are below its mode, that are told


class Settings(NamedTuple):
    """How a trajectory is followed after training."""

    num_snapshots: int
    epochs_per_snapshot: int
    batch_size: int | None
    learning_rate: float | None
    momentum: float
    schedule: str


class TrajectoryCosts(Costed):
    """Of a climb, and then snapshots."""

    tuned: ClassVar[dict[str, tuple[float, ...]]] = {"learning_rate": THIRDS}
    least_snapshots: ClassVar[int] = 1

    def expected_gradients(self: Any, num_data: int) -> float:
        climb = 0.0 if self.map is None else self.map.climb_gradients(num_data)
        num_epochs = self.num_snapshots * self.epochs_per_snapshot
        return float(climb + num_epochs * num_batches(num_data, self.batch_size))

    def with_budget(self: Any, gradients: float, num_data: int) -> Any:
        """Longer ways between snapshots, or fewer of them; the climb has what is left."""
        an_epoch = num_batches(num_data, self.batch_size)
        share = 1.0 if self.map is None else 1 - self.map.climb_gradients(num_data) / self.expected_gradients(num_data)
        num_epochs = max(self.least_snapshots, round(share * gradients / an_epoch))
        num_snapshots = min(self.num_snapshots, num_epochs)
        found = self.with_snapshots(num_snapshots, num_epochs // num_snapshots)
        if self.map is None:
            return found
        rest = max(1.0, gradients - num_snapshots * (num_epochs // num_snapshots) * an_epoch)
        return replace(found, map=self.map.with_budget(rest, num_data))

    def with_snapshots(self: Any, num_snapshots: int, epochs_per_snapshot: int) -> Any:
        return replace(self, num_snapshots=num_snapshots, epochs_per_snapshot=epochs_per_snapshot)

    def trials(self: Any) -> list[Any]:
        """Of the rate of the snapshots, where one is given, else of the climb."""
        return varied(self) if self.learning_rate is not None or self.map is None else varied_inside(self, "map")


class Trajectory(NamedTuple):
    snapshots: np.ndarray  # (start, snapshot, size), flat
    log_density: np.ndarray  # (start, snapshot), the mean over the steps that led there


def follow(
    key: jax.Array,
    target: Target,
    start: tree.Params,
    run: Run,
    size: int,
    climber: MAP | None,
    settings: Settings,
    final_when_late: bool = False,
) -> Trajectory:
    """Train from `size` starts, then go on by SGD with momentum and keep the weights every so many epochs.

    The step, where it is not given, is a share of 1 / the largest curvature where training ended: of what keeps
    descent stable. `final_when_late` as in `Run.loop`.
    """
    target.check_proper()
    key_start, key_train, key_curvature, key_follow = jax.random.split(key, 4)
    if start is None:
        starts, note = target.several_inits(key_start, size)
        run.note(note)
    else:
        starts = target.as_starts(start, size)
    target = target.holding("prior")
    if climber is not None:
        training = run.stage("training", share=TRAINING_SHARE)
        if target.scales and target.data is not None:
            target, starts = settled(climber, key_train, target, starts, training)
        else:
            target = target.holding("prior")
        starts = climber.climb(key_train, target, starts, training, final_when_late=True).params
    check_starts(target, starts, num_rows=settings.batch_size if is_source(target.data) else None)

    batch_size = min(settings.batch_size or target.num_data, target.num_data)
    steps_per_epoch = num_steps_per_epoch(target.num_data, batch_size) if batch_size else 1
    thinning = settings.epochs_per_snapshot * steps_per_epoch
    learning_rates = [
        settings.learning_rate or suggested_step(target, tree.one(starts, i), settings.schedule, key_one)
        for i, key_one in enumerate(jax.random.split(key_curvature, size))
    ]
    period = thinning if settings.schedule == "cyclical" else None
    trace = run.stage("snapshots").loop(
        descent(target.without_data(), settings.momentum, period, batch_size),
        key_follow,
        (starts, jnp.asarray(learning_rates)),
        target.data,
        num_steps=settings.num_snapshots * thinning,
        thinning=thinning,
        keep=_flat_weights,
        final_when_late=final_when_late,
        epoch=thinning,
    )
    found = Trajectory(np.asarray(trace.kept), trace.info.log_density)
    if settings.schedule == "constant":
        run.note(_wandered(np.asarray(found.log_density, np.float64), found.snapshots.shape[-1]))
    return found


def _wandered(log_density: np.ndarray, size: int) -> str:
    """Where descent went far below the best that it saw, or was still on its way there; (start, snapshot)."""
    fallen = float((log_density.max(axis=1) - log_density.mean(axis=1)).max(initial=0.0)) if log_density.size else 0.0
    if not fallen > size / 2 + AT_LEAST_FALLEN:
        return ""
    return (
        f"descent did not stay near a mode: its log density was {fallen:,.0f} nats below its best on average, where "
        f"draws of a posterior are about {size / 2:,.0f} below: what snapshots spread over says nothing; a smaller "
        "learning_rate, or more epochs of map"
    )


def suggested_step(target: Target, params: tree.Params, schedule: str, key: jax.Array) -> jax.Array:
    """A share of the largest step at which full-batch descent is stable. LeCun, Simard & Pearlmutter 1993."""
    data = sampled(target.data, key, target.num_data, CURVATURE_ROWS)
    return STABLE_SHARE[schedule] / jnp.abs(largest_curvature(energy, target, params, data, key))


class Descent(NamedTuple):
    params: tree.Params  # in 32 bits at least, as MAP's
    velocity: tree.Params
    learning_rate: jax.Array
    batch_key: jax.Array
    step_number: jax.Array


class Info(NamedTuple):
    log_density: jax.Array
    num_gradients: jax.Array
    learning_rate: jax.Array


@kept
def descent(target: Target, momentum: float, period: int | None, batch_size: int) -> Kernel:
    """SGD with momentum on the negative log density a datum; `period`: steps in a cycle of the step size."""
    structs = target.structs
    share = cyclical_share(period) if period else (lambda step_number: 1.0)

    def init(key: jax.Array, start: tuple[tree.Params, jax.Array], data: Data) -> Descent:
        params, learning_rate = start
        params = jax.tree.map(widen, params)
        still = jax.tree.map(jnp.zeros_like, params)
        return Descent(params, still, learning_rate, jax.random.key_data(key), jnp.asarray(0))

    def step(key: jax.Array, state: Descent, data: Data) -> tuple[Descent, Info]:
        del key  # batches follow the chain's own key and the step's number
        batch = batch_of(data, state.batch_key, state.step_number, target.num_data, batch_size, target.augment)
        value, gradient = jax.value_and_grad(lambda params: energy(target, tree.cast_like(params, structs), batch))(
            state.params
        )
        velocity = jax.tree.map(lambda v, g: momentum * v + g, state.velocity, gradient)
        learning_rate = state.learning_rate * share(state.step_number)
        params = jax.tree.map(lambda p, v: p - (learning_rate * v).astype(p.dtype), state.params, velocity)
        state = state._replace(params=params, velocity=velocity, step_number=state.step_number + 1)
        return state, Info(-value * max(target.num_data, 1), jnp.asarray(1), learning_rate)

    return Kernel(init, step, rows_ahead(target.num_data, batch_size))


def cyclical_share(period: int) -> Callable[[jax.Array], jax.Array]:
    """Of the greatest step: up from the lowest to 1 and down again in a straight line, lowest at a cycle's end.

    Garipov et al. 2018, whose cycles begin at the top: these are half a cycle later, so that a snapshot ends a cycle.
    """

    def share(step_number: jax.Array) -> jax.Array:
        position = (step_number % period + 1) / period  # (0, 1]
        return LOWEST + (1.0 - LOWEST) * (1.0 - jnp.abs(2.0 * position - 1.0))

    return share


def _flat_weights(state: Descent) -> jax.Array:
    return tree.ravel(state.params)
