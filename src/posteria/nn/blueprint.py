"""NNX modules that read their sizes off the input, as pure functions."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
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
