"""Pytrees as paths and as flat vectors."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Tree = Any  # a pytree: JAX has no type for one
Params = Tree  # of floating arrays
Structure = Any  # a PyTreeDef, which has no type either
Leaves = tuple[tuple[tuple[int, ...], str], ...]  # shape and dtype of each
Signature = tuple[Structure, Leaves]
Json = dict[str, Any]  # what JSON can hold


def paths(tree: Params) -> list[str]:
    """Leaf paths in flatten order, as "dense/0/kernel"."""
    return [path_string(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def path_string(path: tuple[Any, ...]) -> str:
    return str(jax.tree_util.keystr(path, simple=True, separator="/"))


def structs(tree: Tree) -> Tree:
    """The tree with each leaf replaced by its shape and dtype."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), tree)


def signature(tree: Tree) -> Signature:
    """Structure, shapes and dtypes as one hashable value."""
    leaves, treedef = jax.tree.flatten(structs(tree))
    return treedef, tuple((leaf.shape, leaf.dtype.name) for leaf in leaves)


def size(tree: Params) -> int:
    """Number of scalars in all leaves."""
    return sum(math.prod(jnp.shape(leaf)) for leaf in jax.tree.leaves(tree))


def ravel(tree: Params) -> jax.Array:
    """All leaves as one flat vector, in float32 at least (a sampler's state in bfloat16 would not move)."""
    leaves = jax.tree.leaves(tree)
    if not leaves:
        return jnp.zeros(0)
    dtype = jnp.result_type(jnp.float32, *leaves)
    return jnp.concatenate([jnp.ravel(leaf).astype(dtype) for leaf in leaves])


def unraveller(tree: Params) -> Callable[[jax.Array], Params]:
    """The way back from `ravel(tree)`: leading axes of the flat array are kept, dtypes restored."""
    leaves, treedef = jax.tree.flatten(structs(tree))
    sizes = [math.prod(leaf.shape) for leaf in leaves]

    def unravel(flat: jax.Array) -> Params:
        parts = jax.lax.split(flat, sizes, axis=flat.ndim - 1)  # slices would each be padded again by the gradient
        lead = flat.shape[:-1]
        return treedef.unflatten(
            part.reshape(lead + leaf.shape).astype(leaf.dtype) for part, leaf in zip(parts, leaves)
        )

    return unravel


def stack(trees: list[Tree]) -> Tree:
    """Trees of one structure as one of NumPy's arrays with a new leading axis (JAX would compile every shape)."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def index(tree: Tree, i: int | slice | tuple[int, ...] | np.ndarray | jax.Array) -> Tree:
    """Entry (or slice) `i` of every leaf's leading axis."""
    return jax.tree.map(lambda leaf: leaf[i], tree)


def length(tree: Tree) -> int:
    """Size of the leading axis."""
    return len(jax.tree.leaves(tree)[0])
