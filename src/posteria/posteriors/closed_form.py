"""Gaussians over the weights whose functions have a mean and a variance in closed form."""

from typing import Any

import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.errors import SettingError
from posteria.models.target import Target
from posteria.posteriors.base import check_num_draws
from posteria.posteriors.gaussian import Full, GaussianPosterior, Spread
from posteria.posteriors.linearised import covariance_root, spread_points
from posteria.posteriors.predictive import Predictive
from posteria.trace import moments
from posteria.tree import Arrays, Json


class MomentPosterior(GaussianPosterior):
    """A Gaussian over the weights of a linear model (any spread) or of a ReLU network (independent weights).

    Predictions take the outputs as Gaussians with their closed-form moments: at evenly spread quantiles rather than at
    random draws of the weights, so they have no sampling noise.
    """

    kind = "moments"

    def __init__(
        self,
        target: Target,
        mean: ArrayLike,
        spread: Spread,
        log_evidence: float | None = None,
        facts: Json | None = None,
    ) -> None:
        super().__init__(target, mean, spread, facts)
        self._log_evidence = log_evidence

    def log_evidence(self) -> float:
        """log p(y | x), the data's own normalising constant."""
        if self.model.temperature != 1.0:
            raise SettingError(
                f"the evidence at temperature {self.model.temperature}", "temperature 1", "fit the model at 1"
            )
        if self._log_evidence is None:
            raise SettingError(
                "expectation propagation has no evidence here: it takes several passes over a network's data",
                "a model linear in its weights, of known noise",
                'po.log_evidence(model, data, method="laplace")',
            )
        return self._log_evidence

    def function_moments(self, x: Data) -> tuple[jax.Array, jax.Array]:
        """Mean (n, output) and covariance (n, output, output) of the outputs."""
        return self._moments(self.check_x(x))

    def predict(self, x: Data, num_draws: int | None = None) -> Predictive:
        """The Bayesian model average at x."""
        x = self.check_x(x)
        num_draws = self.num_draws if num_draws is None else check_num_draws(num_draws)
        num_outputs = self.target.num_outputs or self._moments(tree.index(x, slice(1)))[0].shape[-1]
        structs = self.target.structs["likelihood"]
        num_own = tree.size(structs)  # they come first in the flat vector
        points = jnp.asarray(spread_points(num_draws, num_own + num_outputs), self.mean.dtype)
        own = self.mean[:num_own] + jnp.sqrt(self.spread.variances[:num_own]) * points[:, :num_own]

        def forward(x: Data) -> tuple[jax.Array, tree.Params]:
            mean, covariance = self._moments(x)
            outputs = mean + jnp.einsum("noj,dj->dno", covariance_root(covariance), points[:, num_own:])
            return outputs, tree.unraveller(structs)(own) if num_own else structs

        return Predictive(self.model.likelihood, forward, x, num_draws, num_outputs)

    def _moments(self, x: Data) -> tuple[jax.Array, jax.Array]:
        return _function_moments(self.target, isinstance(self.spread, Full))(self.mean, self.spread, x)

    def state(self) -> tuple[Json, Arrays]:
        settings, arrays = super().state()
        return settings | {"log_evidence": self._log_evidence}, arrays

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "MomentPosterior":
        plain = GaussianPosterior.from_state(target, settings, arrays, facts)
        return cls(target, plain.mean, plain.spread, settings["log_evidence"], facts)


@kept
def _function_moments(target: Target, is_linear: bool) -> Any:
    unravel = tree.unraveller(target.structs)

    def by_walk(mean: jax.Array, spread: Spread, x: Data) -> tuple[jax.Array, tree.Params]:
        params, variances = (unravel(flat)["network"] for flat in (mean, spread.variances))
        outputs, variance = moments.moments(target.model.network.apply)(params, variances, x)
        return outputs, variance[..., None] * jnp.eye(variance.shape[-1])

    def by_jacobian(mean: jax.Array, spread: Any, x: Data) -> tuple[jax.Array, tree.Params]:
        def outputs(flat: jax.Array) -> jax.Array:
            return target.model.outputs(unravel(flat)["network"], x)

        # of a linear model, the spread's columns pass through as tangents: (size, batch, output)
        columns = jax.lax.map(lambda tangent: jax.jvp(outputs, (mean,), (tangent,))[1], jnp.asarray(spread.factor).T)
        return outputs(mean), jnp.einsum("sno,snp->nop", columns, columns)

    return jax.jit(by_jacobian if is_linear else by_walk)
