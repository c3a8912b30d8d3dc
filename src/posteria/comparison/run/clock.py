"""What time went into: a fit, or compiling for it, which happens once for a shape of network and data and would make
whoever comes first look dear."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

_COMPILING = "/jax/core/compile/"  # what JAX calls its events of tracing, lowering and compiling

_listeners: list["Clock"] = []
_is_listening = False


class Clock:
    """Seconds since it began, those of compiling apart."""

    def __init__(self) -> None:
        self._intervals: list[tuple[float, float]] = []
        self._began = time.perf_counter()
        self._ended: float | None = None

    @property
    def total(self) -> float:
        return (time.perf_counter() if self._ended is None else self._ended) - self._began

    @property
    def compiling(self) -> float:
        return covered(self._intervals)


@contextmanager
def clock() -> Iterator[Clock]:
    """Times what happens inside."""
    _listen()
    running = Clock()
    _listeners.append(running)
    try:
        yield running
    finally:
        running._ended = time.perf_counter()
        _listeners.remove(running)


def covered(intervals: list[tuple[float, float]]) -> float:
    """The time in any of them: a function is traced inside another, and counted once."""
    total, reached = 0.0, float("-inf")
    for began, ended in sorted(intervals):
        total += max(0.0, ended - max(began, reached))
        reached = max(reached, ended)
    return total


def _listen() -> None:
    """JAX keeps listeners for good, so there is one."""
    global _is_listening
    if not _is_listening:
        jax.monitoring.register_event_duration_secs_listener(_heard)
        _is_listening = True


def _heard(event: str, duration_secs: float, **_: Any) -> None:
    if event.startswith(_COMPILING):
        ended = time.perf_counter()
        for running in _listeners:
            running._intervals.append((max(ended - duration_secs, running._began), ended))
