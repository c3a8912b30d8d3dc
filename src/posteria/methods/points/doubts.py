"""Modes that are not to be taken at their word: what is odd about one, said in words."""

from typing import Any

import jax
import numpy as np

from posteria import tree
from posteria.data.arrays import parts, rows
from posteria.models.target import Target
from posteria.posteriors.draws import forward

ROWS_LOOKED_AT = 1000
CONSTANT = 0.01  # of the targets' standard deviation (of logits and logarithms: of 1), between rows


def constant(target: Target, params: tree.Params) -> str:
    """Where each of `params` (leading axis) says the same of every row, why that may be; empty where one does not.

    With few rows the joint mode of weights and noise may lie where all weights are next to 0: the prior gains more by
    it than the rows lose, though most of the posterior is elsewhere.
    """
    if target.data is None or target.num_data < 3:
        return ""
    x, y, _ = parts(target.data)
    some = np.linspace(0, target.num_data - 1, min(target.num_data, ROWS_LOOKED_AT)).astype(int)
    of_some: Any = rows(x, some)
    if len(np.unique(np.asarray(jax.tree.leaves(of_some)[0]).reshape(len(some), -1), axis=0)) == 1:
        return ""
    outputs, _ = forward(target.without_data())(np.asarray(tree.ravel_each(params)), of_some)
    unit = np.std(np.asarray(rows(y, some), np.float64)) if target.model.likelihood.kind == "regression" else 1.0
    if np.std(np.asarray(outputs, np.float64), axis=1).max() > CONSTANT * unit or not unit > 0:
        return ""
    return (
        f"the mode predicts the same for every row: either x says nothing of y, or the prior outweighs "
        f"{target.num_data:,} rows; give the noise, take a smaller network, or a method that is no mode"
    )


def learnt_by_heart(target: Target) -> str:
    """Where noise is set at one mode with more weights than rows: these fit part of it, and it comes out too small."""
    has_noise = bool(jax.tree.leaves(target.structs["likelihood"]))
    num_weights = tree.size(target.structs["network"])
    if target.data is None or not has_noise or target.scales or num_weights < target.total_weight:
        return ""
    return (
        f"noise was set with {num_weights:,} weights by {target.num_data:,} rows, of which they may have learnt some: "
        "intervals may be too narrow until `calibrate` has checked them"
    )
