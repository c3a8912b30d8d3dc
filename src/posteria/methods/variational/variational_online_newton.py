"""Natural-gradient variational inference at Adam's cost: IVON.

A Gaussian for every weight whose precision is the expected diagonal Hessian of the negative log joint: its gradient in
the mean is preconditioned by that Hessian, which Stein's identity estimates from the gradients themselves. Shen et al.
2024, Variational Learning is Effective for Large Deep Networks, algorithm 1 (in the units of the log joint, not of the
average loss; a Normal prior enters exactly, any other through its gradient).
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.data.batches import batch_of, rows_ahead
from posteria.engine.loop import Kernel, Run
from posteria.methods import watch
from posteria.methods.starts import find_starts
from posteria.methods.variational import bound as variational
from posteria.methods.variational import families
from posteria.methods.variational.bound import Info, State
from posteria.models.target import Target, check_starts
from posteria.posteriors.gaussian import Diagonal, GaussianPosterior, gaussian_posterior
from posteria.random import fast_normal
from posteria.settings import Count, Positive, Several, Share, Start, check_settings

HESSIAN_WINDOWS = 10  # averaging times of the Hessian in a fit, where its decay is not given: the start is forgotten


@dataclass(frozen=True)
class VariationalOnlineNewton(variational.VariationalCosts):
    """A Gaussian for every weight by Newton-like steps: the strongest variational method for large networks.

    `learning_rate` is a share of a Newton step, decayed to 0 along a cosine; `momentum` averages gradients, and
    `hessian_decay` the Hessian (None: over a tenth of the fit). `initial_hessian` is of one datum's log likelihood:
    larger is a more careful start. `num_samples` draws a step. `start`: "init", "map", "prior", or weights.
    `validation` and `patience` as in MAP.
    Tuning tries `learning_rate`.
    """

    num_epochs: Count = 3000
    batch_size: Count | None = None
    learning_rate: Positive = 0.1
    momentum: Share = 0.9
    hessian_decay: Share | None = None
    initial_hessian: Positive = 1.0
    num_samples: Several = 1
    start: Start = "init"
    validation: Share = 0.0
    patience: Count = 50

    fidelity: ClassVar[str] = "family-optimum"
    paper: ClassVar[str] = "Shen et al. 2024"
    is_updatable: ClassVar[bool] = True  # its Gaussian can be the prior of further data

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def gradients_a_step(self) -> int:  # type: ignore[override]
        return self.num_samples

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> GaussianPosterior:
        target.check_proper()
        target, held = watch.hold_out(jax.random.fold_in(key, watch.HOLD_OUT_STREAM), target, self.validation)
        key_start, key_fit, key_elbo = jax.random.split(key, 3)
        start = self.start if start is None else start
        starts = find_starts(key_start, target, start, 1, run, self.climber())
        batch_size = min(self.batch_size or target.num_data, target.num_data)
        check_starts(target, starts, num_rows=batch_size or None)
        bare = target.without_data()
        steps_per_epoch = variational.steps_per_epoch(target, batch_size)
        num_steps = self.num_epochs * steps_per_epoch
        decay = self.hessian_decay
        if decay is None:
            decay = 1.0 - min(1.0, HESSIAN_WINDOWS / num_steps)
        kernel = _newton(
            bare,
            self.learning_rate,
            self.momentum,
            decay,
            self.initial_hessian,
            num_steps,
            batch_size,
            self.num_samples,
        )
        found, trace = watch.loop(
            run.stage("fit", share=variational.FIT_SHARE),
            kernel,
            key_fit,
            tree.ravel_each(jax.vmap(target.relative)(starts) if target.scales else starts),
            target,
            held,
            draw=_draw_of(bare),
            part=variational.phi_of,
            num_epochs=self.num_epochs,
            steps_per_epoch=steps_per_epoch,
            patience=self.patience,
            final_when_late=True,
        )
        family = families.family(bare, "diagonal")

        def gaussian(phi: dict[str, jax.Array]) -> tuple[np.ndarray, np.ndarray, families.Phi]:
            mean, precision = (np.asarray(leaf[0]) for leaf in _moments(bare, phi))
            std = 1 / np.sqrt(precision)
            return mean, std, families.compiled_init(family)(key, family.unravel(mean), family.unravel(std))

        mean, std, phi = gaussian(found)
        before = None if held else gaussian(trace.state.before)[-1]  # an end that rows chose is no optimum
        elbo_kernel = variational.elbo_kernel(bare, family, batch_size)
        facts = variational.estimate_elbo(elbo_kernel, key_elbo, phi, before, target.data, run, steps_per_epoch)
        return gaussian_posterior(target, mean, Diagonal(tree.on_device(std)), facts)


def _moments(target: Target, phi: dict[str, jax.Array]) -> tuple[tree.Params, tree.Params]:
    """Means and precisions, with the leading axis of chains."""
    return phi["mean"], phi["hessian"] + _prior(target)[1]


@kept
def _draw_of(target: Target) -> watch.Draw:
    unravel = tree.unraveller(tree.widened(target.structs) if target.scales else target.structs)

    def draw(key: jax.Array, phi: dict[str, jax.Array]) -> tree.Params:
        mean, precision = _moments(target, phi)
        return target.absolute(unravel(mean + fast_normal(key, mean.shape) / jnp.sqrt(precision)))

    return watch.random_draw(draw)


@kept
def _newton(
    target: Target,
    learning_rate: float,
    momentum: float,
    hessian_decay: float,
    initial_hessian: float,
    num_steps: int,
    batch_size: int,
    num_samples: int,
) -> Kernel:
    prior_mean, prior_precision = _prior(target)
    unravel = tree.unraveller(tree.widened(target.structs) if target.scales else target.structs)
    normals = variational.prior_normals(target)

    def log_joint(weights: jax.Array, batch: Data) -> jax.Array:
        """Tempered, without the priors that enter exactly."""
        relative = unravel(weights)
        log_prior = variational.log_prior_where_not_normal(target, relative, normals)
        if batch is None:
            return target.tempered(log_prior, None)
        return target.tempered(log_prior, target.log_likelihood(target.absolute(relative), batch))

    def init(key: jax.Array, mean: jax.Array, data: Data) -> State:
        scale = initial_hessian * max(target.num_data, 1) / target.temperature
        phi = {"mean": mean, "hessian": jnp.full_like(mean, scale), "momentum": jnp.zeros_like(mean)}
        return State(phi, None, jax.random.key_data(key), jnp.asarray(0), phi)

    def estimates(key: jax.Array, mean: jax.Array, std: jax.Array, batch: Data) -> tuple[jax.Array, ...]:
        """Of the negative log joint: its gradient, its diagonal Hessian by Stein's identity, and its value."""
        noise = fast_normal(key, mean.shape)
        value, gradient = jax.value_and_grad(log_joint)(mean + std * noise, batch)
        return -gradient, -gradient * noise / std, value

    def step(key: jax.Array, state: State, data: Data) -> tuple[State, Info]:
        batch = batch_of(data, state.batch_key, state.step_number, target.num_data, batch_size, target.augment)
        mean, hessian, average = (state.phi[name] for name in ("mean", "hessian", "momentum"))
        precision = hessian + prior_precision
        std = 1 / jnp.sqrt(precision)
        keys = jax.random.split(key, num_samples)
        gradient, curvature, value = jax.tree.map(
            lambda leaf: leaf.mean(0), jax.vmap(lambda k: estimates(k, mean, std, batch))(keys)
        )
        number = state.step_number + 1
        average = momentum * average + (1 - momentum) * gradient
        move = average / (1 - momentum**number) + prior_precision * (mean - prior_mean)
        # the last term keeps the precision positive: it is a Riemannian step, to second order
        gain = 1 - hessian_decay
        hessian += gain * (curvature - hessian) + 0.5 * gain**2 * (hessian - curvature) ** 2 / precision
        rate = learning_rate * 0.5 * (1 + jnp.cos(jnp.pi * state.step_number / num_steps))
        mean = mean - rate * move / (hessian + prior_precision)
        phi = {"mean": mean, "hessian": hessian, "momentum": average}
        before = variational.remembered(state, num_steps, has_cosine=True)
        return State(phi, None, state.batch_key, number, before), Info(value, jnp.asarray(num_samples))

    return Kernel(init, step, rows_ahead(target.num_data, batch_size))


@kept
def _prior(target: Target) -> tuple[np.ndarray, np.ndarray]:
    """Mean and tempered precision of the priors that are Normal; precision 0 for the rest."""
    means, precisions = [], []
    for normal, leaf in zip(variational.prior_normals(target), jax.tree.leaves(target.structs)):
        mean, precision = (0.0, 0.0) if normal is None else (normal[0], 1 / np.square(normal[1]) / target.temperature)
        means.append(np.broadcast_to(mean, leaf.shape).ravel())
        precisions.append(np.broadcast_to(precision, leaf.shape).ravel())
    return np.concatenate(means).astype(np.float32), np.concatenate(precisions).astype(np.float32)
