"""NNX modules that read their sizes off the input, as pure functions."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.networks import as_batch_of_one
from posteria.nn.normals import Normals
from posteria.tree import Layout, Leaves, Params, Structure

Build = Callable[[Data, Normals], nnx.Module]  # from the shapes of one datum; the module's only state are parameters


class Dense(nnx.Module):
    def __init__(self, kernel: jax.Array) -> None:
        self.kernel = nnx.Param(kernel)
        self.bias = nnx.Param(jnp.zeros(kernel.shape[-1]))

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.kernel[...] + self.bias[...]


@dataclass(frozen=True, eq=False)
class Blueprint:
    """What `build` makes, as `init` and `apply`."""

    build: Build

    def init(self, key: jax.Array, x: Data) -> Params:
        """Fresh parameters for data like x."""
        return _initialiser(self.build, *tree.signature(x))(key)

    def apply(self, params: Params, x: Data) -> jax.Array:
        graph, layout, _ = _blueprint(self.build, *tree.signature(as_batch_of_one(x)))
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
