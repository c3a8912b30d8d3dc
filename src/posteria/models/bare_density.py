"""A log density of the user's own, as a target for samplers."""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from posteria import tree
from posteria.data.arrays import Data
from posteria.errors import NetworkError, SettingError
from posteria.machine import check_room
from posteria.tree import Params

COPIES = 4  # of the weights: with their gradient, and an optimiser's two moments


def broadcast_starts(start: Params, structs: Params, num: int) -> Params:
    """One start, or one with a leading axis of `num`, as `num` starts of the right shapes and dtypes."""
    check_room(COPIES * num * tree.num_bytes(structs), f"{num:,} starts")
    if jax.tree.structure(start) != jax.tree.structure(structs):
        raise NetworkError(
            f"start has leaves {tree.paths(start)}",
            f"leaves {tree.paths(structs)}",
            "pass the network's own parameters",
        )

    def one(path: tuple[Any, ...], value: jax.Array, struct: jax.ShapeDtypeStruct) -> jax.Array:
        value = jnp.asarray(value, struct.dtype)
        if value.shape == struct.shape:
            return jnp.broadcast_to(value, (num, *struct.shape))
        if value.shape == (num, *struct.shape):
            return value
        raise NetworkError(
            f"start's {tree.path_string(path)} is {value.shape}",
            f"{struct.shape}, or {(num, *struct.shape)} with a leading axis of starts",
            "pass one set of weights, or one a chain",
        )

    return jax.tree_util.tree_map_with_path(one, start, structs)


class Density:
    """Any log density over any pytree as a target: no network, no data, units of 1."""

    data = None
    num_data = 0
    total_weight = 0.0
    temperature = 1.0
    caveat = ""
    correlated: ClassVar[dict[int, Any]] = {}
    scales = None
    augment = None

    def __init__(self, log_density: Callable[[Params], jax.Array], start: Params) -> None:
        self._log_density = log_density
        self.structs = tree.structs(jax.tree.map(jnp.asarray, start))
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.structs):
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise SettingError(
                    f"start's {tree.path_string(path) or 'value'} is {leaf.dtype}", "floating point", "pass 0.0, not 0"
                )

    def without_data(self) -> "Density":
        return self

    def holding(self, *parts: str) -> "Density":
        """Nothing is inferred beside its own parameters."""
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Density) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    @property
    def compiled_for(self) -> object:
        return self._log_density if hasattr(self._log_density, "__dict__") else self

    def _identity(self) -> tuple[object, ...]:
        return self._log_density, tree.signature(self.structs)

    @property
    def units(self) -> Params:
        return jax.tree.map(lambda _: 1.0, self.structs)

    def log_density(self, params: Params, batch: Data = None, likelihood_power: jax.Array | float = 1.0) -> jax.Array:
        del batch, likelihood_power
        return self._log_density(params)

    relative_log_density = log_density

    def check_proper(self) -> None:
        """A user's own density is taken as it is."""

    def as_starts(self, start: Params, num: int) -> Params:
        return broadcast_starts(start, self.structs, num)
