"""How large errors are, where their mean is known to be 0: the likelihood of networks of widths."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from posteria.data import arrays
from posteria.models import densities
from posteria.settings import Positive, check_settings
from posteria.tree import Params


@dataclass(frozen=True)
class ErrorSize:
    """y ~ exp(outputs) t(df): one logarithm of a scale for each target."""

    df: Positive = 5.0
    kind: ClassVar[Literal["regression", "counts", "classes"]] = "regression"

    def __post_init__(self) -> None:
        check_settings(self)

    def init(self, key: jax.Array) -> Params:
        return {}

    def log_prior(self, own: Params) -> jax.Array:
        return jnp.zeros(())

    def check(self, y: npt.ArrayLike, num_outputs: int) -> np.ndarray:
        return arrays.real_targets(y, num_outputs)

    def log_prob(self, own: Params, outputs: jax.Array, y: jax.Array) -> jax.Array:
        arrays.same_shape(y, outputs.shape)
        outputs, y = densities.widen(outputs), densities.widen(y)
        return densities.student_t(y * jnp.exp(-outputs), outputs, self.df).sum(-1)

    def sample(self, key: jax.Array, own: Params, outputs: jax.Array) -> jax.Array:
        return jnp.exp(outputs) * jax.random.t(key, self.df, outputs.shape, outputs.dtype)

    def moments(self, own: Params, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        unit = self.df / (self.df - 2) if self.df > 2 else jnp.inf
        return jnp.zeros_like(outputs), unit * jnp.exp(2 * outputs)
