"""How chains are spread over the machine. On CPU: host devices where there are several, else threads; elsewhere `vmap`.
Over a mesh that the user gives: `engine.mesh`.

A layout holds per-chain values in its own form ("chains"): `split` makes it from arrays with a leading chain axis,
`join` goes back to NumPy, `apply(fn, chains, *shared)` maps `fn(chain, *shared)`, `unzip` takes the results of a
function that returns a tuple apart, `zip` puts one more value beside those of each chain, `one_by_one` maps and joins
while the chains themselves are at work, and `compile` is an `apply` whose results nobody wants. Layouts round
differently in the last bit, so a run records its own.
"""

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.engine.mesh import PREFIX, Meshed, recorded_mesh
from posteria.models.sums import plain
from posteria.tree import Tree

OfChain = Callable[..., Tree]  # (chain, *shared) -> what a layout maps it to
F = TypeVar("F", bound=OfChain)


def choose(
    num_chains: int, recorded: str | None = None, mesh: Mesh | None = None
) -> "Threads | Devices | Vectorised | Meshed":
    """The mesh that is asked for; else the recorded layout of an earlier run where this machine can still do it; else
    the one for this machine."""
    if mesh is None and recorded is not None and recorded.startswith(PREFIX):
        mesh = recorded_mesh(recorded)
    if mesh is not None:
        return Meshed(mesh)
    if jax.default_backend() != "cpu" or recorded == Vectorised.name:
        return Vectorised()
    if recorded == Threads.name:
        return Threads()
    most = len(jax.devices())
    if recorded is not None and recorded.startswith("devices:"):
        most = min(most, int(recorded.removeprefix("devices:")))
    num_devices = _dividing(num_chains, most)
    return Devices(num_devices) if num_devices > 1 else Threads()


def continued(recorded: str, num_chains: int) -> str:
    """The name of the layout that a run which began as `recorded` has in a stage of so many chains, uninterrupted."""
    if not recorded.startswith("devices:"):
        return recorded
    num_devices = _dividing(num_chains, int(recorded.removeprefix("devices:")))
    return f"devices:{num_devices}" if num_devices > 1 else Threads.name


def _dividing(num_chains: int, most: int) -> int:
    return max(n for n in range(1, most + 1) if num_chains % n == 0)


def is_layout(recorded: object) -> bool:
    """Whether this is a name that a layout has; what is read from a file may be anything."""
    count = "[1-9][0-9]{0,5}"
    names = f"{Threads.name}|{Vectorised.name}|devices:{count}|{PREFIX}{count}x{count}"
    return recorded is None or (isinstance(recorded, str) and re.fullmatch(names, recorded) is not None)


def use_cores() -> None:
    """Make every core a host device; to be called before JAX is used. Afterwards chains run in threads instead."""
    with suppress(RuntimeError):  # JAX is up already
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


def on_host(fn: F) -> F:
    """Mark a function that makes its compiled calls itself, and is not to be compiled; only threads can run one."""
    fn.runs_on_host = True  # type: ignore[attr-defined]
    return fn


class Threads:
    """One compiled call a chain, in threads; also the layout of a single chain."""

    name = "threads"

    def split(self, stacked: Tree) -> list[Tree]:
        stacked = jax.tree.map(_on_host, stacked)  # a slice of NumPy's is a view, one of JAX's is compiled
        return [tree.index(stacked, i) for i in range(tree.length(stacked))]

    def join(self, chains: list[Tree]) -> Tree:
        return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *chains)

    def share(self, data: Data) -> Data:
        return plain(data)

    def unzip(self, results: list[Tree]) -> tuple[list[Tree], ...]:
        return tuple(list(part) for part in zip(*results))

    def zip(self, chains: list[Tree], more: list[Tree]) -> list[Tree]:
        return [(*chain, part) for chain, part in zip(chains, more)]

    def one_by_one(self, fn: OfChain, chains: list[Tree], *shared: Tree) -> Tree:
        return self.join([_jit(fn)(chain, *shared) for chain in chains])

    def compile(self, fn: OfChain, chains: list[Tree], *shared: Tree) -> None:
        self.apply(fn, chains[:1], *shared)

    def apply(self, fn: OfChain, chains: list[Tree], *shared: Tree) -> list[Tree]:
        compiled = fn if hasattr(fn, "runs_on_host") else _jit(fn)
        if len(chains) == 1:
            return [jax.block_until_ready(compiled(chains[0], *shared))]
        return list(_pool().map(lambda chain: jax.block_until_ready(compiled(chain, *shared)), chains))


class Devices:
    """Chains divided over host devices, one after the other on each (a batched small matmul is slow on CPU)."""

    def __init__(self, num_devices: int) -> None:
        self.name = f"devices:{num_devices}"
        self._mesh = Mesh(np.array(jax.devices()[:num_devices]), ("chains",))

    def split(self, stacked: Tree) -> Tree:
        return jax.device_put(stacked, NamedSharding(self._mesh, PartitionSpec("chains")))

    def join(self, chains: Tree) -> Tree:
        return jax.tree.map(np.asarray, chains)

    def share(self, data: Data) -> Data:
        return jax.device_put(plain(data), NamedSharding(self._mesh, PartitionSpec()))

    def unzip(self, results: tuple[Tree, ...]) -> tuple[Tree, ...]:
        return results

    def zip(self, chains: tuple[Tree, ...], more: Tree) -> tuple[Tree, ...]:
        return *chains, more

    def one_by_one(self, fn: OfChain, chains: Tree, *shared: Tree) -> Tree:
        return self.join(self.apply(fn, chains, *shared))

    def compile(self, fn: OfChain, chains: Tree, *shared: Tree) -> None:
        self.apply(fn, chains, *shared)

    def apply(self, fn: OfChain, chains: Tree, *shared: Tree) -> Tree:
        return jax.block_until_ready(_jit_sharded(fn, self._mesh, len(shared))(chains, *shared))


class Vectorised:
    """`vmap` over chains, divided over all accelerators where their number divides the chains'."""

    name = "vmap"

    def split(self, stacked: Tree) -> Tree:
        num_devices = max(n for n in range(1, len(jax.devices()) + 1) if tree.length(stacked) % n == 0)
        mesh = Mesh(np.array(jax.devices()[:num_devices]), ("chains",))
        return jax.device_put(stacked, NamedSharding(mesh, PartitionSpec("chains")))

    def join(self, chains: Tree) -> Tree:
        return jax.tree.map(np.asarray, chains)

    def share(self, data: Data) -> Data:
        return plain(data)

    def unzip(self, results: tuple[Tree, ...]) -> tuple[Tree, ...]:
        return results

    def zip(self, chains: tuple[Tree, ...], more: Tree) -> tuple[Tree, ...]:
        return *chains, more

    def one_by_one(self, fn: OfChain, chains: Tree, *shared: Tree) -> Tree:
        return self.join(self.apply(fn, chains, *shared))

    def compile(self, fn: OfChain, chains: Tree, *shared: Tree) -> None:
        self.apply(fn, chains, *shared)

    def apply(self, fn: OfChain, chains: Tree, *shared: Tree) -> Tree:
        return jax.block_until_ready(_jit_vmapped(fn, len(shared))(chains, *shared))


def _on_host(leaf: jax.Array) -> np.ndarray | jax.Array:
    """As NumPy's array, but for typed keys, which NumPy has not."""
    jax.block_until_ready(leaf)  # raises where memory did not suffice; NumPy would end the process
    return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.asarray(leaf)


@cache  # the threads of this process
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="posteria-chain")


@kept
def _jit(fn: OfChain) -> OfChain:
    return jax.jit(fn)


@kept
def _jit_vmapped(fn: OfChain, num_shared: int) -> OfChain:
    return jax.jit(jax.vmap(fn, in_axes=(0, *[None] * num_shared)))


@kept
def _jit_sharded(fn: OfChain, mesh: Mesh, num_shared: int) -> OfChain:
    specs = (PartitionSpec("chains"), *[PartitionSpec()] * num_shared)

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=specs, out_specs=PartitionSpec("chains"), check_vma=False)
    def mapped(chains: Tree, *shared: Tree) -> Tree:
        return jax.lax.map(lambda chain: fn(chain, *shared), chains)

    return mapped
