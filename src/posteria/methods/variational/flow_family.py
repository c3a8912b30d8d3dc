"""The family of normalising flows: any shape that splines and couplings reach, for up to some thousand weights.

Rezende & Mohamed 2015, Variational Inference with Normalizing Flows.
"""

import jax
import jax.numpy as jnp

from posteria import tree
from posteria.methods.variational.families import DiagonalFamily, Phi, softplus_inverse
from posteria.models.densities import softplus
from posteria.models.target import Target
from posteria.posteriors import flow
from posteria.random import fast_normal
from posteria.tree import Json

NUM_LAYERS, NUM_HIDDEN = 6, 32
MAX_FULL = 500  # weights that the affine map correlates; of more it is diagonal


class FlowFamily(DiagonalFamily):
    """w = mean + affine(flow of noise): all Gaussians with it, where the affine map is full."""

    def init(self, key: jax.Array, mean: tree.Params, std: tree.Params) -> Phi:
        centre, raw = tree.ravel(mean), softplus_inverse(tree.ravel(std))
        return {
            "mean": centre,
            "factor": jnp.diag(raw) if len(raw) <= MAX_FULL else raw,
            "layers": flow.new_layers(key, len(raw), NUM_LAYERS, NUM_HIDDEN),
        }

    def factor(self, phi: Phi) -> jax.Array:
        """As that of `FullFamily`: rows in units of their diagonal."""
        raw = phi["factor"]
        if raw.ndim == 1:
            return softplus(raw)
        diagonal = softplus(jnp.diagonal(raw))
        return diagonal[:, None] * (jnp.tril(raw, -1) + jnp.eye(len(diagonal)))

    def draw(self, phi: Phi, key: jax.Array) -> tree.Params:
        moved, _ = flow.through(flow.evenly(phi["layers"]), fast_normal(key, phi["mean"].shape))
        return self.unravel(phi["mean"] + flow.affine(self.factor(phi), moved))

    def log_prob_at_draw(self, phi: Phi, key: jax.Array, draw: tree.Params) -> jax.Array:
        """From the draw's own noise, and its gradient along the draw alone, which has no noise where q is right."""
        still = jax.lax.stop_gradient(phi)
        noise = fast_normal(key, phi["mean"].shape)
        value, slope = flow.log_prob_and_slope(flow.evenly(still["layers"]), self.factor(still), noise)
        flat = tree.ravel(draw)
        return value + slope @ (flat - jax.lax.stop_gradient(flat))

    def posterior(self, target: Target, phi: Phi, facts: Json) -> flow.FlowPosterior:
        spread = flow.centred(jax.tree.map(jnp.asarray, flow.evenly(phi["layers"])), self.factor(phi))
        return flow.FlowPosterior(target, phi["mean"] + spread.offset, spread, facts)
