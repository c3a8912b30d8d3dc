"""What this machine can hold."""

import os

import jax

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


def readable(num_bytes: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"
