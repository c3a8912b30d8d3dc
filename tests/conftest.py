"""One rule for the whole suite: compiled code does not outlive its module.

A process may hold only so many maps of memory (65,530 by default on Linux), and every compiled function takes some:
a worker that kept all of them would be aborted in the middle of the suite.
"""

import jax

_module = None


def pytest_runtest_setup(item):
    global _module
    if item.module is not _module and _module is not None:
        jax.clear_caches()
    _module = item.module
