"""A regression of the size of Boston housing (506 x 13, 50 hidden units): its data, and its density by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

NUM_DATA, NUM_FEATURES, NUM_HIDDEN = 506, 13, 50
NOISE_SHAPE, NOISE_RATE = 1.0, 0.01  # of the default Gaussian's prior on 1 / noise^2


def data() -> tuple[np.ndarray, np.ndarray]:
    """Standardised, made up: only the size matters here."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((NUM_DATA, NUM_FEATURES)).astype(np.float32)
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * generator.standard_normal(NUM_DATA)
    return x, ((y - y.mean()) / y.std()).astype(np.float32)[:, None]


def prior_stds() -> dict:
    """The default prior: weights by fan-in, biases of 1."""
    return {"w1": NUM_FEATURES**-0.5, "b1": 1.0, "w2": NUM_HIDDEN**-0.5, "b2": 1.0}


def start() -> dict:
    shapes = {"w1": (NUM_FEATURES, NUM_HIDDEN), "b1": (NUM_HIDDEN,), "w2": (NUM_HIDDEN, 1), "b2": (1,)}
    keys = jax.random.split(jax.random.key(0), len(shapes))
    stds = prior_stds()
    params = {name: stds[name] * jax.random.normal(k, shape) for k, (name, shape) in zip(keys, shapes.items())}
    return params | {"log_precision": jnp.zeros(())}


def log_density(params: dict, data: Any) -> jax.Array:
    """The default model's, up to a constant, with nothing in it that could be left out."""
    x, y = data
    log_precision = params["log_precision"]
    hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
    residual = y - (hidden @ params["w2"] + params["b2"])
    log_likelihood = 0.5 * len(x) * log_precision - 0.5 * jnp.exp(log_precision) * (residual**2).sum()
    log_prior = NOISE_SHAPE * log_precision - NOISE_RATE * jnp.exp(log_precision)
    for name, std in prior_stds().items():
        log_prior -= 0.5 * (params[name] ** 2).sum() / std**2
    return log_prior + log_likelihood
