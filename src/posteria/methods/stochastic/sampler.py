"""What SGLD, SGHMC, SGNHT and SMS-UBU share: gradients of mini-batches, step sizes, preconditioners, chains.

Each of them is a transformation in the manner of Optax: a gradient, unit noise and a step size in, a displacement out.
The kernel here gives it estimates of the gradient of the tempered log density in units of the prior and draws all noise
of a step as one flat vector.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.curvature.stiffness import stiffness
from posteria.data.arrays import Data, parts
from posteria.data.batches import (
    Augment,
    RowsAhead,
    augmented,
    batch_indices,
    batch_of,
    num_steps_per_epoch,
    sampled,
    there_and_back,
)
from posteria.engine.loop import Keep, Kernel, Run
from posteria.errors import SettingError
from posteria.methods.chain_costs import ChainCosts
from posteria.methods.chains.warmup import WARMUP_SHARE
from posteria.methods.costs import THIRDS, num_batches
from posteria.methods.points.map import MAP
from posteria.methods.starts import find_starts
from posteria.methods.stochastic.anchor import Anchor, anchor_at, estimate_gradient
from posteria.methods.stochastic.schedules import begins_cycle, factor
from posteria.methods.virial import virials
from posteria.models.coordinates import Coordinates, coordinates
from posteria.models.target import Density, Target, check_starts
from posteria.posteriors.draws import Draws, DrawsPosterior
from posteria.random import fast_normal
from posteria.settings import Count, Positive, Several, Start, Warmup, check_settings

SQUARES_DECAY = 0.999  # of the running mean of squared gradients
CLIMB_STEPS = 3000  # of the optimiser that finds a start, where batches are smaller than the data
EXCESS = 0.5  # of the variance in any direction, at most, that a suggested step may cause
HOT = 1.2  # mean squared momentum, where 1 is right, that the user is told of
CONTROLLED = 0.1  # of a batch's gradient variance is left by an anchor, at most
COOLED = 0.75  # of the excess of a cycle's first step is left at its end, at most: there steps are small
CURVATURE_ROWS = 2048  # of the data, at most, that the curvature is read from
VIRIAL_STREAM = 9  # folded into the key of the draws


class Transformation(NamedTuple):
    """One sampler's step, for unit mass: `update(gradient, inner, noise, step_size) -> (displacement, inner)`."""

    init: Callable[[jax.Array, jax.Array], tree.Tree]  # (key, position) -> inner
    update: Callable[[jax.Array, tree.Tree, jax.Array, jax.Array], tuple[jax.Array, tree.Tree]]
    suggest: Callable[[jax.Array, float], jax.Array]  # (largest curvature, gradient noise per curvature) -> step size
    heat: Callable[[tree.Tree], jax.Array]  # mean squared momentum: 1 where it is right
    # ahead of the gradient, where there is such a part: (inner, noise, step_size) -> (displacement, inner)
    before: Callable[[tree.Tree, jax.Array, jax.Array], tuple[jax.Array, tree.Tree]] | None = None
    num_noises: int = 1  # vectors of noise for `update`, and as many for `before`; (noise, size) where more than one


class Info(NamedTuple):
    log_density: jax.Array  # of the batch
    num_gradients: jax.Array  # of batches
    step_size: jax.Array
    heat: jax.Array


@dataclass(frozen=True)
class StochasticGradientSampler(ChainCosts):
    """The settings of all; a subclass gives its `transformation()`.

    `num_warmup` and `thinning` count steps, each on a batch of `batch_size` rows (None: all). `step_size` is in units
    of the prior; None suggests one from the curvature at the start and from the batches' noise, by which variances are
    too large by at most half (`facts["excess"]`; as much in every direction where batches are small, in the stiffest
    where they are not; a control variate, or a smaller step, leaves less). `schedule` is "constant", "polynomial"
    (Welling & Teh's decay; draws count equally) or "cyclical" (a cosine down over each `thinning` steps, a draw at its
    end).
    `preconditioner="rmsprop"` scales each weight by its gradients in warm-up, frozen after it or within a cycle.
    `variance_reduction` steadies the batches' gradients by the full one at an anchor: the start ("control-variate",
    Baker et al. 2019) or the chain's own position an epoch ago ("svrg", Dubey et al. 2016), for twice the cost a step.
    Tuning tries a given `step_size`.
    """

    num_chains: Several = 4
    num_draws: Count = 200
    num_warmup: Warmup = 5000
    thinning: Count = 100
    step_size: Positive | None = None
    batch_size: Count | None = 128
    schedule: Literal["constant", "polynomial", "cyclical"] = "constant"
    preconditioner: Literal["rmsprop"] | None = None
    variance_reduction: Literal["control-variate", "svrg"] | None = None
    start: Start = "map"

    fidelity: ClassVar[str] = "asymptotic"
    tuned: ClassVar[dict[str, tuple[float, ...]]] = {"step_size": THIRDS}
    goes_back: ClassVar[bool] = False  # whether batches come forward and then in reverse, before they are drawn anew

    def __post_init__(self) -> None:
        check_settings(self)
        if self.preconditioner and not self.num_warmup:
            raise SettingError("num_warmup is 0", "a warm-up that the preconditioner learns in", "set num_warmup=1000")

    @property
    def gradients_a_step(self) -> int:  # type: ignore[override]
        """Of batches: with an anchor, also there."""
        return 2 if self.variance_reduction else 1

    def climber(self, num_data: int) -> MAP:
        batch_size = min(self.batch_size or num_data, num_data)
        if batch_size >= num_data:
            return MAP()
        return MAP(num_epochs=max(1, CLIMB_STEPS // num_batches(num_data, batch_size)), batch_size=batch_size)

    def transformation(self, num_batches: int = 1) -> Transformation:
        """For an epoch of so many batches."""
        raise NotImplementedError

    def fit(self, key: jax.Array, target: Target | Density, start: tree.Params, run: Run) -> Draws | DrawsPosterior:
        target.check_proper()
        key_start, key_warmup, key_draws = jax.random.split(key, 3)
        key_virials = jax.random.fold_in(key_draws, VIRIAL_STREAM)
        bare: Any = target.without_data()
        flat = coordinates(bare)
        batch_size = min(self.batch_size or target.num_data, target.num_data)
        wanted = start if start is not None else self.start
        if self.variance_reduction == "control-variate" and isinstance(wanted, str) and wanted == "prior":
            raise SettingError(
                "the control variate would be anchored at a draw from the prior",
                "an anchor near the mode",
                'take start="map", or variance_reduction="svrg"',
            )
        if self.variance_reduction and target.augment is not None:
            raise SettingError("augment and variance_reduction", "one of them", "an anchor's rows are not augmented")
        starts = find_starts(key_start, target, wanted, self.num_chains, run, self.climber(target.num_data))
        check_starts(target, starts, num_rows=batch_size)

        settings = self.kernel_settings(batch_size)._replace(weight_noise=_weight_noise(target.data))
        transformation = self.transformation(num_steps_per_epoch(max(1, target.num_data), max(1, batch_size)))
        warmed = run.stage("warm-up", share=WARMUP_SHARE).loop(
            warmup_kernel(bare, transformation, settings),
            key_warmup,
            flat.starts(starts),
            target.data,
            num_steps=self.num_warmup,
            final_when_late=True,
        )
        chains = run.stage("draws").loop(
            drawing_kernel(bare, transformation, settings),
            key_draws,
            warmed.state,
            target.data,
            num_steps=self.num_draws * self.thinning,
            thinning=self.thinning,
            keep=_keeper(flat),
        )
        _note_heat(chains.info, batch_size == target.num_data and target.augment is None, run)
        info = chains.info._asdict() | virials(key_virials, target, chains.kept, batch_size)
        draws = Draws(bare.structs, chains.kept, info)
        draws.facts = {} if self.step_size else {"excess": EXCESS}
        return draws if isinstance(target, Density) else DrawsPosterior(bare, draws, draws.facts)

    def kernel_settings(self, batch_size: int) -> "Settings":
        return Settings(
            batch_size,
            self.step_size,
            self.schedule,
            self.preconditioner is not None,
            self.variance_reduction,
            self.num_warmup,
            self.thinning,
            self.goes_back,
        )


class Settings(NamedTuple):
    """Of the kernel."""

    batch_size: int
    step_size: float | None
    schedule: str
    is_preconditioned: bool
    variance_reduction: str | None
    num_warmup: int
    thinning: int
    goes_back: bool = False
    weight_noise: float = 1.0  # how many times as large rows' weights make a batch's noise


class State(NamedTuple):
    position: jax.Array  # in units of the prior
    inner: tree.Tree  # the transformation's own: momenta
    step_size: jax.Array
    step_number: jax.Array
    batch_key: jax.Array
    scale: Any  # displacements are multiplied by it, gradients too: the square root of the preconditioner. 1: none
    squares: Any  # running mean of squared gradients, where a preconditioner learns from them
    anchor: Anchor | None  # where variance is reduced


@kept
def warmup_kernel(target: Target | Density, transformation: Transformation, settings: Settings) -> Kernel:
    """From positions: the step size is suggested, and squared gradients are gathered."""
    flat = coordinates(target)

    def init(key: jax.Array, position: jax.Array, data: Data) -> State:
        key_inner, key_batch, key_rows = jax.random.split(key, 3)
        scale = jnp.ones_like(position) if settings.is_preconditioned else jnp.ones(())
        return State(
            position,
            transformation.init(key_inner, position),
            _first_step_size(flat, transformation, settings, target, key_rows, position, scale, data),
            jnp.asarray(0),
            jax.random.key_data(key_batch),
            scale,
            jnp.zeros_like(position) if settings.is_preconditioned else None,
            anchor_at(flat, position, data) if settings.variance_reduction else None,
        )

    step = _step(flat, target.num_data, transformation, settings, target.augment)
    return Kernel(
        init,
        step,
        _rows_ahead(target.num_data, settings),
        _first_rows(target.num_data, settings, 3 if settings.step_size is None else 0),
    )


@kept
def drawing_kernel(target: Target | Density, transformation: Transformation, settings: Settings) -> Kernel:
    """From the state that warm-up ended in, its preconditioner frozen, and the step size suggested for that."""
    flat = coordinates(target)

    def init(key: jax.Array, state: State, data: Data) -> State:
        key_batch, key_rows = jax.random.split(key)
        # a warm-up that time cut short has done fewer steps, but the schedule goes on from where it ends
        state = state._replace(
            batch_key=jax.random.key_data(key_batch), step_number=jnp.full_like(state.step_number, settings.num_warmup)
        )
        if not settings.is_preconditioned:
            return state
        scale = preconditioning_scale(state.squares)
        state = state._replace(scale=scale)
        step_size = _first_step_size(flat, transformation, settings, target, key_rows, state.position, scale, data)
        return state._replace(step_size=step_size)

    step = _step(flat, target.num_data, transformation, settings, target.augment)
    return Kernel(
        init,
        step,
        _rows_ahead(target.num_data, settings),
        _first_rows(target.num_data, settings, 2 if settings.is_preconditioned and settings.step_size is None else 0),
    )


def _batch_number(settings: Settings, num_batches: int, step_number: jax.Array) -> jax.Array:
    if not settings.goes_back:
        return step_number
    # a sweep begins with the first draw, so that draws may fall on the ends of sweeps
    return there_and_back(step_number + -settings.num_warmup % (2 * num_batches), num_batches)


def _rows_ahead(num_data: int, settings: Settings) -> RowsAhead | None:
    if not 0 < settings.batch_size < num_data:
        return None
    num_batches = num_steps_per_epoch(num_data, settings.batch_size)

    def rows(state: State, ahead: jax.Array) -> jax.Array:
        number = _batch_number(settings, num_batches, state.step_number + ahead)
        return batch_indices(jax.random.wrap_key_data(state.batch_key), number, num_data, settings.batch_size)

    return rows


def _first_rows(num_data: int, settings: Settings, num_keys: int) -> Callable[[jax.Array], jax.Array] | None:
    """The rows that a kernel's first step size is suggested by, of a source: its key is the last of so many (0: none).

    The same rows as `sampled` takes of arrays.
    """
    if not num_keys or settings.batch_size >= num_data:
        return None
    count = min(num_data, CURVATURE_ROWS)
    if count == num_data:
        return lambda key: jnp.arange(count)
    return lambda key: batch_indices(jax.random.split(key, num_keys)[-1], 0, num_data, count)


def _step(
    flat: Coordinates,
    num_data: int,
    transformation: Transformation,
    settings: Settings,
    augment: Augment | None,
) -> Callable[..., tuple[State, Info]]:
    num_batches = num_steps_per_epoch(max(1, num_data), max(1, settings.batch_size))

    def step(key: jax.Array, state: State, data: Data) -> tuple[State, Info]:
        if settings.is_preconditioned and settings.schedule == "cyclical":
            is_new = begins_cycle(state.step_number, settings.num_warmup, settings.thinning)
            state = state._replace(
                scale=jax.lax.cond(is_new, lambda: preconditioning_scale(state.squares), lambda: state.scale)
            )
        if settings.variance_reduction == "svrg":
            is_new = state.step_number % num_batches == 0
            state = state._replace(
                anchor=jax.lax.cond(is_new, lambda: anchor_at(flat, state.position, data), lambda: state.anchor)
            )
        step_size = state.step_size * factor(
            settings.schedule, state.step_number, settings.num_warmup, settings.thinning
        )
        ahead, noise = _noise(key, transformation, state.position)
        if transformation.before is not None:
            displacement, inner = transformation.before(state.inner, ahead, step_size)
            state = state._replace(position=state.position + state.scale * displacement, inner=inner)
        number = _batch_number(settings, num_batches, state.step_number)
        batch = batch_of(data, state.batch_key, number, num_data, settings.batch_size, augment)
        log_density, gradient = estimate_gradient(flat, state.position, batch, state.anchor)
        displacement, inner = transformation.update(state.scale * gradient, state.inner, noise, step_size)
        state = state._replace(
            position=state.position + state.scale * displacement, inner=inner, step_number=state.step_number + 1
        )
        if settings.is_preconditioned:
            squares = SQUARES_DECAY * state.squares + (1.0 - SQUARES_DECAY) * gradient**2
            state = state._replace(squares=squares)
        num_gradients = jnp.asarray(2 if settings.variance_reduction else 1, jnp.int32)
        return state, Info(log_density, num_gradients, step_size, transformation.heat(inner))

    return step


def _noise(key: jax.Array, transformation: Transformation, position: jax.Array) -> tuple[jax.Array, jax.Array]:
    """For what comes ahead of the gradient, and for the update, which alone has any where nothing comes ahead."""
    if transformation.before is None:
        noise = fast_normal(key, position.shape).astype(position.dtype)
        return noise, noise
    shape = (2, transformation.num_noises, *position.shape)
    ahead, noise = fast_normal(key, shape).astype(position.dtype)
    return ahead, noise


def preconditioning_scale(squares: jax.Array) -> jax.Array:
    """(mean squared gradient) ** (-1/4), the root of RMSprop's preconditioner, by a running mean that began at 0.

    Its geometric mean is 1, so that what the running mean lacks in its first steps does not matter.
    """
    log_scale = -0.25 * jnp.log(squares + jnp.finfo(squares.dtype).tiny)
    return jnp.exp(log_scale - log_scale.mean())


def _first_step_size(
    flat: Coordinates,
    transformation: Transformation,
    settings: Settings,
    target: Target | Density,
    key: jax.Array,
    position: jax.Array,
    scale: jax.Array,
    data: Data,
) -> jax.Array:
    if settings.step_size is not None:
        return jnp.asarray(settings.step_size, position.dtype)
    noise = 0.0
    if data is not None:
        data = augmented(sampled(data, key, target.num_data, CURVATURE_ROWS), key, target.augment)
        noise = settings.weight_noise * _noise_per_curvature(target, settings.batch_size, position.size)
    if settings.variance_reduction:
        noise *= CONTROLLED
    if settings.schedule == "cyclical":
        noise *= COOLED
    return transformation.suggest(stiffness(flat, position, scale, data), noise)


def _noise_per_curvature(target: Target | Density, batch_size: int, size: int) -> float:
    """Of a batch's gradient, its variance as a multiple of the curvature, both of the tempered density.

    The variance is (N/B - 1) / T^2 of the information in all rows, which is T curvatures where residuals are those of
    the likelihood. At draws they are (1 - h + T h) times as large in the square: a row's leverage h, at most one weight
    a row, is what a hotter posterior adds to them, and what the fit has taken from them. Augmentation is drawn anew
    each time: the 1 that comes of rows without replacement is not gained.
    """
    leverage = min(1.0, size / target.num_data) if target.temperature > 1.0 else 0.0
    gained = 0.0 if target.augment else 1.0
    return (target.num_data / batch_size - gained) * ((1.0 - leverage) / target.temperature + leverage)


def _weight_noise(data: Data) -> float:
    """A row's gradient has its weight, the curvature too, the noise its square."""
    weight = parts(data)[2] if isinstance(data, tuple) else None
    return 1.0 if weight is None else float((weight**2).sum() / weight.sum())


@kept
def _keeper(flat: Coordinates) -> Keep:
    return lambda state: flat.to_weights(state.position)


def _note_heat(info: Info, is_full: bool, run: Run) -> None:
    heat = float(np.mean(info.heat))
    if heat > HOT:
        cause, cure = "mini-batch noise", "a smaller step, a larger batch or a control variate"
        if is_full:
            cause, cure = "too large a step", "a smaller one"
        run.note(f"{cause} heats the chains to {heat:.2f} times the temperature: {cure} would cool them")
