"""The linear operations that meet a network's own inputs, before any other parameter has touched them."""

from typing import Any

import jax
from jax.extend import core

from posteria import tree
from posteria.networks import Apply
from posteria.trace import linear

DENSE = "dot_general"


def input_axes(apply: Apply, params: tree.Params, x: Any) -> dict[str, int | None]:
    """Of the leaves that first multiply the inputs: the axis along which each meets them, one entry an input.

    None where there is no such axis: a convolution, a leaf that is used otherwise too, or sums over several axes. Only
    shapes and dtypes of `params` and of the batch `x` matter.
    """
    found = linear.find(apply, params, x)
    first = _first_paths(apply, params, x)
    return {path: _axis(found[path]) for path in first}


def _axis(leaf: linear.Leaf) -> int | None:
    is_plain = leaf.found and {(use.primitive, use.contracted) for use in leaf.uses} == {
        (DENSE, leaf.uses[0].contracted)
    }
    return leaf.uses[0].contracted[0] if is_plain and len(leaf.uses[0].contracted) == 1 else None


def _first_paths(apply: Apply, params: tree.Params, x: Any) -> list[str]:
    """Leaves of operations whose input depends on no parameter, in the order in which they come."""
    paths: list[str] = []

    def rule(operation: linear.Operation, extra: None) -> tuple[jax.Array, jax.Array]:
        paths.append(operation.path)
        return operation.op(operation.x, operation.weight), operation.x

    def inputs(params: tree.Params) -> dict[str, tuple[linear.Record, ...]]:
        return linear.interpret(apply, rule)(params, x)[1]  # (leaf: the inputs of its operations)

    jaxpr, shapes = jax.make_jaxpr(inputs, return_shape=True)(params)
    touched = set(jaxpr.jaxpr.invars)
    for eqn in jaxpr.jaxpr.eqns:
        if any(atom in touched for atom in eqn.invars if not isinstance(atom, core.Literal)):
            touched.update(eqn.outvars)
    is_first = jax.tree.unflatten(
        jax.tree.structure(shapes),
        [isinstance(out, core.Literal) or out not in touched for out in jaxpr.jaxpr.outvars],
    )
    return [path for path in dict.fromkeys(paths) if any(is_first[path])]
