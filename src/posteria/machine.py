"""What this machine can hold."""

import os
from typing import Any

import jax
import numpy as np

from posteria.errors import TooLargeError

MEMORY_SHARE = 0.8  # of the machine's memory that may be asked for


def available_memory() -> float:
    """Bytes that may be asked for of the device that computes: of the accelerator, or of the machine."""
    stats = jax.devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    if stats and "bytes_limit" in stats:
        return MEMORY_SHARE * stats["bytes_limit"]
    return MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_room(num_bytes: float, what: str) -> None:
    """Refuse what this machine has not the memory for, before it is made."""
    if num_bytes > available_memory():
        raise TooLargeError(
            f"{what} would take {readable(num_bytes)}",
            f"at most {readable(available_memory())}, as this machine has",
            "ask for less",
        )


def on_host(arrays: Any) -> Any:
    """A tree of arrays as NumPy's, whole; also where they are spread over the devices of several processes."""
    if not jax.distributed.is_initialized() or jax.process_count() == 1:
        return jax.tree.map(np.asarray, arrays)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(arrays, tiled=True)


def readable(num_bytes: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"
