"""The sum of one term a row, with its gradient: in blocks of rows, and over the devices that share them.

All rows at once would hold every activation of a network until the gradient has used it. So where these are many, the
rows are scanned in blocks, and each block's gradient is taken before the next begins: memory is that of one block, and
the arithmetic is the same. Few rows are summed as one.

In a mesh (`engine.layout`), the devices along the axis "data" hold the same parameters. Each sums its share of the
rows, and one all-reduce of the value and the gradient together makes them equal on all. A derivative of a sum over
devices is easily taken wrong without a sound, so it is given here as a rule, from which first and second derivatives,
forward and in reverse, follow (but for the reverse of the reverse over several devices, which nothing takes).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data, num_rows
from posteria.machine import available_memory
from posteria.trace import linear

AXIS = "data"  # of a mesh: the devices along it share the rows
FEW_ROWS = 100  # that are summed as one whatever a row takes
WHOLE_BYTES = 64 * 2**20  # of activations on a CPU that are held at once, rather than in blocks
BLOCK_BYTES = 16 * 2**20  # of a block on a CPU: measured, larger ones are slower (they leave the caches)
ACCELERATOR_SHARE = 1 / 8  # of an accelerator's memory for a block, which others share with it
LEAST_ROWS = 8  # of a block


class Rowwise(Protocol):
    """A target without its data: hashable, so that what is read off it is kept."""

    def log_likelihood(self, params: tree.Params, batch: Data, /) -> jax.Array: ...  # (row,)


@dataclass(frozen=True)
class AllRows:
    """All rows of the data, which nothing but the density looks at: so a device of a mesh need have only its own.

    There, `rows` are its part of them. Parts are of equal length, and rows past the last, the `num_rows`th, count for
    nothing.
    """

    rows: Data
    num_rows: int


jax.tree_util.register_dataclass(AllRows, data_fields=["rows"], meta_fields=["num_rows"])


def all_rows(data: Data) -> AllRows | None:
    """For `Run.loop`, by a method whose kernel hands the data to the density as they are."""
    return None if data is None else AllRows(data, num_rows(data))


def plain(data: Data) -> Data:
    """The data without this mark, where one device has all rows."""
    return jax.tree.map(lambda part: part.rows if is_marked(part) else part, data, is_leaf=is_marked)


def is_marked(part: Any) -> bool:
    return isinstance(part, AllRows)


class Plan(NamedTuple):
    """How a device sums rows: `num_own` of them from a first one that is its own, in blocks of `block`."""

    num_own: int
    block: int
    num_blocks: int
    num_devices: int
    is_part: bool  # the rows at hand are the device's own, and no others
    num_rows: int  # on all devices together


def total(target: Rowwise, params: tree.Params, batch: Data | AllRows) -> tuple[jax.Array, int]:
    """The sum of `target.log_likelihood(params, batch)`, and of how many rows it is."""
    plan = plan_of(target, params, batch)
    rows = batch.rows if isinstance(batch, AllRows) else batch
    if plan.num_blocks == 1 and plan.num_devices == 1 and num_rows(rows) == plan.num_rows:
        return target.log_likelihood(params, rows).sum(), plan.num_rows
    return _planned(target, plan, params, rows), plan.num_rows


def plan_of(target: Rowwise, params: tree.Params, batch: Data | AllRows) -> Plan:
    num_devices, is_part = axis_size(AXIS), isinstance(batch, AllRows)
    rows = batch.rows if is_part else batch
    num_own = num_rows(rows) if is_part else math.ceil(num_rows(rows) / num_devices)
    block = block_rows(target, params, rows, num_own)
    total = batch.num_rows if is_part else num_rows(rows)
    return Plan(num_own, block, math.ceil(num_own / block), num_devices, is_part, total)


def block_rows(target: Rowwise, params: tree.Params, rows: Data, count: int) -> int:
    """How many of `count` rows are held at once."""
    if count <= FEW_ROWS:
        return count
    a_row = _bytes_a_row(target, tree.signature((params, rows)))
    is_cpu = jax.default_backend() == "cpu"
    most = available_memory() * ACCELERATOR_SHARE
    whole, block = (min(WHOLE_BYTES, most), min(BLOCK_BYTES, most)) if is_cpu else (most, most)
    if a_row * count <= whole:
        return count
    if is_cpu and a_row * count <= most and _holds_convolution(target, tree.signature((params, rows))):
        return count  # in a loop, XLA's convolution is twenty times slower
    return max(LEAST_ROWS, math.ceil(count / math.ceil(a_row * count / block)))


def axis_size(name: str) -> int:
    """Devices along an axis of the mesh where this is traced; 1 outside of one."""
    try:
        return int(jax.lax.axis_size(name))
    except NameError:
        return 1


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _planned(target: Rowwise, plan: Plan, params: tree.Params, rows: Data) -> jax.Array:
    value = _scan(plan, rows, lambda part, counts: _counted(target.log_likelihood(params, part), counts))
    return _over_devices(plan, [value])[0]


@partial(_planned.defjvp, symbolic_zeros=True)
def _planned_jvp(target: Rowwise, plan: Plan, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    """The derivative along the tangents, by the gradient: so the reverse of it is the gradient, made once."""
    (params, rows), (params_dot, rows_dot) = primals, tangents
    if not all(map(_is_zero, jax.tree.leaves(rows_dot, is_leaf=_is_zero))):  # of the data: seldom, and of few rows
        return jax.jvp(
            lambda params, rows: target.log_likelihood(params, rows).sum(),
            primals,
            jax.tree.map(_instantiated, tangents),
        )
    leaves, treedef = jax.tree.flatten(params)
    dots = jax.tree.leaves(params_dot, is_leaf=_is_zero)
    moving = [i for i, dot in enumerate(dots) if not _is_zero(dot)]

    def value(moved: list[jax.Array], part: Data, counts: jax.Array) -> jax.Array:
        here = list(leaves)
        for i, leaf in zip(moving, moved):
            here[i] = leaf
        return _counted(target.log_likelihood(treedef.unflatten(here), part), counts)

    def value_and_gradient(part: Data, counts: jax.Array) -> list[jax.Array]:
        found, gradient = jax.value_and_grad(value)([leaves[i] for i in moving], part, counts)
        return [found, *(leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)) for leaf in gradient)]

    found, *gradient = _over_devices(plan, _scan(plan, rows, value_and_gradient))
    along = [jnp.sum(leaf.astype(dots[i].dtype) * dots[i]) for i, leaf in zip(moving, gradient)]
    return found, sum((part.astype(found.dtype) for part in along), start=jnp.zeros_like(found))


def _scan(plan: Plan, rows: Data, of_block: Callable[[Data, jax.Array], Any]) -> Any:
    """The sum of `of_block(rows, whether each counts)` over the blocks of this device's rows.

    Blocks are of equal length. A last one that would pass the end begins earlier, and the rows that it has again do
    not count: nothing is copied, and the block is compiled once.
    """
    num, offsets = num_rows(rows), np.arange(plan.block)
    first = jax.lax.axis_index(AXIS) * plan.num_own if plan.num_devices > 1 else 0  # of its own, among all rows
    own = 0 if plan.is_part else first  # among those at hand

    def block(i: jax.Array) -> Any:
        wanted = own + i * plan.block
        begin = jnp.clip(wanted, 0, max(0, num - plan.block))
        part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, begin, plan.block), rows)
        numbers = begin + offsets
        end = jnp.minimum(own + jnp.minimum(plan.num_own, plan.num_rows - first), wanted + plan.block)
        return of_block(part, (numbers >= wanted) & (numbers < end))

    if plan.num_blocks == 1:
        return block(jnp.zeros((), jnp.int32))
    like = jax.eval_shape(block, jax.ShapeDtypeStruct((), jnp.int32))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
    add = lambda sums, i: (jax.tree.map(jnp.add, sums, block(i)), None)  # noqa: E731
    return jax.lax.scan(add, zeros, jnp.arange(plan.num_blocks, dtype=jnp.int32))[0]


def _over_devices(plan: Plan, sums: list[jax.Array]) -> list[jax.Array]:
    """All of them in one all-reduce."""
    if plan.num_devices == 1:
        return sums
    flat = jax.lax.psum(tree.ravel(sums), AXIS)
    return tree.unraveller(sums)(flat)


def _counted(terms: jax.Array, counts: jax.Array) -> jax.Array:
    return jnp.where(counts, terms, 0).sum()


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, jax.custom_derivatives.SymbolicZero) or tangent is None or _is_float0(tangent)


def _is_float0(tangent: Any) -> bool:
    return getattr(tangent, "dtype", None) == jax.dtypes.float0


def _instantiated(tangent: Any) -> Any:
    if not isinstance(tangent, jax.custom_derivatives.SymbolicZero):
        return tangent
    return (
        np.zeros(tangent.shape, jax.dtypes.float0) if _is_float0(tangent) else jnp.zeros(tangent.shape, tangent.dtype)
    )


@kept
def _bytes_a_row(target: Rowwise, signature: tree.Signature) -> float:
    """What a gradient holds between its way there and back, of each row: from shapes alone, nothing is computed."""

    def held(num: int) -> int:
        params, rows = _structs(signature, num)
        back = jax.eval_shape(
            lambda params, rows: jax.vjp(lambda p: target.log_likelihood(p, rows).sum(), params)[1], params, rows
        )
        return tree.num_bytes(back)

    return float(held(2) - held(1))


@kept
def _holds_convolution(target: Rowwise, signature: tree.Signature) -> bool:
    return linear.holds_convolution(
        lambda params, rows: target.log_likelihood(params, rows).sum(), *_structs(signature, 2)
    )


def _structs(signature: tree.Signature, num: int) -> Any:
    """Of the parameters, and of so many rows."""
    treedef, leaves = signature
    params, rows = treedef.unflatten(jax.ShapeDtypeStruct(*leaf) for leaf in leaves)
    return params, jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((num, *leaf.shape[1:]), leaf.dtype), rows)
