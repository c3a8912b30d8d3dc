"""Chains and rows over a mesh of devices: chains along one axis, the rows of each chain along the other.

The devices of a chain take the same steps from the same keys. What differs is the rows that each sums
(`posteria.models.sums`), and there is one all-reduce of value and gradient for each sum. Chains know nothing of each
other, and may take different numbers of steps.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from posteria import machine, tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.errors import SettingError
from posteria.machine import on_host
from posteria.models.sums import AXIS as ROWS
from posteria.models.sums import AllRows, axis_size, is_marked
from posteria.settings import Count, checked
from posteria.tree import Tree

CHAINS = "chains"
PREFIX = "mesh:"


def mesh(chains: int = 1, data: int = 1) -> Mesh:
    """A mesh of `chains` x `data` devices for `po.fit(mesh=...)`: chains are spread over one axis, and the rows of each
    chain over the other.

    On a CPU, so many host devices are made if JAX is not in use yet. After `po.distributed()` the devices are those of
    all processes.
    """
    num = checked("mesh", "chains", chains, Count, 1) * checked("mesh", "data", data, Count, 1)
    if not machine.are_joined():
        with suppress(RuntimeError):  # JAX is up already
            jax.config.update("jax_num_cpu_devices", max(num, jax.config.jax_num_cpu_devices))  # type: ignore[attr-defined]
    devices = jax.devices()
    if len(devices) < num:
        raise SettingError(
            f"a mesh of {chains} x {data} needs {num} devices, and JAX has {len(devices)}",
            "no more than there are",
            f'on a CPU: jax.config.update("jax_num_cpu_devices", {num}) before anything else uses JAX',
        )
    return Mesh(np.array(devices[:num]).reshape(chains, data), (CHAINS, ROWS))


def as_mesh(given: Any) -> Mesh:
    """The user's own mesh with both axes, in this order."""
    if not isinstance(given, Mesh) or not given.axis_names or not set(given.axis_names) <= {CHAINS, ROWS}:
        axes = f" with the axes {given.axis_names}" if isinstance(given, Mesh) else ""
        raise SettingError(
            f"mesh is {type(given).__name__}{axes}",
            f"a jax.sharding.Mesh with the axes {CHAINS!r} and {ROWS!r}, or one of them",
            "po.mesh(chains=2, data=2) makes one",
        )
    devices = given.devices
    for axis in (CHAINS, ROWS):
        if axis not in given.axis_names:
            devices = devices[..., None]
    names = (*given.axis_names, *(axis for axis in (CHAINS, ROWS) if axis not in given.axis_names))
    return Mesh(devices.transpose(names.index(CHAINS), names.index(ROWS)), (CHAINS, ROWS))


def recorded_mesh(recorded: str) -> Mesh | None:
    """That of an earlier run, by its layout's name, where there are as many devices still."""
    shape = tuple(map(int, recorded.removeprefix(PREFIX).split("x")))
    num = math.prod(shape)
    return Mesh(np.array(jax.devices()[:num]).reshape(shape), (CHAINS, ROWS)) if len(jax.devices()) >= num else None


def divided(fn: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    """`fn`, whose `vmap` over many is divided over the chains' devices of a mesh.

    For a kernel that is one chain, and so is the same on all of them: particles that move together.
    """

    @jax.custom_batching.custom_vmap
    def one(value: jax.Array) -> jax.Array:
        return fn(value)

    @one.def_vmap
    def many(size: int, is_batched: list[bool], values: jax.Array) -> tuple[jax.Array, bool]:
        del is_batched
        num_devices = axis_size(CHAINS)
        if num_devices == 1:
            return jax.vmap(fn)(values), True
        share = math.ceil(size / num_devices)
        own = jax.lax.axis_index(CHAINS) * share + np.arange(share)
        found = jax.vmap(fn)(values[jnp.minimum(own, size - 1)])
        return jax.lax.all_gather(found, CHAINS, tiled=True)[:size], True

    return one


class Meshed:
    """A layout (see `posteria.engine.layout`) over a mesh; a device has its chains one after the other on a CPU."""

    def __init__(self, mesh: Mesh) -> None:
        if machine.are_several():
            _meet(mesh)
        self.name = f"{PREFIX}{mesh.shape[CHAINS]}x{mesh.shape[ROWS]}"
        self._mesh = mesh
        self._num_chains = 0

    def split(self, stacked: Tree) -> Tree:
        """Chains that do not divide are filled up with copies of the last one, which `join` leaves out."""
        self._num_chains = tree.length(stacked)
        lacking = -self._num_chains % self._mesh.shape[CHAINS]
        return jax.tree.map(lambda leaf: self._put(_lengthened(leaf, lacking), PartitionSpec(CHAINS)), stacked)

    def join(self, chains: Tree) -> Tree:
        return jax.tree.map(lambda leaf: leaf[: self._num_chains], on_host(chains))

    def share(self, data: Data) -> Data:
        """`AllRows` are divided over the devices of a chain; of other data, each device has all."""
        return jax.tree.map(self._share, data, is_leaf=is_marked)

    def _share(self, part: Any) -> Any:
        if not is_marked(part):
            return self._put(np.asarray(part), PartitionSpec())
        lacking = -part.num_rows % self._mesh.shape[ROWS]
        rows = jax.tree.map(lambda leaf: self._put(_lengthened(leaf, lacking), PartitionSpec(ROWS)), part.rows)
        return AllRows(rows, part.num_rows)

    def unzip(self, results: tuple[Tree, ...]) -> tuple[Tree, ...]:
        return results

    def compile(self, fn: Any, chains: Tree, *shared: Tree) -> None:
        self.apply(fn, chains, *shared)

    def apply(self, fn: Any, chains: Tree, *shared: Tree) -> Tree:
        shared = tuple(jax.tree.map(self._on_mesh, shared))
        return jax.block_until_ready(self.compiled(fn, shared)(chains, *shared))

    def compiled(self, fn: Any, shared: tuple[Tree, ...]) -> Any:
        specs = jax.tree.map(
            lambda part: PartitionSpec(ROWS) if is_marked(part) else PartitionSpec(), shared, is_leaf=is_marked
        )
        leaves, treedef = jax.tree.flatten(specs, is_leaf=lambda node: isinstance(node, PartitionSpec))
        return _jit_meshed(fn, self._mesh, treedef, tuple(leaves))

    def _on_mesh(self, leaf: Any) -> jax.Array:
        return leaf if isinstance(leaf, jax.Array) else self._put(np.asarray(leaf), PartitionSpec())

    def _put(self, values: np.ndarray, spec: PartitionSpec) -> jax.Array:
        """Each process places what its own devices hold."""
        values = values.astype(jax.dtypes.canonicalize_dtype(values.dtype), copy=False)
        return jax.make_array_from_callback(values.shape, NamedSharding(self._mesh, spec), lambda index: values[index])


@kept
def _meet(mesh: Mesh) -> None:
    """Use every group of processes once, now: whoever comes more than half a minute late to a group's first use aborts,
    and later some may compile for longer."""
    ones = jax.make_array_from_callback(
        mesh.devices.shape,
        NamedSharding(mesh, PartitionSpec(CHAINS, ROWS)),
        lambda index: np.ones(mesh.devices.shape)[index],
    )
    for axes in (CHAINS, ROWS, (CHAINS, ROWS)):
        add = partial(jax.lax.psum, axis_name=axes)
        specs = PartitionSpec(CHAINS, ROWS)
        met = jax.jit(jax.shard_map(add, mesh=mesh, in_specs=specs, out_specs=specs, check_vma=False))(ones)
        jax.block_until_ready(met)


def _lengthened(leaf: Any, lacking: int) -> np.ndarray:
    """With copies of its last entry."""
    values = np.asarray(leaf)
    return np.concatenate([values, np.repeat(values[-1:], lacking, axis=0)]) if lacking else values


@kept
def _jit_meshed(fn: Any, mesh: Mesh, treedef: tree.Structure, specs: tuple[PartitionSpec, ...]) -> Any:
    in_specs = (PartitionSpec(CHAINS), *treedef.unflatten(specs))

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=in_specs, out_specs=PartitionSpec(CHAINS), check_vma=False)
    def mapped(chains: Tree, *shared: Tree) -> Tree:
        if jax.default_backend() == "cpu":
            return jax.lax.map(lambda chain: fn(chain, *shared), chains)
        return jax.vmap(lambda chain: fn(chain, *shared))(chains)

    return mapped
