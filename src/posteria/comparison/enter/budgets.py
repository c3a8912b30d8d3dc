"""What a method is expected to cost, and the same method within a budget.

A method's expected gradients are its steps (epochs x batches an epoch, or chains x replicas x (warm-up + draws x
thinning) x gradients a step), plus those of the methods inside it, times the size of an ensemble. A budget multiplies
the fields that set lengths (`LENGTHS`) of a method and of those inside it by one factor, so that the expectation meets
it. HMC and NUTS find their trajectories as they go: `ASSUMED_LEAPFROGS` stands for them, and the table shows what was
really used. A method may say it better itself: `expected_gradients(num_data)`, `with_budget(gradients, num_data)`; its
`gradients_a_step`, if not 1; and `least_lengths`, below which it does not work.
"""

import dataclasses
import math
from typing import Any

from posteria.errors import SettingError
from posteria.methods.points.map import MAP

LENGTHS = ("num_epochs", "num_draws", "num_warmup", "epochs_per_snapshot")
ASSUMED_LEAPFROGS = 60  # a trajectory of HMC or NUTS
ASSUMED_STEPS = 1000  # of a method that has no length to be read
TUNED = {"rate": (0.5, 2.0), "alpha": (0.5, 2.0), "learning_rate": (1 / 3, 3.0)}  # fields, and factors of their values


def expected_gradients(method: Any, num_data: int) -> float:
    """How many gradients a fit is expected to take; a rough number where trajectories are adapted."""
    if hasattr(method, "expected_gradients"):
        return float(method.expected_gradients(num_data))
    batch_size = min(getattr(method, "batch_size", None) or num_data, num_data) or 1
    steps_per_epoch = math.ceil(num_data / batch_size)
    own = 0.0
    if hasattr(method, "num_chains"):
        warmup, thinning = getattr(method, "num_warmup", 0), getattr(method, "thinning", 1)
        steps = method.num_chains * getattr(method, "num_replicas", 1) * (warmup + method.num_draws * thinning)
        own += steps * (ASSUMED_LEAPFROGS if _follows_trajectories(method) else getattr(method, "gradients_a_step", 1))
    if hasattr(method, "num_epochs"):
        own += method.num_epochs * steps_per_epoch
    if hasattr(method, "num_snapshots"):
        own += method.num_snapshots * getattr(method, "epochs_per_snapshot", 1) * steps_per_epoch
    inner = sum(expected_gradients(each, num_data) for each in inner_methods(method))
    return ((own + inner) or ASSUMED_STEPS) * getattr(method, "size", 1)


def with_budget(method: Any, gradients: float | None, num_data: int) -> Any:
    """The method with its lengths multiplied so that it is expected to take so many gradients."""
    if gradients is None:
        return method
    if not gradients >= 1:
        raise SettingError(f"budget is {gradients}", "a number of gradient evaluations", "10_000 is a small one")
    if hasattr(method, "with_budget"):
        return method.with_budget(gradients, num_data)
    if getattr(method, "map", None) == "auto":  # it finds the mode by a default of its own
        method = dataclasses.replace(method, map=MAP())
    expected = expected_gradients(method, num_data)
    return _stretched(method, gradients / expected)


def _stretched(method: Any, factor: float) -> Any:
    least = getattr(method, "least_lengths", {})
    changes: dict[str, Any] = {
        name: max(least.get(name, 1), round(getattr(method, name) * factor))
        for name in LENGTHS
        if isinstance(getattr(method, name, None), int)
    }
    for field in dataclasses.fields(method):
        value = getattr(method, field.name)
        if _is_method(value):
            changes[field.name] = _stretched(value, factor)
    return dataclasses.replace(method, **changes)


def trials(method: Any) -> list[Any]:
    """The settings that tuning tries, its own first: its first field of `TUNED`, or that of a method inside it."""
    if hasattr(method, "trials"):
        return list(method.trials())
    for name, factors in TUNED.items():
        value = getattr(method, name, None)
        if isinstance(value, float):
            return [method, *(dataclasses.replace(method, **{name: value * factor}) for factor in factors)]
    for field in dataclasses.fields(method):
        value = getattr(method, field.name)
        if _is_method(value) and len(inner := trials(value)) > 1:
            return [dataclasses.replace(method, **{field.name: each}) for each in inner]
    return [method]


def _follows_trajectories(method: Any) -> bool:
    return hasattr(method, "max_leapfrog") or hasattr(method, "max_doublings")


def _is_method(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type) and callable(getattr(value, "fit", None))


def inner_methods(method: Any) -> list[Any]:
    return [value for field in dataclasses.fields(method) if _is_method(value := getattr(method, field.name))]
