"""A trained network with a small one of an index beside it: a function for every index z ~ N(0, I)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.errors import SettingError
from posteria.models.target import Target
from posteria.posteriors.base import Posterior
from posteria.trace import linear
from posteria.tree import Arrays, Json

Head = dict[str, Any]  # {"out", "out_bias"}, and {"hidden", "hidden_bias"} where there is a hidden layer


class IndexedPosterior(Posterior):
    """f(x, z) = network(x) + (learnt head + fixed head)(features of x, z); the network and the noise are points."""

    kind = "indexed"

    def __init__(self, target: Target, base: Any, learnt: Head, fixed: Head, facts: Json | None = None) -> None:
        super().__init__(target, facts)
        self.base = np.asarray(base)  # (size,), of the network and the likelihood
        self.learnt, self.fixed = (jax.tree.map(np.asarray, dict(head)) for head in (learnt, fixed))

    @property
    def num_indices(self) -> int:
        return len(self.learnt["out_bias"]) // int(self.target.num_outputs or 1)

    def draws(self, key: jax.Array, x: Data, num_draws: int) -> tuple[jax.Array, tree.Params]:
        z = jax.random.normal(key, (num_draws, self.num_indices))
        return _functions(self.target)(self.base, self.learnt, self.fixed, z, x)

    def state(self) -> tuple[Json, Arrays]:
        heads = {"learnt": self.learnt, "fixed": self.fixed}
        arrays = {f"{name}.{part}": array for name, head in heads.items() for part, array in head.items()}
        return {"parts": sorted(self.learnt)}, {"base": self.base} | arrays

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "IndexedPosterior":
        learnt, fixed = ({part: arrays[f"{name}.{part}"] for part in settings["parts"]} for name in ("learnt", "fixed"))
        return cls(target, arrays["base"], learnt, fixed, facts)


def head_outputs(head: Head, features: jax.Array, z: jax.Array, num_outputs: int) -> jax.Array:
    """(batch, output): a linear function of z, whose coefficients follow from the features, and from z by a hidden
    layer where there is one."""
    if "hidden" in head:
        beside = jnp.broadcast_to(z, (*features.shape[:1], *z.shape))
        features = jax.nn.relu(jnp.concatenate([features, beside], 1) @ head["hidden"] + head["hidden_bias"])
    rows = features @ head["out"] + head["out_bias"]
    return rows.reshape(len(rows), num_outputs, len(z)) @ z


@kept
def base_and_features(target: Target) -> Callable[[tree.Params, Data], tuple[jax.Array, jax.Array]]:
    """(network's parameters, x) -> its outputs, and what its last linear operation is given, (batch, feature): with x
    itself where that was floating point in the fit and other operations come before."""
    network = target.model.network
    first = target.blank_input  # of the fit: rows to predict may be of another type
    has_numbers = isinstance(first, jax.Array | np.ndarray) and jnp.issubdtype(first.dtype, jnp.floating)

    def both(params: tree.Params, x: Data) -> tuple[jax.Array, jax.Array]:
        seen: list[str] = []

        def rule(operation: linear.Operation, extra: None) -> tuple[jax.Array, jax.Array]:
            seen.append(operation.path)
            return operation.op(operation.x, operation.weight), operation.x

        outputs, records = linear.interpret(network.apply, rule)(params, x)
        if not seen:
            raise SettingError(
                "a network in which no linear operation was found", "one that ends in one", "take another method"
            )
        parts = [records[seen[-1]][-1]]
        if len(seen) > 1 and has_numbers:
            parts.append(x)
        flat = [part.reshape(len(outputs), -1).astype(jnp.float32) for part in parts]
        return outputs[:, None] if outputs.ndim == 1 else outputs, jnp.concatenate(flat, 1)

    return jax.jit(both)


@kept
def _functions(target: Target) -> Callable[..., tuple[jax.Array, tree.Params]]:
    unravel, base = tree.unraveller(target.structs), base_and_features(target)

    def functions(flat: jax.Array, learnt: Head, fixed: Head, z: jax.Array, x: Data) -> tuple[jax.Array, tree.Params]:
        params = unravel(flat)
        outputs, features = base(params["network"], x)

        def one(index: jax.Array) -> jax.Array:
            parts = (head_outputs(head, features, index, outputs.shape[1]) for head in (learnt, fixed))
            return sum(parts, start=outputs)

        own = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(z), *leaf.shape)), params["likelihood"])
        return jax.lax.map(one, z), own

    return jax.jit(functions)
