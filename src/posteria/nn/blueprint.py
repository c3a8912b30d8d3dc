"""NNX modules that read their sizes off the input, as pure functions."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
from flax import nnx

from posteria import tree
from posteria.network import Layout, as_batch_of_one

Build = Callable[
    [Any, nnx.Rngs], nnx.Module
]  # from a datum (or its shapes alone) and keys; parameters are its only state


def parameters(build: Build, key: jax.Array, x: Any) -> dict:
    """Fresh parameters for data like x."""
    state = nnx.state(build(x, nnx.Rngs(key)))
    return Layout.of(state).to_dict(state)


def evaluate(build: Build, params: dict, x: Any) -> jax.Array:
    graph, layout = _blueprint(build, *tree.signature(as_batch_of_one(x)))
    return nnx.merge(graph, layout.from_dict(params))(x)


@lru_cache(maxsize=128)
def _blueprint(build: Build, treedef: Any, leaves: tuple) -> tuple[Any, Layout]:
    """The module's graph and the layout of its parameters: shapes only, so that it may be made while tracing."""
    x = treedef.unflatten(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in leaves)
    graph, state = nnx.split(nnx.eval_shape(lambda: build(x, nnx.Rngs(0))))
    return graph, Layout.of(state)
