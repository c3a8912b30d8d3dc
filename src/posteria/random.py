"""Keys: an int or a JAX key in, a typed key out; and keys as plain integers for the disk."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria.errors import SettingError
from posteria.settings import shown
from posteria.tree import Json

NUM_SEEDS = 2**32  # JAX reads no more of a seed: a larger one would be the same as a smaller


def as_key(key: int | jax.Array) -> jax.Array:
    """A typed PRNG key from an int seed, a typed key, or a raw uint32 key."""
    if isinstance(key, int | np.integer) and not isinstance(key, bool) and 0 <= key < NUM_SEEDS:
        return jax.random.key(int(key))
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    if isinstance(key, jax.Array | np.ndarray) and key.dtype == np.uint32 and key.ndim > 0:
        return jax.random.wrap_key_data(key)
    raise SettingError(f"key is {shown(key)}", "a whole number from 0 to 2^32 - 1, or a JAX key", "pass key=0")


def key_to_json(key: jax.Array) -> Json:
    return {"impl": str(jax.random.key_impl(key)), "data": np.asarray(jax.random.key_data(key)).tolist()}


def key_from_json(stored: Json) -> jax.Array:
    data: Any = np.asarray(stored["data"], np.uint32)
    return jax.random.wrap_key_data(data, impl=stored["impl"])


def fast_normal(key: jax.Array, shape: tuple[int, ...], turn: jax.Array | int = 0) -> jax.Array:
    """Standard normals from a hash of key and position: a third of the cost of `jax.random.normal` on a CPU.

    For the noise of training steps and of stochastic-gradient samplers, of which there are millions. The key of each
    step is threefry's, so that steps are independent; within a step, 2^23 different values of up to 5.3 deviations.
    `turn` moves each along its quantiles by turn / 2^32, around, and an odd one mirrors it: with turns that are evenly
    spread over several steps of one key, each value is spread evenly over its distribution in these steps.
    """
    words = jax.random.key_data(key).astype(jnp.uint32)
    # the key comes in first: what depends on positions alone, the compiler would evaluate itself, slowly
    position = (jax.lax.iota(jnp.uint32, math.prod(shape)) + words[..., 0]) * jnp.uint32(0x9E3779B9)
    turn = jnp.asarray(turn, jnp.uint32)
    bits = (hash_bits(hash_bits(position) ^ words[..., -1]) + turn) ^ -(turn & 1)
    uniform = jax.lax.bitcast_convert_type((bits >> 9) | jnp.uint32(0x3F800000), jnp.float32)  # in [1, 2)
    centred = 2.0 * (uniform - 1.5) + 2.0**-23  # in (-1, 1), symmetric
    return (math.sqrt(2) * jax.lax.erf_inv(centred)).reshape(shape)


def hash_bits(bits: jax.Array) -> jax.Array:
    """MurmurHash3's 32-bit finaliser."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)
