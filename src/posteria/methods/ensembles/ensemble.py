"""Several fits of one method from different keys, as an equal mixture.

Lakshminarayanan et al. 2017; Wilson & Izmailov 2020.
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import jax

from posteria import tree
from posteria.engine.loop import Run
from posteria.methods.costs import Costed, varied_inside
from posteria.methods.points.map import MAP
from posteria.models.target import Target
from posteria.posteriors.base import Posterior
from posteria.posteriors.mixture import MixturePosterior
from posteria.settings import AnyMethod, Several, check_settings


@dataclass(frozen=True)
class Ensemble(Costed):
    """Several fits of a method, averaged: the strongest simple uncertainty for networks of any size.

    `size` independent fits of `method`: a deep ensemble with MAP, MultiSWAG with SWAG.
    Tuning tries what `method` tries, for all members alike.
    """

    method: AnyMethod = field(default_factory=MAP)
    size: Several = 5

    fidelity: ClassVar[str] = "procedure"
    paper: ClassVar[str] = "Lakshminarayanan et al. 2017; Wilson & Izmailov 2020"

    def __post_init__(self) -> None:
        check_settings(self)

    def expected_gradients(self, num_data: int) -> float:
        return self.size * float(self.method.expected_gradients(num_data))

    def with_budget(self, gradients: float, num_data: int) -> "Ensemble":
        return replace(self, method=self.method.with_budget(gradients / self.size, num_data))

    def trials(self) -> list[Any]:
        return varied_inside(self, "method")

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> Posterior:
        if hasattr(self.method, "fit_members"):  # all at once, spread over the machine
            together: Posterior = self.method.fit_members(key, target, start, run, self.size)
            return together
        starts = [None] * self.size
        if start is not None:
            starts = [tree.index(target.as_starts(start, self.size), i) for i in range(self.size)]
        members = []
        for i, key_member in enumerate(jax.random.split(key, self.size)):
            stage = run.stage(f"member {i + 1}", share=1 / (self.size - i))
            members.append(self.method.fit(key_member, target, starts[i], stage))
        return MixturePosterior(target, members)
