"""What the law of budgets catches; `MethodLaws` holds every method to it."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

import posteria as po
from posteria.methods.costs import Costed
from posteria.testing import budgets


@dataclass(frozen=True)
class Twice(Costed):
    """Says half of what it takes."""

    num_epochs: int = 10
    rate: float = 1.0  # of a Gamma prior

    fidelity: ClassVar[str] = "point"
    lengths: ClassVar[dict[str, int]] = {"num_epochs": 1}

    def expected_gradients(self, num_data):
        return self.num_epochs

    def fit(self, key, target, start, run):
        return po.MAP(num_epochs=2 * self.num_epochs, polish=False).fit(key, target, start, run)


@dataclass(frozen=True)
class Silent:
    """Says nothing."""

    num_epochs: int = 10

    def fit(self, key, target, start, run):
        raise NotImplementedError


@dataclass(frozen=True)
class Deaf(Twice):
    """Ignores its budget."""

    def with_budget(self, gradients, num_data):
        return self


@dataclass(frozen=True)
class Secret(Twice):
    """Tunes what it does not say."""

    tuned: ClassVar[dict[str, Any]] = {"rate": (2.0,)}


def test_the_law_tells_an_author_what_to_write():
    with pytest.raises(AssertionError, match="Silent has no expected_gradients: write def expected_gradients"):
        budgets.check(Silent)
    with pytest.raises(AssertionError, match=r"Deaf\.with_budget"):
        budgets.check(Deaf)
    with pytest.raises(AssertionError, match="Twice expects 2,500 gradients of a fit that took 5,000"):
        budgets.check(Twice)
    with pytest.raises(AssertionError, match=r"a trial changes \{'rate'\}"):
        budgets.check_trials(Secret())
    budgets.check_trials(Twice())  # a rate is not a dropout rate: nothing is guessed
    assert Twice().trials() == [Twice()]
