"""Fully connected networks on the flattened datum."""

import math
from collections.abc import Callable
from itertools import pairwise

import jax
from flax import nnx

from posteria.data.arrays import Data
from posteria.errors import NetworkError
from posteria.nn.blueprint import Dense, Normals


class MLP(nnx.Module):
    """Weights start at He's scale before ReLU and swish and at LeCun's elsewhere, biases at zero."""

    def __init__(
        self,
        x: Data,
        normals: Normals,
        hidden: tuple[int, ...],
        outputs: int,
        activation: str | Callable[[jax.Array], jax.Array] = "relu",
        inputs: int | None = None,
    ) -> None:
        self.activation = activation if callable(activation) else getattr(jax.nn, activation)
        hidden_kernel = normals.he if activation in ("relu", "swish") else normals.lecun
        kernels = [*(hidden_kernel,) * len(hidden), normals.lecun]
        sizes = (_num_features(x, inputs), *hidden, outputs)
        self.layers = nnx.List(Dense(kernel(i, o)) for kernel, (i, o) in zip(kernels, pairwise(sizes)))

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.reshape(x.shape[0], -1)
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


class LeNet300100(MLP):
    def __init__(self, x: Data, normals: Normals, outputs: int) -> None:
        super().__init__(x, normals, (300, 100), outputs)


def _num_features(x: Data, inputs: int | None) -> int:
    if x is None:
        if inputs is None:
            raise NetworkError("there is no x", "its number of features", "pass data, or mlp(..., inputs=...)")
        return inputs
    features = math.prod(x.shape[1:])
    if inputs not in (None, features):
        raise NetworkError(f"x has {features} features", f"the network's {inputs}", "check x, or the network's inputs=")
    return features
