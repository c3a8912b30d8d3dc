"""What a fit runs on: the memory of this machine, and the other processes of one that runs on several."""

import json
import math
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from posteria import errors
from posteria.errors import TooLargeError
from posteria.tree import Tree

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
    if not are_several():
        return jax.tree.map(np.asarray, arrays)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(arrays, tiled=True)


def readable(num_bytes: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"


# ---- several processes, each with devices of its own, that run the same program: what they have to agree on
#
# Every process computes the same; the first alone looks at the clock, the disk and the terminal, and tells the others.


def are_joined() -> bool:
    """Whether `po.distributed()` was called; does not start JAX."""
    return jax.distributed.is_initialized()


def are_several() -> bool:
    return are_joined() and jax.process_count() > 1


def is_first() -> bool:
    return not are_joined() or jax.process_index() == 0


def told(payload: bytes) -> bytes:
    """What the first process has here; that of the others is not looked at."""
    if not are_several():
        return payload
    from jax.experimental import multihost_utils

    def broadcast(values: np.ndarray) -> np.ndarray:
        return np.asarray(multihost_utils.broadcast_one_to_all(values, is_source=is_first()))

    size = int(broadcast(np.asarray(len(payload), np.int32)))
    own = np.frombuffer(payload, np.uint8) if is_first() else np.zeros(size, np.uint8)
    return broadcast(own).tobytes()


def agreed(*values: float) -> tuple[float, ...]:
    """The first process's numbers: what depends on a clock is decided there."""
    if not are_several():
        return values
    return tuple(json.loads(told(json.dumps(values).encode())))


def on_first(act: Callable[[], Any]) -> Any:
    """What `act()` returns on the first process (JSON), on all of them; an error there is an error everywhere."""
    if not are_several():
        return act()
    outcome: dict[str, Any] = {}
    raised: BaseException | None = None
    if is_first():
        try:
            outcome = {"value": act()}
        except errors.PosteriaError as error:
            raised = error
            outcome = {"error": type(error).__name__, "words": [error.got, error.wanted, error.fix]}
    outcome = json.loads(told(json.dumps(outcome).encode()))
    if raised is not None:
        raise raised
    if "error" in outcome:
        raise getattr(errors, outcome["error"])(*outcome["words"])
    return outcome["value"]


def told_tree(arrays: Tree, like: Tree) -> Tree:
    """Arrays of the first process, on all; `like` gives their shapes and dtypes."""
    if not are_several():
        return arrays
    payload = b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in jax.tree.leaves(arrays)) if is_first() else b""
    payload, leaves, begin = told(payload), [], 0
    for leaf in jax.tree.leaves(like):
        end = begin + math.prod(leaf.shape) * leaf.dtype.itemsize
        leaves.append(np.frombuffer(payload[begin:end], leaf.dtype).reshape(leaf.shape))
        begin = end
    return jax.tree.structure(like).unflatten(leaves)
