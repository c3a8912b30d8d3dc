"""Stein variational gradient descent, in units of the prior. Liu & Wang 2016; BlackJAX's kernel.

    z_i <- z_i + rate * mean_j [ k(z_j, z_i) gradient(z_j) + d/dz_j k(z_j, z_i) ]

with k(a, b) = exp(-|a - b|^2 / l) and l = median distance^2 / log(particles): particles climb the density together and
push each other apart.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.data.batches import batch_of, num_steps_per_epoch, rows_ahead
from posteria.engine.loop import Kernel, Run
from posteria.engine.mesh import divided
from posteria.machine import check_room
from posteria.methods import watch
from posteria.methods.costs import EpochCosts
from posteria.models.coordinates import coordinates
from posteria.models.target import Target, check_starts, log_densities
from posteria.posteriors.draws import Draws, DrawsPosterior
from posteria.settings import Count, Positive, Several, Share, check_settings

PAIR_BYTES = 16  # of two particles: their distance, its kernel and gradients


@dataclass(frozen=True)
class SVGD(EpochCosts):
    """An ensemble whose `size` members push each other apart: more spread than a deep ensemble in small networks.

    With many more weights than particles the push fades, and what is left is an ensemble. Particles start from the
    network's initialiser and move by Adam with a cosine decay from `learning_rate` to 0. `validation` and
    `patience` as in MAP.
    Tuning tries `learning_rate`.
    """

    size: Several = 20
    num_epochs: Count = 1000
    batch_size: Count | None = None
    learning_rate: Positive = 0.05
    validation: Share = 0.0
    patience: Count = 50

    fidelity: ClassVar[str] = "procedure"
    paper: ClassVar[str] = "Liu & Wang 2016"

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def gradients_a_step(self) -> int:  # type: ignore[override]
        """One a particle."""
        return self.size

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> DrawsPosterior:
        target.check_proper()
        check_room(PAIR_BYTES * self.size**2, f"the distances between {self.size:,} particles")
        target, held = watch.hold_out(jax.random.fold_in(key, watch.HOLD_OUT_STREAM), target, self.validation)
        key_start, key_part, key_loop = jax.random.split(key, 3)
        bare: Any = target.without_data()
        flat = coordinates(bare)
        if start is None:
            starts, note = target.several_inits(key_start, self.size)
            run.note(note)
        else:
            starts = target.as_starts(start, self.size)
        particles = flat.starts(starts)
        if self.size > 1 and not np.ptp(particles, axis=0).any():
            particles += jax.random.normal(key_part, particles.shape)  # equal particles would never part
        batch_size = min(self.batch_size or target.num_data, target.num_data)
        check_starts(target, flat.several_params(particles), num_rows=batch_size)
        steps_per_epoch = num_steps_per_epoch(target.num_data, batch_size) if batch_size else 1
        num_steps = self.num_epochs * steps_per_epoch
        found, _ = watch.loop(
            run,
            flow(bare, batch_size, self.learning_rate, num_steps),
            key_loop,
            tree.one_of_many(particles),  # all particles are one chain: they interact
            target,
            held,
            draw=_draw_of(bare),
            part=_particles_of,
            num_draws=self.size,
            num_epochs=self.num_epochs,
            steps_per_epoch=steps_per_epoch,
            patience=self.patience,
        )
        params = flat.several_params(found[0])
        weights = np.asarray(tree.ravel_each(params))[:, None]  # (particle, 1, size)
        log_density = log_densities(target, params, num_rows=batch_size)[:, None]
        return DrawsPosterior(bare, Draws(bare.structs, weights, {"log_density": log_density}))


class Particles(NamedTuple):
    particles: jax.Array  # (particle, size), in units of the prior
    length_scale: jax.Array
    optimizer: tree.Tree
    batch_key: jax.Array
    step_number: jax.Array


class Info(NamedTuple):
    log_density: jax.Array  # of the first particle, by a batch
    num_gradients: jax.Array


def _particles_of(state: Particles) -> jax.Array:
    return state.particles


@kept
def _draw_of(target: Target) -> watch.Draw:
    flat = coordinates(target)
    return lambda number, particles: flat.to_params(particles[number])


@kept
def flow(target: Target, batch_size: int, learning_rate: float, num_steps: int) -> Kernel:
    import optax
    from blackjax.vi import svgd

    flat = coordinates(target)
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps))
    descend = svgd.build_kernel(optimizer)

    def init(key: jax.Array, particles: jax.Array, data: Data) -> Particles:
        return Particles(
            particles, _length_scale(particles), optimizer.init(particles), jax.random.key_data(key), jnp.asarray(0)
        )

    def step(key: jax.Array, state: Particles, data: Data) -> tuple[Particles, Info]:
        del key  # batches follow the chain's own key and the step's number
        batch = batch_of(data, state.batch_key, state.step_number, target.num_data, batch_size, target.augment)
        before = svgd.SVGDState(state.particles, {"length_scale": state.length_scale}, state.optimizer)
        after = descend(before, divided(jax.grad(lambda z: flat.log_density(z, batch))), svgd.rbf_kernel)
        log_density = flat.log_density(after.particles[0], batch)
        num_gradients = jnp.asarray(len(state.particles), jnp.int32)
        return Particles(
            after.particles,
            _length_scale(after.particles),
            after.opt_state,
            state.batch_key,
            state.step_number + 1,
        ), Info(log_density, num_gradients)

    return Kernel(init, step, rows_ahead(target.num_data, batch_size))


def _length_scale(particles: jax.Array) -> jax.Array:
    """The median heuristic: median squared distance / log(particles)."""
    num = len(particles)
    if num == 1:
        return jnp.ones(())
    squares = jnp.sum(particles**2, axis=1)
    distances = squares[:, None] + squares - 2.0 * particles @ particles.T
    return jnp.median(distances[np.tril_indices(num, -1)]) / math.log(num)
