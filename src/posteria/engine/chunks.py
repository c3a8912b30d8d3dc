"""One stretch of steps of a kernel, compiled once: chains taken further where all rows are in memory.

`Resident` and, where rows come from a source, `streaming.Stream` are the two that the loop knows: each starts chains,
takes them some rows further, and watches its own pace.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.data.batches import RowsAhead
from posteria.engine import layout as layouts
from posteria.trace import linear
from posteria.tree import Tree

CHUNK_SECONDS = 0.5  # aimed at; progress is shown as often
CHUNK_BYTES = 64 * 2**20  # of rows that a chain may hold on the device before they are fetched
MAX_CHUNK = 2000  # rows

Chain = tuple[jax.Array, Tree]  # key data and state
Keep = Callable[[Tree], Tree]  # of a state, what is kept


class Kernel(NamedTuple):
    """What an iterative method hands to the loop.

    A step leaves the types of the state as they are; Python's numbers in it get JAX's default types. Between kept
    rows, info's floats are averaged and its counts summed. Where data come from a source, `init` and `step` are handed
    a `Batch` in its place, which `batch_of` knows.
    """

    init: Callable[[jax.Array, Tree, Data], Tree]  # (key, start, data) -> state
    step: Callable[[jax.Array, Tree, Data], tuple[Tree, Tree]]  # (key, state, data) -> (state, info)
    rows: RowsAhead | None = None  # the rows that a step to come will see, so that a source can be read; None: all
    first_rows: Callable[[jax.Array], jax.Array] | None = None  # (key) -> rows that `init` wants to see of a source


class Resident:
    """Takes chains further, where all rows are in memory."""

    def __init__(self, kernel: Kernel, keep: Keep, thinning: int, layout: Any, data: Data) -> None:
        self._kernel, self._keep, self._thinning, self._layout = kernel, keep, thinning, layout
        self._data = layout.share(data)
        self._chunk: Callable[..., Any] | None = None
        self._capacity = 1
        self.pace = 1  # rows, of the next stretch

    def start(self, keys: jax.Array, starts: Tree) -> Any:
        """Chains at their starts."""
        return self._layout.apply(_initialiser(self._kernel), self._layout.split((keys, starts)), self._data)

    def shapes(self, chain: Chain) -> tuple[Tree, Tree]:
        """Of one kept row, and of one row of info."""
        return _traced_row(self._kernel, self._keep, chain, self._data)[:2]

    def compile(self, chains: Any, chain: Chain, num_rows: int) -> None:
        """What `advance` will call; `chain` is one of them."""
        self._capacity = _capacity(self.shapes(chain)[0], num_rows)
        is_in_threads = self._layout.name == layouts.Threads.name
        if is_in_threads and _traced_row(self._kernel, self._keep, chain, self._data).holds_convolution:
            self._chunk = _chunk_of_calls(self._kernel, self._keep, self._thinning)
        else:
            self._chunk = _chunk(self._kernel, self._keep, self._thinning, self._capacity)
        self._layout.compile(self._chunk, chains, self._data, 0, 0)

    def advance(self, chains: Any, first: int, num_rows: int) -> tuple[Any, Tree, Tree, int]:
        """From row `first` on: chains, rows, their infos, and how many there are of these."""
        assert self._chunk is not None, "it is compiled before"
        count = min(self.pace, self._capacity, num_rows - first)
        began = time.monotonic()
        chains, rows, infos = self._layout.unzip(self._layout.apply(self._chunk, chains, self._data, first, count))
        self.pace = paced(count, time.monotonic() - began)
        return chains, *first_rows((self._layout.join(rows), self._layout.join(infos)), count), count

    def close(self) -> None:
        """Nothing is left open."""


def paced(count: int, seconds: float) -> int:
    """How many to take next, where `count` took so long."""
    return max(1, int(count * min(8.0, CHUNK_SECONDS / seconds)))


def first_rows(rows: Tree, count: int) -> Tree:
    """Copied where they are a part: a view would hold on to all of the buffer."""
    return jax.tree.map(lambda leaf: leaf if leaf.shape[1] == count else np.array(leaf[:, :count]), rows)


@kept
def _initialiser(kernel: Kernel) -> Callable[[Chain, Data], Chain]:
    """(key data, start) -> (key data, state), for one chain."""

    def initialise(chain: Chain, data: Data) -> Chain:
        key_data, start = chain
        return key_data, typed(kernel.init(jax.random.wrap_key_data(key_data), start, data))

    return initialise


@kept
def _chunk(kernel: Kernel, keep: Keep, thinning: int, capacity: int) -> Callable[..., tuple[Chain, Tree, Tree]]:
    """(chain, data, first, count) -> (chain, rows, infos): `count` rows of `thinning` steps, numbered from `first`."""

    def run_chunk(chain: Chain, data: Data, first: jax.Array, count: jax.Array) -> tuple[Chain, Tree, Tree]:
        key_data, state = chain
        key = jax.random.wrap_key_data(key_data)

        def step(state: Tree, number: jax.Array) -> tuple[Tree, Tree]:
            stepped: tuple[Tree, Tree] = _traced_once(kernel)(jax.random.fold_in(key, number), state, data)
            return stepped

        def row(i: jax.Array, carry: tuple[Tree, Tree, Tree]) -> tuple[Tree, Tree, Tree]:
            state, rows, infos = carry
            number = (first + i) * thinning
            if thinning == 1:
                state, info = step(state, number)
            else:  # one loop from zero, not a first step and a loop: the step is compiled once
                no_info = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), info_like)
                state, info = jax.lax.fori_loop(
                    0, thinning, lambda j, carry: _add_step(step, carry, number + j), (state, no_info)
                )
            info = jax.tree.map(lambda total: total / thinning if is_float(total) else total, info)
            rows, infos = jax.tree.map(
                lambda buffer, value: buffer.at[i].set(value), (rows, infos), (keep(state), info)
            )
            return state, rows, infos

        kept_like, info_like, _ = _traced_row(kernel, keep, chain, data)
        rows, infos = jax.tree.map(lambda s: jnp.zeros((capacity, *s.shape), s.dtype), (kept_like, info_like))
        state, rows, infos = jax.lax.fori_loop(0, count, row, (state, rows, infos))
        return (key_data, typed(state)), rows, infos

    return run_chunk


@kept
def _chunk_of_calls(kernel: Kernel, keep: Keep, thinning: int) -> Callable[..., tuple[Chain, Tree, Tree]]:
    """The same with one compiled call a step: on CPU, XLA's convolution is twenty times slower in a compiled loop."""

    @jax.jit
    def step(chain: Chain, data: Data, number: jax.Array) -> tuple[Chain, Tree]:
        key_data, state = chain
        state, info = kernel.step(jax.random.fold_in(jax.random.wrap_key_data(key_data), number), state, data)
        return (key_data, state), info

    kept = jax.jit(lambda chain: keep(chain[1]))

    @layouts.on_host
    def run_calls(chain: Chain, data: Data, first: int, count: int) -> tuple[Chain, Tree, Tree]:
        rows, infos = [], []
        for i in range(first, first + count):
            steps = []
            for number in range(i * thinning, (i + 1) * thinning):
                chain, info = step(chain, data, number)
                steps.append(info)
            rows.append(kept(chain))
            total = jax.tree.map(lambda *values: sum(values), *steps)
            infos.append(jax.tree.map(lambda value: value / thinning if is_float(value) else value, total))
        return chain, tree.stack(rows) if rows else None, tree.stack(infos) if infos else None

    return run_calls


def _add_step(
    step: Callable[[Tree, jax.Array], tuple[Tree, Tree]], carry: tuple[Tree, Tree], number: jax.Array
) -> tuple[Tree, Tree]:
    state, total = carry
    state, info = step(state, number)
    return state, jax.tree.map(jnp.add, total, info)


@kept
def _traced_once(kernel: Kernel) -> Callable[..., tuple[Tree, Tree]]:
    """A step with a cache of its trace: what it leaves is seen first, and it is compiled in a loop afterwards."""
    step: Callable[..., tuple[Tree, Tree]] = jax.jit(kernel.step)
    return step


class _Row(NamedTuple):
    """What a step leaves, seen without running it."""

    kept: Tree  # shapes and dtypes
    info: Tree
    holds_convolution: bool  # of XLA


def _traced_row(kernel: Kernel, keep: Keep, chain: Chain, data: Data) -> _Row:
    return _traced_row_of(kernel, keep, tree.signature((chain, data)))


@kept
def _traced_row_of(kernel: Kernel, keep: Keep, signature: tree.Signature) -> _Row:
    def one_row(chain: Chain, data: Data) -> tuple[Tree, Tree]:
        key_data, state = chain
        state, info = _traced_once(kernel)(jax.random.wrap_key_data(key_data), state, data)
        return keep(state), info

    treedef, leaves = signature
    traced = jax.jit(one_row).trace(*treedef.unflatten(jax.ShapeDtypeStruct(*leaf) for leaf in leaves))
    kept_like, info_like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), traced.out_info)
    return _Row(kept_like, info_like, linear.jaxpr_holds_convolution(traced.jaxpr.jaxpr))


def _capacity(kept_like: Tree, num_rows: int) -> int:
    row_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(kept_like))
    return int(min(num_rows, MAX_CHUNK, max(1, CHUNK_BYTES // max(1, row_bytes))))


def typed(state: Tree) -> Tree:
    """With weak types, as Python's numbers have, made strong: a state that changed there would be compiled again."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, jnp.result_type(leaf)), state)


def is_float(value: ArrayLike) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(value), jnp.floating))
