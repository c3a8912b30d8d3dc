"""What chains cost: the climb to where they start, warm-up, draws."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from posteria.methods.costs import Costed, stretched
from posteria.methods.points.map import MAP
from posteria.methods.starts import ascent_steps

CLIMB_SHARE = 0.2  # of a budget that the climb to the starts may take
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
    by what some of them cost: `warmup.Allowance`."""

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
        return ascent_steps(num_data)
    return climber.climb_gradients(num_data) if isinstance(start, str) and start == "map" else 0.0


def short_start(start: Any, most: float, num_data: int, climber: MAP) -> Any:
    """The start again, or a climb to it that takes no more than so many gradients."""
    if start_gradients(start, num_data, climber) <= most:
        return start
    climb = start if isinstance(start, MAP) else climber
    return dataclasses.replace(climb, polish=False).with_budget(most, num_data)
