"""Rows of a source for a compiled loop: batches of many steps are read ahead in a thread, and handed over as one block.

Which rows a step sees is a function of the chain's key and the step's number, told by the kernel, so that a thread can
know it before the step is taken, and a resumed run sees the same. What is carried is the kernel's state with the number
of steps and the sums of a row that is not whole yet: it can be stopped after any step.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data, is_source
from posteria.data.batches import Batch, RowsAhead
from posteria.data.sources import Source
from posteria.engine import layout as layouts
from posteria.engine.chunks import Keep, Kernel, first_rows, is_float, paced, typed
from posteria.errors import TooLargeError
from posteria.machine import readable
from posteria.trace import linear
from posteria.tree import Structure, Tree

BLOCK_BYTES = 32 * 2**20  # of batches that are read at once, for all chains
MOST_STEPS = 256  # whose batches are a block


class Carried(NamedTuple):
    state: Tree  # the kernel's own
    total: Tree  # of info, over the steps of the row that is not whole yet
    number: jax.Array  # of the next step


class Place(NamedTuple):
    """Where, among the leaves of the data, the source stands."""

    treedef: Structure
    number: int

    def filled(self, rest: list[Any], rows: Data) -> Data:
        """The data, with rows that were read in its place."""
        return self.treedef.unflatten([*rest[: self.number], Batch(rows), *rest[self.number :]])


class Stream:
    """Takes chains further, where rows come from a source."""

    def __init__(self, kernel: Kernel, keep: Keep, thinning: int, layout: Any, data: Data, stage: str) -> None:
        leaves, treedef = jax.tree.flatten(data)
        index = next(i for i, leaf in enumerate(leaves) if is_source(leaf))
        self._source: Source = leaves[index]
        if kernel.rows is None:
            raise TooLargeError(
                f"{stage} needs all {len(self._source):,} rows of {self._source.name} at once, "
                f"{readable(self._source.num_bytes)}",
                "batches of them",
                "set batch_size, as po.MAP(batch_size=128); or pass arrays, where they fit",
            )
        self._kernel, self._keep, self._thinning, self._layout = kernel, keep, thinning, layout
        self._place = Place(treedef, index)
        self._rest = layout.share([leaf for leaf in leaves if not is_source(leaf)])
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="posteria-rows")
        self._next: tuple[int, Future[Any]] | None = None  # the first step of the block that is being read
        self._block: tuple[int, Any] | None = None  # and of the one that is used, as the layout has it
        self._size = 0  # steps of a block
        self._number: int | None = None  # of the next step
        self._run_chunk: Callable[..., Any] | None = None
        self.pace = 1  # steps, of the next stretch

    def start(self, keys: jax.Array, starts: Tree) -> Any:
        """Chains at their starts; each sees rows of its own where the kernel asks for some."""
        numbers = np.zeros((len(keys), 1), np.int64)
        if self._kernel.first_rows is not None:
            numbers = np.stack([np.asarray(self._kernel.first_rows(jax.random.wrap_key_data(key))) for key in keys])
        chains = self._layout.split((keys, starts, self._read(numbers)))
        return self._layout.apply(_initialiser(self._kernel, self._place), chains, self._rest)

    def shapes(self, chain: tuple[Any, Carried]) -> tuple[Tree, Tree]:
        """Of one kept row, and of one row of info."""
        return jax.eval_shape(self._keep, chain[1].state), tree.structs(chain[1].total)

    def compile(self, chains: Any, chain: Any, num_rows: int) -> None:
        """With the first block, whose size is known then."""

    def advance(self, chains: Any, first_row: int, num_rows: int) -> tuple[Any, Tree, Tree, int]:
        """Some steps on: chains, the rows that became whole, their infos, and how many there are of these."""
        del first_row  # a step may stand within a row
        if self._number is None:  # 0, or where a resumed run had come to
            self._number = int(self._layout.join(chains)[1].number[0])
        number, num_steps = self._number, num_rows * self._thinning
        first, block = self._block_of(chains, number, num_steps)
        count = min(self.pace, first + self._size - number, num_steps - number)
        began = time.monotonic()
        together = self._layout.zip(chains, block)
        results = self._layout.apply(self._chunk(together), together, self._rest, number - first, count)
        chains, rows, infos = self._layout.unzip(results)
        self.pace = paced(count, time.monotonic() - began)
        self._number = number + count
        whole = self._number // self._thinning - number // self._thinning
        return chains, *first_rows((self._layout.join(rows), self._layout.join(infos)), whole), whole

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _chunk(self, chains: Any) -> Callable[..., Any]:
        if self._run_chunk is None:
            arguments = self._kernel, self._keep, self._thinning, self._size, self._place
            is_of_calls = self._layout.name == layouts.Threads.name and _holds_convolution(
                *arguments, tree.signature((chains[0], self._rest))
            )
            self._run_chunk = (_chunk_of_calls if is_of_calls else _chunk)(*arguments)
        return self._run_chunk

    # ---- blocks

    def _block_of(self, chains: Any, number: int, num_steps: int) -> tuple[int, Any]:
        """The block that holds step `number`, and the number of its first step; the next is then being read."""
        if not self._size:
            self._size = self._suitable_size(chains, num_steps)
        if self._block is None or not 0 <= number - self._block[0] < self._size:
            if self._next is None or self._next[0] != number:  # the first, or a resumed run's
                self._next = number, self._thread.submit(self._read_block, chains, 0)
            self._block = number, self._next[1].result()
            after = number + self._size
            self._next = None
            if after < num_steps:
                self._next = after, self._thread.submit(self._read_block, chains, self._size)
        return self._block

    def _read_block(self, chains: Any, ahead: int) -> Any:
        """Of all chains, leaves (chain, step, row, ...), on the devices where the layout wants them."""
        numbers = self._layout.one_by_one(_numbers(self._kernel, self._size), chains, ahead)
        return jax.device_put(self._layout.split(self._read(np.asarray(numbers))))

    def _read(self, numbers: np.ndarray) -> Data:
        read = self._source.read_rows(numbers.reshape(-1))
        return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(*numbers.shape, *leaf.shape[1:]), read)

    def _suitable_size(self, chains: Any, num_steps: int) -> int:
        states = self._layout.join(chains)[1].state
        batch_size = jax.eval_shape(_rows_of(self._kernel), tree.index(states, 0), 0).shape[0]
        step_bytes = tree.length(states) * batch_size * self._source.num_bytes // len(self._source)
        return int(np.clip(BLOCK_BYTES // max(1, step_bytes), 1, min(MOST_STEPS, num_steps)))


@kept
def _numbers(kernel: Kernel, size: int) -> Callable[[tuple[jax.Array, Carried], int], jax.Array]:
    """(chain, steps ahead) -> numbers of the rows of so many steps from there on, (step, row)."""
    rows_of = _rows_of(kernel)
    return lambda chain, ahead: jax.vmap(lambda i: rows_of(chain[1].state, ahead + i))(jnp.arange(size))


@kept
def _initialiser(kernel: Kernel, place: Place) -> Callable[..., tuple[jax.Array, Carried]]:
    def initialise(chain: tuple[jax.Array, Tree, Data], rest: list[Any]) -> tuple[jax.Array, Carried]:
        key_data, start, rows = chain
        state = typed(kernel.init(jax.random.wrap_key_data(key_data), start, place.filled(rest, rows)))
        batch_size = jax.eval_shape(_rows_of(kernel), state, 0).shape[0]
        batch = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((batch_size, *leaf.shape[1:]), leaf.dtype), rows)
        key = jax.random.wrap_key_data(key_data)
        info = jax.eval_shape(lambda b: kernel.step(key, state, place.filled(rest, b))[1], batch)
        return key_data, Carried(state, _zeros(info), jnp.asarray(0))

    return initialise


@kept
def _chunk(kernel: Kernel, keep: Keep, thinning: int, size: int, place: Place) -> Callable[..., Any]:
    """(chain with its block, rest, offset, count) -> (chain, rows, infos): `count` steps from `offset` of the block."""

    def run_chunk(
        chain: tuple[jax.Array, Carried, Data], rest: list[Any], offset: jax.Array, count: jax.Array
    ) -> tuple[tuple[jax.Array, Carried], Tree, Tree]:
        key_data, carried, block = chain
        first_row, most = carried.number // thinning, min(size, size // thinning + 1)

        def write(carry: tuple[Carried, Tree, Tree]) -> tuple[Carried, Tree, Tree]:
            (state, total, number), rows, infos = carry
            row = (number - 1) // thinning - first_row
            values = keep(state), _averaged(total, thinning)
            rows, infos = jax.tree.map(lambda buffer, value: buffer.at[row].set(value), (rows, infos), values)
            return Carried(state, _zeros(total), number), rows, infos

        def step(i: jax.Array, carry: tuple[Carried, Tree, Tree]) -> tuple[Carried, Tree, Tree]:
            before, rows, infos = carry
            now = _stepped(kernel, place, key_data, before, rest, tree.index(block, offset + i))
            if thinning == 1:  # without a branch, through which XLA would copy the state
                return write((now, rows, infos))
            return jax.lax.cond(now.number % thinning == 0, write, lambda c: c, (now, rows, infos))

        like = jax.eval_shape(keep, carried.state), carried.total
        rows, infos = jax.tree.map(lambda s: jnp.zeros((most, *s.shape), s.dtype), like)
        carried, rows, infos = jax.lax.fori_loop(0, count, step, (carried, rows, infos))
        return (key_data, carried), rows, infos

    return run_chunk


@kept
def _chunk_of_calls(kernel: Kernel, keep: Keep, thinning: int, size: int, place: Place) -> Callable[..., Any]:
    """The same with one compiled call a step, as in the loop of rows in memory."""
    step = jax.jit(lambda key_data, carried, rest, rows: _stepped(kernel, place, key_data, carried, rest, rows))
    kept_of = jax.jit(keep)

    @layouts.on_host
    def run_calls(chain: tuple[Any, Carried, Data], rest: list[Any], offset: int, count: int) -> Any:
        key_data, carried, block = chain
        like = jax.eval_shape(keep, carried.state), carried.total
        rows: list[Tree] = []
        infos: list[Tree] = []
        for i in range(offset, offset + count):
            carried = step(key_data, carried, rest, tree.index(block, i))
            if int(carried.number) % thinning == 0:
                rows.append(kept_of(carried.state))
                infos.append(jax.tree.map(np.asarray, _averaged(carried.total, thinning)))
                carried = carried._replace(total=_zeros(carried.total))
        empty = jax.tree.map(lambda s: np.zeros((0, *s.shape), s.dtype), like)
        return (key_data, carried), tree.stack(rows) if rows else empty[0], tree.stack(infos) if infos else empty[1]

    return run_calls


@kept
def _holds_convolution(
    kernel: Kernel, keep: Keep, thinning: int, size: int, place: Place, signature: tree.Signature
) -> bool:
    treedef, leaves = signature
    (_, carried, block), rest = treedef.unflatten(jax.ShapeDtypeStruct(*leaf) for leaf in leaves)
    rows = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), block)
    return linear.holds_convolution(
        lambda state, filled: kernel.step(jax.random.key(0), state, filled), carried.state, place.filled(rest, rows)
    )


def _stepped(
    kernel: Kernel, place: Place, key_data: jax.Array, carried: Carried, rest: list[Any], rows: Data
) -> Carried:
    key = jax.random.fold_in(jax.random.wrap_key_data(key_data), carried.number)
    state, info = kernel.step(key, carried.state, place.filled(rest, rows))
    return Carried(typed(state), jax.tree.map(jnp.add, carried.total, info), carried.number + 1)


def _rows_of(kernel: Kernel) -> RowsAhead:
    assert kernel.rows is not None, "a kernel that sees all rows was refused"
    return kernel.rows


def _averaged(total: Tree, thinning: int) -> Tree:
    """Floats averaged, counts summed."""
    return jax.tree.map(lambda value: value / thinning if is_float(value) else value, total)


def _zeros(like: Tree) -> Tree:
    return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), like)
