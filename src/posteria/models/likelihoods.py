"""Likelihoods: how y is distributed given a network's outputs.

A likelihood is a frozen dataclass of settings and sees outputs and its own parameters, never the network's. The
`Likelihood` protocol is the whole contract: any class that meets it will do, and needs no inheritance.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.scipy import special

from posteria import settings
from posteria.data import arrays
from posteria.errors import NetworkError, SettingError
from posteria.models import densities
from posteria.models.asymmetric_laplace import AsymmetricLaplace as AsymmetricLaplace
from posteria.models.labels import Bernoulli as Bernoulli
from posteria.models.labels import Categorical as Categorical
from posteria.models.labels import Kind as Kind
from posteria.models.labels import LabelSmoothing as LabelSmoothing
from posteria.models.labels import NothingToInfer
from posteria.models.negative_binomial import NegativeBinomial as NegativeBinomial
from posteria.models.noisy_dirichlet import NoisyDirichlet as NoisyDirichlet
from posteria.models.varying_noise import VaryingNoise as VaryingNoise
from posteria.settings import Count, Infer, Positive, check_settings, infer, refuse_idle
from posteria.tree import Json, Params

MAX_SAMPLED_RATE = 2e9  # Poisson draws are made as 32-bit integers


@runtime_checkable
class Likelihood(Protocol):
    """What Posteria needs of a likelihood. `own` are its own parameters; `outputs` are (batch, outputs).

    All but `check` are pure functions of JAX arrays, so that `jax.vmap` maps them over draws of `own` and `outputs`.

    Capabilities that some uses need, found by their presence:

    - `cdf(own, outputs, y) -> (batch, targets)`: P(Y <= y), for kinds "regression" and "counts" (quantiles, intervals);
    - `probs(own, outputs) -> (batch, classes)`: for kind "classes";
    - `output_hessian(own, outputs, y=None) -> (batch, outputs, outputs)`: the Hessian of -log_prob with respect to
      the outputs, in a positive semi-definite form (here: the Fisher information, its expectation over y);
    - `moment_update(precision, mean, variance, y, power=1.0) -> ((batch,), precision)`: log of the integral of
      p(y | f)^power over f ~ N(mean, variance), outputs independent, for expectation propagation; the power may be
      traced. Where its one own parameter is the log of a precision, that comes as a `Gamma` with leaves (batch,) and
      goes as the Gamma with the matching moments, row by row; else it is None;
    - `sample_own(key) -> own`: a draw of its own parameters from their prior, for the evidence by sampling;
    - `log_factor(own, outputs, y) -> (batch,)`: what a training row contributes to the posterior, where more is
      believed of it than its `log_prob` says. Fits take it in place of `log_prob`, by `factor_of`; what is predicted
      and scored is `log_prob`'s. `output_hessian` is then that of -log_factor.
    """

    kind: ClassVar[Kind]

    def init(self, key: jax.Array) -> Params:
        """Its own parameters as a pytree of unconstrained reals; {} where there is nothing to infer."""

    def log_prior(self, own: Params) -> jax.Array:
        """Normalised log density of `own`, in the unconstrained coordinates (Jacobian included); 0 for {}."""

    def check(self, y: npt.ArrayLike, num_outputs: int) -> np.ndarray:
        """y as the array that `log_prob` wants, or a DataError or NetworkError; on the host, before compiling."""

    def log_prob(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        """One normalised term a datum, summed over targets: (batch,)."""

    def sample(self, key: jax.Array, own: Params, outputs: jax.Array) -> jax.Array:
        """A draw of y for each row of the outputs, in y's shape."""

    def moments(self, own: Params, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of y given the outputs, each (batch, targets); of each class's indicator for classes."""


@dataclass(frozen=True)
class Gaussian:
    """y ~ N(outputs, noise^2), one noise for all targets, or with `num_noises` as many as there are, one for each.

    With `noise=infer`, 1/noise^2 ~ Gamma(shape, rate): given n residuals r of a known mean function its posterior is
    Gamma(shape + n/2, rate + sum(r^2)/2). The default prior is vague for standardised y.
    """

    noise: Positive | Infer = infer
    shape: Positive = 1.0
    rate: Positive = 0.01
    num_noises: Count = 1
    kind: ClassVar[Kind] = "regression"

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.noise is not infer, "num_noises", "a noise that is given")

    def init(self, key: jax.Array) -> Params:
        return _init_precision(self.noise, () if self.num_noises == 1 else (self.num_noises,))

    def log_prior(self, own: Params) -> jax.Array:
        return _log_prior_of_precision(own, self.shape, self.rate)

    def sample_own(self, key: jax.Array) -> Params:
        draw = lambda leaf: jax.random.loggamma(key, self.shape, leaf.shape) - math.log(self.rate)  # noqa: E731
        return jax.tree.map(draw, self.init(key))

    def check(self, y: npt.ArrayLike, num_outputs: int) -> np.ndarray:
        if self.num_noises not in (1, num_outputs):
            raise NetworkError(
                f"the network has {num_outputs} outputs", f"{self.num_noises}, a noise for each", "mend num_noises"
            )
        return arrays.real_targets(y, num_outputs)

    def noise_std(self, own: Params) -> jax.Array:
        """The noise's standard deviation, given or as inferred: (), or (targets,) where each has its own."""
        return jnp.exp(_log_scale(self.noise, own))

    def log_prob(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        log_std = _log_scale(self.noise, own)
        return densities.normal(_residual(y, outputs) * jnp.exp(-log_std), log_std).sum(-1)

    def sample(self, key: jax.Array, own: Params, outputs: jax.Array) -> jax.Array:
        return outputs + self.noise_std(own) * jax.random.normal(key, outputs.shape, outputs.dtype)

    def moments(self, own: Params, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        return outputs, self.noise_std(own) ** 2 * jnp.ones_like(outputs)

    def cdf(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        return special.ndtr(_residual(y, outputs) / self.noise_std(own))

    def quantile(self, own: Params, outputs: jax.Array, q: float) -> jax.Array:
        return outputs + self.noise_std(own) * special.ndtri(jnp.asarray(q, outputs.dtype))

    def output_hessian(self, own: Params, outputs: jax.Array, y: jax.Array | None = None) -> jax.Array:
        return _diagonal(self.noise_std(own) ** -2 * jnp.ones_like(outputs))

    def moment_update(
        self,
        precision: densities.Gamma | None,
        mean: jax.Array,
        variance: jax.Array,
        y: jax.Array,
        power: float = 1.0,
    ) -> tuple[jax.Array, densities.Gamma | None]:
        if precision is not None:
            if power != 1.0:
                raise SettingError("inferred noise at another temperature", "temperature 1", "give the noise a number")
            return densities.matched_precision(precision, variance, _residual(y, mean))
        noise = self.noise_std({})
        total = variance + noise**2 / power  # N^power is a normal of variance noise^2 / power, times what follows
        log_z = densities.normal(_residual(y, mean) / jnp.sqrt(total), 0.5 * jnp.log(total))
        log_factor = (1 - power) * (jnp.log(noise) + 0.5 * densities.LOG_2PI) - 0.5 * jnp.log(power)
        return (log_z + log_factor).sum(-1), None


@dataclass(frozen=True)
class HeteroscedasticGaussian(NothingToInfer):
    """y ~ N(mean, std^2), both from the network: outputs are k means, then k raws with std = softplus(raw) + floor."""

    floor: Positive = 1e-3
    kind: ClassVar[Kind] = "regression"
    outputs_per_target: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_settings(self)

    def check(self, y: npt.ArrayLike, num_outputs: int) -> np.ndarray:
        return arrays.real_targets(y, num_outputs, self.outputs_per_target)

    def log_prob(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        mean, std = self._mean_and_std(outputs)
        return densities.normal(_residual(y, mean) / std, jnp.log(std)).sum(-1)

    def sample(self, key: jax.Array, own: Params, outputs: jax.Array) -> jax.Array:
        mean, std = self._mean_and_std(outputs)
        return mean + std * jax.random.normal(key, mean.shape, mean.dtype)

    def moments(self, own: Params, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, std = self._mean_and_std(outputs)
        return mean, std**2

    def cdf(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        mean, std = self._mean_and_std(outputs)
        return special.ndtr(_residual(y, mean) / std)

    def quantile(self, own: Params, outputs: jax.Array, q: float) -> jax.Array:
        mean, std = self._mean_and_std(outputs)
        return mean + std * special.ndtri(jnp.asarray(q, mean.dtype))

    def output_hessian(self, own: Params, outputs: jax.Array, y: jax.Array | None = None) -> jax.Array:
        _, std = self._mean_and_std(outputs)
        _, raw = jnp.split(outputs, 2, axis=-1)
        std_slope = jax.nn.sigmoid(raw)
        return _diagonal(jnp.concatenate([std**-2, 2 * (std_slope / std) ** 2], axis=-1))

    def _mean_and_std(self, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, raw = jnp.split(densities.widen(outputs), 2, axis=-1)
        return mean, jax.nn.softplus(raw) + self.floor


@dataclass(frozen=True)
class StudentT:
    """y ~ outputs + scale * t(df): regression that forgives outliers. `scale=infer` as the noise of `Gaussian`.

    The variance is infinite for df <= 2; for df <= 1 the mean does not exist, and `moments` are NaN.
    """

    df: Positive = 4.0
    scale: Positive | Infer = infer
    shape: Positive = 1.0
    rate: Positive = 0.01
    kind: ClassVar[Kind] = "regression"

    def __post_init__(self) -> None:
        check_settings(self)

    def init(self, key: jax.Array) -> Params:
        return _init_precision(self.scale)

    def log_prior(self, own: Params) -> jax.Array:
        return _log_prior_of_precision(own, self.shape, self.rate)

    def sample_own(self, key: jax.Array) -> Params:
        log_precision = jax.random.loggamma(key, self.shape) - math.log(self.rate)
        return jax.tree.map(lambda _: log_precision, self.init(key))

    def check(self, y: npt.ArrayLike, num_outputs: int) -> np.ndarray:
        return arrays.real_targets(y, num_outputs)

    def log_prob(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        log_scale = _log_scale(self.scale, own)
        return densities.student_t(_residual(y, outputs) * jnp.exp(-log_scale), log_scale, self.df).sum(-1)

    def sample(self, key: jax.Array, own: Params, outputs: jax.Array) -> jax.Array:
        return outputs + jnp.exp(_log_scale(self.scale, own)) * jax.random.t(key, self.df, outputs.shape, outputs.dtype)

    def moments(self, own: Params, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean = outputs if self.df > 1 else jnp.full_like(outputs, jnp.nan)
        unit_variance = self.df / (self.df - 2) if self.df > 2 else math.inf if self.df > 1 else math.nan
        return mean, unit_variance * jnp.exp(2 * _log_scale(self.scale, own)) * jnp.ones_like(outputs)

    def cdf(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        return densities.student_t_cdf(_residual(y, outputs) * jnp.exp(-_log_scale(self.scale, own)), self.df)

    def output_hessian(self, own: Params, outputs: jax.Array, y: jax.Array | None = None) -> jax.Array:
        information = (self.df + 1) / (self.df + 3) * jnp.exp(-2 * _log_scale(self.scale, own))
        return _diagonal(information * jnp.ones_like(outputs))


@dataclass(frozen=True)
class Poisson(NothingToInfer):
    """Counts, y ~ Poisson(exp(outputs)). In float32 the density of a log rate beyond 88 is -inf, as exp overflows."""

    kind: ClassVar[Kind] = "counts"

    def check(self, y: npt.ArrayLike, num_outputs: int) -> np.ndarray:
        return arrays.counts(y, num_outputs)

    def log_prob(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        arrays.same_shape(y, outputs.shape)
        return densities.poisson(densities.widen(outputs), densities.widen(y)).sum(-1)

    def sample(self, key: jax.Array, own: Params, outputs: jax.Array) -> jax.Array:
        rate = jnp.minimum(jnp.exp(outputs), MAX_SAMPLED_RATE)
        return jax.random.poisson(key, rate).astype(outputs.dtype)

    def moments(self, own: Params, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        rate = jnp.exp(outputs)
        return rate, rate

    def cdf(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        arrays.same_shape(y, outputs.shape)
        return densities.poisson_cdf(jnp.exp(outputs), y)

    def output_hessian(self, own: Params, outputs: jax.Array, y: jax.Array | None = None) -> jax.Array:
        return _diagonal(jnp.exp(outputs))


def _init_precision(scale: float | Infer, shape: tuple[int, ...] = ()) -> Params:
    """Own parameter of a scale: {"log_precision": log(1 / scale^2)}, at scale 1, when it is inferred; else {}."""
    return {"log_precision": jnp.zeros(shape)} if scale is infer else {}


def _log_prior_of_precision(own: Params, shape: float, rate: float) -> jax.Array:
    """The density of the logarithm of a precision that is Gamma(shape, rate)."""
    if not own:
        return jnp.zeros(())
    constant = shape * math.log(rate) - math.lgamma(shape)
    density: jax.Array = constant + shape * own["log_precision"] - rate * jnp.exp(own["log_precision"])
    return density.sum()


def _log_scale(scale: float | Infer, own: Params) -> jax.Array | float:
    return -0.5 * own["log_precision"] if isinstance(scale, Infer) else math.log(scale)


def _residual(y: jax.Array, mean: jax.Array) -> jax.Array:
    arrays.same_shape(y, mean.shape)
    return densities.widen(y) - densities.widen(mean)


def _diagonal(entries: jax.Array) -> jax.Array:
    """(batch, k) as diagonal matrices (batch, k, k)."""
    return entries[..., None] * jnp.eye(entries.shape[-1], dtype=entries.dtype)


MEMBERS = {
    cls.__name__: cls
    for cls in (
        Gaussian,
        HeteroscedasticGaussian,
        VaryingNoise,
        StudentT,
        AsymmetricLaplace,
        Bernoulli,
        Categorical,
        LabelSmoothing,
        NoisyDirichlet,
        Poisson,
        NegativeBinomial,
    )
}


def factor_of(likelihood: Likelihood, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
    """What training rows contribute to the posterior, (batch,): `log_factor` where there is one, else `log_prob`."""
    terms: jax.Array = getattr(likelihood, "log_factor", likelihood.log_prob)(own, outputs, y)
    return terms


def to_json(likelihood: Likelihood) -> Json | None:
    """{"name", "settings"}, or None for a user's own class."""
    return settings.to_json(likelihood, MEMBERS)


def from_json(stored: Json) -> Likelihood:
    likelihood: Likelihood = settings.from_json(stored, MEMBERS)
    return likelihood
