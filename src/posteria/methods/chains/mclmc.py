"""Microcanonical Langevin Monte Carlo, in units of the prior. Robnik et al. 2023; Sommer et al. 2025 for networks.

The speed of the motion is fixed and only its direction changes: by the gradient, and by noise that forgets it over a
length. Unadjusted, its bias is set by the energy error a step may make; adjusted, each short trajectory is accepted or
rejected, and the draws are exact. Kernels and tuning are BlackJAX's; several chains from MAP starts are the
microcanonical Langevin ensemble.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.engine.loop import Keep, Kernel, Run
from posteria.errors import SettingError
from posteria.methods.chain_costs import ChainCosts
from posteria.methods.chains.warmup import WARMUP_SHARE
from posteria.methods.starts import find_starts
from posteria.methods.virial import virials
from posteria.models.coordinates import Coordinates, LogDensity, coordinates
from posteria.models.sums import all_rows
from posteria.models.target import Density, Target, check_starts
from posteria.posteriors.draws import Draws, DrawsPosterior
from posteria.settings import Count, Positive, ProperShare, Several, Start, Warmup, above, check_settings, refuse_idle

GRADIENTS_A_STEP = 2  # of McLachlan's integrator
LEAST_TUNING = 30
VIRIAL_STREAM = 9  # folded into the key of the draws
FROZEN_BY_ROW, FROZEN_BY_PARAMETER = 0.1, 0.25  # nats


@dataclass(frozen=True)
class MCLMC(ChainCosts):
    """Chains for tabular networks that cost a fraction of NUTS: motion of constant speed, no accept or reject.

    `num_warmup` are steps of tuning, in thirds: step size; variances; the length over which direction is forgotten.
    `energy_variance` is the squared energy error a step and dimension that tuning aims at: smaller is less biased.
    `step_size` (in units of the prior) is then not tuned, and the length is sqrt(number of weights). With `drop_frozen`
    chains that are stuck where the density is far below the best chain's are left out, and a note says so.
    """

    num_chains: Several = 4
    num_draws: Count = 500
    num_warmup: Warmup = 3000
    thinning: Count = 20
    step_size: Positive | None = None
    energy_variance: Positive = 5e-4
    start: Start = "map"
    drop_frozen: bool = False

    fidelity: ClassVar[str] = "asymptotic"
    paper: ClassVar[str] = "Robnik et al. 2023"
    gradients_a_step: ClassVar[float] = GRADIENTS_A_STEP
    lengths: ClassVar[dict[str, int]] = {"num_draws": 1, "num_warmup": LEAST_TUNING}

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.step_size is not None, "energy_variance", "the step_size")
        _check_tuning(self)

    def fit(self, key: jax.Array, target: Target | Density, start: tree.Params, run: Run) -> Draws | DrawsPosterior:
        motion = unadjusted(self.num_warmup, self.step_size, self.energy_variance)
        return run_motion(self, motion, key, target, start, run)


@dataclass(frozen=True)
class AdjustedMCLMC(ChainCosts):
    """MCLMC whose trajectories are accepted or rejected: exact, for more gradients a draw.

    `num_warmup` are trajectories of tuning: the step size, to `target_acceptance`, and variances. A trajectory has
    `mean_steps` steps on average. `step_size` (in units of the prior) is then not tuned.
    """

    num_chains: Several = 4
    num_draws: Count = 500
    num_warmup: Warmup = 1500
    thinning: Count = 10
    step_size: Positive | None = None
    mean_steps: Annotated[float, above(1.1)] = 2.0
    target_acceptance: ProperShare = 0.65
    start: Start = "map"

    fidelity: ClassVar[str] = "exact"
    paper: ClassVar[str] = "Robnik et al. 2025"
    lengths: ClassVar[dict[str, int]] = {"num_draws": 1, "num_warmup": LEAST_TUNING}

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.step_size is not None, "target_acceptance", "the step_size")
        _check_tuning(self)

    @property
    def gradients_a_step(self) -> float:  # type: ignore[override]
        """Of a trajectory, on average."""
        return GRADIENTS_A_STEP * self.mean_steps

    def fit(self, key: jax.Array, target: Target | Density, start: tree.Params, run: Run) -> Draws | DrawsPosterior:
        motion = adjusted(self.num_warmup, self.step_size, self.mean_steps, self.target_acceptance)
        return run_motion(self, motion, key, target, start, run)


def _check_tuning(method: Any) -> None:
    if method.step_size is None and method.num_warmup < LEAST_TUNING:
        raise SettingError(
            f"num_warmup is {method.num_warmup}", f"at least {LEAST_TUNING} steps of tuning", "or give a step_size"
        )


class Tuning(NamedTuple):
    length: jax.Array  # over which direction is forgotten
    step_size: jax.Array
    variances: jax.Array


class Info(NamedTuple):
    log_density: jax.Array
    acceptance: jax.Array
    num_divergent: jax.Array
    num_gradients: jax.Array
    step_size: jax.Array


Tuned = tuple[tree.Tree, Tuning, jax.Array]  # inner, tuning, and the number of steps


class Motion(NamedTuple):
    """A kernel of BlackJAX with its tuning; `inner` has a position and a logdensity."""

    init: Callable[[jax.Array, jax.Array, LogDensity], tree.Tree]  # (key, position, log_density) -> inner
    first: Callable[[jax.Array], Tuning]  # before tuning, from a position
    tune: Callable[[jax.Array, tree.Tree, Tuning, LogDensity], Tuned]
    move: Callable[[jax.Array, tree.Tree, Tuning, LogDensity], tuple[tree.Tree, Info]]


class State(NamedTuple):
    inner: tree.Tree
    tuning: Tuning


def run_motion(
    method: Any, motion: Motion, key: jax.Array, target: Target | Density, start: tree.Params, run: Run
) -> Draws | DrawsPosterior:
    """Starts, tuning, draws."""
    target.check_proper()
    size = tree.size(target.structs)
    if size < 2:
        raise SettingError(f"there is {size} parameter", "at least 2: with one there is no direction", "take po.NUTS()")
    key_start, key_tuning, key_draws = jax.random.split(key, 3)
    bare: Any = target.without_data()
    flat = coordinates(bare)
    starts = find_starts(key_start, target, start if start is not None else method.start, method.num_chains, run)
    check_starts(target, starts)
    # one step of this loop is all of the tuning, which BlackJAX does in one call
    tuned = run.stage("tuning", share=WARMUP_SHARE).loop(
        _tuning_kernel(motion, bare),
        key_tuning,
        flat.starts(starts),
        all_rows(target.data),
        num_steps=min(1, method.num_warmup),
    )
    chains = run.stage("draws").loop(
        _drawing_kernel(motion, bare),
        key_draws,
        tuned.state,
        all_rows(target.data),
        num_steps=method.num_draws * method.thinning,
        thinning=method.thinning,
        keep=_keeper(flat),
    )
    info = chains.info._asdict()
    if method.fidelity != "exact":
        info |= virials(jax.random.fold_in(key_draws, VIRIAL_STREAM), target, chains.kept, target.num_data)
    draws = Draws(bare.structs, chains.kept, info)
    if isinstance(method, MCLMC) and method.drop_frozen:
        draws = without_frozen(draws, target.total_weight, run)
    return draws if isinstance(target, Density) else DrawsPosterior(bare, draws)


def without_frozen(draws: Draws, num_data: float, run: Run) -> Draws:
    """Without chains whose mean log density is below the best one's by more than chains that mix could differ.

    Where the posterior has its mass the log density varies by sqrt(size / 2) nats about its mean; between modes, which
    one average may well hold, by more. A quarter of a nat a parameter, or a tenth a row, is beyond both.
    """
    means = np.asarray(draws.info["log_density"], np.float64).mean(axis=1)  # (chain,)
    margin = max(FROZEN_BY_ROW * num_data, FROZEN_BY_PARAMETER * draws.flat.shape[-1])
    is_kept = means >= means.max() - margin
    if is_kept.all():
        return draws
    run.note(
        f"{(~is_kept).sum()} of {len(means)} chains are stuck, at a mean log density {means.max() - means.min():,.0f} "
        "nats below the best chain's at worst: they are left out"
    )
    return Draws(draws.structs, draws.flat[is_kept], {name: value[is_kept] for name, value in draws.info.items()})


@kept
def _tuning_kernel(motion: Motion, target: Target | Density) -> Kernel:
    flat = coordinates(target)

    def init(key: jax.Array, position: jax.Array, data: Data) -> State:
        return State(motion.init(key, position, lambda z: flat.log_density(z, data)), motion.first(position))

    def step(key: jax.Array, state: State, data: Data) -> tuple[State, Info]:
        inner, tuning, num_steps = motion.tune(key, *state, lambda z: flat.log_density(z, data))
        tuning = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), Tuning(*tuning), state.tuning)
        num_gradients = jnp.asarray(GRADIENTS_A_STEP * num_steps, jnp.int32)
        none, one = jnp.asarray(0, jnp.int32), jnp.ones(())
        return State(inner, tuning), Info(inner.logdensity, one, none, num_gradients, tuning.step_size)

    return Kernel(init, step)


@kept
def _drawing_kernel(motion: Motion, target: Target | Density) -> Kernel:
    flat = coordinates(target)

    def step(key: jax.Array, state: State, data: Data) -> tuple[State, Info]:
        inner, info = motion.move(key, state.inner, state.tuning, lambda z: flat.log_density(z, data))
        return State(inner, state.tuning), info

    return Kernel(lambda key, state, data: state, step)


@kept
def _keeper(flat: Coordinates) -> Keep:
    return lambda state: flat.to_weights(state.inner.position)


@kept
def unadjusted(num_warmup: int, step_size: float | None, energy_variance: float) -> Motion:
    from blackjax import mclmc_find_L_and_step_size
    from blackjax.adaptation.mclmc_adaptation import MCLMCAdaptationState
    from blackjax.mcmc import mclmc

    kernel = mclmc.build_kernel()

    def move(key: jax.Array, inner: tree.Tree, tuning: Tuning, log_density: LogDensity) -> tuple[tree.Tree, Info]:
        inner, info = kernel(key, inner, log_density, tuning.variances, tuning.length, tuning.step_size)
        is_divergent = (~info.nonans).astype(jnp.int32)
        num_gradients = jnp.asarray(GRADIENTS_A_STEP, jnp.int32)
        return inner, Info(inner.logdensity, jnp.ones(()), is_divergent, num_gradients, tuning.step_size)

    def tune(key: jax.Array, inner: tree.Tree, tuning: Tuning, log_density: LogDensity) -> Tuned:
        if step_size is not None:
            keys = jax.random.split(key, num_warmup)
            inner, _ = jax.lax.scan(lambda inner, k: (move(k, inner, tuning, log_density)[0], None), inner, keys)
            return inner, tuning, jnp.asarray(num_warmup)
        # with the start as origin: BlackJAX takes variances as E[z^2] - E[z]^2, of which 32 bits leave nothing, or less
        # than nothing, where a posterior is narrow and not at 0; and a chain with such a mass never moves again
        origin = inner.position
        inner, found, num_steps = mclmc_find_L_and_step_size(
            kernel,
            num_warmup,
            inner._replace(position=jnp.zeros_like(origin)),
            key,
            lambda move: log_density(origin + move),
            frac_tune1=1 / 3,
            frac_tune2=1 / 3,
            frac_tune3=1 / 3,
            desired_energy_var=energy_variance,
            params=MCLMCAdaptationState(*tuning),
        )
        return inner._replace(position=origin + inner.position), found, num_steps

    return Motion(lambda key, z, log_density: mclmc.init(z, log_density, key), _first(step_size, 0.25), tune, move)


@kept
def adjusted(num_warmup: int, step_size: float | None, mean_steps: float, target_acceptance: float) -> Motion:
    from blackjax import adjusted_mclmc_find_L_and_step_size
    from blackjax.adaptation.mclmc_adaptation import MCLMCAdaptationState
    from blackjax.mcmc import adjusted_mclmc_dynamic

    draw_length = adjusted_mclmc_dynamic.make_random_trajectory_length_fn(True)

    # keys in a state are plain integers, which can be written down
    kernel = adjusted_mclmc_dynamic.build_kernel(
        integration_steps_fn=lambda data, average: draw_length(jax.random.wrap_key_data(data), average),
        next_random_arg_fn=lambda data: jax.random.key_data(jax.random.split(jax.random.wrap_key_data(data))[1]),
    )

    def move(key: jax.Array, inner: tree.Tree, tuning: Tuning, log_density: LogDensity) -> tuple[tree.Tree, Info]:
        inner, info = kernel(
            key,
            inner,
            log_density,
            tuning.step_size,
            inverse_mass_matrix=tuning.variances,
            integration_steps_params=(mean_steps,),
        )
        return inner, Info(
            inner.logdensity,
            info.acceptance_rate,
            info.is_divergent.astype(jnp.int32),
            GRADIENTS_A_STEP * jnp.asarray(info.num_integration_steps, jnp.int32),
            tuning.step_size,
        )

    def tune(key: jax.Array, inner: tree.Tree, tuning: Tuning, log_density: LogDensity) -> Tuned:
        if step_size is not None:
            keys = jax.random.split(key, num_warmup)
            inner, taken = jax.lax.scan(lambda inner, k: _counted(move(k, inner, tuning, log_density)), inner, keys)
            return inner, tuning, taken.sum() // GRADIENTS_A_STEP
        found: Tuned = adjusted_mclmc_find_L_and_step_size(
            kernel,
            log_density,
            num_warmup,
            inner,
            key,
            target_acceptance,
            frac_tune1=1 / 3,
            frac_tune2=1 / 3,
            params=MCLMCAdaptationState(*tuning),
            target_num_integration_steps=mean_steps,
        )
        return found

    def init(key: jax.Array, position: jax.Array, log_density: LogDensity) -> tree.Tree:
        return adjusted_mclmc_dynamic.init(position, log_density, jax.random.key_data(key))

    return Motion(init, _first(step_size, 0.2), tune, move)


def _counted(moved: tuple[tree.Tree, Info]) -> tuple[tree.Tree, jax.Array]:
    inner, info = moved
    return inner, info.num_gradients


def _first(step_size: float | None, share: float) -> Callable[[jax.Array], Tuning]:
    """BlackJAX's own first guess, or the step size asked for."""

    def first(position: jax.Array) -> Tuning:
        length = jnp.asarray(math.sqrt(position.size), position.dtype)
        step = share * length if step_size is None else jnp.asarray(step_size, position.dtype)
        return Tuning(length, step, jnp.ones_like(position))

    return first
