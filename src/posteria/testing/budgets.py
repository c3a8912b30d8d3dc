"""Laws of what a method says of its own cost (`posteria.methods.costs`), and of the settings that tuning tries."""

import dataclasses
import inspect
import re
from typing import Any

from posteria.compiled import kept
from posteria.methods.costs import DECLARATION
from posteria.models.likelihoods import Categorical
from posteria.models.model import Model
from posteria.nn import mlp
from posteria.runs import fit
from posteria.testing import targets

SIZES = (100, 1000, 5000)  # rows for which budgets are asked
BUDGETS = (5_000, 30_000, 1_000_000)
SPENT = 2_500  # the budget of the fit whose count is compared
LEAST, MOST = 0.8, 1.1  # of a budget, expected
AGREES = 0.15  # of the expected, between it and the run's own count: trajectories are measured in warm-up


def check(method: type, takes: str = "regression") -> None:
    """A budget is expected, and spent; fitted once for all laws of a class, with its default settings. `takes` are the
    targets that it serves."""
    name = method.__name__
    check_hooks(method)
    for num_data in SIZES:
        for budget in BUDGETS:
            expected = method().with_budget(budget, num_data).expected_gradients(num_data)
            takes_none = expected == method().expected_gradients(num_data) == 0
            assert takes_none or LEAST * budget <= expected <= MOST * budget, (
                f"{name}.with_budget({budget}, {num_data}) expects {expected:,.0f} gradients: check `lengths`, and "
                "that `expected_gradients` counts all that a fit does"
            )
    expected, spent = _spent(method, takes)
    assert abs(spent - expected) <= AGREES * expected, (
        f"{name} expects {expected:,.0f} gradients of a fit that took {spent:,}: `expected_gradients` misses some, or "
        "the kernel's `num_gradients` does"
    )


def check_hooks(method: type) -> None:
    for hook in ("expected_gradients", "with_budget", "trials"):
        assert hasattr(method, hook), f"{method.__name__} has no {hook}: write {DECLARATION}"


@kept
def _spent(method: type, takes: str) -> tuple[float, int]:
    """What a fit within a small budget expects, and what it took."""
    known = targets.linear_regression()
    model, (x, y) = known.model, known.data
    if takes == "classes":
        model, y = Model(mlp((), outputs=2), Categorical()), targets.as_labels(y)
    limited = method().with_budget(SPENT, len(x))
    posterior = fit(model, (x, y), limited, key=0, progress=False)
    return limited.expected_gradients(len(x)), posterior.facts["gradients"]


def check_trials(method: Any) -> None:
    """The first trial is the method; others differ from it in a setting that "Tuning tries ..." names."""
    check_hooks(type(method))
    first, *others = method.trials()
    assert first == method
    named = set(_tuned_settings(type(method)))
    assert len(set(map(repr, [first, *others]))) == 1 + len(others), "two trials are the same"
    for other in others:
        changed = {each.name for each in dataclasses.fields(method) if _differs(method, other, each.name)}
        assert changed <= named, (
            f"a trial changes {changed}, and the docstring says that tuning tries {named or 'nothing'}"
        )
    if others:
        assert type(others[0]) is type(method)


def _tuned_settings(method: type) -> list[str]:
    """Of the sentence "Tuning tries ..." of a docstring."""
    text = " ".join((inspect.getdoc(method) or "").split())
    sentence = re.search(r"Tuning tries ([^.]*)\.", text) or re.search(r"Tuning tries ([^.]*)", _inherited(method))
    return re.findall(r"`(\w+)`", sentence.group(1)) if sentence else []


def _inherited(method: type) -> str:
    return " ".join(" ".join((inspect.getdoc(base) or "").split()) for base in method.__mro__[1:-1])


def _differs(one: Any, other: Any, name: str) -> bool:
    return repr(getattr(one, name)) != repr(getattr(other, name))
