"""Expectation propagation: one Gaussian over the weights, updated datum by datum so that its moments match.

With log Z = log of the integral of p(y | f) over the outputs' Gaussian, matching mean and variance is
    mean' = mean + variance dlogZ/dmean
    variance' = variance - variance^2 ((dlogZ/dmean)^2 - 2 dlogZ/dvariance).
A model linear in its weights gets expectation propagation proper: a full covariance, a site for each datum that is
taken out before it is refined, and the evidence; it is exact where the likelihood is Gaussian. Minka 2001.
A ReLU network gets probabilistic backpropagation (`probabilistic_backprop.py`). Hernandez-Lobato and Adams 2015.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jax.scipy.special import digamma, polygamma

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data, parts
from posteria.data.batches import take
from posteria.engine.loop import Kernel, Run
from posteria.errors import SettingError
from posteria.methods.costs import Costed
from posteria.methods.gaussians.probabilistic_backprop import backprop_kernel, first_means, unit_vector
from posteria.models.densities import Gamma
from posteria.models.target import Target
from posteria.posteriors.closed_form import MomentPosterior
from posteria.posteriors.gaussian import Diagonal, Full
from posteria.settings import Count, Positive, above, check_settings
from posteria.trace import moments


@dataclass(frozen=True)
class ExpectationPropagation(Costed):
    """Moments matched datum by datum: ReLU networks without a learning rate to tune, and exact on linear regression.

    On networks the weights are independent, their prior's scale and the noise are inferred under Gamma priors of its
    own (`gamma_shape` and `gamma_rate`, of precisions: the prior's is relative to the model's), and the data are passed
    over `num_passes` times, each time as if new: the published procedure, whose variances shrink with passes. A pass
    counts as a gradient, and a budget sets their number.
    """

    num_passes: Count = 40
    gamma_shape: Annotated[float, above(1)] = 6.0  # the variance has no mean else
    gamma_rate: Positive = 6.0

    fidelity: ClassVar[str] = "procedure"
    paper: ClassVar[str] = "Hernandez-Lobato & Adams 2015"
    model_differs: ClassVar[str] = "its own Gamma hyper-priors"

    lengths: ClassVar[dict[str, int]] = {"num_passes": 1}

    def __post_init__(self) -> None:
        check_settings(self)

    def expected_gradients(self, num_data: int) -> float:
        return float(self.num_passes)

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> MomentPosterior:
        bare = target.without_data()
        is_linear = _check(bare)
        if target.data is None:
            scale = jnp.sqrt(target.temperature) * unit_vector(bare)
            return MomentPosterior(bare, jnp.zeros_like(scale), Full(jnp.diag(scale)) if is_linear else Diagonal(scale))
        precision = Gamma(jnp.asarray(self.gamma_shape), jnp.asarray(self.gamma_rate))
        noise = precision if jax.tree.leaves(bare.structs["likelihood"]) else None
        if len(target.data) > 2 and (noise is not None or not is_linear):
            raise SettingError(
                "weights of rows, with Gamma priors of its own, for which each row is seen once",
                "a linear model of known noise for weights",
                "leave the weights out, or use Laplace or a sampler",
            )
        key_start, key_loop = jax.random.split(key)
        if is_linear:
            begin: Any = jnp.zeros_like(unit_vector(bare)), noise
            kernel = linear_kernel(bare)
        else:
            begin = first_means(key_start, target, start), noise, precision
            kernel = backprop_kernel(bare)
        trace = run.loop(
            kernel, key_loop, jax.tree.map(lambda leaf: leaf[None], begin), target.data, num_steps=self.num_passes
        )
        state = tree.index(tree.on_device(trace.state), 0)
        own_prior = f"has the method's own prior, Gamma({self.gamma_shape:g}, {self.gamma_rate:g})"
        if noise is not None:
            run.note(f"the noise's precision {own_prior}")
        if not is_linear:
            run.note(f"the weights' scale {own_prior}")
            unit = unit_vector(bare)
            std = jnp.sqrt(state.variance)
            return MomentPosterior(bare, *_with_noise(bare, unit * state.mean, Diagonal(unit * std), state.noise))
        evidence = float(_log_evidence(bare)(state, target.data)) if noise is None and target.temperature == 1 else None
        factor = jnp.linalg.cholesky(state.covariance)
        return MomentPosterior(bare, *_with_noise(bare, state.mean, Full(factor), state.noise), evidence)


@kept
def _check(target: Target) -> bool:
    """Whether the model is linear in its weights; refuses what the method cannot do, before anything compiles."""
    likelihood = target.model.likelihood
    if not hasattr(likelihood, "moment_update"):
        raise SettingError(
            f"{type(likelihood).__name__} has no `moment_update`", "a Gaussian or Bernoulli likelihood", "use Laplace"
        )
    if tree.size(target.structs["likelihood"]) > 1:
        raise SettingError("a noise for each target", "one for all, under one Gamma prior", "take Gaussian()")
    target.check_proper()
    target.check_no_scales("expectation propagation infers one scale, under a Gamma prior of its own")
    unit_vector(target)  # refuses a prior that is not normal
    network, x = target.structs["network"], target.blank_input
    if x is None:
        raise SettingError("data is None", "an x for its shapes", "pass data=(x, None) for the prior")
    is_linear = moments.is_affine(target.model.network.apply, network, x)
    if not is_linear:
        jax.eval_shape(moments.moments(target.model.network.apply), network, network, x)  # names what it cannot follow
    has_hyper_priors = not is_linear or jax.tree.leaves(target.structs["likelihood"])
    if has_hyper_priors and target.temperature != 1.0:
        raise SettingError(
            f"temperature {target.temperature}, with Gamma priors that would have to be tempered as well",
            "temperature 1, or a linear model of known noise",
            "use a sampler or Laplace for other temperatures",
        )
    return is_linear


def _with_noise(target: Target, mean: jax.Array, spread: Any, noise: Gamma | None) -> tuple[jax.Array, Any]:
    """The Gaussian over all parameters: the log of a precision that is Gamma has the moments digamma, trigamma."""
    if noise is None:
        return mean, spread
    log_mean, log_std = digamma(noise.shape) - jnp.log(noise.rate), jnp.sqrt(polygamma(1, noise.shape))
    mean = jnp.concatenate([log_mean[None], mean])  # "likelihood" comes before "network"
    if isinstance(spread, Diagonal):
        return mean, Diagonal(jnp.concatenate([log_std[None], jnp.asarray(spread.std)]))
    return mean, Full(jax.scipy.linalg.block_diag(log_std, spread.factor))


# ---- models that are linear in their weights


class Sites(NamedTuple):
    """What each datum says, as exp(shift f - precision f^2 / 2), and of the noise, as added shape and rate."""

    precision: jax.Array  # (datum, output)
    shift: jax.Array
    noise: Gamma | None  # of (datum,)


class LinearState(NamedTuple):
    mean: jax.Array  # (size,)
    covariance: jax.Array  # (size, size)
    sites: Sites
    noise: Gamma | None


class Info(NamedTuple):
    log_density: jax.Array  # the sum of log Z
    num_gradients: jax.Array  # of all data


@kept
def linear_kernel(target: Target) -> Kernel:
    """A step is a pass over the data, in a random order."""
    prior_variance = target.temperature * unit_vector(target) ** 2
    jacobians = _jacobians(target)
    update = target.model.likelihood.moment_update  # type: ignore[attr-defined]

    def init(key: jax.Array, begin: tree.Tree, data: Data) -> LinearState:
        mean, noise = begin
        zeros = jnp.zeros((target.num_data, target.num_outputs), prior_variance.dtype)
        noise_sites = jax.tree.map(lambda leaf: jnp.zeros(target.num_data, leaf.dtype), noise)
        return LinearState(mean, jnp.diag(prior_variance), Sites(zeros, zeros, noise_sites), noise)

    def step(key: jax.Array, state: LinearState, data: Data) -> tuple[LinearState, Info]:
        rows, offsets = jacobians(data[0])

        def visit(state: LinearState, i: jax.Array) -> tuple[LinearState, jax.Array]:
            row, site = rows[i], tree.index(state.sites, i)
            spread = state.covariance @ row.T  # (size, output)
            outputs, mean = row @ spread, row @ state.mean
            variance = jnp.diag(outputs)
            cavity_variance = 1 / (1 / variance - site.precision)
            cavity_mean = cavity_variance * (mean / variance - site.shift)
            cavity_noise = jax.tree.map(lambda all, own: (all - own)[None], state.noise, site.noise)
            y, power = take(data[1], i[None]), 1 / target.temperature
            if len(data) > 2:
                power *= data[2][i]

            def log_z(mean: jax.Array, variance: jax.Array) -> tuple[jax.Array, Gamma | None]:
                value, noise = update(cavity_noise, mean[None], variance[None], y, power)
                return value[0], noise

            (value, noise), (slope, slope_variance) = jax.value_and_grad(log_z, (0, 1), has_aux=True)(
                cavity_mean + offsets[i], cavity_variance
            )
            curvature = slope**2 - 2 * slope_variance
            left = 1 - cavity_variance * curvature  # share of the variance that is left
            new = Sites(
                curvature / left,
                (slope + cavity_mean * curvature) / left,
                jax.tree.map(lambda new, old: (new - old)[0], noise, cavity_noise),
            )
            is_valid = ((cavity_variance > 0) & (left > 0)).all() & jnp.isfinite(value)
            if noise is not None:
                is_valid &= (cavity_noise.shape[0] > 1) & (noise.shape[0] > 0) & (noise.rate[0] > 0)
            new = jax.tree.map(lambda new, old: jnp.where(is_valid, new, old), new, site)

            more = new.precision - site.precision
            gain = jnp.linalg.solve(jnp.eye(len(more)) + more[:, None] * outputs, more[:, None] * spread.T)
            covariance = state.covariance - spread @ gain
            pull = new.shift - site.shift - more * mean
            return LinearState(
                state.mean + covariance @ (row.T @ pull),
                covariance,
                jax.tree.map(lambda all, value: all.at[i].set(value), state.sites, new),
                jax.tree.map(lambda all, new, old: all + new - old, state.noise, new.noise, site.noise),
            ), value

        state, log_zs = jax.lax.scan(visit, state, jax.random.permutation(key, target.num_data))
        # from the sites again: rounding errors of the updates do not add up
        precision = jnp.diag(1 / prior_variance) + jnp.einsum("nki,nk,nkj->ij", rows, state.sites.precision, rows)
        factor = jnp.linalg.cholesky(precision)
        covariance = cho_solve((factor, True), jnp.eye(len(precision)))
        mean = cho_solve((factor, True), jnp.einsum("nki,nk->i", rows, state.sites.shift))
        return state._replace(mean=mean, covariance=covariance), Info(log_zs.sum(), jnp.asarray(1))

    return Kernel(init, step)


@kept
def _jacobians(target: Target) -> Callable[..., tree.Tree]:
    """x -> (derivatives (datum, output, size) of the outputs by the weights, outputs (datum, output) at 0)."""
    unravel = tree.unraveller(target.structs["network"])
    zero = jnp.zeros(tree.size(target.structs["network"]))

    def one(datum: tree.Tree) -> tuple[jax.Array, jax.Array]:
        def outputs(flat: jax.Array) -> jax.Array:
            return target.model.outputs(unravel(flat), jax.tree.map(lambda leaf: leaf[None], datum))[0]

        return jax.jacrev(outputs)(zero), outputs(zero)

    return jax.vmap(one)


@kept
def _log_evidence(target: Target) -> Callable[..., tree.Tree]:
    """Of EP: each datum's log Z over that of its site, and the integral of the prior times all sites. Minka 2001."""
    jacobians = _jacobians(target)
    prior_variance = unit_vector(target) ** 2

    @jax.jit
    def log_evidence(state: LinearState, data: Data) -> jax.Array:
        rows, offsets = jacobians(data[0])
        precision, shift, _ = state.sites
        mean = jnp.einsum("nki,i->nk", rows, state.mean)
        variance = jnp.einsum("nki,ij,nkj->nk", rows, state.covariance, rows)
        cavity_variance = 1 / (1 / variance - precision)
        cavity_mean = cavity_variance * (mean / variance - shift)
        _, y, weight = parts(data)
        powers = jnp.ones(len(mean)) if weight is None else weight

        def of_row(mean: jax.Array, variance: jax.Array, y: jax.Array, power: jax.Array) -> jax.Array:
            likelihood: Any = target.model.likelihood
            value: jax.Array = likelihood.moment_update(None, mean[None], variance[None], y[None], power)[0][0]
            return value

        log_z = jax.vmap(of_row)(cavity_mean + offsets, cavity_variance, y, powers)
        log_site = 0.5 * (jnp.log(variance / cavity_variance) + mean**2 / variance - cavity_mean**2 / cavity_variance)
        factor = jnp.linalg.cholesky(state.covariance)
        white = jax.scipy.linalg.solve_triangular(factor, state.mean, lower=True)
        log_volume = jnp.log(jnp.diag(factor)).sum() - 0.5 * jnp.log(prior_variance).sum()
        log_evidence_of_state: jax.Array = (log_z - log_site.sum(-1)).sum() + log_volume + 0.5 * white @ white
        return log_evidence_of_state

    return log_evidence
