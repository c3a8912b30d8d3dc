"""Prior scales and the likelihood's own parameters by the evidence, while the mode is being found.

Rounds of ascent and of re-estimation. With the curvature H at the mode, gamma = D - tr(prior (H + prior)^-1) weights
are determined by the data, and the prior variance that makes the evidence stationary is |w|^2 / gamma (MacKay 1992).
The likelihood's own parameters maximise `log p(y | f, own) - tr(cov(f) H(own)) / 2 + log p(own)`, summed over the
data: stationary where the evidence is, for any likelihood that has an output Hessian.
"""

import glob
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.curvature.jacobian import factored, subset_paths
from posteria.curvature.measure import (
    Settings,
    Summed,
    choose_structure,
    estimate,
    measure,
    solved,
    summed,
    with_prior,
)
from posteria.curvature.precision import Precision
from posteria.data.arrays import Data, parts, rows, weighted
from posteria.data.batches import Augment
from posteria.engine.loop import Run
from posteria.errors import SettingError
from posteria.models.likelihoods import factor_of
from posteria.models.priors import ByPath, Normal
from posteria.models.target import Target
from posteria.posteriors.linearised import LaplacePosterior

MAX_ROWS = 4096  # data by which the likelihood's own parameters are judged
EXACT_ROWS, EXACT_ELEMENTS = 1024, 2**24  # rows times outputs, and these times weights, that are taken as they are
MAX_SECONDS = 60  # that a round's curvature may take, as estimated
OWN_ROUNDS, SCALE_ROUNDS, LEAST_MOVE = 5, 40, 1e-3  # at most; of parameters that are logarithms
NEWTON_STEPS, LARGEST_STEP = 30, 1.0
LEAST_SCALE, MOST_SCALE = 1e-3, 1e3  # of the prior's own


class ScaledTarget:
    """A target whose prior is p(w / scale) / scale leaf by leaf; the scales, and the likelihood's own parameters, are
    parameters that no gradient moves."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.num_data, self.data, self.held = target.num_data, target.data, ("likelihood", "log_scales")

    @property
    def compiled_for(self) -> object:
        return self.target.compiled_for

    @property
    def augment(self) -> Augment | None:
        return self.target.augment

    @property
    def structs(self) -> tree.Params:
        network = self.target.structs
        scales = jax.ShapeDtypeStruct((len(jax.tree.leaves(network["network"])),), jnp.float32)
        return network | {"log_scales": scales}

    def without_data(self) -> "ScaledTarget":
        return ScaledTarget(self.target.without_data())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScaledTarget) and self.target == other.target

    def __hash__(self) -> int:
        return hash((ScaledTarget, self.target))

    def check_proper(self) -> None:
        self.target.check_proper()

    def log_likelihood(self, params: tree.Params, batch: Data) -> jax.Array:
        return self.target.log_likelihood(_still(params), batch)

    def log_density(self, params: tree.Params, batch: Data = None) -> jax.Array:
        batch = self.data if batch is None else batch
        params = _still(params)
        scales, leaves = jnp.exp(params["log_scales"]), jax.tree.leaves(params["network"])
        scaled = jax.tree.structure(params["network"]).unflatten(
            (leaf / scale).astype(leaf.dtype) for leaf, scale in zip(leaves, scales)
        )
        sizes = jnp.asarray([leaf.size for leaf in leaves], scales.dtype)
        log_prior = self.target.log_prior(params | {"network": scaled}) - (sizes * params["log_scales"]).sum()
        return self.target.tempered(log_prior, None if batch is None else self.log_likelihood(params, batch))


def _still(params: tree.Params) -> tree.Params:
    return params | jax.lax.stop_gradient({name: params[name] for name in ("likelihood", "log_scales")})


def climb_tuned(method: Any, key: jax.Array, target: Target, start: tree.Params, run: Run) -> tuple[Target, Any]:
    """From one start: the target with its tuned prior, and what the ascent `method` (a MAP) reaches under it."""
    tunes_prior = method.tune != "noise"
    if tunes_prior:
        check_gaussian(target, start)
    num_rounds = max(1, method.num_epochs // 2 // method.tune_every)
    ascent = replace(method, tune=None, num_epochs=min(method.tune_every, method.num_epochs))
    scaled, settings = ScaledTarget(target), tuning_settings(target)
    params = start | {"log_scales": jnp.zeros(len(jax.tree.leaves(start["network"])))}
    for number in range(num_rounds):
        key, key_climb, key_measure = jax.random.split(key, 3)
        stage = run.stage(f"round {number + 1}", share=1 / (2 * (num_rounds - number)))
        climbed = ascent.climb(key_climb, scaled, tree.stack([params]), stage)
        params = tree.index(climbed.params, 0)
        params = _retuned(target, params, settings, tunes_prior, method.tune == "layers", key_measure)
    last = replace(method, tune=None, num_epochs=max(1, method.num_epochs - num_rounds * method.tune_every))
    climbed = last.climb(key, scaled, tree.stack([params]), run.stage("last round"))
    params = dict(climbed.params)
    log_scales = np.asarray(params.pop("log_scales")[0])
    return (with_scales(target, np.exp(log_scales)) if tunes_prior else target), climbed._replace(params=params)


def fit_own(target: Target, params: tree.Params, settings: Settings, key: jax.Array) -> tree.Params:
    """The likelihood's own parameters for weights that stay where they are, uncertain as `settings` measure it."""
    still = jnp.zeros(len(jax.tree.leaves(params["network"])))
    for key_round in jax.random.split(key, OWN_ROUNDS):
        tuned = _retuned(target, params | {"log_scales": still}, settings, False, False, key_round)
        moved = tree.ravel(tuned["likelihood"]) - tree.ravel(params["likelihood"])
        params = {**params, "likelihood": tuned["likelihood"]}
        if jnp.abs(moved).max() < LEAST_MOVE:
            break
    return params


def fit_scales(
    target: Target, params: tree.Params, settings: Settings, by_leaf: bool, key: jax.Array
) -> tuple[Target, tree.Params]:
    """The target with the prior's scales by the evidence at given weights, which stay; and own parameters."""
    found = params | {"log_scales": jnp.zeros(len(jax.tree.leaves(params["network"])))}
    once = None
    if settings.structure != "lowrank" and not jax.tree.leaves(params["likelihood"]):
        once = solved(settings, summed(target, params, target.data, settings, key))  # no round changes it
    for key_round in jax.random.split(key, SCALE_ROUNDS):
        before = found
        found = _retuned(target, found, settings, True, by_leaf, key_round, once)
        moves = [tree.ravel({name: each[name] for name in ("likelihood", "log_scales")}) for each in (before, found)]
        if jnp.abs(moves[1] - moves[0]).max() < LEAST_MOVE:
            break
    log_scales = np.asarray(found["log_scales"], np.float64)
    return with_scales(target, np.exp(log_scales)), {**params, "likelihood": found["likelihood"]}


def tuning_settings(target: Target) -> Settings:
    """All weights, in the structure that takes seconds: it is measured in every round.

    Where there are fewer rows than weights the whole matrix is known by its action on the rows.
    """
    paths = subset_paths(target, "all")
    settings = Settings(choose_structure(target, paths), paths)
    num_rows = target.num_data * (target.num_outputs or 1)
    is_small = num_rows <= EXACT_ROWS and num_rows * tree.size(target.structs["network"]) <= EXACT_ELEMENTS
    if num_rows < tree.size(target.structs["network"]) and is_small:
        settings = Settings("lowrank", paths, rank=num_rows)
    return settings if estimate(target, settings).seconds < MAX_SECONDS else replace(settings, structure="diagonal")


def _retuned(
    target: Target,
    params: tree.Params,
    settings: Settings,
    tunes_prior: bool,
    by_leaf: bool,
    key: jax.Array,
    once: Summed | None = None,
) -> tree.Params:
    """Scales and own parameters, one step on; `once` is the data's curvature, where it is known."""
    network = factored(target.without_data(), settings.paths)
    weights = {"network": params["network"], "likelihood": params["likelihood"]}
    scales = np.exp(np.asarray(params["log_scales"], np.float64))
    unit_prior = prior_precision(target, weights)  # at scale 1, over all parameters
    sizes = [leaf.size for leaf in jax.tree.leaves(params["network"])]
    first = len(unit_prior) - sum(sizes)
    prior = unit_prior.copy()
    prior[first:] /= np.repeat(scales, sizes) ** 2
    if once is None:
        precision = measure(target, weights, target.data, settings, prior[network.order], key)
    else:
        precision = with_prior(target, settings, once, prior[network.order])
    flat = np.asarray(tree.ravel(weights), np.float64)
    if jax.tree.leaves(params["likelihood"]):
        params = {**params, "likelihood": own_by_evidence(target, weights, precision, settings)}
    if tunes_prior:
        determined = np.ones(len(flat))
        determined[network.order] -= prior[network.order] * np.asarray(precision.variances, np.float64)
        sums = [unit_prior * flat**2, determined]
        cuts = np.cumsum([first, *sizes])
        squares, gamma = (np.asarray([part[a:b].sum() for a, b in itertools.pairwise(cuts)]) for part in sums)
        if not by_leaf:
            squares, gamma = (np.full(len(sizes), part.sum()) for part in (squares, gamma))
        tuned = np.sqrt(squares / np.maximum(gamma, 1e-6)).clip(LEAST_SCALE, MOST_SCALE)
        params = {**params, "log_scales": jnp.asarray(np.log(tuned), params["log_scales"].dtype)}
    return params


def own_by_evidence(target: Target, params: tree.Params, precision: Precision, settings: Settings) -> Any:
    """The likelihood's own parameters, with the outputs' moments as they are; at another temperature than 1 there is
    no evidence, and no variance."""
    size = tree.size(params["likelihood"])
    own = np.zeros((size, size))
    posterior = LaplacePosterior(target, tree.ravel(params), precision, own, paths=settings.paths)
    every = max(1, -(-target.num_data // MAX_ROWS))
    x, y, weight = parts(rows(target.data, np.arange(0, target.num_data, every)))
    mean, covariance = posterior.function_moments(x)
    if target.temperature != 1.0:
        covariance = np.zeros_like(covariance)
    return _compiled_own(target.without_data())(params["likelihood"], mean, covariance, y, weight)


@kept
def _compiled_own(target: Target) -> Callable[..., tree.Params]:
    likelihood: Any = target.model.likelihood
    unravel = tree.unraveller(target.structs["likelihood"])

    @jax.jit
    def solve(own: tree.Params, mean: jax.Array, covariance: jax.Array, y: Any, weight: Any) -> Any:
        def value(flat: jax.Array) -> jax.Array:
            own = unravel(flat)
            log_likelihood = factor_of(likelihood, own, mean, y)
            penalty = jnp.einsum("nij,nji->n", covariance, likelihood.output_hessian(own, mean, y))
            share = target.num_data / len(log_likelihood)
            terms = weighted(log_likelihood - 0.5 * penalty, (mean, y, weight))
            value: jax.Array = share * terms.sum() + likelihood.log_prior(own)
            return value

        def newton(flat: jax.Array, _: None) -> tuple[jax.Array, None]:
            gradient, hessian = jax.grad(value)(flat), jax.hessian(value)(flat)
            values, vectors = jnp.linalg.eigh(hessian)  # uphill, also where it is not concave
            move = vectors @ ((vectors.T @ gradient) / jnp.maximum(jnp.abs(values), 1e-6))
            return flat + move.clip(-LARGEST_STEP, LARGEST_STEP), None

        flat, _ = jax.lax.scan(newton, tree.ravel(own), None, length=NEWTON_STEPS)
        return unravel(flat)

    return solve


# ---- the prior as a Gaussian


def prior_precision(target: Target, params: tree.Params) -> np.ndarray:
    """-d^2 log prior / dw^2 of every parameter, flat; 1 / unit^2 where the log prior is not concave."""
    if hasattr(target.model.prior, "joint_log_prob"):
        raise SettingError("a prior that is not independent over the weights", "one that is", "see po.priors")
    return np.asarray(_compiled_prior(target.without_data())(params), np.float64)


@kept
def _compiled_prior(target: Target) -> Callable[..., jax.Array]:
    @jax.jit
    def precision(params: tree.Params) -> jax.Array:
        wide = jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), params)
        gradient = jax.grad(lambda params: -target.log_prior(params))
        ones, units = jax.tree.map(jnp.ones_like, wide), target.units
        if target.scales:  # given these, the Hessian is diagonal
            ones |= {"prior": jax.tree.map(jnp.zeros_like, ones["prior"])}
            units |= {"network": target.scales.scaled(units["network"], params["prior"])}
        _, curvature = jax.jvp(gradient, (wide,), (ones,))
        if target.scales:
            curvature |= {"prior": jax.tree.map(jnp.ones_like, ones["prior"])}
        return tree.ravel(
            jax.tree.map(lambda c, unit: jnp.where(jnp.isfinite(c) & (c > 0), c, unit**-2.0), curvature, units)
        )

    return precision


def check_gaussian(target: Target, params: tree.Params) -> None:
    """Refuse to tune the scale of a prior that is not Normal: the re-estimation would not be its evidence's."""
    shifted = params | {"network": jax.tree.map(lambda leaf: leaf + 1, params["network"])}
    here, there = (prior_precision(target, p)[tree.size(params["likelihood"]) :] for p in (params, shifted))
    if not np.allclose(here, there, rtol=1e-2):
        raise SettingError(
            f"{type(target.model.prior).__name__} has no constant curvature",
            "a Normal prior, to tune its scale by the evidence",
            "take po.priors.FanIn() or po.priors.Normal()",
        )


def with_scales(target: Target, scales: np.ndarray) -> Target:
    """The target with Normal priors of the tuned standard deviations."""
    stds = [(leaf.path, float(scale * target.model.prior.unit(leaf))) for leaf, scale in zip(target.leaves, scales)]
    prior = ByPath([(glob.escape(path), Normal(std)) for path, std in stds])
    return Target(replace(target.model, prior=prior), target.data)
