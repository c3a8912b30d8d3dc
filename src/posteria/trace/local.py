"""A network whose weights are independent Gaussians, run with noise of its own for each datum.

One draw of the weights for a whole batch makes the batch's terms move together. Here every datum sees a draw of its
own at the price of two plain passes, by a rule in place of each linear operation:

- `local`: op(x, mean) + sqrt(op(x^2, variance)) * noise: the distribution of op(x, w) itself. Exact where a weight
  meets a datum once. A bias that is added to it adds its variance. Kingma, Salimans & Welling 2015.
- `flipout`: op(x, mean) + op(x * r, deviation) * s with signs r, s for each datum and one deviation for all: exact also
  where a weight is used again (positions of a convolution, tokens), since a datum has the same signs at all of them.
  Wen et al. 2018.
- a draw for each datum: other biases and scales of norms, which no linear operation holds.
- one draw for all data: everything else.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from posteria import tree
from posteria.data.arrays import Data
from posteria.networks import Apply
from posteria.random import fast_normal
from posteria.trace.linear import Leaf, Operation, find, interpret

LOCAL, FLIPOUT, EACH_DATUM, SHARED = "local", "flipout", "each datum", "shared"  # what is done with a leaf
BIAS = "bias"  # its variance joins that of the local operation it is added to
POINT = "point"  # nothing: it has no noise
SMALLEST_VARIANCE = 1e-16  # added under the root, whose slope at 0 is infinite: a datum may be all zeros


Shapes = dict[Any, tuple[int, ...]]  # by path, or by path and use or side
Noise = dict[Any, jax.Array]  # likewise


def treatments(
    apply: Apply, params: tree.Params, x: Data, estimator: str, points: frozenset[str] = frozenset()
) -> dict[str, str]:
    """What `estimator` ("local", "local-independent" or "flipout") does with each leaf, by path."""
    return _treatments(find(apply, params, x), params, estimator, points)


def _treatments(leaves: dict[str, Leaf], params: tree.Params, estimator: str, points: frozenset[str]) -> dict[str, str]:
    shapes = dict(zip(tree.paths(params), jax.tree.leaves(params)))
    how = {path: _treatment(leaf, estimator, len(shapes[path].shape)) for path, leaf in leaves.items()}
    how |= dict.fromkeys(points, POINT)
    joins = {
        path
        for path, leaf in leaves.items()
        if how[path] == EACH_DATUM and leaf.added_to is not None
        if how.get(leaf.added_to) == LOCAL and leaves[leaf.added_to].positions == 1
    }
    return how | dict.fromkeys(joins, BIAS)


def _treatment(leaf: Leaf, estimator: str, num_axes: int) -> str:
    if not leaf.found:
        return EACH_DATUM if num_axes <= 1 else SHARED  # a matrix for each datum would be a batch of networks
    if estimator == "local-independent" or (estimator == "local" and leaf.positions == 1):
        return LOCAL
    return FLIPOUT if len(leaf.uses) == 1 else SHARED  # signs of two uses would have to agree


def noisy(apply: Apply, estimator: str, points: frozenset[str] = frozenset()) -> Callable[..., jax.Array]:
    """`run(means, stds, x, key, turn=0, factors=None)`: the outputs, each datum with its own draw as far as `estimator`
    can.

    Leaves in `points` have no noise, whatever their std. `turn` is that of `fast_normal`. `factors`, by path (datum,
    unit), multiply a leaf's means by its input units, for each datum: of leaves that are local or by flipout.
    """

    def run(
        means: tree.Params,
        stds: tree.Params,
        x: Data,
        key: jax.Array,
        turn: jax.Array | int = 0,
        factors: Noise | None = None,
    ) -> jax.Array:
        num_data = tree.length(x)
        paths, treedef = tree.paths(means), jax.tree.structure(means)
        found = find(apply, means, x)
        how = _treatments(found, means, estimator, points)
        bias_of = {leaf.added_to: path for path, leaf in found.items() if how[path] == BIAS}
        mean, std = (dict(zip(paths, jax.tree.leaves(values))) for values in (means, stds))
        like = _noise_like(apply, means, x, how)  # shapes, for one datum and for all
        key_data, key_all, key_signs = jax.random.split(key, 3)
        each = _split(fast_normal(key_data, (num_data, _total(like["each"])), turn), like["each"])
        shared = _split(fast_normal(key_all, (_total(like["shared"]),), turn), like["shared"])
        signs = _split(jax.random.rademacher(key_signs, (num_data, _total(like["signs"])), jnp.int8), like["signs"])

        deviation = {path: std[path] * shared[path] for path in shared}
        variance = {path: std[path] ** 2 for path in paths if how[path] == LOCAL}
        moved = mean | {path: mean[path] + deviation[path] for path in paths if how[path] == SHARED}
        moved |= {path: mean[path] + std[path] * each[path, 0] for path in paths if how[path] == EACH_DATUM}
        axes = [0 if how[path] == EACH_DATUM else None for path in paths]

        def rule(operation: Operation, extra: tuple[Noise, Noise, Noise]) -> tuple[jax.Array, None]:
            normals, signs, factors = extra
            path, dtype = operation.path, operation.x.dtype
            op = _as_vector_times_matrix(operation) if how[path] == LOCAL else operation.op
            seen = operation.x
            if path in factors:
                seen = seen * factors[path].reshape(operation.unit_shape).astype(dtype)
            centre = op(seen, operation.weight)
            if how[path] == LOCAL:
                spread = op(operation.x**2, operation.as_operand(variance[path].astype(dtype)))
                if path in bias_of:
                    spread += jnp.square(std[bias_of[path]]).astype(dtype).reshape(spread.shape)
                noise = normals[path, operation.use].astype(dtype)
                smallest = max(SMALLEST_VARIANCE, 16 * float(jnp.finfo(dtype).smallest_subnormal))  # of float16: 1e-6
                return centre + jnp.sqrt(spread + smallest) * noise, None
            if how[path] == FLIPOUT:
                r, s = (signs[path, side].astype(dtype) for side in ("in", "out"))
                around = operation.op(operation.x * r, operation.as_operand(deviation[path].astype(dtype)))
                return centre + around * s, None
            return centre, None

        walk = interpret(apply, rule)

        leaves = [moved[path] for path in paths]
        if EACH_DATUM not in how.values():
            return walk(treedef.unflatten(leaves), x, (each, signs, factors or {}))[0]

        def one(leaves: list[jax.Array], datum: tree.Tree, extra: tuple[Noise, Noise, Noise]) -> jax.Array:
            batch, extra = jax.tree.map(lambda leaf: leaf[None], (datum, extra))
            return jax.tree.map(lambda leaf: leaf[0], walk(treedef.unflatten(leaves), batch, extra)[0])

        return jax.vmap(one, in_axes=(axes, 0, 0))(leaves, x, (each, signs, factors or {}))

    return run


def _as_vector_times_matrix(operation: Operation) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Its `op`, so that over a batch the compiler meets a plain product of matrices, whose gradients need no copies."""
    matrix = operation.matrix
    if matrix is None or matrix.inputs(operation.x).shape[0] != 1:
        return operation.op

    def op(x: jax.Array, weight: jax.Array) -> jax.Array:
        row = matrix.inputs(x)[0]
        return (row @ weight.transpose(matrix.axes).reshape(len(row), -1)).reshape(shape)

    shape = jax.eval_shape(operation.op, operation.x, operation.weight).shape
    return op


def _noise_like(apply: Apply, params: tree.Params, x: Data, how: dict[str, str]) -> dict[str, Shapes]:
    """Shapes of the noise: "each" and "signs" for one datum, "shared" for all."""

    def rule(operation: Operation, extra: None) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        y = operation.op(operation.x, operation.weight)
        return y, (y, jnp.zeros(operation.unit_shape), jnp.zeros(operation.out_unit_shape))

    datum = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape[1:]), leaf.dtype), x)
    records = jax.eval_shape(lambda params, x: interpret(apply, rule)(params, x)[1], params, datum)
    like: dict[str, Shapes] = {"each": {}, "shared": {}, "signs": {}}
    for path, leaf in zip(tree.paths(params), jax.tree.leaves(params)):
        if how[path] == LOCAL:
            like["each"] |= {(path, use): record[0].shape[1:] for use, record in enumerate(records[path])}
        elif how[path] == EACH_DATUM:
            like["each"][path, 0] = leaf.shape
        elif how[path] not in (POINT, BIAS):
            like["shared"][path] = leaf.shape
        if how[path] == FLIPOUT:
            _, inputs, outputs = records[path][0]
            like["signs"] |= {(path, "in"): inputs.shape[1:], (path, "out"): outputs.shape[1:]}
    return like


def _total(shapes: Shapes) -> int:
    return sum(map(math.prod, shapes.values()))


def _split(flat: jax.Array, shapes: Shapes) -> Noise:
    """The last axis of `flat` cut into arrays of those shapes: noise is drawn in one call."""
    if not shapes:
        return {}
    parts = jax.lax.split(flat, [math.prod(shape) for shape in shapes.values()], axis=flat.ndim - 1)
    return {name: part.reshape(*flat.shape[:-1], *shape) for (name, shape), part in zip(shapes.items(), parts)}
