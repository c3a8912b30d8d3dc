"""Fully connected networks on the flattened datum, in plain JAX: what most tables get need not wait for a framework."""

import math
from collections.abc import Callable
from itertools import pairwise

import jax
import jax.numpy as jnp

from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.errors import NetworkError
from posteria.tree import Params

UNIT_SWISH = 1.6765  # 1 / sqrt(E swish(z)^2), z ~ N(0, 1)
HE = ("relu", "swish")  # before these weights start with variance 2 / fan-in, He et al. 2015; else 1, LeCun et al. 1998

Activation = Callable[[jax.Array], jax.Array]


def unit_swish(x: jax.Array) -> jax.Array:
    """Swish, with a mean square of 1 where x is standard normal."""
    return UNIT_SWISH * jax.nn.swish(x)


NAMED = {"unit_swish": unit_swish, "sin": jnp.sin}  # what jax.nn has not


def mlp(
    hidden: tuple[int, ...],
    outputs: int,
    activation: str | Activation = "relu",
    inputs: int | None = None,
    skip: int = 0,
) -> tuple[Callable[..., Params], Callable[[Params, jax.Array], jax.Array]]:
    """(init, apply); biases start at zero."""
    scale = 2.0 if activation in HE else 1.0
    bend = activation if callable(activation) else NAMED.get(activation) or getattr(jax.nn, activation)

    def init(key: jax.Array, x: Data = None) -> Params:
        return _initialiser((_num_features(x, inputs, skip), *hidden, outputs), scale, skip)(key)

    def apply(params: Params, x: jax.Array) -> jax.Array:
        _num_features(x, inputs, skip)
        x = rows = x.reshape(x.shape[0], -1)
        *layers, last = (params["layers"][str(i)] for i in range(len(hidden) + 1))
        for layer in layers:
            x = bend(x @ layer["kernel"] + layer["bias"])
        outputs = x @ last["kernel"] + last["bias"]
        return outputs + rows[:, :skip] @ params["skip"] if skip else outputs

    return init, apply


@kept
def _initialiser(sizes: tuple[int, ...], scale: float, skip: int) -> Callable[[jax.Array], Params]:
    """Kernels are slices of one vector of standard normals: it compiles ten times faster than a draw for each."""
    shapes = list(pairwise(sizes))
    variances = [scale / fan_in for fan_in, _ in shapes[:-1]] + [1 / sizes[-2]]
    if skip:
        shapes, variances = [*shapes, (skip, sizes[-1])], [*variances, 1 / skip]
    ends = [sum(map(math.prod, shapes[: i + 1])) for i in range(len(shapes))]

    @jax.jit
    def init(key: jax.Array) -> Params:
        parts = jnp.split(jax.random.normal(key, (ends[-1],)), ends[:-1])
        kernels = [math.sqrt(v) * part.reshape(shape) for v, part, shape in zip(variances, parts, shapes)]
        layers = {
            str(i): {"bias": jnp.zeros(size), "kernel": kernel}
            for i, (size, kernel) in enumerate(zip(sizes[1:], kernels))
        }
        return {"layers": layers, "skip": kernels[-1]} if skip else {"layers": layers}

    return init


def _num_features(x: Data, inputs: int | None, skip: int) -> int:
    features = inputs if x is None else math.prod(x.shape[1:])
    if features is None:
        raise NetworkError("there is no x", "its number of features", "pass data, or mlp(..., inputs=...)")
    if inputs not in (None, features):
        raise NetworkError(f"x has {features} features", f"the network's {inputs}", "check x, or the network's inputs=")
    if skip > features:
        raise NetworkError(f"skip is {skip}", f"at most the {features} features of x", "check x, or skip")
    return features
