"""Four rules for the whole suite: three about compiled code.

It does not outlive its module: a process may hold only so many maps of memory (65,530 by default on Linux), and every
compiled function takes some, so that a worker that kept all of them would be aborted in the middle of the suite.

It is kept on disk, for other workers, for the processes that tests start, and for the next run.

A clean clone has none, and most of a test's time is compiling: those of `dear.txt` are slow ones.

What a test registers is there for that test alone: tests that walk the registry may come after it.
"""

import os
from pathlib import Path

CACHE = Path(__file__).parent.parent / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import jax  # noqa: E402  (reads these as it is imported)
import pytest  # noqa: E402

from posteria import compiled  # noqa: E402
from posteria.methods import registry  # noqa: E402

compiled.MANY_DROPPED = 10**9  # networks: by these rules code is let go of module by module, and not sooner

pytest_plugins = ["minutes"]
DEAR = frozenset((Path(__file__).parent / "dear.txt").read_text().splitlines())
_module = None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid in DEAR:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.dear)


def pytest_runtest_setup(item):
    global _module
    if item.module is not _module and _module is not None:
        jax.clear_caches()
    _module = item.module


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.setattr(registry, "_baselines", dict(registry._baselines))
