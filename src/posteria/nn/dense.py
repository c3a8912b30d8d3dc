"""Fully connected networks on the flattened datum."""

import math
from collections.abc import Callable
from typing import Any

import jax
from flax import nnx
from jax.nn.initializers import he_normal, lecun_normal

from posteria.errors import NetworkError


class MLP(nnx.Module):
    """Weights start at He's scale before ReLU and swish and at LeCun's elsewhere, biases at zero."""

    def __init__(
        self,
        x: Any,
        rngs: nnx.Rngs,
        hidden: tuple[int, ...],
        outputs: int,
        activation: str | Callable = "relu",
        inputs: int | None = None,
    ) -> None:
        self.activation = activation if callable(activation) else getattr(jax.nn, activation)
        hidden_init = he_normal() if activation in ("relu", "swish") else lecun_normal()
        inits = [hidden_init] * len(hidden) + [lecun_normal()]
        sizes = zip((_num_features(x, inputs), *hidden), (*hidden, outputs), inits)
        self.layers = nnx.List(nnx.Linear(i, o, kernel_init=init, rngs=rngs) for i, o, init in sizes)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.reshape(x.shape[0], -1)
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


class LeNet300100(MLP):
    def __init__(self, x: Any, rngs: nnx.Rngs, outputs: int) -> None:
        super().__init__(x, rngs, (300, 100), outputs)


def _num_features(x: Any, inputs: int | None) -> int:
    if x is None and inputs is None:
        raise NetworkError("there is no x", "its number of features", "pass data, or mlp(..., inputs=...)")
    if x is None:
        return inputs
    features = math.prod(x.shape[1:])
    if inputs not in (None, features):
        raise NetworkError(f"x has {features} features", f"the network's {inputs}", "check x, or the network's inputs=")
    return features
