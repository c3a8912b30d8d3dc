"""A posterior as the prior of what comes next."""

from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from posteria import tree
from posteria.errors import SettingError
from posteria.models import densities
from posteria.models.factorised import Own
from posteria.models.leaf import Leaf

MAX_DENSE = 5000  # parameters of a correlated posterior that serves as a prior: its precision is held


class FromPosterior:
    """A fitted Gaussian posterior as the prior for further data: of the network and of the likelihood's parameters.

    The density is of all parameters at once, correlations included; `log_prob` of one leaf is its marginal. Scales that
    the first prior inferred go on being inferred. Compared by identity; a posterior that was fitted with it is loaded
    with `prior=`.
    """

    is_proper: ClassVar[bool] = True

    def __init__(self, posterior: Any) -> None:
        if getattr(posterior, "kind", None) not in ("gaussian", "relative gaussian"):
            raise SettingError(
                f"{type(posterior).__name__} as a prior",
                "a Gaussian posterior, as of MeanField or VariationalOnlineNewton",
                "fit one of those to the first data",
            )
        structs, spread = posterior.target.structs, posterior.spread
        self._scales_of: Any = posterior.target.model.prior if posterior.target.scales else None
        self.meets_inputs = getattr(self._scales_of, "meets_inputs", False)
        self._mean = np.asarray(posterior.mean)
        self._std = np.sqrt(np.asarray(spread.variances))
        if not (self._std > 0).all():
            raise SettingError(
                f"a posterior in which {int((self._std == 0).sum())} parameters are points, as a prior",
                "a Gaussian with a spread in every direction",
                "fit MeanField or VariationalOnlineNewton to the first data",
            )
        unravel = tree.unraveller(jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.float32), structs))
        means, stds = (jax.tree.leaves(unravel(jnp.asarray(flat))) for flat in (self._mean, self._std))
        marginals = ((np.asarray(mean), np.asarray(std)) for mean, std in zip(means, stds))
        self._marginals = dict(zip(tree.paths(structs), marginals))
        self.is_factorised = spread.kind == "diagonal"
        if not self.is_factorised:
            if len(self._mean) > MAX_DENSE:
                raise SettingError(
                    f"a correlated posterior of {len(self._mean)} parameters as a prior",
                    f"at most {MAX_DENSE}",
                    "fit the diagonal family",
                )
            precision = np.linalg.inv(np.asarray(spread.covariance(), np.float64))
            self._whitener = np.linalg.cholesky(precision).T.astype(np.float32)  # |whitener @ r|^2 = r^T precision r

    def check(self, leaves: Sequence[Leaf]) -> None:
        for leaf in leaves:
            if self._of(leaf)[0].shape != leaf.shape:
                raise SettingError(
                    f"{leaf.path} is {leaf.shape}", f"{self._of(leaf)[0].shape}, as in the posterior", "use its network"
                )

    def joint_log_prob(self, params: Any) -> jax.Array:
        """Of all parameters, weights relative to their scales where these are inferred: ()."""
        residual = tree.ravel(params) - self._mean
        if self.is_factorised:
            return densities.normal(residual / self._std, jnp.log(self._std)).sum()
        white = jnp.asarray(self._whitener) @ residual
        return densities.normal(white, -jnp.log(jnp.diag(self._whitener))).sum()

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        mean, std = self._of(leaf)
        return densities.normal((densities.widen(value) - mean) / std, jnp.log(std)).sum()

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        mean, std = self._of(leaf)
        return (mean + std * jax.random.normal(key, leaf.shape)).astype(leaf.dtype)

    def unit(self, leaf: Leaf) -> float:
        return float(np.sqrt(np.mean(self._of(leaf)[1] ** 2)))

    def normal(self, leaf: Leaf) -> tuple[ArrayLike, ArrayLike] | None:
        return self._of(leaf) if self.is_factorised else None

    def own_normal(self, path: str) -> tuple[ArrayLike, ArrayLike]:
        """Likewise, of a parameter of the likelihood's own, or of the first prior's: "likelihood/log_precision"."""
        return self._marginals[path]

    # ---- scales that the first prior infers

    def init(self, leaf: Leaf) -> Own:
        if self._scales_of is None:
            return {}
        return {name: self.own_normal(_own_path(leaf, name))[0] for name in self._scales_of.init(leaf)}

    def log_prior(self, own: Own, leaf: Leaf) -> jax.Array:
        terms = ((value, *self.own_normal(_own_path(leaf, name))) for name, value in own.items())
        return sum((densities.normal((v - m) / s, jnp.log(s)).sum() for v, m, s in terms), start=jnp.zeros(()))

    def sample_own(self, key: jax.Array, leaf: Leaf) -> Own:
        normals = {name: self.own_normal(_own_path(leaf, name)) for name in self.init(leaf)}
        keys = jax.random.split(key, max(1, len(normals)))
        return {name: m + s * jax.random.normal(k, np.shape(m)) for k, (name, (m, s)) in zip(keys, normals.items())}

    def log_scale(self, own: Own, leaf: Leaf) -> jax.Array:
        return self._scales_of.log_scale(own, leaf)

    def _of(self, leaf: Leaf) -> tuple[np.ndarray, np.ndarray]:
        path = f"network/{leaf.path}" if leaf.path else "network"
        if path not in self._marginals:
            raise SettingError(
                f"the network has a leaf {leaf.path}", f"one of {list(self._marginals)}", "use the posterior's network"
            )
        return self._marginals[path]


def _own_path(leaf: Leaf, name: str) -> str:
    return f"prior/{leaf.path}/{name}"
