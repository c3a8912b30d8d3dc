"""The network's Jacobian, datum by datum, without ever being formed where it need not be.

Where a weight W makes y_t = a_t W at positions t (pixels, tokens; one for a dense layer), the gradient of what the
cotangent r picks of the outputs is `sum_t a_t g_rt^T`: its two factors are all that most uses need. A leaf that the
walk leaves (a bias, a norm's scale, an embedding) is a matrix with one row: a = 1, and g is its gradient.
"""

import fnmatch
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.extend.core import primitives as prim

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.errors import SettingError
from posteria.models.target import Target
from posteria.trace import linear
from posteria.trace.operations import Matrix

Array = TypeVar("Array", jax.Array, np.ndarray)
Operations = dict[str, list[tuple[linear.Operation, jax.ShapeDtypeStruct]]]  # with the shape of their outputs


@dataclass(frozen=True)
class Weight:
    """A leaf as a matrix (rows, columns), at coordinates start .. start + rows * columns of the curvature."""

    path: str
    start: int
    rows: int
    columns: int
    positions: int
    is_walked: bool

    @property
    def size(self) -> int:
        return self.rows * self.columns

    def of(self, coordinates: Array) -> Array:
        """Its part of (..., size) coordinates, as matrices."""
        part = coordinates[..., self.start : self.start + self.size]
        return part.reshape(*part.shape[:-1], self.rows, self.columns)


class Factors(NamedTuple):
    """Of one weight's gradients, for a block of data."""

    inputs: jax.Array  # (datum, position, row)
    gradients: jax.Array  # (datum, cotangent, position, column)

    @property
    def meets_once(self) -> bool:
        return self.inputs.shape[1] == 1

    def formed(self) -> jax.Array:
        """The gradients themselves: (datum, cotangent, row, column)."""
        return jnp.einsum("nti,nrtj->nrij", *self)


def between(weights: Sequence[Weight], jacobian: Sequence[Factors], variances: jax.Array) -> jax.Array:
    """J diag(variances) J^T between all outputs of all data: (datum x cotangent, datum x cotangent).

    With one position a weight's gradients are outer products a g^T: the sum over its rows is of a alone, so that no
    gradient is formed and the cost is that of its columns.
    """
    num, count = jacobian[0].gradients.shape[:2]
    total = jnp.zeros((num, count, num, count))
    for weight, factors in zip(weights, jacobian):
        matrix = weight.of(variances)
        if factors.meets_once:
            a, g = factors.inputs[:, 0], factors.gradients[:, :, 0]
            over_rows = jnp.einsum("ni,mi,ij->nmj", a, a, matrix)
            total += jnp.einsum("nmj,nrj,msj->nrms", over_rows, g, g)
        else:
            formed = factors.formed()
            total += jnp.einsum("nrij,ij,msij->nrms", formed, matrix, formed)
    return total.reshape(num * count, num * count)


@dataclass(frozen=True, eq=False)
class FactoredNetwork:
    """A network whose Jacobian comes as one `Factors` for each of `weights`.

    `order` are the places of the coordinates in the flat vector of all parameters.
    """

    weights: tuple[Weight, ...]
    order: np.ndarray
    jacobian: Callable[[tree.Params, Data, jax.Array], tuple[Factors, ...]]  # (network, x, cotangents (n, r, output))

    @property
    def size(self) -> int:
        return len(self.order)


def subset_paths(target: Target, subset: str | Sequence[str]) -> tuple[str, ...]:
    """The leaves that "all", "last" (layer) or patterns of paths name, in the order of the parameters."""
    paths = tree.paths(target.structs["network"])
    if subset == "all":
        return tuple(paths)
    if subset == "last":
        return _last_layer(target.without_data())
    patterns = [subset] if isinstance(subset, str) else list(subset)
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(path, pattern) for path in paths):
            raise SettingError(
                f"subset's {pattern!r} matches no leaf", f'"all", "last", or some of {paths}', "see them"
            )
    return tuple(path for path in paths if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns))


@kept
def _last_layer(target: Target) -> tuple[str, ...]:
    """The leaves that do not feed the input of the last linear operation: its weight, its bias."""
    structs = target.structs["network"]
    seen: list[tuple[str, jax.Array]] = []

    def rule(operation: linear.Operation, extra: None) -> tuple[jax.Array, jax.Array]:
        seen.append((operation.path, operation.x))
        return operation.op(operation.x, operation.weight), operation.x

    def last_input(params: tree.Params) -> jax.Array:
        _, records = linear.interpret(target.model.network.apply, rule)(params, target.blank_input)
        if not seen:
            raise SettingError('subset is "last"', "a network with a linear operation", 'take subset="all"')
        return records[seen[-1][0]][-1]

    jaxpr = jax.make_jaxpr(last_input)(structs).jaxpr
    needed = set(jaxpr.outvars)
    for eqn in reversed(jaxpr.eqns):
        if needed.intersection(eqn.outvars):
            needed.update(atom for atom in eqn.invars if not isinstance(atom, core.Literal))
    paths = tree.paths(structs)
    return tuple(path for path, var in zip(paths, jaxpr.invars) if var not in needed)


@kept
def factored(target: Target, paths: tuple[str, ...]) -> FactoredNetwork:
    """The leaves at `paths` as matrices, and the Jacobian in them; pass `target.without_data()`."""
    if target.blank_input is None:
        raise SettingError("data is None", "an x, for the shapes of the network's layers", "pass data=(x, None)")
    apply, structs = target.model.network.apply, target.structs["network"]
    all_paths, treedef = tree.paths(structs), jax.tree.structure(structs)
    operations = _matrix_operations(target, paths)
    weights, order = _weights(target, paths, operations)
    zeros = {path: [np.zeros(y.shape, y.dtype) for _, y in uses] for path, uses in operations.items()}
    loose_at = [i for i, path in enumerate(all_paths) if path in paths and path not in operations]

    def rule(operation: linear.Operation, extra: dict[str, list[jax.Array]]) -> tuple[jax.Array, tree.Tree]:
        y = operation.op(operation.x, operation.weight)
        if operation.path not in operations:
            return y, ()
        return y + extra[operation.path][operation.use], _wide(_matrix(operation).inputs(operation.x))

    def jacobian(params: tree.Params, x: Data, cotangents: jax.Array) -> tuple[Factors, ...]:
        own = jax.tree.leaves(params)

        def one(datum: tree.Tree, cotangents: jax.Array) -> tuple[Factors, ...]:
            def outputs_of(
                loose: list[jax.Array], added: dict[str, list[jax.Array]]
            ) -> tuple[jax.Array, dict[str, list[jax.Array]]]:
                leaves = list(own)
                for i, leaf in zip(loose_at, loose):
                    leaves[i] = leaf
                batch = jax.tree.map(lambda leaf: leaf[None], (datum, added))
                outputs, records = linear.interpret(apply, rule)(treedef.unflatten(leaves), *batch)
                return outputs.reshape(-1), {path: [record[0] for record in records[path]] for path in operations}

            pulled: Any = jax.vjp(outputs_of, [own[i] for i in loose_at], zeros, has_aux=True)
            outputs, pull, inputs = pulled
            loose, added = jax.vmap(pull)(cotangents.astype(outputs.dtype))
            by_path = {
                path: Factors(
                    jnp.concatenate(inputs[path]),
                    jnp.concatenate(
                        [jax.vmap(_matrix(op).outputs)(_wide(g)) for (op, _), g in zip(uses, added[path])], axis=1
                    ),
                )
                for path, uses in operations.items()
            }
            for i, gradient in zip(loose_at, loose):
                flat = _wide(gradient).reshape(len(cotangents), 1, -1)
                by_path[all_paths[i]] = Factors(jnp.ones((1, 1), flat.dtype), flat)
            return tuple(by_path[weight.path] for weight in weights)

        return jax.vmap(one)(x, cotangents)

    return FactoredNetwork(weights, order, jacobian)


def _wide(values: jax.Array) -> jax.Array:
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))


def _matrix_operations(target: Target, paths: tuple[str, ...]) -> Operations:
    """For each leaf that is one matrix in all its uses: the operations, with the shape of their output."""
    uses: Operations = {}

    def rule(operation: linear.Operation, extra: None) -> tuple[jax.Array, tuple[()]]:
        y = operation.op(operation.x, operation.weight)
        uses.setdefault(operation.path, []).append((operation, jax.ShapeDtypeStruct(y.shape, y.dtype)))
        return y, ()

    apply, structs = target.model.network.apply, target.structs["network"]
    jax.eval_shape(lambda params: linear.interpret(apply, rule)(params, target.blank_input), structs)
    found = linear.find(apply, structs, target.blank_input)

    def is_one_matrix(path: str) -> bool:
        forms = {
            (operation.primitive, operation.weight.shape, operation.matrix and operation.matrix.axes, use.contracted)
            for (operation, _), use in zip(uses[path], found[path].uses)
        }
        return len(forms) == 1 and uses[path][0][0].matrix is not None

    return {path: uses[path] for path in paths if path in uses and is_one_matrix(path)}


def _weights(target: Target, paths: tuple[str, ...], operations: Operations) -> tuple[tuple[Weight, ...], np.ndarray]:
    weights, order, start = [], [], 0
    place = tree.size(target.structs["likelihood"])  # "likelihood" comes first in the flat vector
    structs = target.structs["network"]
    for path, leaf in zip(tree.paths(structs), jax.tree.leaves(structs)):
        size = math.prod(leaf.shape)
        if path in paths:
            places, rows, positions = np.arange(size), 1, 1
            if path in operations:
                operation, _ = operations[path][0]
                places, rows = _as_matrix(operation, places.reshape(leaf.shape))
                positions = sum(math.prod(y.shape) // _columns(use) for use, y in operations[path])
            weights.append(Weight(path, start, rows, size // rows, positions, path in operations))
            order.append(place + places.reshape(-1))
            start += size
        place += size
    return tuple(weights), np.concatenate(order).astype(np.int32)


def _matrix(operation: linear.Operation) -> Matrix:
    assert operation.matrix is not None
    return operation.matrix


def _columns(operation: linear.Operation) -> int:
    matrix = _matrix(operation)
    return math.prod(operation.weight.shape[axis] for axis in matrix.axes[matrix.num_row_axes :])


def _as_matrix(operation: linear.Operation, leaf: np.ndarray) -> tuple[np.ndarray, int]:
    """An array of the leaf's shape as the operation's matrix, and its number of rows; on the host, for any dtype."""
    matrix = _matrix(operation)
    for eqn in jax.make_jaxpr(operation.as_operand)(operation.leaf).jaxpr.eqns:
        if eqn.primitive is prim.transpose_p:
            leaf = leaf.transpose(eqn.params["permutation"])
        else:  # of a reshape, a squeeze or a new axis of size 1 the order of the elements is that of the leaf
            leaf = leaf.reshape(eqn.outvars[0].aval.shape)
    columns = _columns(operation)
    return leaf.transpose(matrix.axes).reshape(-1, columns), leaf.size // columns
