"""Single equations of a jaxpr: changes of a parameter's layout, and the linear operations it may reach."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.extend import core
from jax.extend.core import primitives as prim

from posteria.networks import prefers_slices
from posteria.nn.convolution import by_slices, window_slices

LAYOUT = (
    prim.transpose_p,
    prim.reshape_p,
    prim.squeeze_p,
    prim.broadcast_in_dim_p,
    prim.convert_element_type_p,
    prim.copy_p,
)


@dataclasses.dataclass(frozen=True)
class Form:
    """A value that is a parameter leaf in another layout. `origins` names, for each axis, the leaf's dims on it."""

    path: str
    value: jax.Array
    leaf: jax.ShapeDtypeStruct
    origins: tuple[frozenset[int], ...]
    as_operand: Callable[[jax.Array], jax.Array]

    @classmethod
    def of(cls, path: str, value: jax.Array) -> "Form":
        value = jnp.asarray(value)
        origins = tuple(frozenset([dim]) for dim in range(value.ndim))
        return cls(path, value, jax.ShapeDtypeStruct(value.shape, value.dtype), origins, lambda leaf: leaf)

    def through(self, eqn: core.JaxprEqn) -> "Form":
        def as_operand(leaf: jax.Array, before: Callable[[jax.Array], jax.Array] = self.as_operand) -> jax.Array:
            return eqn.primitive.bind(before(leaf), **eqn.params)

        value = eqn.primitive.bind(self.value, **eqn.params)
        return dataclasses.replace(self, value=value, origins=_moved(self.origins, eqn), as_operand=as_operand)


Value = Form | jax.Array
Shape = tuple[int, ...]
Origins = tuple[frozenset[int], ...]


def evaluated(
    jaxpr: core.Jaxpr,
    consts: Sequence[Any],
    args: Sequence[Any],
    step: Callable[[core.JaxprEqn, list[Any]], Sequence[Any]],
    of_literal: Callable[[Any], Any] = lambda value: value,
) -> list[Any]:
    """The outputs of a jaxpr, `step(equation, its inputs)` giving those of each equation."""
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args]))

    def read(atom: core.Var | core.Literal) -> Any:
        return of_literal(atom.val) if isinstance(atom, core.Literal) else env[atom]

    for eqn in jaxpr.eqns:
        env.update(zip(eqn.outvars, step(eqn, [read(atom) for atom in eqn.invars])))
    return [read(atom) for atom in jaxpr.outvars]


def plain(values: Sequence[Value]) -> list[jax.Array]:
    return [v.value if isinstance(v, Form) else v for v in values]


def array_in_place(value: Value, array: jax.Array) -> Value:
    return dataclasses.replace(value, value=array) if isinstance(value, Form) else array


def shape_of(atom: core.Var | core.Literal) -> Shape:
    return cast(Any, atom.aval).shape


def keeps_elements(eqn: core.JaxprEqn) -> bool:
    """Whether the equation moves its one operand's elements about, each to one place."""
    return eqn.primitive in LAYOUT and math.prod(shape_of(eqn.outvars[0])) == math.prod(shape_of(eqn.invars[0]))


def _moved(origins: Origins, eqn: core.JaxprEqn) -> Origins:
    """The leaf's dims on each axis after a change of layout."""
    shape, params = shape_of(eqn.outvars[0]), eqn.params
    if eqn.primitive is prim.transpose_p:
        return tuple(origins[axis] for axis in params["permutation"])
    if eqn.primitive is prim.squeeze_p:
        return tuple(dims for axis, dims in enumerate(origins) if axis not in params["dimensions"])
    if eqn.primitive is prim.broadcast_in_dim_p:
        where = list(params["broadcast_dimensions"])
        return tuple(origins[where.index(axis)] if axis in where else frozenset() for axis in range(len(shape)))
    if eqn.primitive is prim.reshape_p:
        return _reshaped(origins, shape_of(eqn.invars[0]), shape)
    return origins


def _reshaped(origins: Origins, old: Shape, new: Shape) -> Origins:
    """Old and new axes are cut into the shortest runs of equal size; within a run, dims cannot be told apart."""
    moved: list[frozenset[int]] = []
    i = 0
    while i < len(old) and len(moved) < len(new):
        last, size = len(moved) + 1, new[len(moved)]
        run, old_size, i = origins[i], old[i], i + 1
        while size != old_size:
            if old_size < size:
                run, old_size, i = run | origins[i], old_size * old[i], i + 1
            else:
                size, last = size * new[last], last + 1
        moved += [run] * (last - len(moved))
    return tuple(moved) + (frozenset(),) * (len(new) - len(moved))  # what is left are axes of size 1


@dataclasses.dataclass(frozen=True)
class Linear:
    """A dot or convolution with the weight as operand number `weight`. Axes: `summed` of the weight; `contracted` and
    `positions` of x. `out_unit_shape` is the output's shape with 1 for positions. `matrix` is None where the weight
    is not one matrix (groups, or axes matched with x's)."""

    primitive: str
    op: Callable[[jax.Array, jax.Array], jax.Array]
    weight: int
    summed: tuple[int, ...]
    contracted: tuple[int, ...]
    positions: tuple[int, ...]
    num_positions: int
    out_unit_shape: tuple[int, ...]
    matrix: "Matrix | None"


@dataclasses.dataclass(frozen=True)
class Matrix:
    """A linear operation as outputs (position, column) = inputs (position, row) @ weight (row, column)."""

    axes: tuple[int, ...]  # of the operand: transposed to these and reshaped, it is the weight
    num_row_axes: int
    inputs: Callable[[jax.Array], jax.Array]  # x -> (position, row)
    outputs: Callable[[jax.Array], jax.Array]  # y -> (position, column)


def linear_operation(eqn: core.JaxprEqn, values: Sequence[Value]) -> Linear | None:
    name, shapes = eqn.primitive.name, [shape_of(v) for v in eqn.invars]
    if eqn.primitive is prim.dot_general_p:
        weight = 1 if isinstance(values[1], Form) else 0
        contracted, matched = eqn.params["dimension_numbers"]
        x_shape, x_contracted, x_matched = shapes[1 - weight], contracted[1 - weight], matched[1 - weight]
        positions = tuple(axis for axis in range(len(x_shape)) if axis not in (*x_contracted, *x_matched))

        def op(x: jax.Array, w: jax.Array) -> jax.Array:
            return prim.dot_general_p.bind(*((x, w) if weight else (w, x)), **eqn.params)

        times = math.prod(x_shape[axis] for axis in positions)
        y_shape = shape_of(eqn.outvars[0])  # what is matched, the free axes of the left operand, those of the right
        first = len(x_matched) if weight else len(y_shape) - len(positions)
        out = tuple(1 if first <= axis < first + len(positions) else size for axis, size in enumerate(y_shape))
        matrix = None if x_matched else _dot_as_matrix(weight, shapes[weight], contracted, positions, times)
        return Linear(name, op, weight, tuple(contracted[weight]), tuple(x_contracted), positions, times, out, matrix)
    if eqn.primitive is prim.conv_general_dilated_p and isinstance(values[1], Form):
        if eqn.params["batch_group_count"] != 1:
            return None
        (batch, channels, *space), (_, *summed), (_, out, *_) = eqn.params["dimension_numbers"]
        y_shape = shape_of(eqn.outvars[0])
        times = math.prod(y_shape) // y_shape[out]
        op = partial(convolve, eqn)
        channels_alone = tuple(size if axis == out else 1 for axis, size in enumerate(y_shape))
        matrix = _convolution_as_matrix(eqn, shapes[1])
        return Linear(name, op, 1, tuple(summed), (channels,), (batch, *space), times, channels_alone, matrix)
    return None


def _dot_as_matrix(
    weight: int, shape: Shape, contracted: Sequence[Sequence[int]], positions: Shape, times: int
) -> Matrix:
    summed, x_contracted = tuple(contracted[weight]), tuple(contracted[1 - weight])
    kept = tuple(axis for axis in range(len(shape)) if axis not in summed)
    num_rows = math.prod(shape[axis] for axis in summed)
    return Matrix(
        axes=(*summed, *kept),
        num_row_axes=len(summed),
        inputs=lambda x: x.transpose(*positions, *x_contracted).reshape(times, num_rows),
        outputs=lambda y: y.reshape(times, -1) if weight else y.reshape(-1, times).T,
    )


def _convolution_as_matrix(eqn: core.JaxprEqn, shape: Shape) -> Matrix | None:
    p = eqn.params
    if p["feature_group_count"] != 1 or not set(p["lhs_dilation"]) <= {1}:
        return None
    (batch, channels, *space), (out, summed, *window_axes), (y_batch, y_out, *y_space) = p["dimension_numbers"]
    window = [shape[axis] for axis in window_axes]

    def inputs(x: jax.Array) -> jax.Array:
        x = x.transpose(batch, *space, channels)
        slices = window_slices(x, window, p["window_strides"], p["padding"], p["rhs_dilation"])
        return jnp.concatenate(slices, axis=-1).reshape(-1, math.prod(window) * shape[summed])

    return Matrix(
        axes=(*window_axes, summed, out),
        num_row_axes=len(window) + 1,
        inputs=inputs,
        outputs=lambda y: y.transpose(y_batch, *y_space, y_out).reshape(-1, shape[out]),
    )


def convolve(eqn: core.JaxprEqn, x: jax.Array, kernel: jax.Array) -> jax.Array:
    """The convolution of `eqn`, as slices and a matmul if that is preferred and it is not a transposed one."""
    p = eqn.params
    is_plain = p["batch_group_count"] == 1 and set(p["lhs_dilation"]) <= {1}
    keeps_type = p["preferred_element_type"] in (None, x.dtype)
    if not (prefers_slices() and is_plain and keeps_type and math.prod(shape_of(eqn.outvars[0]))):
        return eqn.primitive.bind(x, kernel, **p)
    lhs, rhs, out = ((*spec[:1], *spec[2:], spec[1]) for spec in p["dimension_numbers"])  # channels last
    kernel_axes = (*rhs[1:-1], rhs[-1], rhs[0])
    y = by_slices(
        x.transpose(lhs),
        kernel.transpose(kernel_axes),
        p["window_strides"],
        p["padding"],
        p["rhs_dilation"],
        p["feature_group_count"],
        p["precision"],
    )
    return y.transpose([out.index(axis) for axis in range(y.ndim)])
