"""Parallel tempering over HMC, in the power of the likelihood. Swendsen & Wang 1986; Geyer 1991.

Replicas k = 0..K-1 sample prior x likelihood^power with power_k = (1 - k / (K-1))^5: the posterior down to the prior,
where an HMC trajectory of a quarter period is an independent draw. Neighbours then exchange positions with probability
min(1, exp((power_i - power_j)(log likelihood_j - log likelihood_i))), so that the posterior's replica visits modes that
it would never find by itself. Pairs (0, 1), (2, 3).. and (1, 2), (3, 4).. take turns.
"""

import math
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
from posteria.methods.chain_costs import TrajectoryCosts
from posteria.methods.chains.hmc import FIRST_STEP_SIZE, JITTER, hmc_sampler
from posteria.methods.chains.warmup import WARMUP_SHARE, Allowance, Tuning, unlimited
from posteria.methods.starts import find_starts
from posteria.models.coordinates import Coordinates, coordinates
from posteria.models.sums import all_rows
from posteria.models.target import Density, Target, check_starts
from posteria.posteriors.draws import Draws, DrawsPosterior
from posteria.settings import MOST_AT_ONCE, Count, Several, Start, Warmup, check_settings, up_to

LADDER_POWER = 5.0  # neighbours are as easily exchanged near the prior as near the posterior
LEAST_SWAPPED = 0.05  # below it, a pair of neighbours is as good as cut off
TARGET_ACCEPTANCE = 0.8


@dataclass(frozen=True)
class ParallelTempering(TrajectoryCosts):
    """For posteriors with modes that chains do not cross between: HMC on a ladder from the prior up, exchanging.

    Each of `num_chains` ladders has `num_replicas`; ladders run in parallel. A trajectory is a quarter of the prior's
    period, as HMC's, or as far as `max_leapfrog` steps go; step sizes are tuned for each replica. `max_gradients`, of
    all chains and replicas, ends warm-up in time and sets how many steps follow: what a budget sets.
    """

    num_chains: Several = 2
    num_draws: Count = 500
    num_warmup: Warmup = 200
    thinning: Count = 1
    num_replicas: Annotated[int, up_to(2, MOST_AT_ONCE)] = 8
    max_leapfrog: Count = 50
    start: Start = "map"
    max_gradients: Count | None = None

    fidelity: ClassVar[str] = "exact"
    paper: ClassVar[str] = "Geyer 1991"

    def __post_init__(self) -> None:
        check_settings(self)

    def assumed_gradients(self) -> float:
        return self.num_replicas * min(self.max_leapfrog, super().assumed_gradients())

    def fit(self, key: jax.Array, target: Target | Density, start: tree.Params, run: Run) -> DrawsPosterior:
        if isinstance(target, Density):
            raise SettingError(
                "the target is a bare log density", "a model, whose likelihood is tempered", "take po.NUTS()"
            )
        target.check_proper()
        key_start, key_warmup, key_draws = jax.random.split(key, 3)
        bare: Any = target.without_data()
        flat = coordinates(bare)
        allowance = Allowance.of(self, run)
        starts = find_starts(key_start, target, start if start is not None else self.start, self.num_chains, run)
        check_starts(target, starts)
        first_step_size = FIRST_STEP_SIZE * math.sqrt(target.temperature)
        replicas = jnp.repeat(flat.starts(starts)[:, None], self.num_replicas, axis=1)

        warmup = ladder_kernel(bare, self.num_replicas, self.max_leapfrog, first_step_size, is_warmup=True)
        warmed = run.stage("warm-up", share=WARMUP_SHARE).loop(
            allowance.warmup(warmup, run),
            key_warmup,
            replicas,
            all_rows(target.data),
            num_steps=self.num_warmup,
            is_over=allowance.is_spent,
            final_when_late=True,
        )
        kernel = ladder_kernel(bare, self.num_replicas, self.max_leapfrog, first_step_size, is_warmup=False)
        begin = unlimited(warmed.state)
        pilot = allowance.measured(kernel, key_draws, begin, all_rows(target.data), self, warmed.info, run)
        chains = run.stage("draws").loop(
            kernel,
            key_draws,
            pilot.state,
            all_rows(target.data),
            num_steps=pilot.num_draws * pilot.thinning,
            thinning=pilot.thinning,
            keep=_keeper(flat),
        )
        _note_gaps(chains.info, pilot.thinning, run)
        info = {name: value for name, value in chains.info._asdict().items() if name != "num_swapped"}
        return DrawsPosterior(bare, Draws(bare.structs, chains.kept, info))


def powers(num_replicas: int) -> np.ndarray:
    """From 1, the posterior, to 0, the prior."""
    return (1.0 - np.arange(num_replicas) / (num_replicas - 1)) ** LADDER_POWER


class Ladder(NamedTuple):
    positions: jax.Array  # (replica, size)
    searches: tree.Tree  # of each replica's step size
    step_sizes: jax.Array  # (replica,)
    step_number: jax.Array


class Info(NamedTuple):
    log_density: jax.Array  # of the posterior's replica
    acceptance: jax.Array
    num_divergent: jax.Array
    num_gradients: jax.Array  # of all replicas
    step_size: jax.Array
    num_swapped: jax.Array  # (replica - 1,), of each pair of neighbours


@kept
def ladder_kernel(
    target: Target, num_replicas: int, max_leapfrog: int, first_step_size: float, is_warmup: bool
) -> Kernel:
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    flat = coordinates(target)
    trajectory = math.pi / 2 * math.sqrt(target.temperature)
    sampler = hmc_sampler(trajectory, JITTER, max_leapfrog)
    search_init, search_update, search_final = dual_averaging_adaptation(TARGET_ACCEPTANCE)
    ladder = powers(num_replicas)
    lower = np.arange(num_replicas - 1)

    def init(key: jax.Array, start: tree.Params, data: Data) -> Ladder:
        if not is_warmup:
            tuned: Ladder = start._replace(step_sizes=jax.vmap(search_final)(start.searches))
            return tuned
        step_sizes = jnp.full(num_replicas, first_step_size, start.dtype)
        return Ladder(start, jax.vmap(search_init)(step_sizes), step_sizes, jnp.asarray(0))

    def move(replica: tuple[jax.Array, ...], data: Data) -> tuple[jax.Array, jax.Array, tree.Tree]:
        key, position, power, step_size = replica

        def tempered(z: jax.Array) -> jax.Array:
            return flat.log_density(z, data, power)

        tuning = Tuning(step_size, jnp.ones_like(position))
        inner, info = sampler.move(key, sampler.init(position, tempered), tempered, tuning)
        log_likelihood = flat.log_density(inner.position, data) - flat.log_density(inner.position, data, 0.0)
        return inner.position, log_likelihood, info

    def step(key: jax.Array, state: Ladder, data: Data) -> tuple[Ladder, Info]:
        key_moves, key_swaps = jax.random.split(key)
        positions, log_likelihoods, infos = jax.lax.map(
            lambda replica: move(replica, data),
            (jax.random.split(key_moves, num_replicas), state.positions, jnp.asarray(ladder), state.step_sizes),
        )
        searches, step_sizes = state.searches, state.step_sizes
        if is_warmup:
            searches = jax.vmap(search_update)(searches, infos.acceptance)
            step_sizes = jnp.exp(searches.log_step_size)
        log_ratios = jnp.asarray(ladder[:-1] - ladder[1:]) * (log_likelihoods[1:] - log_likelihoods[:-1])
        is_turn = lower % 2 == state.step_number % 2
        is_swapped = is_turn & (jnp.log(jax.random.uniform(key_swaps, log_ratios.shape)) < log_ratios)
        # neighbours in a turn do not overlap, so a replica takes from one side at most
        source = jnp.arange(num_replicas).at[:-1].add(is_swapped).at[1:].add(-is_swapped.astype(jnp.int32))
        positions, log_likelihoods = positions[source], log_likelihoods[source]
        info = Info(
            flat.log_density(positions[0], data),
            infos.acceptance[0],
            infos.num_divergent[0],
            jnp.sum(infos.num_gradients) + num_replicas,
            step_sizes[0],
            is_swapped.astype(jnp.int32),
        )
        return Ladder(positions, searches, step_sizes, state.step_number + 1), info

    return Kernel(init, step)


@kept
def _keeper(flat: Coordinates) -> Keep:
    return lambda ladder: flat.to_weights(ladder.positions[0])


def _note_gaps(info: Info, thinning: int, run: Run) -> None:
    share = np.mean(info.num_swapped, axis=(0, 1)) / thinning * 2.0  # a pair has every second turn
    if share.min() < LEAST_SWAPPED:
        run.note(
            f"replicas {share.argmin()} and {share.argmin() + 1} exchanged in only {share.min():.1%} of their turns: "
            "more replicas would bring them nearer"
        )
