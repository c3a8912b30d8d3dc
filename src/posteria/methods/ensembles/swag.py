"""Stochastic weight averaging, Gaussian. Maddox et al. 2019; its mean alone is SWA, Izmailov et al. 2018.

SGD with a large constant step wanders around a mode. With w_1..w_T its weights at the ends of epochs, their mean and
variances and D the last K deviations w_i - mean(w_1..w_i) from the running mean,

    w ~ N(mean, diag(variances) / 2 + D D^T / (2 (K - 1))).
"""

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

import jax
import numpy as np

from posteria import tree
from posteria.engine.loop import Run
from posteria.errors import SettingError
from posteria.methods.ensembles import trajectory
from posteria.methods.points.map import MAP
from posteria.models.target import Target
from posteria.posteriors.base import Posterior
from posteria.posteriors.gaussian import GaussianPosterior, LowRank
from posteria.posteriors.mixture import MixturePosterior
from posteria.settings import MOST_AT_ONCE, Count, Positive, Share, check_settings, up_to


@dataclass(frozen=True)
class SWAG(trajectory.TrajectoryCosts):
    """A Gaussian fitted to the weights that SGD passes through after training: cheap, for any network you can train.

    `map` finds the mode first (None: snapshots are taken from the start on). Then `num_snapshots` are taken,
    one every `epochs_per_snapshot` of mini-batches; the last `rank` make the low-rank part. `learning_rate=None` is
    chosen from the curvature at the mode. A "cyclical" schedule takes each snapshot where its step is smallest.
    The spread is that of SGD, which knows no temperature, and comes from the noise of its batches: where a batch holds
    all rows there is none, and it says so. Tuning tries a given `learning_rate`, else what `map` tries.
    """

    map: MAP | None = field(default_factory=MAP)
    num_snapshots: Count = 40
    rank: Annotated[int, up_to(2, MOST_AT_ONCE)] = 20
    epochs_per_snapshot: Count = 1
    batch_size: Count | None = 32
    learning_rate: Positive | None = None
    momentum: Share = 0.9
    schedule: Literal["constant", "cyclical"] = "constant"

    fidelity: ClassVar[str] = "procedure"
    paper: ClassVar[str] = "Maddox et al. 2019"

    least_snapshots: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_settings(self)
        if self.rank > self.num_snapshots:
            raise SettingError(
                f"rank is {self.rank} and num_snapshots {self.num_snapshots}",
                "no more than there are snapshots",
                "20 of 40 are the defaults",
            )

    def with_snapshots(self, num_snapshots: int, epochs_per_snapshot: int) -> "SWAG":
        rank = min(self.rank, num_snapshots)
        return replace(self, num_snapshots=num_snapshots, epochs_per_snapshot=epochs_per_snapshot, rank=rank)

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> GaussianPosterior:
        return self._members(key, target, start, run, 1)[0]

    def fit_members(self, key: jax.Array, target: Target, start: tree.Params, run: Run, size: int) -> Posterior:
        """MultiSWAG: `size` trajectories from as many starts, as an equal mixture. Wilson & Izmailov 2020."""
        return MixturePosterior(target, list(self._members(key, target, start, run, size)))

    def follow(
        self, key: jax.Array, target: Target, start: tree.Params, run: Run, size: int, final_when_late: bool = False
    ) -> np.ndarray:
        """The snapshots that it is made of: (start, snapshot, size), flat."""
        settings = trajectory.Settings(
            self.num_snapshots,
            self.epochs_per_snapshot,
            self.batch_size,
            self.learning_rate,
            self.momentum,
            self.schedule,
        )
        found = trajectory.follow(key, target, start, run, size, self.map, settings, final_when_late)
        if found.snapshots.shape[1] < 2:
            raise SettingError("time ran out before two snapshots were taken", "at least 2", "allow more seconds")
        return found.snapshots

    def _note_noise(self, target: Target, run: Run) -> None:
        if target.num_data and (self.batch_size or target.num_data) >= target.num_data:
            run.note(
                f"SWAG's spread comes from the noise of batches, and a batch holds all {target.num_data} rows: what is "
                f"left is of a descent that goes on, and says nothing; batch_size={-(-target.num_data // 4)} has noise"
            )

    def _members(
        self, key: jax.Array, target: Target, start: tree.Params, run: Run, size: int
    ) -> list[GaussianPosterior]:
        self._note_noise(target, run)
        snapshots = self.follow(key, target, start, run, size)
        return [GaussianPosterior(target, *moments(chain, self.rank)) for chain in snapshots]


def moments(snapshots: np.ndarray, rank: int) -> tuple[np.ndarray, LowRank]:
    """Mean and spread of snapshots (snapshot, size)."""
    counts = np.arange(1, len(snapshots) + 1)[:, None]
    first = snapshots[:1]  # sums of small differences: float32 holds a mean of many weights, but not of their squares
    running_means = first + np.cumsum(snapshots - first, axis=0) / counts
    deviations = (snapshots - running_means)[-rank:].T  # (size, rank)
    # halved: the variance is shared by the diagonal and the low-rank part
    std = np.sqrt(snapshots.var(axis=0) / 2)
    factor = deviations / np.sqrt(2 * (deviations.shape[1] - 1))
    return running_means[-1], LowRank(std.astype(np.float32), factor.astype(np.float32))
