"""NNX modules that read their sizes off the input, as pure functions; and the plainest, of dense layers."""

import math
from collections.abc import Callable
from itertools import pairwise

import jax
import jax.numpy as jnp
from flax import nnx

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.errors import NetworkError
from posteria.networks import as_batch_of_one
from posteria.tree import Layout, Leaves, Params, Structure

Weight = nnx.Param[jax.Array]


class Normals:
    """Initial weights as slices of one vector of standard normals: it compiles ten times faster than a draw a leaf.

    Without the vector it hands out zeros and counts how many numbers are needed.
    """

    def __init__(self, numbers: jax.Array | None = None) -> None:
        self.numbers, self.used = numbers, 0

    def he(self, *shape: int) -> Weight:
        """Variance 2 / fan-in: keeps the scale through ReLU. He et al. 2015."""
        return self.draw(math.sqrt(2 / math.prod(shape[:-1])), *shape)

    def lecun(self, *shape: int) -> Weight:
        """Variance 1 / fan-in: keeps the scale through a linear layer. LeCun et al. 1998."""
        return self.draw(math.sqrt(1 / math.prod(shape[:-1])), *shape)

    def draw(self, std: float, *shape: int) -> Weight:
        start, self.used = self.used, self.used + math.prod(shape)
        if self.numbers is None:
            return nnx.Param(jnp.zeros(shape))
        return nnx.Param(std * self.numbers[start : self.used].reshape(shape))


Build = Callable[[Data, Normals], nnx.Module]  # from the shapes of one datum; the module's only state are parameters


class Dense(nnx.Module):
    def __init__(self, kernel: Weight) -> None:
        self.kernel = kernel
        self.bias = nnx.Param(jnp.zeros(kernel.shape[-1]))

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.kernel[...] + self.bias[...]


def parameters(build: Build, key: jax.Array, x: Data) -> Params:
    """Fresh parameters for data like x."""
    return _initialiser(build, *tree.signature(x))(key)


def evaluate(build: Build, params: Params, x: Data) -> jax.Array:
    graph, layout, _ = _blueprint(build, *tree.signature(as_batch_of_one(x)))
    return nnx.merge(graph, layout.from_dict(params))(x)


@kept
def _initialiser(build: Build, treedef: Structure, leaves: Leaves) -> Callable[[jax.Array], Params]:
    _, layout, num_normals = _blueprint(build, treedef, leaves)

    @jax.jit
    def init(key: jax.Array) -> Params:
        normals = Normals(jax.random.normal(key, (num_normals,)))
        return layout.to_dict(nnx.state(build(_structs(treedef, leaves), normals)))

    return init


@kept
def _blueprint(build: Build, treedef: Structure, leaves: Leaves) -> tuple[nnx.GraphDef[nnx.Module], Layout, int]:
    """The module's graph, the layout of its parameters, and how many normals they need.

    Of shapes only, so that it may be made while tracing.
    """
    normals = Normals()
    graph, state = nnx.split(nnx.eval_shape(lambda: build(_structs(treedef, leaves), normals)))
    return graph, Layout.of(state), normals.used


def _structs(treedef: Structure, leaves: Leaves) -> Data:
    return treedef.unflatten(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in leaves)


# ---- fully connected networks on the flattened datum


UNIT_SWISH = 1.6765  # 1 / sqrt(E swish(z)^2), z ~ N(0, 1)


def unit_swish(x: jax.Array) -> jax.Array:
    """Swish, with a mean square of 1 where x is standard normal."""
    return UNIT_SWISH * jax.nn.swish(x)


NAMED = {"unit_swish": unit_swish, "sin": jnp.sin}  # what jax.nn has not


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
        skip: int = 0,
    ) -> None:
        self.activation = activation if callable(activation) else NAMED.get(activation) or getattr(jax.nn, activation)
        hidden_kernel = normals.he if activation in ("relu", "swish") else normals.lecun
        kernels = [*(hidden_kernel,) * len(hidden), normals.lecun]
        sizes = (_num_features(x, inputs), *hidden, outputs)
        self.layers = nnx.List(Dense(kernel(i, o)) for kernel, (i, o) in zip(kernels, pairwise(sizes)))
        if skip > sizes[0]:
            raise NetworkError(f"skip is {skip}", f"at most the {sizes[0]} features of x", "check x, or skip")
        if skip:
            self.skip = normals.lecun(skip, outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = rows = x.reshape(x.shape[0], -1)
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        outputs = self.layers[-1](x)
        if hasattr(self, "skip"):
            outputs += rows[:, : len(self.skip[...])] @ self.skip[...]
        return outputs


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
