"""Keys: an int or a JAX key in, a typed key out; and keys as plain integers for the disk."""

from typing import Any

import jax
import numpy as np

from posteria.errors import SettingError


def as_key(key: int | jax.Array) -> jax.Array:
    """A typed PRNG key from an int seed, a typed key, or a raw uint32 key."""
    if isinstance(key, int | np.integer):
        return jax.random.key(int(key))
    if not isinstance(key, jax.Array | np.ndarray):
        raise SettingError(f"key is {key!r}", "an int or a JAX key", "pass key=0")
    if jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    return jax.random.wrap_key_data(key)


def key_to_json(key: jax.Array) -> dict:
    return {"impl": str(jax.random.key_impl(key)), "data": np.asarray(jax.random.key_data(key)).tolist()}


def key_from_json(stored: dict) -> jax.Array:
    data: Any = np.asarray(stored["data"], np.uint32)
    return jax.random.wrap_key_data(data, impl=stored["impl"])
