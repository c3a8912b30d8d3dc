"""Mini-batches whose rows are a function of (key, step) alone: no state to carry, save or resume.

Rows are drawn without replacement. An epoch is ceil(num_data / batch_size) steps, and its order is a pseudo-random
permutation keyed by the epoch, evaluated only at the positions of the batch: a Feistel network on a grid just larger
than the data, walked until it lands inside (Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria.data.arrays import Data, rows
from posteria.errors import SettingError
from posteria.random import hash_bits

NUM_ROUNDS = 20  # with 16 or fewer, the 7! orders of seven rows are measurably not equally likely
MAX_DATA = 2**31 - 1  # positions are int32
AUGMENT_STREAM = 2**31 - 7  # folded into a chain's key: no epoch has this number

RowsAhead = Callable[[Any, jax.Array], jax.Array]  # (a kernel's state, steps from now) -> numbers of that step's rows
Augment = Callable[[jax.Array, Data], Data]  # (key, batch) -> a batch of the same shapes


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    """Rows of a source that were chosen for a step and read: they stand where the data stand."""

    rows: Data


def batch_indices(key: jax.Array, step: int | jax.Array, num_data: int, batch_size: int) -> jax.Array:
    """Row numbers (batch_size,) of a step's batch, all different; pure JAX, with `step` traced or not.

    Every row comes exactly once an epoch when batch_size divides num_data. Otherwise the last batch of an epoch is
    filled up with the epoch's first rows: a random few come twice, so each row is still in a batch equally often.
    """
    if not 1 <= batch_size <= num_data:
        raise SettingError(f"batch_size={batch_size}", f"between 1 and the number of rows, {num_data}")
    steps_per_epoch = num_steps_per_epoch(num_data, batch_size)
    step = jnp.asarray(step, jnp.int32)
    epoch_key = jax.random.fold_in(key, step // steps_per_epoch)
    # a difference, so that nothing exceeds num_data: their sum may not fit 32 bits
    start = (step % steps_per_epoch) * batch_size
    offsets = jnp.arange(batch_size, dtype=jnp.int32)
    left = num_data - start
    return permute(epoch_key, jnp.where(offsets < left, start + offsets, offsets - left), num_data)


def drawn_indices(key_data: jax.Array, step: jax.Array, num_data: int, batch_size: int) -> jax.Array:
    """Row numbers (batch_size,) of a step's batch, drawn with replacement by a hash: the cheapest there is."""
    words = key_data.astype(jnp.uint32).reshape(-1)
    position = jnp.asarray(step, jnp.uint32) * jnp.uint32(batch_size) + jax.lax.iota(jnp.uint32, batch_size)
    bits = hash_bits(hash_bits(position ^ words[0]) ^ words[-1])
    return (bits % jnp.uint32(num_data)).astype(jnp.int32)


def batch_of(
    data: Data | None,
    key_data: jax.Array,
    step: jax.Array,
    num_data: int,
    batch_size: int,
    augment: Augment | None = None,
) -> Data | None:
    """The rows of a step: all of them where a batch holds all, None where there are no data; as `augment` changes
    them, by a key of the step's own."""
    if data is None:
        return None
    key = jax.random.wrap_key_data(key_data)
    batch = data.rows if isinstance(data, Batch) else data
    if batch_size < num_data and not isinstance(data, Batch):
        batch = take(data, batch_indices(key, step, num_data, batch_size))
    if augment is None:
        return batch
    return augment(jax.random.fold_in(jax.random.fold_in(key, AUGMENT_STREAM), step), batch)


def rows_ahead(num_data: int, batch_size: int) -> RowsAhead | None:
    """For kernels whose state has `batch_key` and `step_number`, by which `batch_of` chooses; None: all rows."""
    if not 0 < batch_size < num_data:
        return None
    return lambda state, ahead: batch_indices(
        jax.random.wrap_key_data(state.batch_key), state.step_number + ahead, num_data, batch_size
    )


def sampled(data: Data, key: jax.Array, num_data: int, count: int) -> Data:
    """`count` different rows, or all where there are no more; of a source they are read, outside compiled code."""
    if isinstance(data, Batch):
        return data.rows
    if num_data <= count:
        return rows(data, slice(None)) if hasattr(data, "read_rows") else data
    chosen = batch_indices(key, 0, num_data, count)
    return rows(data, np.asarray(chosen)) if hasattr(data, "read_rows") else take(data, chosen)


def augmented(batch: Data, key: jax.Array, augment: Augment | None) -> Data:
    """Rows that were chosen outside a step, as `augment` changes those of one."""
    return batch if augment is None else augment(jax.random.fold_in(key, AUGMENT_STREAM), batch)


def there_and_back(step: jax.Array, num_batches: int) -> jax.Array:
    """The number of the batch of a step, where an epoch's batches come forward, then in reverse, then anew."""
    sweep, place = step // (2 * num_batches), step % (2 * num_batches)
    return sweep * num_batches + jnp.minimum(place, 2 * num_batches - 1 - place)


def num_steps_per_epoch(num_data: int, batch_size: int) -> int:
    return math.ceil(num_data / batch_size)


@partial(jax.jit, static_argnames="num_data")
def permute(key: jax.Array, positions: jax.Array, num_data: int) -> jax.Array:
    """Images of `positions` under the permutation of range(num_data) that `key` names."""
    if num_data > MAX_DATA:
        raise SettingError(f"{num_data} rows", f"at most {MAX_DATA}")
    round_keys = jax.random.bits(key, (NUM_ROUNDS,), jnp.uint32)
    # an even side: shifts of odd cycles alone would reach only the even permutations
    height = 2 * math.ceil(math.sqrt(num_data) / 2)
    width = math.ceil(num_data / height)

    def walk(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        cell, is_outside = state
        cell = jnp.where(is_outside, _feistel(round_keys, cell, height, width), cell)
        return cell, cell >= num_data

    start = positions.astype(jnp.uint32), jnp.ones(positions.shape, bool)
    inside, _ = jax.lax.while_loop(lambda state: state[1].any(), walk, start)
    return inside.astype(jnp.int32)


def take(data: Data, indices: jax.Array) -> Data:
    """Those rows of every leaf, inside compiled code; `indices` are known to be in range."""
    return jax.tree.map(lambda leaf: leaf.at[indices].get(mode="promise_in_bounds"), data)


def _feistel(round_keys: jax.Array, cell: jax.Array, height: int, width: int) -> jax.Array:
    """A bijection of range(height * width): each coordinate in turn is shifted by a hash of the other."""
    row, column = cell // width, cell % width
    for i in range(0, NUM_ROUNDS, 2):
        row = (row + hash_bits(column ^ round_keys[i]) % height) % height
        column = (column + hash_bits(row ^ round_keys[i + 1]) % width) % width
    return row * width + column
