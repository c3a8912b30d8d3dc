"""PyTorch's operations by name, as functions of JAX arrays: the table, and how to add to it.

A name is "aten.add" for all its overloads, or "aten.add.Tensor" for one, which comes first. The functions take
arguments in PyTorch's order and by its names; an operation with several results returns a tuple (None for one that is
not computed). What is here are core ATen operations, to which `torch.export` takes a network apart.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from posteria.errors import SettingError

Operation = Callable[..., Any]

FAMILIES = ("aten_elementwise", "aten_shapes", "aten_reductions", "aten_layers")  # files, each with a TABLE
_registered: dict[str, Operation] = {}


def register(name: str, function: Operation) -> Operation:
    """Teach `po.network` an operation of PyTorch: "aten.erfinv", or "mylib.scan" for your own `mylib::scan`.

    `function` takes JAX arrays in the order of PyTorch's arguments and must be one that JAX can trace, differentiate
    and `vmap`; it sees a batch of one datum. One that Posteria has, and one that PyTorch would take apart, is replaced.
    A saved posterior knows an operation by its name alone: register it again before `po.load`.

        po.bridges.register("aten.erfinv", jax.scipy.special.erfinv)
    """
    if not isinstance(name, str) or name.count(".") not in (1, 2) or not all(name.split(".")):
        raise SettingError(
            f"the operation {name!r}", '"library.name" or "library.name.overload"', 'write "aten.erfinv"'
        )
    if not callable(function):
        raise SettingError(f"{function!r} for {name}", "a function of JAX arrays", "pass the function itself")
    _registered[name] = function
    return function


def find(name: str) -> Operation | None:
    """The function for "aten.add.Tensor": the user's before ours, an overload's own before that of all."""
    whole = name.rpartition(".")[0]
    own = _registered.get(name) or _registered.get(whole)
    return own or _table().get(name) or _table().get(whole)


def is_registered(name: str) -> bool:
    """Whether the user gave a function for this overload, "aten.add.Tensor"."""
    return name in _registered or name.rpartition(".")[0] in _registered


@cache  # a constant of this package
def _table() -> dict[str, Operation]:
    """Imported when first needed: most users have no PyTorch network."""
    tables: dict[str, Operation] = {}
    for family in FAMILIES:
        own: dict[str, Operation] = import_module(f"posteria.bridges.{family}").TABLE
        tables |= {f"aten.{name}": function for name, function in own.items()}
    return tables
