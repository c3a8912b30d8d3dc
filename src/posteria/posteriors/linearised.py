"""Gaussians over the weights that are given by a precision matrix, and what they predict: Laplace approximations.

The network is linearised at the mode, `f(x, w) = f(x, mode) + J(x) (w - mode)`: the model of which the Gauss-Newton
matrix is the exact curvature. Its outputs are Gaussian with moments in closed form. Immer et al. 2021.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.curvature.jacobian import factored
from posteria.curvature.precision import Precision
from posteria.data.arrays import Data, num_rows, rows
from posteria.errors import SettingError
from posteria.models.target import Target
from posteria.posteriors.base import PREDICT_KEY, check_num_draws
from posteria.posteriors.gaussian import GaussianPosterior, Spread
from posteria.posteriors.predictive import Predictive
from posteria.tree import Arrays, Json

MOST_OUTPUTS = 100  # whose covariance is taken apart at each input; beyond, whole functions are drawn
BLOCK_ELEMENTS = 2**23  # of the Jacobian's factors held at once, or of the Jacobian where it is formed


@partial(
    jax.tree_util.register_dataclass, data_fields=["precision", "own", "order", "temperature"], meta_fields=["size"]
)
@dataclass(frozen=True, eq=False)
class LaplaceSpread(Spread):
    """T times the inverse precision at `order`, the likelihood's own parameters beside it; all else stands still."""

    precision: Precision
    own: (
        jax.Array
    )  # (k, k), lower triangular: own own^T is the covariance of the likelihood's k parameters, which come first
    order: jax.Array  # places of the precision's coordinates
    temperature: jax.Array
    size: int

    kind = "laplace"

    def noise(self, key: jax.Array) -> jax.Array:
        key_weights, key_own = jax.random.split(key)
        own = self.own @ jax.random.normal(key_own, self.own.shape[1:], self.own.dtype)
        flat = jnp.zeros(self.size, self.own.dtype).at[self.order].set(self.precision.noise(key_weights))
        return jnp.sqrt(self.temperature) * flat.at[: len(own)].set(own)

    @property
    def variances(self) -> jax.Array:
        flat = jnp.zeros(self.size, self.own.dtype).at[self.order].set(self.precision.variances)
        return self.temperature * flat.at[: len(self.own)].set((self.own**2).sum(1))

    def covariance(self) -> jax.Array:
        dense = jnp.zeros((self.size, self.size), self.own.dtype)
        dense = dense.at[jnp.ix_(self.order, self.order)].set(self.precision.covariance())
        return self.temperature * dense.at[: len(self.own), : len(self.own)].set(self.own @ self.own.T)


class LaplacePosterior(GaussianPosterior):
    """N(mode, T (curvature + prior precision)^-1), and predictions from it.

    `predictive` is "linearised" (outputs are Gaussian, with moments in closed form), "sampled" (draws of the weights
    through the network itself) or "probit" (for classes: the linearised outputs shrunk by their variance, MacKay 1992).
    """

    kind = "laplace"
    spread: LaplaceSpread

    def __init__(
        self,
        target: Target,
        mean: Any,
        precision: Precision,
        own: tree.Params,
        *,
        paths: tuple[str, ...],
        predictive: str = "linearised",
        log_joint: float = math.nan,
        facts: Json | None = None,
    ) -> None:
        self.paths = tuple(paths)
        self.network = factored(target.without_data(), self.paths)
        mean = jnp.asarray(mean)
        self.precision = precision
        temperature = jnp.asarray(target.temperature, mean.dtype)
        own = jnp.asarray(own, mean.dtype)
        spread = LaplaceSpread(precision, own, tree.on_device(self.network.order), temperature, len(mean))
        super().__init__(target, mean, spread, facts)
        self.predictive = predictive
        self.log_joint = log_joint  # log p(data, mode), of the parameters that are not held still

    @property
    def num_draws(self) -> int:
        return 1 if self.predictive == "probit" else super().num_draws

    def log_evidence(self) -> float:
        """log p(data) by Laplace's method: log p(data, mode) + D/2 log 2 pi - log det(precision) / 2.

        D counts the weights of the subset and the likelihood's own parameters. MacKay 1992.
        """
        if self.target.temperature != 1.0:
            raise SettingError(
                f"the temperature is {self.target.temperature}",
                "1: a tempered posterior has no evidence (its integral grows without bound as T falls)",
                "fit at temperature 1, and choose T by held-out data",
            )
        own_std = np.diag(np.asarray(self.spread.own, np.float64))
        own_std = own_std[own_std > 0]  # the others are held still
        log_det = self.precision.log_det() - 2 * np.log(own_std).sum()
        return float(self.log_joint + 0.5 * (self.network.size + len(own_std)) * math.log(2 * math.pi) - 0.5 * log_det)

    def function_moments(self, x: Data) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n, output) and covariance (n, output, output) of the linearised network's outputs."""
        return self._moments(self.check_x(x))

    def draws(self, key: jax.Array, x: Data, num_draws: int) -> tuple[jax.Array, tree.Params]:
        """Whole functions: the linearised network, or the network itself, at draws of the weights."""
        if self.predictive == "sampled":
            return super().draws(key, x, num_draws)
        if self.predictive == "probit":
            return self._shrunk(x)
        keys = jax.random.split(key, num_draws)
        return _linearised(self.target)(self.mean, self.spread, keys, x)

    def predict(self, x: Data, num_draws: int | None = None) -> Predictive:
        """The Bayesian model average at x; from the closed-form moments where outputs are Gaussian, and not many."""
        x = self.check_x(x)
        num_outputs = (
            self.target.num_outputs or self._moments(rows(x, np.arange(1)), with_covariance=False)[0].shape[-1]
        )
        if self.predictive != "linearised" or num_outputs > MOST_OUTPUTS:
            return super().predict(x, num_draws)
        num_draws = self.num_draws if num_draws is None else check_num_draws(num_draws)
        spread = self.spread
        points = jnp.asarray(spread_points(num_draws, num_outputs + len(spread.own)), self.mean.dtype)

        def forward(x: Data) -> tuple[jax.Array, tree.Params]:
            return _from_points(self.target)(self.mean, spread, points, *self._moments(x))

        return Predictive(self.model.likelihood, forward, x, num_draws, num_outputs)

    def _moments(self, x: Data, with_covariance: bool = True) -> tuple[Any, Any]:
        """Mean, and the covariance of the outputs or their variances alone (n, output)."""
        compiled = _compiled_moments(self.target, self.paths, with_covariance)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(x)):  # being exported: no blocks of it
            return compiled(self.mean, self.spread, x)
        n = num_rows(x)
        num_outputs = self.target.num_outputs or 1
        held = sum(
            w.positions * (w.rows + num_outputs * w.columns)
            + num_outputs * w.size * (w.positions > 1 or self.precision.structure == "full")
            for w in self.network.weights
        )
        held += num_outputs**2 * with_covariance
        size = int(np.clip(BLOCK_ELEMENTS // held, 1, 1 << (n - 1).bit_length()))
        parts = []
        for first in range(0, n, size):
            block = rows(x, np.minimum(np.arange(first, first + size), n - 1))  # the last one repeats its last row
            moments = compiled(self.mean, self.spread, block)
            parts.append([np.asarray(part)[: n - first] for part in moments])
        mean, covariance = (np.concatenate(part) for part in zip(*parts))
        return mean, covariance

    def _shrunk(self, x: Data) -> tuple[jax.Array, tree.Params]:
        mean, variances = self._moments(x, with_covariance=False)
        own = _own_params(self.target, self.mean[None, : len(self.spread.own)])
        return (mean / jnp.sqrt(1 + math.pi / 8 * variances))[None], own

    def state(self) -> tuple[Json, Arrays]:
        settings = {
            "structure": self.precision.structure,
            "paths": list(self.paths),
            "predictive": self.predictive,
            "log_joint": None if math.isnan(self.log_joint) else self.log_joint,
        }
        arrays = {f"precision.{name}": array for name, array in self.precision.arrays().items()}
        return settings, {"mean": np.asarray(self.mean), "own": np.asarray(self.spread.own)} | arrays

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "LaplacePosterior":
        from posteria.curvature import measure  # noqa: F401  (so that every structure is known)

        own = {
            name.removeprefix("precision."): array for name, array in arrays.items() if name.startswith("precision.")
        }
        precision = Precision.structures[settings["structure"]].from_arrays(own)
        return cls(
            target,
            arrays["mean"],
            precision,
            arrays["own"],
            paths=tuple(settings["paths"]),
            predictive=settings["predictive"],
            log_joint=math.nan if settings["log_joint"] is None else settings["log_joint"],
            facts=facts,
        )


@kept
def spread_points(num: int, size: int) -> np.ndarray:
    """`num` points that stand for a standard normal of `size` dimensions, (num, size): each coordinate has the
    normal's quantiles in an order of its own; mean 0 and, where there are points enough, covariance 1 are exact."""
    from scipy.special import ndtri

    quantiles = ndtri((np.arange(num) + 0.5) / num)
    rng = np.random.default_rng(PREDICT_KEY)
    points = np.stack([rng.permutation(quantiles) for _ in range(size)], axis=1) if size else np.zeros((num, 0))
    if num == 1:
        return np.zeros((1, size))
    if num <= 2 * size:
        return points / max(quantiles.std(), 1e-12)
    points -= points.mean(0)
    values, vectors = np.linalg.eigh(points.T @ points / num)
    return points @ (vectors / np.sqrt(values)) @ vectors.T


def covariance_root(covariance: jax.Array) -> jax.Array:
    """root root^T = covariance, (..., n, n), which is positive up to rounding: a Cholesky factor may not exist."""
    values, vectors = jnp.linalg.eigh(covariance)
    return vectors * jnp.sqrt(values.clip(0))[..., None, :]


@kept
def _compiled_moments(target: Target, paths: tuple[str, ...], with_covariance: bool) -> Any:
    network, unravel = factored(target, paths), tree.unraveller(target.structs)

    @jax.jit
    def moments(mean: jax.Array, spread: LaplaceSpread, x: Data) -> tuple[jax.Array, jax.Array]:
        params = unravel(mean)["network"]
        outputs = target.model.outputs(params, x)
        unit = jnp.eye(outputs.shape[-1], dtype=outputs.dtype)
        jacobian = network.jacobian(params, x, jnp.broadcast_to(unit, (outputs.shape[0], *unit.shape)))
        precision = spread.precision
        moment = precision.output_covariance if with_covariance else precision.output_variances
        return outputs, spread.temperature * moment(network.weights, jacobian)

    return moments


@kept
def _from_points(target: Target) -> Any:
    @jax.jit
    def outputs(
        mean: jax.Array, spread: LaplaceSpread, points: jax.Array, centre: jax.Array, covariance: jax.Array
    ) -> tuple[jax.Array, tree.Params]:
        root, k = covariance_root(covariance), len(spread.own)
        own = mean[:k] + jnp.sqrt(spread.temperature) * points[:, :k] @ spread.own.T
        return centre + jnp.einsum("noj,dj->dno", root, points[:, k:]), _own_params(target, own)

    return outputs


def _own_params(target: Target, flat: jax.Array) -> tree.Params:
    """The likelihood's parameters from (draw, k) numbers."""
    structs = target.structs["likelihood"]
    return tree.unraveller(structs)(flat) if flat.shape[-1] else structs


@kept
def _linearised(target: Target) -> Any:
    unravel = tree.unraveller(target.structs)

    def one(mean: jax.Array, spread: LaplaceSpread, key: jax.Array, x: Data) -> tuple[jax.Array, tree.Params]:
        noise = spread.noise(key)
        outputs, change = jax.jvp(
            lambda flat: target.model.outputs(unravel(flat)["network"], x), (mean,), (noise.astype(mean.dtype),)
        )
        return outputs + change, unravel(mean + noise)["likelihood"]

    return jax.jit(lambda mean, spread, keys, x: jax.lax.map(lambda key: one(mean, spread, key, x), keys))
