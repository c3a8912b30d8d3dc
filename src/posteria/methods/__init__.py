"""The shelf: every inference method, by family. `po.methods()` names them all."""

import sys
from types import ModuleType


class _Shelf(ModuleType):
    def __call__(self) -> list[str]:
        """The names of all methods: built in, registered, and from the entry points of installed packages."""
        from posteria.methods.registry import names

        return names()


# `po.methods()` was there before this folder was: both are said by one name
sys.modules[__name__].__class__ = _Shelf
