"""What Metropolis-Hastings, HMC and NUTS share: starts, warm-up in windows, chains, and the posterior they make.

Warm-up follows Stan: dual averaging of the step size throughout, variances estimated in windows that double. It is a
kernel like any other, so that it shows progress and resumes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.engine.loop import Keep, Kernel, Run
from posteria.errors import SettingError
from posteria.methods.starts import find_starts
from posteria.models.coordinates import Coordinates, LogDensity, coordinates
from posteria.models.sums import all_rows
from posteria.models.target import Density, Target, check_starts
from posteria.posteriors.draws import Draws, DrawsPosterior

WARMUP_SHARE = 0.5  # of max_seconds that warm-up may use
WARMUP_GRADIENTS = 0.4  # and of `max_gradients`, of what is left after the climb to the starts
MEASURED_SHARE, LEAST_MEASURED = 0.2, 8  # of the rest, and steps: taken to see what a step costs
MEASURED_STREAM = 8  # folded into the key of the draws
MOST_THINNING = 1000  # steps from draw to draw that a budget buys: more bring nothing, and none of them is interrupted
MOST_WARMUP = 1_000_000  # steps, whose windows are listed


class Tuning(NamedTuple):
    step_size: jax.Array
    variances: jax.Array  # of the coordinates, as the inverse mass matrix


class Info(NamedTuple):
    log_density: jax.Array
    acceptance: jax.Array
    num_divergent: jax.Array
    num_gradients: jax.Array  # or of densities, where no gradient is taken
    num_capped: jax.Array  # trajectories cut at the cap on their length
    step_size: jax.Array


class Sampler(NamedTuple):
    """One sampler in flat coordinates: `move(key, inner, log_density, tuning) -> (inner, Info)`."""

    init: Callable[[jax.Array, LogDensity], tree.Tree]  # (position, log_density) -> inner, which has .position
    move: Callable[[jax.Array, tree.Tree, LogDensity, Tuning], tuple[tree.Tree, Info]]


class Adaptation(NamedTuple):
    """How warm-up tunes a sampler."""

    num_steps: int
    target_acceptance: float
    first_step_size: float
    adapts_step_size: bool = True
    adapts_variances: bool = True


def run_chains(
    method: Any,
    sampler: Sampler,
    adaptation: Adaptation,
    key: jax.Array,
    target: Target | Density,
    start: tree.Params,
    run: Run,
) -> Draws | DrawsPosterior:
    """Warm up and draw: `num_chains` chains of `num_draws`, each kept after `thinning` steps."""
    if adaptation.num_steps > MOST_WARMUP:
        raise SettingError(f"num_warmup is {adaptation.num_steps:,}", f"at most {MOST_WARMUP:,}", "draw more instead")
    target.check_proper()
    key_start, key_warmup, key_draws = jax.random.split(key, 3)
    bare: Any = target.without_data()
    flat = coordinates(bare)
    allowance = Allowance.of(method, run)
    starts = find_starts(key_start, target, start if start is not None else method.start, method.num_chains, run)
    check_starts(target, starts)

    warmed = run.stage("warm-up", share=WARMUP_SHARE).loop(
        allowance.warmup(warmup_kernel(sampler, adaptation, bare), run),
        key_warmup,
        flat.starts(starts),
        all_rows(target.data),
        num_steps=adaptation.num_steps,
        is_over=allowance.is_spent,
        final_when_late=True,
    )
    state = unlimited(warmed.state)
    kernel, begin = drawing_kernel(sampler, bare), (state.inner.position, state.tuned(adaptation))
    pilot = allowance.measured(kernel, key_draws, begin, all_rows(target.data), method, warmed.info, run)
    if pilot.state is not begin:
        begin = (pilot.state.inner.position, pilot.state.tuning)
    chains = run.stage("draws").loop(
        kernel,
        key_draws,
        begin,
        all_rows(target.data),
        num_steps=pilot.num_draws * pilot.thinning,
        thinning=pilot.thinning,
        keep=_keeper(flat),
    )
    _note_trouble(chains.info, pilot.thinning, run)
    draws = Draws(bare.structs, chains.kept, chains.info._asdict())
    return draws if isinstance(target, Density) else DrawsPosterior(bare, draws)


class WarmupState(NamedTuple):
    inner: tree.Tree
    step_size_search: tree.Tree
    variance_search: tree.Tree
    step_number: jax.Array
    tuning: Tuning

    def tuned(self, adaptation: Adaptation) -> Tuning:
        """The tuning to draw with: the averaged step size of dual averaging, and the last window's variances."""
        if not adaptation.adapts_step_size or adaptation.num_steps == 0:
            return self.tuning
        return self.tuning._replace(step_size=jnp.exp(self.step_size_search.log_step_size_avg))


@kept
def warmup_kernel(sampler: Sampler, adaptation: Adaptation, target: Target | Density) -> Kernel:
    """Moves of the sampler, its step size and variances tuned as they go."""
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
    from blackjax.adaptation.staged_adaptation import build_schedule
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    flat = coordinates(target)
    search_init, search_update, search_final = dual_averaging_adaptation(adaptation.target_acceptance)
    variance_init, variance_update, variance_final = mass_matrix_adaptation(is_diagonal_matrix=True)
    schedule = (
        np.asarray(build_schedule(max(1, adaptation.num_steps))).reshape(-1, 2).astype(bool)
    )  # (is slow, ends a window)

    def init(key: jax.Array, position: jax.Array, data: Data) -> WarmupState:
        inner = sampler.init(position, lambda z: flat.log_density(z, data))
        search = search_init(jnp.asarray(adaptation.first_step_size, position.dtype))
        variances = variance_init(position.size)
        tuning = Tuning(jnp.asarray(adaptation.first_step_size, position.dtype), jnp.ones_like(position))
        return WarmupState(inner, search, variances, jnp.asarray(0), tuning)

    def step(key: jax.Array, state: WarmupState, data: Data) -> tuple[WarmupState, Info]:
        inner, info = sampler.move(key, state.inner, lambda z: flat.log_density(z, data), state.tuning)
        search, variances, tuning = state.step_size_search, state.variance_search, state.tuning
        is_slow, ends_window = jnp.asarray(schedule)[state.step_number]
        if adaptation.adapts_step_size:
            search = search_update(search, info.acceptance)
        if adaptation.adapts_variances:
            variances = _where(is_slow, variance_update(variances, inner.position), variances)
            variances = _where(ends_window, variance_final(variances), variances)
            if adaptation.adapts_step_size:
                search = _where(ends_window, search_init(search_final(search)), search)
        if adaptation.adapts_step_size:
            tuning = tuning._replace(step_size=jnp.exp(search.log_step_size))
        tuning = tuning._replace(variances=variances.inverse_mass_matrix)
        return WarmupState(inner, search, variances, state.step_number + 1, tuning), info

    return Kernel(init, step)


def _where(condition: jax.Array, if_true: tree.Tree, if_false: tree.Tree) -> tree.Tree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b).astype(jnp.result_type(b)), if_true, if_false)


class DrawState(NamedTuple):
    inner: tree.Tree
    tuning: Tuning


@kept
def drawing_kernel(sampler: Sampler, target: Target | Density) -> Kernel:
    """Moves of the sampler under a tuning that no longer changes."""
    flat = coordinates(target)

    def init(key: jax.Array, start: tuple[jax.Array, Tuning], data: Data) -> DrawState:
        position, tuning = start
        return DrawState(sampler.init(position, lambda z: flat.log_density(z, data)), tuning)

    def step(key: jax.Array, state: DrawState, data: Data) -> tuple[DrawState, Info]:
        inner, info = sampler.move(key, state.inner, lambda z: flat.log_density(z, data), state.tuning)
        return DrawState(inner, state.tuning), info

    return Kernel(init, step)


@kept
def _keeper(flat: Coordinates) -> Keep:
    return lambda state: flat.to_weights(state.inner.position)


def _note_trouble(info: Info, thinning: int, run: Run) -> None:
    share = np.sum(info.num_capped) / info.num_capped.size / thinning
    if share > 0.01:
        run.note(f"{share:.0%} of trajectories were cut at the cap on their length: they move less far than asked")
    share = np.sum(info.num_divergent) / info.num_divergent.size / thinning
    if share > 0:
        run.note(f"{share:.1%} of trajectories diverged")


# ---- where steps cost what it takes, and gradients are limited


class Pilot(NamedTuple):
    """Where draws go on from, and how many."""

    state: Any
    num_draws: int
    thinning: int


class Allowance(NamedTuple):
    """What a run may still spend."""

    most: int | None  # None: anything
    num_chains: int
    spent_before: int  # by the run, when it began

    @classmethod
    def of(cls, method: Any, run: Run) -> "Allowance":
        return cls(getattr(method, "max_gradients", None), method.num_chains, run.spent)

    def left(self, run: Run) -> int:
        """Of one chain."""
        return max(1, ((self.most or 0) - (run.spent - self.spent_before)) // self.num_chains)

    def warmup(self, kernel: Kernel, run: Run) -> Kernel:
        """The kernel of warm-up, which stands still once it has spent its share."""
        if self.most is None:
            return kernel
        return limited(kernel, max(1, int(WARMUP_GRADIENTS * self.left(run))))

    def is_spent(self, last: Any) -> bool:
        """Whether all chains of warm-up stand still."""
        return self.most is not None and not np.any(last.num_gradients)

    def measured(
        self, kernel: Kernel, key: jax.Array, starts: Any, data: Data, method: Any, info: Any, run: Run
    ) -> Pilot:
        """Some steps with what warm-up has tuned, not kept, whose cost says how many draws the rest is enough for; no
        more than were asked for are kept, and what is left over is not spent."""
        if self.most is None:
            return Pilot(starts, method.num_draws, method.thinning)
        guess = _mean_cost(info) or method.assumed_gradients()
        most_steps = max(MOST_THINNING, method.thinning) * method.num_draws
        num_steps = max(LEAST_MEASURED, round(MEASURED_SHARE * min(self.left(run) / guess, most_steps)))
        key = jax.random.fold_in(key, MEASURED_STREAM)
        taken = run.stage("measure").loop(kernel, key, starts, data, num_steps=num_steps, final_when_late=True)
        num_steps = max(1, round(self.left(run) / (_mean_cost(taken.info) or guess)))
        if num_steps > most_steps:
            share = 1 - most_steps / num_steps
            run.note(f"{share:.1%} of what max_gradients left for draws was not spent: more steps a draw bring nothing")
        num_steps = min(num_steps, most_steps)
        num_draws = min(num_steps, method.num_draws)
        return Pilot(taken.state, num_draws, max(1, round(num_steps / num_draws)))


def _mean_cost(info: Any) -> float:
    """Of a step, by the second half of some; 0 where there are none."""
    costs = np.zeros((1, 0)) if info is None else np.asarray(info.num_gradients, np.float64)
    late = costs[:, costs.shape[1] // 2 :]
    late = late[late > 0]  # a chain that has spent its share stands still
    return float(late.mean()) if late.size else 0.0


class Limited(NamedTuple):
    inner: tree.Tree
    spent: jax.Array
    info: tree.Tree


def unlimited(state: tree.Tree) -> tree.Tree:
    """The state of the kernel itself."""
    return state.inner if isinstance(state, Limited) else state


@kept
def limited(kernel: Kernel, most: int) -> Kernel:
    """The kernel, standing still once it has taken so many gradients."""

    def init(key: jax.Array, start: tree.Tree, data: Data) -> Limited:
        state = kernel.init(key, start, data)
        info = jax.eval_shape(kernel.step, key, state, data)[1]
        return Limited(state, jnp.zeros((), jnp.int32), jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), info))

    def step(key: jax.Array, state: Limited, data: Data) -> tuple[Limited, tree.Tree]:
        def advance() -> tuple[tree.Tree, tree.Tree]:
            return kernel.step(key, state.inner, data)

        def stand() -> tuple[tree.Tree, tree.Tree]:
            return state.inner, state.info._replace(num_gradients=jnp.zeros_like(state.info.num_gradients))

        inner, info = jax.lax.cond(state.spent < most, advance, stand)
        return Limited(inner, state.spent + info.num_gradients, info), info

    return Kernel(init, step)
