"""A gradient by a batch, steadied by the full one at an anchor nearby. Baker et al. 2019; Dubey et al. 2016."""

from typing import NamedTuple

import jax

from posteria.data.arrays import Data
from posteria.models.coordinates import Coordinates


class Anchor(NamedTuple):
    position: jax.Array
    gradient: jax.Array  # of all data, at that position


def anchor_at(flat: Coordinates, position: jax.Array, data: Data) -> Anchor:
    return Anchor(position, jax.grad(flat.log_density)(position, data))


def estimate_gradient(
    flat: Coordinates, position: jax.Array, batch: Data, anchor: Anchor | None
) -> tuple[jax.Array, jax.Array]:
    """Log density and gradient by a batch; with an anchor, its full gradient plus the batch's difference from there."""
    log_density, gradient = jax.value_and_grad(flat.log_density)(position, batch)
    if anchor is None:
        return log_density, gradient
    there = jax.grad(flat.log_density)(anchor.position, batch)
    return log_density, gradient - there + anchor.gradient
