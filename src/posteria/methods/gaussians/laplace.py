"""Laplace's approximation: a Gaussian at the mode with the curvature of the log posterior there."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.curvature.jacobian import factored, subset_paths
from posteria.curvature.measure import (
    Curvature,
    Estimate,
    Settings,
    Structure,
    blocks,
    check_fits,
    check_likelihood,
    choose_structure,
    estimate,
    measure,
)
from posteria.curvature.precision import Precision
from posteria.data.arrays import Data, is_source
from posteria.engine.loop import Run
from posteria.errors import SettingError
from posteria.methods.costs import Costed, varied_inside
from posteria.methods.gaussians.post_hoc import tuned
from posteria.methods.points.cross_check import cross_checked
from posteria.methods.points.learnt_scales import at_given_weights, log_integral
from posteria.methods.points.map import MAP
from posteria.methods.points.polish import learnt_by_heart, measured
from posteria.methods.points.tuning import check_gaussian, fit_own, prior_precision
from posteria.models.model import Model
from posteria.models.target import Target
from posteria.posteriors.linearised import LaplacePosterior
from posteria.settings import Several, Text, check_settings, refuse_idle

FULL_BATCH = 1000  # data up to which the default ascent takes them all at once
BATCH_SIZE = 128  # beyond: mini-batches, whose noise finds modes that predict better than full batches' do
ROWS_SEEN, MAX_EPOCHS = 2_000_000, 300  # over all epochs; epochs at most
NEWTON_STEPS, NUM_LENGTHS = 3, 4  # at most, with the whole matrix; lengths of a step that are tried
LEAST_GAIN = 1e-3  # nats of log density for which a step is taken
LIKELIHOOD_ROWS = 4096  # data whose log likelihood is computed at once


@dataclass(frozen=True)
class Laplace(Costed):
    """A Gaussian at the mode, in seconds: the quick default, and uncertainty for a network that is already trained.

    N(mode, T (H + prior precision)^-1), where H is the generalised Gauss-Newton matrix (`curvature="ggn"`) or the
    Fisher information from `num_labels` drawn labels a datum ("fisher": for many classes). `structure` of H: "full",
    "kron" (Kronecker-factored), "diagonal" or "lowrank" (the `rank` leading directions); "auto" is full for small
    networks (exact for linear ones) and kron beyond. `subset` are the weights that vary: "all", "last" (layer), or
    patterns of paths.

    The mode is found by `map` ("auto": full batches on small data, mini-batches on large; noise by the evidence where
    there are more rows than weights). Scales that the prior infers are set there by the evidence, and checked on
    held-out rows where weights outnumber rows.
    Weights that are given, as `start` or in a trained network, are taken as the mode as they are, unless a `map` is
    stated, which climbs on from them; only the likelihood's own parameters are then fitted, and with `tune_prior` the
    prior's scale: by the "evidence", one a leaf of the network ("layers"), or by a fifth of the rows ("validation").
    Own parameters are Gaussian too, independent of the weights. `facts["decrement"]` says how far from a mode the
    weights are, in nats. Tuning tries what a stated `map` tries.
    """

    structure: Structure | Literal["auto"] = "auto"
    subset: Text | tuple[Text, ...] = "all"
    curvature: Curvature = "ggn"
    predictive: Literal["linearised", "sampled", "probit"] = "linearised"
    map: MAP | Literal["auto"] = "auto"
    rank: Several = 100
    num_labels: Several = 1
    tune_prior: Literal["evidence", "layers", "validation"] | None = None

    fidelity: ClassVar[str] = "exact"
    paper: ClassVar[str] = "MacKay 1992; Daxberger et al. 2021"

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.structure != "lowrank", "rank", f"structure={self.structure!r}")
        refuse_idle(self, self.curvature != "fisher", "num_labels", f"curvature={self.curvature!r}")

    def expected_gradients(self, num_data: int) -> float:
        return self._climb(num_data).expected_gradients(num_data)

    def with_budget(self, gradients: float, num_data: int) -> "Laplace":
        return replace(self, map=self._climb(num_data).with_budget(gradients, num_data))

    def trials(self) -> list[Any]:
        return [self] if isinstance(self.map, str) else varied_inside(self, "map")

    def _climb(self, num_data: int) -> MAP:
        return climb_of(num_data) if isinstance(self.map, str) else self.map

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> LaplacePosterior:
        key_mode, key_measure = jax.random.split(key)
        settings = self._settings(target)
        check_likelihood(target, settings)
        if self.predictive == "probit" and target.model.likelihood.kind != "classes":
            raise SettingError('predictive is "probit"', "a likelihood of classes for it", 'take "linearised"')
        check_fits(target, settings)
        is_given = self.map == "auto" and (start is not None or target.model.network.trained)
        if self.tune_prior and not is_given:
            raise SettingError(
                f"tune_prior is {self.tune_prior!r}, and weights are yet to be found",
                "weights that are given, as start or in a trained network",
                'map=po.MAP(tune="evidence") tunes on the way to a mode',
            )
        if is_given:
            target, params, held = self._given(key_mode, target, settings, start, run)
            is_checked = True  # own parameters by the evidence
            remedy = "they were given, and map=po.MAP() would climb on from there"
        else:
            climb = default_map(target) if isinstance(self.map, str) else self.map
            is_streamed = is_source(target.data)
            polishes = climb.polish is not False and not (climb.validation or target.augment or is_streamed)
            (modes,) = climb.find(key_mode, target, start, run, 1, polishes)
            target, params, held = modes.target, tree.one(modes.params), modes.held
            if target.scales:
                params = cross_checked(climb, key_mode, target, params, run)
            is_checked = bool(climb.tune or climb.validation)
            remedy = climb.remedy(is_full=polishes)
        precision = _measured(target, params, settings, key_measure)
        for _ in range(0 if is_given else NEWTON_STEPS):
            stepped = _stepped(target, params, precision, settings)
            if stepped is None:
                break
            params = stepped
            precision = _measured(target, params, settings, key_measure)
        own, note = _own_factor(target, params)
        run.note(note)
        run.note("" if is_checked else learnt_by_heart(target))
        posterior = LaplacePosterior(
            target,
            tree.ravel(params),
            precision,
            own,
            paths=settings.paths,
            predictive=self.predictive,
            log_joint=_log_joint(target, params, settings.paths),
        )
        posterior.facts |= measured(target, tree.stack([params]), run, held, remedy)
        return posterior

    def estimate(self, model: Model, data: Data) -> Estimate:
        """Memory and time of the curvature, from shapes alone; the fit refuses what this machine cannot hold."""
        target = Target(model, data)
        return estimate(target, self._settings(target))

    def _settings(self, target: Target) -> Settings:
        paths = subset_paths(target, self.subset)
        structure = choose_structure(target, paths) if self.structure == "auto" else self.structure
        return Settings(structure, paths, self.curvature, self.num_labels, self.rank)

    def _given(
        self, key: jax.Array, target: Target, settings: Settings, start: tree.Params, run: Run
    ) -> tuple[Target, tree.Params, tuple[str, ...]]:
        """Weights as they are, the target with the prior that was tuned for them, and what else was set."""
        params = target.init(key) if start is None else tree.index(target.as_starts(start, 1), 0)
        held: tuple[str, ...] = ("likelihood",)
        if self.tune_prior:
            target, params = tuned(self.tune_prior, key, target, tree.on_device(params), settings, run)
        elif target.data is None:
            held = ()
        elif target.scales:
            check_gaussian(target, params)
            params = at_given_weights(target, params, settings, key)
        elif jax.tree.leaves(params["likelihood"]):
            params = fit_own(target, params, settings, key)
        else:
            held = ()
        return target, tree.on_device(params), held


def _measured(target: Target, params: tree.Params, settings: Settings, key: jax.Array) -> Precision:
    prior = prior_precision(target, params)[factored(target.without_data(), settings.paths).order]
    return measure(target, params, target.data, settings, prior, key)


def _stepped(target: Target, params: tree.Params, precision: Precision, settings: Settings) -> tree.Params | None:
    """A Gauss-Newton step closer to the mode, where the whole matrix is at hand; None where it gains nothing."""
    if settings.structure != "full" or is_source(target.data):
        return None
    step = _compiled_step(target.without_data(), settings.paths)
    stepped, gain = step(params, precision.factor, target.data)  # type: ignore[attr-defined]
    return stepped if gain > LEAST_GAIN else None


@kept
def _compiled_step(target: Target, paths: tuple[str, ...]) -> Callable[..., tree.Tree]:
    order, unravel = factored(target, paths).order, tree.unraveller(target.structs)

    @jax.jit
    def step(params: tree.Params, factor: jax.Array, data: Data) -> tuple[tree.Params, jax.Array]:
        flat = tree.ravel(params)
        value, gradient = jax.value_and_grad(lambda flat: target.log_density(unravel(flat), data))(flat)
        move = target.temperature * factor @ (factor.T @ gradient[order])
        lengths = 0.5 ** jnp.arange(NUM_LENGTHS)  # the longest first
        tries = jax.lax.map(lambda length: flat.at[order].add(length * move), lengths)
        values = jax.lax.map(lambda flat: target.log_density(unravel(flat), data), tries)
        best = jnp.argmax(jnp.where(jnp.isfinite(values), values, -jnp.inf))
        return unravel(tries[best]), values[best] - value

    return step


def default_map(target: Target) -> MAP:
    """Full batches on small data; on large ones as many epochs as make two million rows.

    Noise is set by the evidence where there are more rows than weights, else it is at the joint mode: the evidence
    would then ask for more than there is, and intervals would cover too much.
    """
    has_noise = bool(jax.tree.leaves(target.structs["likelihood"]))
    is_determined = tree.size(target.structs["network"]) < target.total_weight
    is_tuned = has_noise and is_determined and target.temperature == 1.0 and not target.scales
    return climb_of(target.num_data, "noise" if is_tuned else None)


def climb_of(num_data: int, tune: Literal["noise"] | None = None) -> MAP:
    if num_data <= FULL_BATCH:
        return MAP(tune=tune)
    num_epochs = int(np.clip(ROWS_SEEN // num_data, 20, MAX_EPOCHS))
    return MAP(num_epochs=num_epochs, batch_size=BATCH_SIZE, tune=tune, tune_every=max(1, num_epochs // 10))


def _own_factor(target: Target, params: tree.Params) -> tuple[np.ndarray, str]:
    """A factor of the covariance of the likelihood's own parameters, weights given; 0 where they are no maximum."""
    k = tree.size(params["likelihood"])
    if k == 0:
        return np.zeros((0, 0)), ""
    hessian = -np.asarray(_compiled_own_hessian(target.without_data())(params["likelihood"], params, None), np.float64)
    for batch, counts in _batches(target):
        hessian -= np.asarray(
            _compiled_own_hessian(target.without_data())(params["likelihood"], params, (batch, counts))
        )
    if np.linalg.eigvalsh(hessian).min() <= 0:
        return np.zeros((k, k)), "the likelihood's own parameters are held at their value: they are at no maximum"
    return np.linalg.cholesky(np.linalg.inv(hessian)), ""


@kept
def _compiled_own_hessian(target: Target) -> Callable[..., tree.Tree]:
    unravel = tree.unraveller(target.structs["likelihood"])

    def value(flat: jax.Array, params: tree.Params, part: Data) -> jax.Array:
        own = unravel(flat)
        if part is None:
            return target.model.likelihood.log_prior(own)
        batch, counts = part
        total: jax.Array = (counts * target.log_likelihood({**params, "likelihood": own}, batch)).sum()
        return total

    return jax.jit(lambda own, params, part: jax.hessian(value)(tree.ravel(own), params, part))


def _log_joint(target: Target, params: tree.Params, paths: tuple[str, ...]) -> float:
    """log p(data, the parameters that vary), the scales integrated out where they are inferred."""
    total = float(_compiled_log_prior(target.without_data(), paths)(params))
    total += log_integral(target, params) if target.scales else 0.0
    add = _compiled_log_likelihood(target.without_data())
    return total + sum(float(add(params, batch, counts)) for batch, counts in _batches(target))


def _batches(target: Target) -> Iterable[tuple[Data, np.ndarray]]:
    if target.data is None:
        return ()
    return blocks(target.data, target.num_data, min(LIKELIHOOD_ROWS, target.num_data))


@kept
def _compiled_log_likelihood(target: Target) -> Callable[..., tree.Tree]:
    return jax.jit(lambda params, batch, counts: (counts * target.log_likelihood(params, batch)).sum())


@kept
def _compiled_log_prior(target: Target, paths: tuple[str, ...]) -> Callable[..., tree.Tree]:
    def log_prior(params: tree.Params) -> jax.Array:
        own = target.model.likelihood.log_prior(params["likelihood"])
        leaves, logs = jax.tree.leaves(target.relative(params)["network"]), [jnp.zeros(())] * len(target.leaves)
        if target.scales:
            logs = target.scales.logs(params["prior"])
        terms = (
            target.model.prior.log_prob(value, leaf) - jnp.broadcast_to(log, leaf.shape).sum()
            for value, leaf, log in zip(leaves, target.leaves, logs)
            if leaf.path in paths
        )
        return sum(terms, start=own)

    return jax.jit(log_prior)
