"""What a method costs, itself at another cost, and the settings that tuning tries: said by each, guessed of none.

A cost is in gradients of the log density, of a batch or of all rows alike; a method that takes none is counted by its
evaluations of the density. It is that of a model whose prior infers no scales: these are found before a climb, by
rounds of their own. `posteria.testing` holds every method to what it says.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from posteria.errors import SettingError

THIRDS = (1 / 3, 3.0)
HALVES = (0.5, 2.0)
LEAST, MOST = 1e-9, 1e9  # factors by which lengths are stretched
BISECTIONS = 50
DECLARATION = (
    "def expected_gradients(self, num_data): return self.num_epochs * num_batches(num_data, self.batch_size), and "
    'lengths = {"num_epochs": 1}, the settings that a budget stretches, in a class that inherits '
    "posteria.methods.costs.Costed; or a with_budget(gradients, num_data) of its own"
)


class Costed:
    """For methods to inherit: a budget and trials from what is declared."""

    lengths: ClassVar[Mapping[str, int]] = {}  # settings that a budget multiplies, and the least that each may be
    tuned: ClassVar[Mapping[str, tuple[float, ...]]] = {}  # settings that tuning changes, and the factors that it tries

    def expected_gradients(self, num_data: int) -> float:
        """Of a fit to so many rows."""
        raise SettingError(f"{type(self).__name__} does not say what it costs", "its gradients", f"write {DECLARATION}")

    def with_budget(self, gradients: float, num_data: int) -> Any:
        """Itself with lengths such that a fit to so many rows takes about so many gradients; its least, where that is
        more."""
        return stretched(self, gradients, num_data)

    def trials(self) -> list[Any]:
        """The settings that tuning tries, its own first."""
        return varied(self)


class EpochCosts(Costed):
    """Of a method that is fitted in `num_epochs` of batches of `batch_size`."""

    lengths: ClassVar[Mapping[str, int]] = {"num_epochs": 1}
    tuned: ClassVar[Mapping[str, tuple[float, ...]]] = {"learning_rate": THIRDS}
    gradients_a_step: ClassVar[int] = 1

    def expected_gradients(self: Any, num_data: int) -> float:
        return float(self.gradients_a_step * self.num_epochs * num_batches(num_data, self.batch_size))


def num_batches(num_data: int, batch_size: int | None) -> int:
    """Of an epoch."""
    return math.ceil(num_data / min(batch_size or num_data, num_data)) if num_data else 1


def stretched(method: Any, gradients: float, num_data: int) -> Any:
    """With its `lengths` multiplied by the factor at which it expects so many gradients; as it is if it takes none."""
    if method.expected_gradients(num_data) == 0:
        return method
    if not method.lengths:
        raise SettingError(
            f"{type(method).__name__} has no lengths", "settings that a budget stretches", f"write {DECLARATION}"
        )

    def at(log_factor: float) -> Any:
        factor = math.exp(log_factor)
        values = {name: getattr(method, name) for name in method.lengths}
        lengths = {name: max(method.lengths[name], round(factor * value)) for name, value in values.items() if value}
        return dataclasses.replace(method, **lengths)

    low, high = math.log(LEAST), math.log(LEAST)
    while at(high).expected_gradients(num_data) <= gradients and high < math.log(MOST):
        low, high = high, high + math.log(4)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if at(middle).expected_gradients(num_data) <= gradients:
            low = middle
        else:
            high = middle
    return at(low)


def varied(method: Any) -> list[Any]:
    """It, and for each setting in `tuned` it with that setting times each factor; one that has no number, or nothing to
    do, is left."""
    found = [method]
    for name, factors in method.tuned.items():
        value = getattr(method, name)
        if value is None or (name == "learning_rate" and getattr(method, "optimizer", None) is not None):
            continue
        found += [dataclasses.replace(method, **{name: factor * value}) for factor in factors]
    return found


def varied_inside(method: Any, name: str) -> list[Any]:
    """It with each of the trials of the method that is its setting `name`."""
    inner = getattr(method, name)
    return [dataclasses.replace(method, **{name: each}) for each in inner.trials()]


def check_budget(gradients: float) -> None:
    if not gradients >= 1:
        raise SettingError(f"budget is {gradients}", "a number of gradient evaluations", "10_000 is a small one")
