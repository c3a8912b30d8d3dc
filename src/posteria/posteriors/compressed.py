"""Pruned posteriors whose layers multiply by sparse arrays."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.models.target import Target
from posteria.posteriors.pruned import PrunedPosterior, draw_values, slices_of, weights
from posteria.trace import linear

Places = dict[str, tuple[Any, Any]]  # of a leaf: numbers of its weights, and where they stand in it


class CompressedPosterior(PrunedPosterior):
    """A pruned posterior computed from what is left: the same draws, to rounding, without its dense matrices.

    A layer whose matrix meets a datum once is a sum over the weights that are left; any other leaf (a convolution's
    kernel, a bias) is filled up with zeros when it is needed.
    """

    kind = "compressed"

    @property
    def arrays(self) -> dict[str, Any]:
        """The mean of each leaf of the network: a SciPy sparse array for a layer's matrix, else a dense array."""
        from scipy import sparse

        leaves = dict(zip(tree.paths(self.mean_params), map(np.asarray, jax.tree.leaves(self.mean_params))))
        matrices = {leaf.path for leaf in weights(self.target) if len(leaf.shape) == 2}
        return {path: sparse.csr_array(leaf) if path in matrices else leaf for path, leaf in leaves.items()}

    def draws(self, key: jax.Array, x: Data, num_draws: int) -> tuple[jax.Array, tree.Params]:
        keys = jax.random.split(key, num_draws)
        return _forward(self.target)(self._places(), self.mean, self.std, keys, x)

    def _places(self) -> Places:
        """For each leaf: which of `kept` are its weights, and where in the leaf they are."""
        places = {}
        for path, part in slices_of(self.target).items():
            first, last = np.searchsorted(self.kept, (part.start, part.stop))
            places[path] = np.arange(first, last), self.kept[first:last] - part.start
        return places


def compress(posterior: PrunedPosterior) -> CompressedPosterior:
    """The same distribution, computed from sparse arrays."""
    facts = dict(posterior.facts)
    compressed = CompressedPosterior(posterior.target, posterior.kept, posterior.mean, posterior.std, facts)
    compressed.attached = posterior.attached
    return compressed


@kept
def _forward(target: Target) -> Any:
    """Draw by draw: (places, mean, std, keys, x) -> (outputs (draw, batch, output), own parameters)."""
    network, structs = target.model.network, target.structs
    summed = _matrices(target)
    own_size, unravel_own = tree.size(structs["likelihood"]), tree.unraveller(structs["likelihood"])

    def one(places: Places, values: jax.Array, x: Data) -> tuple[jax.Array, tree.Params]:
        def filled(leaf: Any) -> jax.Array:
            numbers, where = places[leaf.path]
            if leaf.path in summed:
                numbers, where = numbers[:0], where[:0]  # the rule has its weights: the matrix is never made
            flat = jnp.zeros(int(np.prod(leaf.shape)), values.dtype).at[where].set(values[numbers])
            return flat.reshape(leaf.shape).astype(leaf.dtype)

        def rule(operation: linear.Operation, extra: None) -> tuple[jax.Array, None]:
            if operation.path not in summed:
                return operation.op(operation.x, operation.weight), None
            numbers, where = places[operation.path]
            return _product(operation, values[numbers], where, summed[operation.path]), None

        params = jax.tree.structure(structs["network"]).unflatten(map(filled, target.leaves))
        outputs = linear.interpret(network.apply, rule)(params, x)[0]
        outputs = outputs[:, None] if outputs.ndim == 1 else outputs
        return outputs, unravel_own(values[:own_size])  # the likelihood's own come first, and all are kept

    def forward(
        places: Places, mean: jax.Array, std: jax.Array, keys: jax.Array, x: Data
    ) -> tuple[jax.Array, tree.Params]:
        return jax.lax.map(lambda key: one(places, draw_values(mean, std, key), x), keys)

    return jax.jit(forward)


def _matrices(target: Target) -> dict[str, int]:
    """The axis that is summed over, for each matrix that a datum meets once."""
    if target.blank_input is None:
        return {}
    found = linear.find(target.model.network.apply, target.structs["network"], target.blank_input)
    shapes = {leaf.path: leaf.shape for leaf in weights(target)}
    return {
        path: leaf.uses[0].contracted[0]
        for path, leaf in found.items()
        if leaf.found and leaf.positions == 1 and len(shapes[path]) == 2 and len(leaf.uses[0].contracted) == 1
    }


def _product(operation: linear.Operation, values: jax.Array, where: jax.Array, summed: int) -> jax.Array:
    """The layer's output for one datum, as a sum over the weights that are left."""
    index = jnp.divmod(where, operation.leaf.shape[1])  # rows and columns
    y = jax.eval_shape(operation.op, operation.x, operation.weight)
    terms = operation.x.ravel()[index[summed]] * values.astype(operation.x.dtype)
    return jax.ops.segment_sum(terms, index[1 - summed], operation.leaf.shape[1 - summed]).reshape(y.shape)
