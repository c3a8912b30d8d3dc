"""Low-rank adapters on any network, its own weights frozen: what fine-tuning moves, and all that is inferred then.

Every matrix W that the walk finds (`trace/linear.py`) gets a term of its own, x W + x down up, with `down` (rows, rank)
and `up` (rank, columns); `up` is 0 at first, so that the network begins as it was. Both are weights of linear
operations, which the walk finds again: fan-in priors, local noise and Kronecker factors go on. Hu et al. 2022, LoRA;
Yang et al. 2024, Bayesian Low-Rank Adaptation.
"""

import fnmatch
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.errors import NetworkError
from posteria.networks import Network, as_batch_of_one
from posteria.networks import network as as_network
from posteria.settings import Several, check_arguments
from posteria.trace.linear import Operation, find, interpret
from posteria.tree import Params

LARGE = 2**24  # bytes of frozen weights, of which copies are worth a word
COPIED = (
    "each compiled function holds a copy of the frozen weights: set JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS=1 in the "
    "environment before JAX is imported, and none does"
)


def adapters(
    network: Any, rank: Several = 8, where: str | Sequence[str] | None = None, weights: Params | None = None
) -> Network:
    """A network whose only parameters are low-rank adapters of `network`'s matrices; its own weights are frozen.

    `where`: globs of the leaves to adapt, as "layers/*/kernel"; None: every leaf all of whose uses are products with
    inputs, convolutions included. A matrix with fewer rows or columns than `rank` has an adapter of full rank.
    `weights`: the frozen ones, where `network` does not come trained. Every method then runs over the adapters alone;
    stores hold these alone, and `po.load` and `po.resume` want the network again: `network=po.adapters(...)`.

    Each compiled function holds a copy of the frozen weights, unless JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS=1 stands in the
    environment before JAX is imported: a fit's notes say so where they are large.
    """
    (rank,) = check_arguments(adapters, rank=rank)
    base = as_network(network)
    patterns = None if where is None else (where,) if isinstance(where, str) else tuple(where)
    if weights is None and not base.trained:
        raise NetworkError(
            "adapters of a network that is not trained", "weights to freeze", "pass a trained module, or weights=params"
        )
    frozen = tree.on_device(base.init(jax.random.key(0), None) if weights is None else weights)
    is_copied = tree.num_bytes(frozen) > LARGE and not jax.config.values["jax_use_simplified_jaxpr_constants"]

    def init(key: jax.Array, x: Data) -> Params:
        sizes = _sizes(base, tree.signature(frozen), tree.signature(as_batch_of_one(x)), patterns)
        params = {}
        for path, key_leaf in zip(sizes, jax.random.split(key, len(sizes))):
            rows, columns, dtype = sizes[path]
            width = min(rank, rows, columns)
            down = jax.random.normal(key_leaf, (rows, width), dtype) / rows**0.5
            params[path] = {"down": down, "up": jnp.zeros((width, columns), dtype)}
        return params

    def apply(params: Params, x: Data) -> jax.Array:
        def rule(operation: Operation, extra: None) -> tuple[jax.Array, None]:
            y = operation.op(operation.x, operation.weight)
            if operation.path not in params:
                return y, None
            own, matrix = params[operation.path], operation.matrix
            assert matrix is not None  # `_sizes` has refused it
            inputs = matrix.inputs(operation.x)  # (position, row)
            low = (inputs @ own["down"].astype(inputs.dtype)) @ own["up"].astype(inputs.dtype)
            # outputs only moves entries about: its transpose moves them back
            (moved,) = jax.linear_transpose(matrix.outputs, y)(low.astype(y.dtype))
            return y + moved, None

        return interpret(base.apply, rule)(frozen, x)[0]

    return Network(init, apply, note=COPIED if is_copied else "", num_frozen=tree.size(frozen))


Size = tuple[int, int, Any]  # rows and columns of the matrix, and the adapter's dtype


@kept
def _sizes(
    base: Network, frozen: tree.Signature, x: tree.Signature, patterns: tuple[str, ...] | None
) -> dict[str, Size]:
    """Of every leaf that is adapted, by path; refuses patterns that name none, or one that cannot be."""
    params, batch = (
        treedef.unflatten(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in leaves)
        for treedef, leaves in (frozen, x)
    )
    try:
        jax.eval_shape(base.apply, params, batch)
    except Exception as error:  # the network is the user's, and so are the weights
        shapes = {path: leaf.shape for path, leaf in zip(tree.paths(params), jax.tree.leaves(params))}
        raise NetworkError(
            f"the network cannot run with weights {shapes}: {type(error).__name__}",
            "its own weights, for such x",
            "make them by network.init(key, x[:1]), or pass those of a fit: posterior.params",
        ) from error
    found = find(base.apply, params, batch)
    reasons = {path: leaf.reason for path, leaf in found.items()}
    for path, leaf in found.items():
        if leaf.found and len({use.contracted for use in leaf.uses}) > 1:
            reasons[path] = "multiplied along different axes"
    sizes: dict[str, Size] = {}

    def rule(operation: Operation, extra: None) -> tuple[jax.Array, None]:
        y = operation.op(operation.x, operation.weight)
        if operation.matrix is None:
            reasons[operation.path] = (
                reasons[operation.path] or "not one matrix (groups, or axes matched with the input's)"
            )
        else:
            dtype = jnp.promote_types(operation.leaf.dtype, jnp.float32)
            rows, columns = operation.matrix.inputs(operation.x).shape[1], operation.matrix.outputs(y).shape[1]
            sizes[operation.path] = rows, columns, dtype
        return y, None

    jax.eval_shape(lambda params, x: interpret(base.apply, rule)(params, x)[0], params, batch)
    if patterns is not None:
        for pattern in patterns:
            named = fnmatch.filter(reasons, pattern)
            if not named or (len(named) == 1 and reasons[named[0]] is not None):
                why = f"{named[0]} is {reasons[named[0]]}" if named else f"{pattern!r} matches no leaf"
                raise NetworkError(
                    f"adapters where={pattern!r}: {why}",
                    f"some of {[path for path, reason in reasons.items() if reason is None]}",
                    "correct or drop the pattern",
                )
    chosen = {
        path: size
        for path, size in sizes.items()
        if reasons[path] is None and (patterns is None or any(fnmatch.fnmatchcase(path, p) for p in patterns))
    }
    if not chosen:
        raise NetworkError(
            f"no leaf to adapt: {reasons}", "a leaf all of whose uses are products with inputs", "see `where`"
        )
    return chosen
