"""How hot draws are, by the virial identity: E[-(z - c) . grad log p(z)] is the dimension under p, for any constant c.

A chain whose step is too large, or whose batches are too noisy, settles in a wider distribution than p: its mean is
above 1 a dimension. So it is along one direction, and that in which p is stiffest shows the most of it. Where batches
are augmented, p is what they say on average.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.curvature.stiffness import UNITS_ITERATIONS, leading_direction
from posteria.data.arrays import Data, is_source
from posteria.data.batches import Batch, augmented, sampled
from posteria.models.coordinates import coordinates
from posteria.models.target import Density, Target

LEAST_DRAWS = 4  # a chain: each half needs a mean
CURVATURE_ROWS = 2048  # of the data, at most, that the stiffest direction is found by


def virials(key: jax.Array, target: Target | Density, draws: np.ndarray, batch_size: int) -> dict[str, np.ndarray]:
    """Of draws (chain, draw, size): `virial`, a dimension, and `stiff_virial`, along the stiffest direction; both are
    (chain, draw), and 1 on average where the draws are of the target. Each takes one gradient, by a batch of its own.

    The constant is the mean of the chain's other half: of the same mode, and all but independent of the draw.
    """
    num_chains, length, _ = draws.shape
    if length < LEAST_DRAWS:
        return {}
    of_draw, stiffest = _compiled(target.without_data(), batch_size)
    found = np.zeros((2, num_chains, length), np.float32)
    for chain, key_chain in enumerate(jax.random.split(key, num_chains)):
        halves = np.split(draws[chain], [length // 2])
        centres = [half.mean(0, dtype=np.float64).astype(draws.dtype) for half in reversed(halves)]
        key_direction, key_draws = jax.random.split(key_chain)
        centre = draws[chain].mean(0, dtype=np.float64).astype(draws.dtype)
        direction = stiffest(key_direction, centre, _part(target, key_direction, CURVATURE_ROWS))
        for i in range(length):
            centre = centres[0 if i < length // 2 else 1]
            key_draw = jax.random.fold_in(key_draws, i)
            data = _part(target, key_draw, batch_size)
            found[:, chain, i] = of_draw(key_draw, draws[chain, i], centre, direction, data)
    return {"virial": found[0], "stiff_virial": found[1]}


def _part(target: Target | Density, key: jax.Array, count: int) -> Data:
    """Of a source, the rows that this key chooses."""
    if not is_source(target.data):
        return target.data
    return Batch(sampled(target.data, key, target.num_data, count))


@kept
def _compiled(target: Target | Density, batch_size: int) -> tuple[Callable[..., Any], Callable[..., jax.Array]]:
    flat, unravel = coordinates(target), tree.unraveller(target.structs)

    def some_rows(key: jax.Array, data: Data | None, count: int) -> Data | None:
        return None if data is None else augmented(sampled(data, key, target.num_data, count), key, target.augment)

    def of_draw(key: jax.Array, weights: jax.Array, centre: jax.Array, direction: jax.Array, data: Any) -> Any:
        z, c = (flat.to_units(unravel(each)) for each in (weights, centre))
        gradient = jax.grad(flat.log_density)(z, some_rows(key, data, batch_size))
        total = -(z - c) @ gradient / max(1, z.size)
        return jnp.stack([total, -(direction @ (z - c)) * (direction @ gradient)])

    def stiffest(key: jax.Array, weights: jax.Array, data: Any) -> jax.Array:
        z, part = flat.to_units(unravel(weights)), some_rows(key, data, CURVATURE_ROWS)
        gradient = jax.grad(lambda z: flat.log_density(z, part))
        first = jax.random.normal(jax.random.key(0), z.shape, z.dtype)
        return leading_direction(lambda v: jax.jvp(gradient, (z,), (v,))[1], first, UNITS_ITERATIONS)[0]

    return jax.jit(of_draw), jax.jit(stiffest)
