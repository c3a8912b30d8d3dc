"""Directions of the inputs in which no training row differs from another: dark pixels, columns that are sums of others.

Of the weights that a network has along them the data say nothing. Their posterior is their prior, and new rows that do
differ there are multiplied by weights that nobody has learnt. Izmailov et al. 2021b, Dangers of Bayesian Model
Averaging under Covariate Shift.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from posteria.tree import Json

FLAT = 1e-8  # variance of a direction, in units of the inputs' own, below which it has none
MOST_INPUTS = 1200  # whose directions are looked at; of more, single inputs alone
FEWEST_ROWS, ROWS_FOR_EACH = 2000, 2  # rows that are looked at: so many, or so many for each input
REMEDY = "po.priors.EmpiricalCovariance(x)"


def flat_directions(x: Any, shapes: Sequence[tuple[int, ...]] | None = None) -> Json | None:
    """{"inputs", "flat": directions without variance, "constant": single inputs without, "rows"}; None where there is
    none, or where x is neither a table nor images that meet a dense layer at once (`shapes` of the weights tell)."""
    if not hasattr(x, "ndim") or x.ndim < 2 or not getattr(x, "is_fully_addressable", True) or len(x) < 2:
        return None
    size = math.prod(x.shape[1:])
    meets_dense = shapes is None or any(len(shape) == 2 and size in shape for shape in shapes)
    if not np.issubdtype(x.dtype, np.floating) or not size or (x.ndim > 2 and not meets_dense):
        return None
    every = max(1, len(x) // max(FEWEST_ROWS, ROWS_FOR_EACH * size))
    rows = np.asarray(x[::every], np.float64).reshape(-1, size)
    if not np.isfinite(rows).all():
        return None
    is_still = rows.max(0) == rows.min(0)
    constant = _num_constant(x, is_still) if every > 1 else int(is_still.sum())
    flat = constant
    if size <= MOST_INPUTS and not is_still.all():
        moving = rows[:, ~is_still]
        units = (moving - moving.mean(0)) / moving.std(0)
        flat += int((np.linalg.eigvalsh(units.T @ units / len(rows)) <= FLAT).sum())
    return {"inputs": size, "flat": flat, "constant": constant, "rows": len(x)} if flat else None


def _num_constant(x: Any, is_still: np.ndarray) -> int:
    """Of the inputs that are the same in some rows, how many are in all."""
    if not is_still.any():
        return 0
    still = np.asarray(x).reshape(len(x), -1)[:, is_still]
    return int((still == still[0]).all(0).sum())


def in_words(found: Json | None) -> str:
    """What follows from it, without a full stop; empty where there is nothing to say."""
    if not found:
        return ""
    flat, constant, size = found["flat"], found["constant"], found["inputs"]
    causes = []
    if constant:
        causes.append(f"{constant:,} input{' is' if constant == 1 else 's are'} the same in all rows")
    if flat > constant:
        few = found["rows"] <= size
        causes.append(
            "there are fewer rows than inputs" if few else "some inputs are sums of others, as 0/1 columns are"
        )
    return (
        f"{flat:,} of {size:,} directions of the inputs have no variance ({', and '.join(causes)}): there the "
        "posterior is the prior, and new rows that differ along them are predicted by weights that nobody has learnt. "
        f"{REMEDY} as the prior holds these near zero"
    )
