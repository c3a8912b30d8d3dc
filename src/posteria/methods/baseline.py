"""The contract of a baseline: what stands beside the methods, to say whether a network is worth its trouble."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import ClassVar

import numpy as np

Numbers = Callable[
    [np.ndarray], tuple[np.ndarray, np.ndarray | None]
]  # x (n, column) -> centre (n,), width (n,) or None
Probs = Callable[[np.ndarray], np.ndarray]  # x (n, column) -> (n, class)


class Baseline:
    """Subclass it, and `po.register(Mine)`: it then stands in every comparison, under its name in kebab case.

    `fit_numbers` and `fit_classes` learn from x (n, column), standardised as networks get it, and y, in its own units
    or labels; either may be left out. What they return predicts: a centre and a width a row (None: no width), or
    probabilities. Widths need not be right: each row's distribution is centre + width x score, where scores are those
    of rows left out, in five folds, so that its intervals hold and its density means something.
    """

    about: ClassVar[str] = ""  # one line, shown in the page
    needs: ClassVar[str] = ""  # a package without which it is left out

    def fit_numbers(self, x: np.ndarray, y: np.ndarray) -> Numbers:
        raise NotImplementedError

    def fit_classes(self, x: np.ndarray, y: np.ndarray, num_classes: int) -> Probs:
        raise NotImplementedError

    def takes(self, kind: str, num_rows: int, num_columns: int) -> bool:
        """Whether it takes part on such data."""
        hook = type(self).fit_classes if kind == "classes" else type(self).fit_numbers
        return hook not in (Baseline.fit_classes, Baseline.fit_numbers)

    @classmethod
    def is_there(cls) -> bool:
        return not cls.needs or find_spec(cls.needs) is not None
