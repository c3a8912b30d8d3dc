"""Whether a converted network computes what PyTorch computes: both, on the example."""

from typing import Any

import jax
import numpy as np
import torch
from torch.nn import Module
from torch.utils import _pytree

from posteria.bridges.graph import census
from posteria.errors import NetworkError
from posteria.modules import Functions
from posteria.tree import Json

ROWS_COMPARED = 4
LARGEST_DIFFERENCE = 1e-3  # of the largest output: beyond, it is another function
BATCH_NORM = "give it running statistics (track_running_stats=True), or use group, layer or filter response norm"


def compared(module: Module, rows: Any, found: Functions, graph: Json) -> str:
    """How far outputs are from PyTorch's, in words; another function is refused."""
    rows = compared_rows(rows)
    num_rows = len(jax.tree.leaves(rows)[0])
    theirs = outputs(module, rows)
    ours = np.asarray(jax.jit(found.apply)(found.init(jax.random.key(0)), jax.tree.map(as_numpy_array, rows)))
    difference = _difference(ours, theirs)
    tolerance = max(LARGEST_DIFFERENCE, 20 * float(jax.numpy.finfo(ours.dtype).eps))
    if not difference <= tolerance:
        singly = np.concatenate(
            [outputs(module, jax.tree.map(lambda r, i=i: r[i : i + 1], rows)) for i in range(num_rows)]
        )
        if _difference(ours, singly) <= tolerance:
            raise NetworkError(
                f"{type(module).__name__}'s output for a datum changes with the rest of its batch, by {difference:.1e}",
                "a function of one datum",
                BATCH_NORM,
            )
        raise NetworkError(
            f"outputs differ from PyTorch's by {difference:.1e} of the largest, with {', '.join(census(graph))}",
            f"at most {tolerance:.0e}",
            "look for a forward pass that depends on values of x, and please report it",
        )
    kinds = census(graph)
    return (
        f"{sum(kinds.values())} operations of {len(kinds)} kinds; outputs within {difference:.0e} of PyTorch's "
        f"(of the largest, on {num_rows} rows); layers in evaluation mode"
    )


def compared_rows(rows: Any) -> Any:
    return jax.tree.map(lambda leaf: _several(leaf)[:ROWS_COMPARED], rows)


def _several(leaf: torch.Tensor) -> torch.Tensor:
    """A second row where there is one: what depends on its batch would not be seen."""
    if len(leaf) > 1:
        return leaf
    other = 0.3 - 2 * leaf if leaf.is_floating_point() else leaf
    return torch.cat([leaf, other])


def outputs(module: Module, rows: Any) -> np.ndarray:
    """Its first, where there are several: these are refused later. A number a datum is one output."""
    args, keywords = arguments(rows)
    try:
        with torch.no_grad():
            found = module(*args, **keywords)
    except Exception as error:
        shapes = jax.tree.map(lambda leaf: tuple(leaf.shape), rows)
        raise NetworkError(
            f"PyTorch cannot run {type(module).__name__} on x of {shapes} ({type(error).__name__}: {error})",
            "a module that takes the example",
            "check the example's shape and dtype, with the data along its first axis",
        ) from error
    array = as_numpy_array(found if isinstance(found, torch.Tensor) else next(iter(_pytree.tree_leaves(found))))
    return array[:, None] if array.ndim == 1 else array


def _difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest, relative to the largest output; infinite where one has NaN and the other has none."""
    if ours.shape != theirs.shape:
        return float("inf")
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    apart = np.where(ours == theirs, 0.0, np.abs(ours - theirs))
    apart = np.where(np.isnan(ours) & np.isnan(theirs), 0.0, np.nan_to_num(apart, nan=np.inf))
    scale = np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0)
    return float(apart.max(initial=0.0) / (scale or 1.0))


def arguments(rows: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A tuple is a module's arguments, a dict its keywords, all else its one argument."""
    if isinstance(rows, dict):
        return (), rows
    return (tuple(rows) if isinstance(rows, tuple | list) else (rows,)), {}


def as_numpy_array(value: torch.Tensor) -> np.ndarray:
    value = value.detach().cpu().contiguous()
    if value.dtype is torch.bfloat16:
        return value.view(torch.int16).numpy().view(np.dtype("bfloat16"))
    return np.array(value.numpy())  # its own: the user's next training step changes the module's
