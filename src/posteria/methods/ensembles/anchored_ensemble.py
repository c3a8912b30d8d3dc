"""Randomised modes: each member climbs to the mode of a posterior whose prior and targets were moved at random.

Member m has a prior about its own anchor a_m, which is drawn from the prior, and targets with noise of their own:

    maximise  log p(w - (a_m - prior mean)) + sum_n log p(y_n + e_mn | x_n, w)

For a linear network with Gaussian noise and a Normal prior every member is then an exact draw from the posterior: the
equations of the mode are linear, and a_m and e_m give their right-hand side the covariance of its curvature. Pearce
et al. 2020, Uncertainty in Neural Networks: Approximately Bayesian Ensembling; Lu & Van Roy 2017, Ensemble Sampling;
Bardsley et al. 2014, Randomize-Then-Optimize.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.curvature.decrement import ENOUGH, part_names
from posteria.data.arrays import Data, parts
from posteria.engine.loop import Run
from posteria.errors import SettingError
from posteria.methods.costs import Costed, varied_inside
from posteria.methods.points.map import MAP
from posteria.methods.points.polish import polish
from posteria.models.coordinates import coordinates
from posteria.models.priors import normal_of
from posteria.models.target import Target
from posteria.posteriors.draws import Draws, DrawsPosterior
from posteria.settings import Several, check_settings

OWN = "anchored"  # the part of the parameters that holds a member's anchor and targets


@dataclass(frozen=True)
class AnchoredEnsemble(Costed):
    """An ensemble that is a draw from the posterior where the model is linear and Gaussian, for the price of modes.

    `map` says how a member climbs, and finds the mode before it: noise that is inferred is held as it is there, and so
    is what `map` tunes. Spread: the anchors', a draw from the prior for each member, and noise of the likelihood's own
    on real targets. Labels and counts are left as they are, as in the paper; priors that are not Normal are moved with
    the anchors too, but nothing is exact then. Members start from the network's initialiser. Tuning tries what
    `map` tries.
    """

    size: Several = 10
    map: MAP = field(default_factory=MAP)

    fidelity: ClassVar[str] = "procedure"
    paper: ClassVar[str] = "Pearce et al. 2020"

    def __post_init__(self) -> None:
        check_settings(self)
        if self.map.validation:
            raise SettingError("AnchoredEnsemble with a map that holds rows out", "all rows", "leave validation out")

    def expected_gradients(self, num_data: int) -> float:
        """The first mode, and one for each member."""
        return (self.size + 1) * self.map.expected_gradients(num_data)

    def with_budget(self, gradients: float, num_data: int) -> "AnchoredEnsemble":
        return replace(self, map=self.map.with_budget(gradients / (self.size + 1), num_data))

    def trials(self) -> list[Any]:
        return varied_inside(self, "map")

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> DrawsPosterior:
        target.check_proper()
        target.check_no_scales("an anchor is drawn from a prior whose scales are known")
        prior: Any = target.model.prior
        if hasattr(prior, "joint_log_prob") and not prior.is_factorised:
            raise SettingError(
                "AnchoredEnsemble under a prior that correlates weights", "independent weights", "take a diagonal one"
            )
        key_mode, key_start, key_anchor, key_noise, key_climb = jax.random.split(key, 5)
        climb = replace(self.map, tune=None)
        is_full = not climb.batch_size or climb.batch_size >= target.num_data
        polishes = is_full if climb.polish is None else climb.polish
        first = self.map.find(key_mode, target, start, run.stage("mode", share=1 / (self.size + 1)), 1, polishes)[0]
        target = first.target if target.data is None else Target(first.target.model, target.data)
        anchored = _anchored(target)
        if start is None:
            starts, note = target.several_inits(key_start, self.size)
            run.note(note)
        else:
            starts = target.as_starts(start, self.size)
        mode = tree.index(first.params, 0)
        own, num_kept = _drawn(anchored.without_data())(
            jax.random.split(key_anchor, self.size), jax.random.split(key_noise, self.size), mode, target.data
        )
        run.note(_said(anchored, int(np.sum(num_kept))))
        starts = {
            "network": starts["network"],
            "likelihood": jax.tree.map(lambda leaf: jnp.stack([leaf] * self.size), mode["likelihood"]),
            OWN: own,
        }
        stage = run.stage("members")
        climbed = climb.climb(key_climb, anchored, starts, stage)
        params, log_density = climbed.params, climbed.log_density
        if polishes and not stage.skips():
            params, log_density = polish(key_climb, anchored, params, stage, climb.num_epochs, anchored.held)
        facts = {}
        if run.is_whole:
            gain = float(np.max(_gains(anchored.without_data())(params, anchored.data)))
            facts = {"gain": gain}
            if not gain <= ENOUGH:
                run.note(
                    f"a member is not at its mode: a step up the gradient alone would gain {gain:.2g} nats; "
                    f"{climb.remedy(is_full)}"
                )
        bare = target.without_data()
        flat = tree.ravel_each({name: params[name] for name in bare.structs})
        return DrawsPosterior(
            bare, Draws(bare.structs, np.asarray(flat)[:, None], {"log_density": log_density[:, None]}), facts
        )


class Own(NamedTuple):
    """Of a member: what no gradient moves."""

    shift: tree.Params  # of the prior, leaf by leaf: anchor - prior mean
    targets: jax.Array | None  # (n, targets), where they have noise of their own


class Anchored(Target):
    """The target with the anchor and targets of a member among its parameters, where no gradient moves them; the x of
    its data is (x, number of the row)."""

    shape_of_targets: tuple[int, ...] = ()  # of targets that a member has of its own; (): it has none

    @property
    def has_own_targets(self) -> bool:
        return bool(self.shape_of_targets)

    @property
    def structs(self) -> tree.Params:
        structs = Target.structs.fget(self)  # type: ignore[attr-defined]
        shift = tree.widened(structs["network"])
        targets: Any = jax.ShapeDtypeStruct(self.shape_of_targets, jnp.float32) if self.has_own_targets else None
        return structs | {OWN: Own(shift, targets)}

    def log_likelihood(self, params: tree.Params, batch: Data) -> jax.Array:
        (x, number), y, *weight = batch
        if self.has_own_targets:
            y = params[OWN].targets.at[number].get(mode="promise_in_bounds")
        return Target.log_likelihood(self, params, (x, y, *weight))

    def relative_log_prior(self, relative: tree.Params) -> jax.Array:
        shifted = jax.tree.map(lambda leaf, shift: leaf - shift, relative["network"], relative[OWN].shift)
        return Target.relative_log_prior(self, {"network": shifted, "likelihood": relative["likelihood"]})

    def without_data(self) -> "Anchored":
        bare = object.__new__(Anchored)
        bare.__dict__.update(self.__dict__, data=None)
        return bare

    def _identity(self) -> tuple[object, ...]:
        return ("anchored", self.shape_of_targets, *Target._identity(self))


def _anchored(target: Target) -> Anchored:
    anchored = object.__new__(Anchored)
    anchored.__dict__.update(target.__dict__)
    held = ("likelihood",) if jax.tree.leaves(target.structs["likelihood"]) else ()
    anchored.held = (*held, OWN)
    if target.data is not None:
        x, y, *weight = target.data
        anchored.data = ((x, jnp.arange(target.num_data)), y, *weight)
        anchored.shape_of_targets = y.shape if target.model.likelihood.kind == "regression" else ()
    return anchored


@kept
def _drawn(target: Anchored) -> Callable[..., tuple[Own, jax.Array]]:
    """(keys of anchors, keys of noise, mode, data) -> what each member has of its own, and how many of its targets had
    to stay as they are: moved, they would be no targets of the likelihood."""
    prior, likelihood, leaves = target.model.prior, target.model.likelihood, target.leaves
    treedef = jax.tree.structure(target.structs["network"])
    width = target.temperature**0.5

    def shift(key: jax.Array) -> tree.Params:
        shifts = []
        for leaf, key_leaf in zip(leaves, jax.random.split(key, max(1, len(leaves)))):
            drawn = prior.sample(key_leaf, leaf)
            mean = (normal_of(prior, leaf) or (0.0, 1.0))[0]
            shifts.append(width * (drawn.astype(jnp.promote_types(leaf.dtype, jnp.float32)) - mean))
        return treedef.unflatten(shifts)

    def targets(key: jax.Array, mode: tree.Params, data: Data) -> tuple[jax.Array | None, jax.Array]:
        if not target.has_own_targets:
            return None, jnp.zeros((), jnp.int32)
        x, y, weight = parts(data)
        own, outputs = mode["likelihood"], target.model.outputs(mode["network"], x)
        one, other = (likelihood.sample(k, own, outputs) for k in jax.random.split(key))
        noise = width * (one - other) / 2**0.5  # of mean 0 also where the likelihood has no mean
        if weight is not None:  # a row that counts twice has half the variance
            noise *= jnp.where(weight > 0, jnp.maximum(weight, 1e-30) ** -0.5, 0.0).reshape(-1, *[1] * (y.ndim - 1))
        moved = y + noise
        is_fit = jnp.isfinite(likelihood.log_prob(own, outputs, moved))
        kept = jnp.where(is_fit.reshape(-1, *[1] * (y.ndim - 1)), moved, y)
        return kept.astype(jnp.float32), (~is_fit).sum(dtype=jnp.int32)

    def draw(keys_anchor: jax.Array, keys_noise: jax.Array, mode: tree.Params, data: Data) -> tuple[Own, jax.Array]:
        def one(keys: tuple[jax.Array, jax.Array]) -> tuple[Own, jax.Array]:
            moved, num_kept = targets(keys[1], mode, data)
            return Own(shift(keys[0]), moved), num_kept

        drawn: tuple[Own, jax.Array] = jax.lax.map(one, (keys_anchor, keys_noise))
        return drawn

    return jax.jit(draw)


@kept
def _gains(target: Anchored) -> Callable[[tree.Params, Data], jax.Array]:
    """Of several members (leading axis): nats by which the best step along the gradient goes up, as far as the density
    is quadratic; a bound from below on what a Newton step would gain."""
    flat = coordinates(target)
    is_weight = (part_names(target) == "network").astype(np.float32)

    def gain(params: tree.Params, data: Data) -> jax.Array:
        def slope(z: jax.Array) -> jax.Array:
            of_weights: jax.Array = is_weight * jax.grad(flat.log_density)(z, data)
            return of_weights

        z = flat.to_units(params)
        gradient = slope(z)
        curved = -gradient @ jax.jvp(slope, (z,), (gradient,))[1]
        squared = gradient @ gradient
        least = squared / target.temperature  # in units of the prior no curvature of a convex density is below that
        return 0.5 * squared**2 / jnp.maximum(jnp.maximum(curved, least), jnp.finfo(z.dtype).tiny)

    return jax.jit(lambda members, data: jax.lax.map(lambda params: gain(params, data), members))


def _said(target: Anchored, num_kept: int) -> str:
    if num_kept:
        return (
            f"{num_kept} targets of all members' were left without noise: with it the likelihood would not allow them"
        )
    if target.data is not None and not target.has_own_targets:
        return "labels and counts are not moved: the members' spread is that of their anchors"
    return ""
