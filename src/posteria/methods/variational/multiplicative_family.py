"""Multiplicative normalising flows: a Gaussian for every weight, whose mean is multiplied by its input unit's z.

    z = 1 + scale * u,   u ~ a flow q(u) over the units of all layers,   W | z ~ N(z * mean, std^2)

The flow is over units, so that its cost does not grow with weights; with it units, and layers, move together. q(W) has
no density in closed form, and the bound takes r(u | W), what the weights say of u, in its place:

    log p(data) >= E[log p(data, W) - log q(W | z) - log q(u) + log r(u | W)]

Louizos & Welling 2017, Multiplicative Normalizing Flows for Variational Bayesian Neural Networks. Here r begins as what
Bayes' rule gives for a flow that leaves u standard normal, N(hat u, 1 / (1 + scale^2 p)) with each unit's own weights
as its statistic, so that the bound is then exact; its mean, width and a flow of its own are fitted from there.
"""

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.data.arrays import Data
from posteria.methods.variational.bound import Bound
from posteria.methods.variational.families import DiagonalFamily, Marginals, Phi
from posteria.models.densities import normal as normal_density
from posteria.models.target import Target
from posteria.posteriors import flow
from posteria.posteriors.multiplicative import MULTIPLIER_STREAM, MultiplicativePosterior, centred
from posteria.random import fast_normal
from posteria.trace.dropout import Units, select
from posteria.trace.local import FLIPOUT, LOCAL, SMALLEST_VARIANCE, treatments
from posteria.tree import Json

NUM_LAYERS, NUM_HIDDEN = 2, 32  # of the flow, and of that of r
MOST_SPLINED = 64  # units, whose couplings have splines; of more, scales and shifts
FIRST_SCALE = 0.1  # of the multipliers: at 0 its gradient would vanish
AUXILIARY_DRAWS = 32  # of u, a step, from which log r - log q(u) is estimated
STATISTIC_STREAM = 8  # folded into a step's key


class MultiplicativeFamily(DiagonalFamily):
    """Leaves that no linear operation holds, and those of one draw a step, have no multipliers: they are mean-field."""

    def __init__(self, target: Target, estimator: str = "local") -> None:
        super().__init__(target)
        network, structs, x = target.model.network, target.structs["network"], target.blank_input
        found, _ = select(network, structs, x, None)
        how = treatments(network.apply, structs, x, estimator)
        self.rows: dict[str, Units] = {path: u for path, u in found.items() if how[path] in (LOCAL, FLIPOUT)}
        ends = np.cumsum([units.count for units in self.rows.values()]).tolist()
        self.slices = {path: slice(end - u.count, end) for (path, u), end in zip(self.rows.items(), ends)}
        self.num_units = ends[-1] if ends else 0
        self.paths = tree.paths(structs)

    def init(self, key: jax.Array, mean: tree.Params, std: tree.Params) -> Phi:
        num, key_back = self.num_units, jax.random.fold_in(key, 1)
        chosen = flow.NUM_CHOSEN if num <= MOST_SPLINED else flow.NUM_PLAIN
        layers, back = (flow.new_layers(k, num, NUM_LAYERS, NUM_HIDDEN, chosen) for k in (key, key_back))
        return super().init(key, mean, std) | {
            "scale": jnp.full(num, FIRST_SCALE),
            "layers": layers,
            "back": {"layers": back, "gain": jnp.ones(num), "shift": jnp.zeros(num), "log_width": jnp.zeros(num)},
        }

    # ---- draws: those of the diagonal family at scale 0

    def draw(self, phi: Phi, key: jax.Array) -> tree.Params:
        mean, std = self.given(phi, self._auxiliary_of(phi, key)[0])
        noise = self.unravel(fast_normal(key, (tree.size(mean),)))
        return jax.tree.map(lambda m, s, e: m + s * e, mean, std, noise)

    def given(self, phi: Phi, u: jax.Array) -> Marginals:
        """Mean and standard deviation of each weight, given u (unit,)."""
        mean, std = self.marginals(phi)
        return mean | {"network": self.multiplied(mean["network"], 1.0 + phi["scale"] * u)}, std

    def multiplied(self, leaves: tree.Params, of_units: jax.Array, otherwise: float = 1.0) -> tree.Params:
        """Each weight times its unit's number; leaves without units times `otherwise`."""
        parts = [
            leaf * (self.rows[path].rows(of_units[self.slices[path]]) if path in self.rows else otherwise)
            for path, leaf in zip(self.paths, jax.tree.leaves(leaves))
        ]
        return jax.tree.structure(leaves).unflatten(parts)

    def over_units(self, leaves: tree.Params) -> jax.Array:
        """Sums over the weights of each unit, (unit,)."""
        parts = dict(zip(self.paths, jax.tree.leaves(leaves)))
        sums = [_sum_over(parts[path], units) for path, units in self.rows.items()]
        return jnp.concatenate([*sums, jnp.zeros(0)])

    def auxiliary(self, phi: Phi, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
        """u of unit noise (unit,), and log q(u)."""
        u, log_volume = flow.through(flow.evenly(phi["layers"]), noise)
        return u, normal_density(noise, 0.0).sum() - log_volume

    def _auxiliary_of(self, phi: Phi, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return self.auxiliary(phi, fast_normal(jax.random.fold_in(key, MULTIPLIER_STREAM), (self.num_units,)))

    # ---- densities

    def precision(self, phi: Phi) -> jax.Array:
        """p = sum of mean^2 / std^2 over a unit's weights: how well these tell its z, (unit,)."""
        mean, std = self.marginals(phi)
        return self.over_units(jax.tree.map(lambda m, s: (m / s) ** 2, mean["network"], std["network"]))

    def log_r(self, phi: Phi, u: jax.Array, excess: jax.Array, precision: jax.Array) -> jax.Array:
        """log r(u | W), with W as `excess`, the sum of mean (W - mean) / std^2 over a unit's weights: (unit,)."""
        back, scale = phi["back"], phi["scale"]
        total = 1.0 + scale**2 * precision
        mean = back["gain"] * scale * excess / total + back["shift"]
        log_width = back["log_width"] - 0.5 * jnp.log(total)
        moved, log_volume = flow.through(flow.evenly(back["layers"]), u)
        value: jax.Array = normal_density((moved - mean) * jnp.exp(-log_width), log_width).sum() + log_volume
        return value

    def log_prob_at_draw(self, phi: Phi, key: jax.Array, draw: tree.Params) -> jax.Array:
        """log q(W | z) + log q(u) - log r(u | W) at `draw(phi, key)`: on average at least log q(W)."""
        u, log_q = self._auxiliary_of(phi, key)
        mean, std = self.given(phi, u)
        terms = jax.tree.map(lambda m, s, w: normal_density((w - m) / s, jnp.log(s)).sum(), mean, std, draw)
        plain = phi["mean"]["network"]
        excess = self.over_units(
            jax.tree.map(lambda m, s, w: m * (w - m) / s**2, plain, std["network"], draw["network"])
        )
        value: jax.Array = sum(jax.tree.leaves(terms)) + log_q - self.log_r(phi, u, excess, self.precision(phi))
        return value

    def posterior(self, target: Target, phi: Phi, facts: Json) -> MultiplicativePosterior:
        mean, std = self.marginals(phi)
        no_unit = jax.tree.map(lambda leaf: np.full(leaf.shape, -1, np.int32), self.structs)
        numbers = dict(zip(self.paths, jax.tree.leaves(no_unit["network"])))
        for path, units in self.rows.items():
            numbers[path] = np.broadcast_to(units.index + self.slices[path].start, numbers[path].shape)
        network = jax.tree.structure(no_unit["network"]).unflatten([numbers[path] for path in self.paths])
        unit = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(no_unit | {"network": network})])
        layers = jax.tree.map(jnp.asarray, flow.evenly(phi["layers"]))
        centre, spread = centred(tree.ravel(mean), tree.ravel(std), unit, jnp.asarray(phi["scale"]), layers)
        return MultiplicativePosterior(target, centre, spread, facts)


def _sum_over(leaf: jax.Array, units: Units) -> jax.Array:
    shared = tuple(axis for axis, size in enumerate(units.index.shape) if size == 1)
    sums = leaf.sum(shared, keepdims=True)  # few are left for the slow scatter
    return jnp.zeros(units.count, leaf.dtype).at[np.asarray(units.index)].add(sums)


class MultiplicativeBound(Bound):
    """Each datum has a u of its own. What does not depend on data costs one pass over the weights, whatever the draws:
    the prior's part needs the first two moments of z, r's statistic is normal given u."""

    family: MultiplicativeFamily

    def __call__(
        self,
        phi: Phi,
        key: jax.Array,
        batch: Data,
        kl_weight: jax.Array | float = 1.0,
        turn: jax.Array | int = 0,
    ) -> jax.Array:
        family, mean_and_std = self.family, self.family.marginals(phi)
        num = AUXILIARY_DRAWS if batch is None else tree.length(batch[0])
        noise = fast_normal(jax.random.fold_in(key, MULTIPLIER_STREAM), (num, family.num_units), turn)
        u, log_q = jax.vmap(lambda e: family.auxiliary(phi, e))(noise)
        z = 1.0 + phi["scale"] * u  # (datum, unit)
        log_likelihood = None
        if batch is not None:
            factors = {path: z[:, part] for path, part in family.slices.items()}
            log_likelihood = self.log_likelihood(phi, key, batch, mean_and_std, turn, factors)
        log_prior = self.expected_log_prior(phi, key, self._over_z(mean_and_std, z))
        few = min(num, AUXILIARY_DRAWS)
        entropy = family.entropy(phi, mean_and_std) + self._said(phi, key, u[:few], turn) - log_q[:few].mean()
        return self.target.tempered(kl_weight * log_prior, log_likelihood) + kl_weight * entropy

    def _said(self, phi: Phi, key: jax.Array, u: jax.Array, turn: jax.Array | int) -> jax.Array:
        """The mean of log r(u | W): W's statistic has mean scale u p and variance p."""
        precision = self.family.precision(phi)
        noise = fast_normal(jax.random.fold_in(key, STATISTIC_STREAM), u.shape, turn)
        excess = phi["scale"] * u * precision + jnp.sqrt(precision + SMALLEST_VARIANCE) * noise
        return jax.vmap(lambda u, e: self.family.log_r(phi, u, e, precision))(u, excess).mean()

    def _over_z(self, mean_and_std: Marginals, z: jax.Array) -> Marginals:
        """Of the weights over these z: all that a Normal prior's expectation takes."""
        mean, std = mean_and_std
        family, first, variance = self.family, z.mean(0), z.var(0)
        added = family.multiplied(jax.tree.map(jnp.square, mean["network"]), variance, otherwise=0.0)
        spread = jax.tree.map(lambda s, more: jnp.sqrt(s**2 + more), std["network"], added)
        return mean | {"network": family.multiplied(mean["network"], first)}, std | {"network": spread}

    def _draw_for_prior(self, phi: Phi, marginals: Marginals, key: jax.Array) -> tree.Params:
        return self.family.draw(phi, key)
