"""Fully connected networks on the flattened datum.

They are plain functions, which need no framework: half a second less from a new process to a table's first prediction.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import jax
import jax.numpy as jnp

from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.errors import NetworkError
from posteria.nn.normals import Normals
from posteria.tree import Params

Activation = Callable[[jax.Array], jax.Array]

UNIT_SWISH = 1.6765  # 1 / sqrt(E swish(z)^2), z ~ N(0, 1)


def unit_swish(x: jax.Array) -> jax.Array:
    """Swish, with a mean square of 1 where x is standard normal."""
    return UNIT_SWISH * jax.nn.swish(x)


NAMED = {"unit_swish": unit_swish, "sin": jnp.sin}  # what jax.nn has not


@dataclass(frozen=True, eq=False)
class MLP:
    """Weights start at He's scale before ReLU and swish and at LeCun's elsewhere, biases at zero."""

    hidden: tuple[int, ...]
    outputs: int
    activation: str | Activation = "relu"
    inputs: int | None = None
    skip: int = 0

    def init(self, key: jax.Array, x: Data) -> Params:
        """Fresh parameters for data like x."""
        params: Params = _initialiser(self, _num_features(x, self.inputs))(key)
        return params

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        _num_features(x, self.inputs)
        named = self.activation
        activation = named if callable(named) else NAMED.get(named) or getattr(jax.nn, named)
        x = rows = x.reshape(x.shape[0], -1)
        for number in range(len(self.hidden)):
            x = activation(_dense(params, number, x))
        outputs = _dense(params, len(self.hidden), x)
        return outputs + rows[:, : len(params["skip"])] @ params["skip"] if self.skip else outputs

    def fresh(self, normals: Normals, num_features: int) -> Params:
        if self.skip > num_features:
            raise NetworkError(f"skip is {self.skip}", f"at most the {num_features} features of x", "check x, or skip")
        hidden_kernel = normals.he if self.activation in ("relu", "swish") else normals.lecun
        kernels = [*(hidden_kernel,) * len(self.hidden), normals.lecun]
        sizes = pairwise((num_features, *self.hidden, self.outputs))
        layers = [{"kernel": kernel(i, o), "bias": jnp.zeros(o)} for kernel, (i, o) in zip(kernels, sizes)]
        params: Params = {"layers": {str(number): layer for number, layer in enumerate(layers)}}
        return params | {"skip": normals.lecun(self.skip, self.outputs)} if self.skip else params


class LeNet300100(MLP):
    def __init__(self, outputs: int) -> None:
        super().__init__((300, 100), outputs)


def _dense(params: Params, number: int, x: jax.Array) -> jax.Array:
    layer = params["layers"][str(number)]
    outputs: jax.Array = x @ layer["kernel"] + layer["bias"]
    return outputs


@kept
def _initialiser(mlp: MLP, num_features: int) -> Callable[[jax.Array], Params]:
    normals = Normals()
    jax.eval_shape(lambda: mlp.fresh(normals, num_features))
    return jax.jit(lambda key: mlp.fresh(Normals(jax.random.normal(key, (normals.used,))), num_features))


def _num_features(x: Data, inputs: int | None) -> int:
    if x is None:
        if inputs is None:
            raise NetworkError("there is no x", "its number of features", "pass data, or mlp(..., inputs=...)")
        return inputs
    features = math.prod(x.shape[1:])
    if inputs not in (None, features):
        raise NetworkError(f"x has {features} features", f"the network's {inputs}", "check x, or the network's inputs=")
    return features
