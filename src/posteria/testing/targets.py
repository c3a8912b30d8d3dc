"""Posteriors that are known in closed form."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.data.arrays import Data
from posteria.models.likelihoods import Gaussian
from posteria.models.model import Model
from posteria.models.priors import Normal
from posteria.models.target import Target
from posteria.networks import Network


@dataclass(frozen=True)
class KnownPosterior:
    """A model with data whose posterior over the flat weights is N(mean, covariance)."""

    model: Model
    data: Data
    mean: np.ndarray
    covariance: np.ndarray


def linear_network(init_scale: float = 0.0) -> Network:
    """x @ weight + bias."""

    def init(key: jax.Array, x: jax.Array) -> tree.Params:
        return {"bias": jnp.zeros(1), "weight": init_scale * jax.random.normal(key, (x.shape[-1], 1))}

    return Network(init, lambda params, x: x @ params["weight"] + params["bias"])


WEIGHTS = 2.0, 0.5, 3.0, 0.0, 1.0  # of rows, in turn
_NETWORK = linear_network()  # one for all, so that compiled code is shared


def linear_regression(
    num_data: int = 30,
    num_features: int = 3,
    noise: float = 0.5,
    prior_std: float = 0.7,
    temperature: float = 1.0,
    copies: int = 1,
    weighted: bool = False,
) -> KnownPosterior:
    """Bayesian linear regression with correlated features; `copies` repeats every row, and `weighted` rows count 0.5 to
    3 times, some not at all. Bishop 2006, section 3.3."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_data, num_features))
    x[:, 1:] += 0.7 * x[:, :1]
    y = x @ rng.normal(size=num_features) + 0.3 + noise * rng.normal(size=num_data)
    x, y = np.tile(x, (copies, 1)).astype(np.float32), np.tile(y, copies).astype(np.float32)
    design = np.concatenate([np.ones((len(x), 1)), x], axis=1)  # the bias comes first in the flat weights
    weight = np.resize(np.array(WEIGHTS, np.float32), len(x)) if weighted else np.ones(len(x), np.float32)
    scaled = (design.T * weight) / noise**2
    precision = scaled @ design + np.eye(num_features + 1) / prior_std**2
    return KnownPosterior(
        Model(_NETWORK, Gaussian(noise), Normal(prior_std), temperature),
        (x, y, weight) if weighted else (x, y),
        np.linalg.solve(precision, scaled @ y),
        temperature * np.linalg.inv(precision),
    )


def as_labels(y: np.ndarray) -> np.ndarray:
    """Two classes: above the mean, and not."""
    return (y > y.mean()).astype(np.int32)


def prior_only(num_features: int = 3, prior_std: float = 0.7) -> KnownPosterior:
    """The same model without data: its posterior is its prior."""
    model = Model(_NETWORK, Gaussian(0.5), Normal(prior_std))
    size = num_features + 1
    return KnownPosterior(
        model, (np.zeros((1, num_features), np.float32), None), np.zeros(size), prior_std**2 * np.eye(size)
    )


def log_evidence(known: KnownPosterior) -> float:
    """log of the integral of exp(log joint / T) over the weights, exact for a Gaussian: its height times its width."""
    target = Target(known.model, known.data)
    at_mean = target.log_density(tree.unraveller(target.structs)(jnp.asarray(known.mean, jnp.float32)))
    log_width = 0.5 * np.linalg.slogdet(2 * np.pi * known.covariance)[1]
    return float(at_mean + log_width)


def correlated_gaussian(
    size: int = 20, correlation: float = 0.9
) -> tuple[Callable[[jax.Array], jax.Array], np.ndarray, np.ndarray]:
    """A log density over vectors, with its mean and covariance: neighbours are correlated, scales differ tenfold."""
    index = np.arange(size)
    scales = np.geomspace(0.3, 3.0, size)
    covariance = correlation ** np.abs(index[:, None] - index) * scales[:, None] * scales
    mean = np.linspace(-1.0, 1.0, size)
    precision = jnp.asarray(np.linalg.inv(covariance), jnp.float32)

    def log_density(position: jax.Array) -> jax.Array:
        residual = position - jnp.asarray(mean, jnp.float32)
        return -0.5 * residual @ precision @ residual

    return log_density, mean, covariance
