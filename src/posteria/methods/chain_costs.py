"""What chains cost: the climb to where they start, warm-up, draws."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.engine.loop import Kernel, Run
from posteria.methods import ascent
from posteria.methods.costs import Costed, stretched
from posteria.methods.points.map import MAP

CLIMB_SHARE = 0.2  # of a budget that the climb to the starts may take
WARMUP_SHARE = 0.4  # and warm-up, of what is left, where steps differ in their cost
MEASURED_SHARE, LEAST_MEASURED = 0.2, 8  # of the rest, and steps: taken to see what a step costs
MEASURED_STREAM = 8  # folded into the key of the draws
ASSUMED_GRADIENTS = 60  # a step that follows a trajectory, where none has been measured


class ChainCosts(Costed):
    """Of `num_chains` that start, warm up and draw, every step at the same cost."""

    lengths: ClassVar[Mapping[str, int]] = {"num_draws": 1, "num_warmup": 1}
    gradients_a_step: ClassVar[float] = 1

    def climber(self, num_data: int) -> MAP:
        """That finds the modes of `start="map"`."""
        return MAP()

    def expected_gradients(self: Any, num_data: int) -> float:
        num_steps = self.num_warmup + self.num_draws * self.thinning
        climb = start_gradients(self.start, num_data, self.climber(num_data))
        return float(self.num_chains * (climb + self.gradients_a_step * num_steps))

    def with_budget(self: Any, gradients: float, num_data: int) -> Any:
        return stretched(self.with_short_climb(gradients, num_data), gradients, num_data)

    def with_short_climb(self: Any, gradients: float, num_data: int) -> Any:
        most = CLIMB_SHARE * gradients / self.num_chains
        start = short_start(self.start, most, num_data, self.climber(num_data))
        return dataclasses.replace(self, start=start)


class TrajectoryCosts(ChainCosts):
    """Of chains whose steps cost what it takes. `max_gradients` ends warm-up in time, and sets how many steps follow,
    by what some of them cost: `Allowance`."""

    def expected_gradients(self: Any, num_data: int) -> float:
        if self.max_gradients is not None:
            return float(self.max_gradients)
        climb = start_gradients(self.start, num_data, self.climber(num_data))
        num_steps = self.num_warmup + self.num_draws * self.thinning
        return float(self.num_chains * (climb + self.assumed_gradients() * num_steps))

    def assumed_gradients(self) -> float:
        """A step's, on average, before any has been taken."""
        return ASSUMED_GRADIENTS

    def with_budget(self: Any, gradients: float, num_data: int) -> Any:
        if self.max_gradients is not None:
            return dataclasses.replace(self, max_gradients=max(1, round(gradients)))
        short = self.with_short_climb(gradients, num_data)
        return dataclasses.replace(short, max_gradients=max(1, round(gradients)))


def start_gradients(start: Any, num_data: int, climber: MAP) -> float:
    """Of one chain's start."""
    if isinstance(start, MAP):
        return start.climb_gradients(num_data)
    if isinstance(start, str) and start == "ascent":
        return ascent.num_steps(num_data)
    return climber.climb_gradients(num_data) if isinstance(start, str) and start == "map" else 0.0


def short_start(start: Any, most: float, num_data: int, climber: MAP) -> Any:
    """The start again, or a climb to it that takes no more than so many gradients."""
    if start_gradients(start, num_data, climber) <= most:
        return start
    climb = start if isinstance(start, MAP) else climber
    return dataclasses.replace(climb, polish=False).with_budget(most, num_data)


# ---- steps of unknown cost


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
        return limited(kernel, max(1, int(WARMUP_SHARE * self.left(run))))

    def is_spent(self, last: Any) -> bool:
        """Whether all chains of warm-up stand still."""
        return self.most is not None and not np.any(last.num_gradients)

    def measured(
        self, kernel: Kernel, key: jax.Array, starts: Any, data: Data, method: Any, info: Any, run: Run
    ) -> Pilot:
        """Some steps with what warm-up has tuned, not kept, whose cost says how many draws the rest is enough for; no
        more than were asked for are kept."""
        if self.most is None:
            return Pilot(starts, method.num_draws, method.thinning)
        guess = _mean_cost(info) or method.assumed_gradients()
        num_steps = max(LEAST_MEASURED, round(MEASURED_SHARE * self.left(run) / guess))
        key = jax.random.fold_in(key, MEASURED_STREAM)
        taken = run.stage("measure").loop(kernel, key, starts, data, num_steps=num_steps, final_when_late=True)
        num_steps = max(1, round(self.left(run) / (_mean_cost(taken.info) or guess)))
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
