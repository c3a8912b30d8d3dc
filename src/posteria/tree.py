"""Pytrees as paths and as flat vectors."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

Params = Any  # a pytree of floating arrays


def paths(tree: Params) -> list[str]:
    """Leaf paths in flatten order, as "dense/0/kernel"."""
    return [path_string(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def path_string(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def size(tree: Params) -> int:
    """Number of scalars in all leaves."""
    return sum(math.prod(jnp.shape(leaf)) for leaf in jax.tree.leaves(tree))


def ravel(tree: Params) -> tuple[jax.Array, Callable[[jax.Array], Params]]:
    """One flat vector, and the way back to the tree with its shapes and dtypes."""
    return ravel_pytree(tree)


def stack(trees: list[Params]) -> Params:
    """Trees of one structure as one tree with a new leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def index(tree: Params, i: Any) -> Params:
    """Entry (or slice) `i` of every leaf's leading axis."""
    return jax.tree.map(lambda leaf: leaf[i], tree)


def length(tree: Params) -> int:
    """Size of the leading axis."""
    return jax.tree.leaves(tree)[0].shape[0]
