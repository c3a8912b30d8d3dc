"""Pytrees as paths and as flat vectors."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria.errors import NetworkError

Tree = Any  # a pytree: JAX has no type for one
Params = Tree  # of floating arrays
Structure = Any  # a PyTreeDef, which has no type either
Leaves = tuple[tuple[tuple[int, ...], str], ...]  # shape and dtype of each
Signature = tuple[Structure, Leaves]
Arrays = dict[str, np.ndarray]  # by name, as stores have them
Json = dict[str, Any]  # what JSON can hold


def paths(tree: Params) -> list[str]:
    """Leaf paths in flatten order, as "dense/0/kernel"."""
    return [path_string(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def path_string(path: tuple[Any, ...]) -> str:
    return str(jax.tree_util.keystr(path, simple=True, separator="/"))


def structs(tree: Tree) -> Tree:
    """The tree with each leaf replaced by its shape and dtype."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), tree)


def with_lead(tree: Tree, lead: tuple[int, ...]) -> Tree:
    """Shapes and dtypes of the tree's leaves, with leading axes before their own."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*lead, *leaf.shape), leaf.dtype), tree)


def widened(structs: Tree) -> Tree:
    """Shapes with dtypes of 32 bits at least."""
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, jnp.promote_types(s.dtype, jnp.float32)), structs)


def cast_like(tree: Tree, structs: Tree) -> Tree:
    """With the dtypes of another tree, whatever leading axes there are."""
    return jax.tree.map(lambda leaf, s: leaf.astype(s.dtype), tree, structs)


def signature(tree: Tree) -> Signature:
    """Structure, shapes and dtypes as one hashable value."""
    leaves, treedef = jax.tree.flatten(structs(tree))
    return treedef, tuple((leaf.shape, leaf.dtype.name) for leaf in leaves)


def size(tree: Params) -> int:
    """Number of scalars in all leaves."""
    return sum(math.prod(jnp.shape(leaf)) for leaf in jax.tree.leaves(tree))


def num_bytes(tree: Params) -> int:
    """Of all leaves."""
    return sum(math.prod(jnp.shape(leaf)) * jnp.result_type(leaf).itemsize for leaf in jax.tree.leaves(tree))


def ravel(tree: Params) -> jax.Array:
    """All leaves as one flat vector, in float32 at least (a sampler's state in bfloat16 would not move)."""
    leaves = jax.tree.leaves(tree)
    if not leaves:
        return jnp.zeros(0)
    dtype = jnp.result_type(jnp.float32, *leaves)
    if not _is_traced(leaves):
        return jax.device_put(np.concatenate([np.ravel(np.asarray(leaf)).astype(dtype) for leaf in leaves]))
    return jnp.concatenate([jnp.ravel(leaf).astype(dtype) for leaf in leaves])


def ravel_each(tree: Params) -> jax.Array:
    """Trees with one leading axis as flat vectors, (tree, size); of arrays, not while tracing."""
    leaves = jax.tree.leaves(tree)
    dtype = jnp.result_type(jnp.float32, *leaves)
    return jax.device_put(np.concatenate([np.asarray(leaf).astype(dtype).reshape(len(leaf), -1) for leaf in leaves], 1))


def _is_traced(values: Any) -> bool:
    """Else the work is done on the host: by itself, JAX would compile every operation for every shape."""
    return any(isinstance(value, jax.core.Tracer) for value in values)


def unraveller(tree: Params) -> Callable[[Any], Params]:
    """The way back from `ravel(tree)`: leading axes of the flat array are kept, dtypes restored."""
    leaves, treedef = jax.tree.flatten(structs(tree))
    sizes = [math.prod(leaf.shape) for leaf in leaves]

    def unravel(flat: Any) -> Params:
        lead = flat.shape[:-1]
        if not _is_traced([flat]):
            slices = np.split(np.asarray(flat), np.cumsum(sizes)[:-1], axis=-1)
            host = [part.reshape(lead + leaf.shape).astype(leaf.dtype) for part, leaf in zip(slices, leaves)]
            return treedef.unflatten(jax.device_put(host))
        parts = jax.lax.split(flat, sizes, axis=flat.ndim - 1)  # slices would each be padded again by the gradient
        return treedef.unflatten(
            part.reshape(lead + leaf.shape).astype(leaf.dtype) for part, leaf in zip(parts, leaves)
        )

    return unravel


def on_device(tree: Tree) -> Tree:
    """Arrays as JAX's, in its dtypes; `jnp.asarray` would compile a function for every shape."""
    return jax.device_put(jax.tree.map(np.asarray, tree))


def stack(trees: list[Tree]) -> Tree:
    """Trees of one structure as one of NumPy's arrays with a new leading axis (JAX would compile every shape)."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def index(tree: Tree, i: int | slice | tuple[int, ...] | np.ndarray | jax.Array) -> Tree:
    """Entry (or slice) `i` of every leaf's leading axis."""
    return jax.tree.map(lambda leaf: leaf[i], tree)


def as_wide(tree: Tree) -> Tree:
    """On the host, with dtypes of 32 bits at least."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, jnp.promote_types(leaf.dtype, jnp.float32)), tree)


def one(tree: Tree, i: int = 0) -> Tree:
    """Entry `i` of every leaf's leading axis, taken on the host (JAX would compile the indexing of every shape)."""
    return on_device(jax.tree.map(lambda leaf: np.asarray(leaf)[i], tree))


def one_of_many(tree: Tree) -> Tree:
    """The way back: with a leading axis of length 1."""
    return on_device(jax.tree.map(lambda leaf: np.asarray(leaf)[None], tree))


def length(tree: Tree) -> int:
    """Size of the leading axis."""
    return len(jax.tree.leaves(tree)[0])


# ---- a framework's own tree


@dataclass(frozen=True)
class Layout:
    """The way between a framework's own tree of parameters and plain nested dicts with the same paths."""

    treedef: Structure
    paths: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, weights: Tree) -> "Layout":
        check_parameters(weights)
        paths = tuple(_names(path) for path, _ in jax.tree_util.tree_leaves_with_path(weights))
        return cls(jax.tree.structure(weights), paths)

    def to_dict(self, weights: Tree) -> Params:
        nested: Params = {}
        for names, leaf in zip(self.paths, jax.tree.leaves(weights), strict=True):
            folder = nested
            for name in names[:-1]:
                folder = folder.setdefault(name, {})
            folder[names[-1]] = leaf
        return nested

    def from_dict(self, nested: Params) -> Tree:
        def leaf(names: tuple[str, ...]) -> Tree:
            value = nested
            for name in names:
                value = value[name]
            return value

        return self.treedef.unflatten(map(leaf, self.paths))


def check_parameters(weights: Tree) -> None:
    if not jax.tree.leaves(weights):
        raise NetworkError("the module has no floating-point parameters", "at least one", "check that it was built")
    for path, leaf in jax.tree_util.tree_leaves_with_path(weights):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise NetworkError(
                f"parameter {'/'.join(_names(path))} is {leaf.dtype}",
                "real floating-point parameters",
                "hold a complex one as two real ones, and counters outside the parameters",
            )


def _names(path: tuple[Any, ...]) -> tuple[str, ...]:
    """A path's keys as strings, without the `value` that NNX hangs below each variable."""
    if isinstance(path[0], jax.tree_util.DictKey) and path[-1] == jax.tree_util.GetAttrKey("value"):
        path = path[:-1]
    return tuple(path_string((key,)) for key in path)
