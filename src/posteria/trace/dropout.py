"""Noise on the inputs of a network's linear operations, and the same noise as rows of its weights.

A *unit* is an input of a linear operation: a feature, a channel, an attention head's coordinate. Its noise multiplies
it at every position of a datum (pixels, tokens). Multiplying the unit's row of the weight instead does the same, so a
network with noisy inputs is a network with random weights: that is how dropout is a posterior. Gal & Ghahramani 2016.
"""

import fnmatch
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.errors import DataError, SettingError
from posteria.networks import Network
from posteria.trace import linear


@dataclass(frozen=True, eq=False)
class Units:
    """The inputs that a leaf multiplies. `index`, broadcast to the leaf's shape, names the unit of each weight.

    `on_inputs` is False for a leaf inside a scan: its noise is drawn into the weight while training too, once a step.
    """

    count: int
    index: np.ndarray
    on_inputs: bool

    def rows(self, mask: jax.Array) -> jax.Array:
        """The mask (count,) as a factor of the leaf; leading axes are kept."""
        return mask[..., self.index]


Selected = Mapping[str, Units]  # by the leaf's path


Uses = tuple[tuple[int, np.ndarray], ...]  # number of units, and the unit of each weight
Masks = dict[str, jax.Array]


# ---- which leaves


def select(network: Network, structs: tree.Params, x: Data, where: str | None) -> tuple[Selected, str]:
    """The units of every leaf that can carry noise, or of those that a glob in `where` names ("first/*,last/*"), and a
    note on weights that were left without. `x` is a batch of one datum, for its shapes."""
    if x is None:
        raise DataError("no x was given", "an x, to find the network's layers by", "pass data=(x, y) or (x, None)")
    return _select(network, tree.signature(structs), tree.signature(x), where)


@kept
def _select(network: Network, params: tree.Signature, x: tree.Signature, where: str | None) -> tuple[Selected, str]:
    structs, datum = (treedef.unflatten(jax.ShapeDtypeStruct(*s) for s in leaves) for treedef, leaves in (params, x))
    shapes = dict(zip(tree.paths(structs), (leaf.shape for leaf in jax.tree.leaves(structs))))
    leaves = linear.find(network.apply, structs, datum)
    indices = _unit_indices(network, structs, datum)
    selected, left = {}, {}
    for path, leaf in leaves.items():
        units = _found_units(indices[path]) if leaf.found else _scanned_units(leaf, shapes[path])
        if units is None:
            left[path] = leaf.reason or "used with different inputs"
        else:
            selected[path] = units
    if where is not None:
        patterns = [pattern.strip() for pattern in where.split(",")]
        for pattern in patterns:
            matched = fnmatch.filter(leaves, pattern)
            lost = [path for path in matched if path in left and leaves[path].uses]
            if lost or not any(path in selected for path in matched):
                named = lost or matched
                raise SettingError(
                    f"where={pattern!r} names "
                    + (f"{named[0]}, which is {left[named[0]]}" if named else "no leaf of the network"),
                    f"some of {list(selected)}",
                    "correct the pattern",
                )
        selected = {p: u for p, u in selected.items() if any(fnmatch.fnmatchcase(p, pattern) for pattern in patterns)}
    if not selected:
        raise SettingError(
            f"no linear operation was found in the network ({left})", "a weight that multiplies an input", "use HMC"
        )
    without = [f"{path} ({reason})" for path, reason in left.items() if leaves[path].uses and where is None]
    return selected, f"no noise on {', '.join(without)}" if without else ""


def _unit_indices(network: Network, structs: tree.Params, datum: tree.Tree) -> dict[str, Uses]:
    """For each found leaf and use: (number of units, the unit of each weight)."""
    counts: dict[str, list[int]] = {}

    def rule(operation: linear.Operation, extra: None) -> tuple[jax.Array, jax.Array]:
        count = math.prod(operation.unit_shape)
        counts.setdefault(operation.path, []).append(count)
        numbers = jnp.arange(1.0, count + 1.0).reshape(operation.unit_shape)
        return operation.op(operation.x, operation.weight), operation.rows(numbers)

    def numbers(params: tree.Params, x: Data) -> dict[str, tuple[jax.Array, ...]]:
        counts.clear()  # traced twice by jit's caches, it would be counted twice
        return linear.interpret(network.apply, rule)(params, x)[1]

    zeros = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), (structs, datum))
    found = jax.jit(numbers)(*zeros)
    return {
        path: tuple((n, np.rint(np.asarray(u, np.float32)[0]).astype(np.int32) - 1) for n, u in zip(counts[path], uses))
        for path, uses in found.items()
    }


def _found_units(uses: Uses) -> Units | None:
    (count, index), *others = uses
    if any(n != count or not np.array_equal(other, index) for n, other in others):
        return None  # a tied weight, transposed elsewhere: its rows there are its columns here
    for axis in range(index.ndim):  # (in, out) -> (in, 1) where all outputs see the same unit
        first = index.take([0], axis=axis)
        index = first if (index == first).all() else index
    return Units(count, index, on_inputs=True)


def _scanned_units(leaf: linear.Leaf, shape: tuple[int, ...]) -> Units | None:
    contracted = {use.contracted for use in leaf.uses if use.primitive == "dot_general"}
    is_matrix = len(contracted) == 1 and all(use.primitive == "dot_general" for use in leaf.uses)
    if not (is_matrix and (leaf.reason or "").startswith("inside scan")):
        return None
    [dims] = contracted
    sizes = [size if dim in dims else 1 for dim, size in enumerate(shape)]
    return Units(math.prod(sizes), np.arange(math.prod(sizes), dtype=np.int32).reshape(sizes), on_inputs=False)


# ---- noise with mean 1


def bernoulli(key: jax.Array, rate: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Zero with probability `rate`, else 1 / (1 - rate). Srivastava et al. 2014."""
    return jnp.where(jax.random.uniform(key, shape) < rate, 0.0, 1.0 / (1.0 - rate))


def gaussian(key: jax.Array, alpha: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Normal(1, alpha). Wang & Manning 2013."""
    return 1.0 + jnp.sqrt(alpha) * jax.random.normal(key, shape)


CONCRETE_TEMPERATURE = 0.1


def concrete(key: jax.Array, rate: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Bernoulli noise made smooth in its rate. Maddison et al. 2017; Gal, Hron & Kendall 2017."""
    logistic = jax.random.logistic(key, shape)
    kept = jax.nn.sigmoid((jnp.log1p(-rate) - jnp.log(rate) + logistic) / CONCRETE_TEMPERATURE)
    return kept / (1.0 - rate)


NOISES: dict[str, Callable[[jax.Array, jax.Array, tuple[int, ...]], jax.Array]] = {
    "bernoulli": bernoulli,
    "gaussian": gaussian,
    "concrete": concrete,
}

Strengths = Mapping[str, jax.Array]  # rate or alpha of each selected leaf: () or (count,)


def draw_masks(
    noise: str, key: jax.Array, selected: Selected, strengths: Strengths, lead: tuple[int, ...] = ()
) -> Masks:
    """A mask (*lead, count) for each selected leaf, from one draw for all of them."""
    counts = [units.count for units in selected.values()]
    parts = [jnp.broadcast_to(strengths[path], (count,)) for path, count in zip(selected, counts)]
    if not parts:
        return {}
    mask = NOISES[noise](key, jnp.concatenate(parts), (*lead, sum(counts)))
    return dict(zip(selected, jnp.split(mask, np.cumsum(counts)[:-1].tolist(), axis=-1)))


def noisy_weights(
    noise: str, key: jax.Array, params: tree.Params, selected: Selected, strengths: Strengths
) -> tree.Params:
    """The network's parameters with one mask drawn into the rows of every selected leaf."""
    masks = draw_masks(noise, key, selected, strengths)
    leaves, treedef = jax.tree.flatten(params)
    return treedef.unflatten(
        (leaf * selected[path].rows(masks[path])).astype(leaf.dtype) if path in masks else leaf
        for path, leaf in zip(tree.paths(params), leaves)
    )


def noisy_outputs(
    network: Network, noise: str, key: jax.Array, params: tree.Params, x: Data, selected: Selected, strengths: Strengths
) -> jax.Array:
    """Outputs of a batch, each datum under a mask of its own (leaves inside a scan: one for the batch)."""
    key_inputs, key_weights = jax.random.split(key)
    inside = {path: units for path, units in selected.items() if not units.on_inputs}
    params = noisy_weights(noise, key_weights, params, inside, strengths)
    at_inputs = {path: units for path, units in selected.items() if units.on_inputs}
    masks = draw_masks(noise, key_inputs, at_inputs, strengths, lead=(_num_rows(x),))
    return linear.interpret(network.apply, _masked)(params, x, masks)[0]


def _masked(operation: linear.Operation, masks: Masks) -> tuple[jax.Array, None]:
    x = operation.x
    if operation.path in masks:
        x = (x * masks[operation.path].reshape(operation.unit_shape)).astype(x.dtype)
    return operation.op(x, operation.weight), None


def _num_rows(x: Data) -> int:
    return jax.tree.leaves(x)[0].shape[0]
