"""Fast geometric ensembles: snapshots along one cyclical trajectory. Garipov et al. 2018."""

from dataclasses import dataclass, field
from typing import ClassVar

import jax

from posteria import tree
from posteria.engine.loop import Run
from posteria.methods.ensembles import trajectory
from posteria.methods.points.map import MAP
from posteria.models.target import Target
from posteria.posteriors.draws import Draws, DrawsPosterior
from posteria.settings import Count, Positive, Share, check_settings


@dataclass(frozen=True)
class FastGeometricEnsemble(trajectory.TrajectoryCosts):
    """Members from one run of SGD whose step rises and falls: most of an ensemble for little more than one fit.

    After `map` (None: from the start on) the step goes up to `learning_rate` and down again `num_snapshots` times, in
    cycles of `epochs_per_snapshot`; a snapshot is the weights at the end of a cycle, where the step is smallest.
    `learning_rate=None` is chosen from the curvature at the mode. Tuning tries a given `learning_rate`, else what `map`
    tries.
    """

    map: MAP | None = field(default_factory=MAP)
    num_snapshots: Count = 10
    epochs_per_snapshot: Count = 4
    batch_size: Count | None = 32
    learning_rate: Positive | None = None
    momentum: Share = 0.9

    fidelity: ClassVar[str] = "procedure"
    paper: ClassVar[str] = "Garipov et al. 2018"

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> DrawsPosterior:
        return self.fit_members(key, target, start, run, 1)

    def fit_members(self, key: jax.Array, target: Target, start: tree.Params, run: Run, size: int) -> DrawsPosterior:
        """`size` trajectories from as many starts, each a chain of members."""
        settings = trajectory.Settings(
            self.num_snapshots, self.epochs_per_snapshot, self.batch_size, self.learning_rate, self.momentum, "cyclical"
        )
        found = trajectory.follow(key, target, start, run, size, self.map, settings)
        return DrawsPosterior(target, Draws(target.structs, found.snapshots, {"log_density": found.log_density}))
