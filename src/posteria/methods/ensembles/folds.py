"""Folds: each member leaves some rows out, and what those rows show sets the noise and the widths.

A network with more weights than rows may learn their noise by heart; rows that a member has not seen tell what it is
worth. Out-of-fold scores give every verb of the prediction, as `calibrate` does, and no row is lost to them: Vovk 2015,
cross-conformal prediction; Barber et al. 2021, CV+.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from posteria import tree
from posteria.data.arrays import parts, rows
from posteria.engine.loop import Run
from posteria.errors import DataError, SettingError
from posteria.methods.costs import Costed, varied_inside
from posteria.methods.ensembles.together import gain_of_all, temperature_of_all, widths_of_all
from posteria.methods.points import fold_climb, fold_parts
from posteria.methods.points.map import MAP
from posteria.models.target import Target
from posteria.posteriors import calibrated
from posteria.posteriors.base import Posterior
from posteria.posteriors.calibrated import CalibratedPosterior
from posteria.posteriors.conformal import ScoreDistribution, repeated
from posteria.posteriors.draws import Draws, DrawsPosterior
from posteria.posteriors.mixture import MOST_WIDENED, FoldsPosterior, Widths, widths_target
from posteria.settings import AnyMethod, Several, check_settings
from posteria.tree import Json

WIDTHS_STEPS = 800
WIDTHS_RATE = 0.02
WIDTHS_BATCH = 64
LEAST_GAIN = 0.003  # nats a row left out, beyond a standard error: below it widths are the same for all rows
OPTIMISM = 0.7  # over the root of the rows: they chose moment and widths too, so their errors are a little small
FEWEST_FOR_WIDTHS = 100  # rows

Members = tuple[list[Any], Json]  # and what was found beside them


@dataclass(frozen=True)
class Folds(Costed):
    """Networks that each leave some rows out, calibrated by those rows: the quick default for tables.

    `method` on `num_folds` parts of the rows in turn, each member leaving one part out; calibrated by those parts.
    All members together predict better than those that left a row out. With `num_repeats` of at least 2, each dividing
    the rows anew, it is known by how much, and widths are those of all; else they are a little too wide.

    With MAP all members are one compiled batch, ended where the rows left out are predicted best, and its
    `learning_rate` is in units of the prior. With `learns_widths` a small network of the size of the errors is fitted
    to those rows too, and used where it predicts them better; its own gradients are not counted: they are of another,
    smaller model. Rows of one of `groups`, a number a row, are left out together: widths are then those of new groups.
    Tuning tries what `method` tries.
    """

    method: AnyMethod = field(default_factory=lambda: MAP(learning_rate=0.01, batch_size=64))
    num_folds: Several = 5
    num_repeats: Several = 1
    learns_widths: bool = True
    groups: tuple[int, ...] | None = field(default=None, repr=False)

    fidelity: ClassVar[str] = "procedure"
    paper: ClassVar[str] = "Vovk 2015; Barber et al. 2021"

    def __post_init__(self) -> None:
        check_settings(self)
        if self.num_folds < 2:
            raise SettingError(f"num_folds is {self.num_folds}", "at least 2", "5 is usual")
        if isinstance(self.method, MAP) and (self.method.validation or self.method.tune):
            raise SettingError("Folds of MAP with validation or tune", "MAP alone", "rows left out set both")

    def expected_gradients(self, num_data: int) -> float:
        num_members = self.num_folds * self.num_repeats
        if isinstance(self.method, MAP):
            return num_members * self.method.climb_gradients(num_data)
        return num_members * float(self.method.expected_gradients(self._num_trained(num_data)))

    def with_budget(self, gradients: float, num_data: int) -> "Folds":
        each = gradients / (self.num_folds * self.num_repeats)
        rows_of_one = num_data if isinstance(self.method, MAP) else self._num_trained(num_data)
        return replace(self, method=self.method.with_budget(each, rows_of_one))

    def trials(self) -> list[Any]:
        return varied_inside(self, "method")

    def _num_trained(self, num_data: int) -> int:
        return num_data - math.ceil(num_data / self.num_folds)

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> Posterior:
        if target.data is None:
            raise DataError("no data", "rows to divide into folds", "pass data=(x, y)")
        if target.num_data < 2 * self.num_folds:
            raise DataError(
                f"{target.num_data} rows for {self.num_folds} folds", "two rows a fold", "add rows, or take fewer folds"
            )
        if self.groups is not None:
            check_groups(self.groups, target.num_data, self.num_folds)
        key_split, key_fit, key_widths = jax.random.split(key, 3)
        folds = self.divided(key_split, target.num_data)
        climbs = isinstance(self.method, MAP)
        members, found = (self._climbed if climbs else self._one_by_one)(key_fit, target, folds, start, run)
        posterior = FoldsPosterior(target, members, facts=found)
        x, y, weight = parts(jax.tree.map(np.asarray, target.data))
        if hasattr(target.model.likelihood, "probs"):
            return self._calibrated_classes(posterior, folds, x, y, weight)
        left_out = self._left_out(members, folds, x, y, weight)
        is_count = target.model.likelihood.kind == "counts"
        scores = calibrated.scores_about([part.mean(0) for part in left_out.shape], y, is_count)
        together = gain_of_all(left_out.shape, y, len(members), weight)
        if self.learns_widths and _may_learn_widths(target):
            centre, first = left_out.shape[0].mean(0), folds[: self.num_folds]
            posterior.widths, log_widths = _learn_widths(key_widths, x, centre, scores, first, run, weight)
            scores = scores * np.exp(-log_widths)
            if posterior.widths is not None:
                widened = widths_of_all(posterior.widths, x, left_out.shape[0], len(members), weight)
                together = np.minimum(together / widened, 1.0)
        if not is_count:  # whose scores have fractions added
            posterior.facts |= _density_of_left_out(left_out.shape, y, scores, weight)
        coverage = calibrated.coverage_of_scores(scores, left_out.covered, weight)
        scores = repeated(scores, weight)
        num_apart = len(scores) if self.groups is None else len(set(self.groups))
        optimism = 1.0 + OPTIMISM / np.sqrt(num_apart)
        return CalibratedPosterior(posterior, scores * together * optimism, 1.0, coverage)

    def divided(self, key: jax.Array, num_rows: int) -> list[np.ndarray]:
        """The rows that each member leaves out."""
        random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        if self.groups is not None:
            return [fold for _ in range(self.num_repeats) for fold in self._divided_groups(random)]
        orders = [random.permutation(num_rows) for _ in range(self.num_repeats)]
        return [np.sort(order[i :: self.num_folds]) for order in orders for i in range(self.num_folds)]

    def _divided_groups(self, random: np.random.Generator) -> list[np.ndarray]:
        """Each group, in a random order, to the part that has the fewest rows so far."""
        of_row = np.unique(np.asarray(self.groups), return_inverse=True)[1]
        sizes, part_of = np.bincount(of_row), np.zeros(of_row.max() + 1, int)
        num_rows = np.zeros(self.num_folds)
        for group in random.permutation(len(sizes)):
            part_of[group] = num_rows.argmin()
            num_rows[part_of[group]] += sizes[group]
        return [np.flatnonzero(part_of[of_row] == part) for part in range(self.num_folds)]

    def _left_out(
        self, members: list[Any], folds: list[np.ndarray], x: Any, y: np.ndarray, weight: np.ndarray | None
    ) -> "LeftOut":
        shape = [np.empty((self.num_repeats, len(y), _num_targets(y))) for _ in range(3)]
        covered = dict.fromkeys(calibrated.LEVELS, 0.0)
        for i, (member, fold) in enumerate(zip(members, folds)):
            predictive = member.predict(rows(x, fold))
            for part, values in zip(shape, predictive.half_widths):
                part[i // self.num_folds, fold] = values
            own_weight = None if weight is None else weight[fold]
            share = len(fold) / len(y) if weight is None else weight[fold].sum() / weight.sum()
            for level, own in calibrated.covered(predictive, y[fold], own_weight).items():
                covered[level] += float(share) / self.num_repeats * own
        return LeftOut(shape, covered)

    def _calibrated_classes(
        self, posterior: Any, folds: list[np.ndarray], x: Any, y: np.ndarray, weight: np.ndarray | None
    ) -> Posterior:
        of_folds = [np.asarray(member.predict(rows(x, fold)).probs) for member, fold in zip(posterior.members, folds)]
        probs = np.empty((self.num_repeats, len(y), of_folds[0].shape[1]))
        for i, (part, fold) in enumerate(zip(of_folds, folds)):
            probs[i // self.num_folds, fold] = part
        temperature = temperature_of_all(probs, y, len(folds), weight)
        return calibrated.of_classes(posterior, probs.mean(0), y, temperature=temperature, weight=weight)

    def _climbed(self, key: jax.Array, target: Target, folds: list[np.ndarray], start: Any, run: Run) -> Members:
        batch_size = self.method.batch_size or target.num_data
        settings = {
            "num_repeats": self.num_repeats,
            "num_steps": fold_climb.num_steps_of(self.method.num_epochs, target.num_data, batch_size),
            "batch_size": batch_size,
            "learning_rate": self.method.learning_rate,
            "optimizer": self.method.optimizer,
        }
        found = {}
        if start is None and fold_parts.are_apart(target.model):
            climbed, share = fold_parts.climb(key, target, folds, run, **settings)
            found = {"share_of_layers": share}
        else:
            starts = None if start is None else target.as_starts(start, len(folds))
            climbed = fold_climb.climb(key, target, folds, run, starts=starts, **settings)
        if climbed.is_last:
            run.note("rows left out were still predicted better at the end: more epochs would help")
        return [DrawsPosterior(target, Draws(target.structs, flat[None, None], {})) for flat in climbed.flat], found

    def _one_by_one(self, key: jax.Array, target: Target, folds: list[np.ndarray], start: Any, run: Run) -> Members:
        members = []
        most = max(map(len, folds))
        for i, (key_member, fold) in enumerate(zip(jax.random.split(key, len(folds)), folds)):
            trained = np.setdiff1d(np.arange(target.num_data), fold)[: target.num_data - most]
            own = Target(target.model, rows(target.data, trained))
            stage = run.stage(f"fold {i + 1}", share=1 / (len(folds) - i))
            starts = None if start is None else tree.index(target.as_starts(start, len(folds)), i)
            members.append(self.method.fit(key_member, own, starts, stage))
        return members, {}


def by_groups(method: Any, labels: np.ndarray) -> Folds:
    """Folds that leave groups out, by a label a row; fewer folds than it says where there are fewer groups."""
    import pandas as pd

    if not isinstance(method, Folds):
        raise SettingError(
            f"groups with {type(method).__name__}",
            "folds, which leave groups out: quality fast or balanced, or po.Folds(method)",
            "--calibrate beside it, or calibrate(x, y, groups=...) on rows of their own",
        )
    labels = np.asarray(labels)
    if labels.ndim != 1 or pd.isna(labels).any():
        raise DataError(f"groups of shape {labels.shape}, some of them missing", "a label in every row", "fill them in")
    groups = np.unique(labels.astype(str), return_inverse=True)[1].tolist()
    return replace(method, groups=tuple(groups), num_folds=max(2, min(method.num_folds, len(set(groups)))))


def check_groups(groups: tuple[int, ...], num_rows: int, num_folds: int) -> None:
    if len(groups) != num_rows:
        raise DataError(f"{len(groups)} groups for {num_rows} rows", "one a row", "check how they were joined")
    if len(set(groups)) < num_folds:
        raise DataError(
            f"{len(set(groups))} groups for {num_folds} folds", "a group a fold", "more groups, or fewer folds"
        )


class LeftOut(NamedTuple):
    """What members say of the rows that they left out."""

    shape: list[np.ndarray]  # centre, half-widths below and above, each (repeat, row, target)
    covered: dict[float, float]  # the share of rows inside their own intervals, by level


def _density_of_left_out(
    shape: list[np.ndarray], y: np.ndarray, scores: np.ndarray, weight: np.ndarray | None
) -> dict[str, float]:
    """Facts: log density a row left out, by the calibrated prediction, and its standard error."""
    centre, below, above = (part.mean(0) for part in shape)
    error = y.reshape(centre.shape) - centre
    widths = np.where(scores == 0, 0.5 * (below + above), error / np.where(scores == 0, 1.0, scores))
    terms = (ScoreDistribution.of(repeated(scores, weight)).log_density(scores) - np.log(np.abs(widths))).sum(-1)
    mean = np.average(terms, weights=weight)
    spread = np.sqrt(np.average((terms - mean) ** 2, weights=weight) / len(terms))
    return {"left_out_log_likelihood": float(mean), "left_out_error": float(spread)}


def _num_targets(y: np.ndarray) -> int:
    return 1 if y.ndim == 1 else y.shape[1]


def _may_learn_widths(target: Target) -> bool:
    x: Any = jax.tree.leaves(target.data)[0]
    is_table = hasattr(x, "ndim") and x.ndim == 2 and np.issubdtype(x.dtype, np.floating)
    return is_table and target.num_data >= FEWEST_FOR_WIDTHS and target.model.likelihood.kind == "regression"


def _learn_widths(
    key: jax.Array,
    x: np.ndarray,
    centre: np.ndarray,
    scores: np.ndarray,
    folds: list[np.ndarray],
    run: Run,
    weight: np.ndarray | None = None,
) -> tuple[Widths | None, np.ndarray]:
    """A network of the logarithm of the errors' size, and what it says of each row by the fold that left it out."""
    unit = np.maximum(np.median(np.abs(scores), axis=0), 1e-12)
    mean, spread = centre.mean(0), np.maximum(centre.std(0), 1e-12)
    inputs = np.concatenate([x, (centre - mean) / spread], axis=1).astype(np.float32)
    errors = (scores / unit).astype(np.float32)
    target = widths_target(inputs.shape[1], errors.shape[1], (inputs, errors, weight))
    climbed = fold_climb.climb(
        key,
        target,
        folds,
        run.stage("widths"),
        num_steps=WIDTHS_STEPS,
        batch_size=WIDTHS_BATCH,
        learning_rate=WIDTHS_RATE,
        is_counted=False,
    )
    gains = _gains_over_a_constant(target.model.likelihood, climbed.outputs[0], errors, weight)
    gain = np.average(gains, weights=weight)
    spread_of_gains = np.sqrt(np.average((gains - gain) ** 2, weights=weight))
    if gain < LEAST_GAIN + spread_of_gains / np.sqrt(target.total_weight):
        run.note("widths are the same for all rows: no network predicts the size of the errors better")
        return None, np.zeros_like(scores)
    log_widths = np.clip(climbed.outputs[0], -MOST_WIDENED, MOST_WIDENED).astype(np.float64)
    return Widths(target, climbed.flat, mean, spread), log_widths


def _gains_over_a_constant(
    likelihood: Any, outputs: np.ndarray, errors: np.ndarray, weight: np.ndarray | None
) -> np.ndarray:
    """Of log likelihood, row by row, over the best width that is the same for all rows."""
    from scipy.stats import t

    def log_likelihoods(log_scale: np.ndarray | float) -> np.ndarray:
        found: np.ndarray = (t.logpdf(errors * np.exp(-log_scale), likelihood.df) - log_scale).sum(-1)
        return found

    constants = (log_likelihoods(level) for level in np.linspace(-3, 3, 121))
    best = max(constants, key=lambda terms: np.average(terms, weights=weight))
    gains: np.ndarray = log_likelihoods(outputs) - best
    return gains
