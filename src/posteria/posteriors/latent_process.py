"""Draws of a Gaussian process's latent function at the rows it was fitted to, and what they say elsewhere."""

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from posteria import tree
from posteria.data.arrays import Data, num_rows
from posteria.models.limit import LimitKernel
from posteria.models.target import Target
from posteria.posteriors.diagnosis import Diagnosis, diagnose
from posteria.posteriors.process import HeldRows, cholesky, inputs_from, inputs_to
from posteria.tree import Arrays, Json


class LatentProcessPosterior(HeldRows):
    """f(x) | f(X) = k(x, X) K^-1 f(X) and what is left of the prior, for each draw of f(X) = L u."""

    kind = "latent-process"

    def __init__(
        self,
        target: Target,
        kernel: LimitKernel,
        x: Data,
        white: np.ndarray,
        info: Arrays,
        *,
        factor: np.ndarray | None = None,
        facts: Json | None = None,
    ) -> None:
        super().__init__(target, facts)
        self.kernel, self.x, self.white, self.info = kernel, x, white, info  # white: (chain, draw, n, output)
        if factor is not None:
            self.factor = factor

    @property
    def num_draws(self) -> int:
        return int(np.prod(self.white.shape[:2]))

    @cached_property
    def factor(self) -> np.ndarray:
        """Lower triangular, of the kernel of the rows."""
        return cholesky(self.kernel.cross(self.x, self.x))[0]

    def draws(self, key: jax.Array, x: Data, num_draws: int) -> tuple[jax.Array, tree.Params]:
        """Latent functions at x, drawn together over its rows."""
        means, gain = self._means(x)
        temperature = self.target.temperature
        prior = temperature * self.kernel.cross(x, x)
        rest, _ = cholesky(prior - temperature * gain.T @ gain, of=prior)  # at the rows of the fit nothing is left
        key_order, key_rest = jax.random.split(key)
        total = len(means)
        order = np.arange(num_draws) % total
        if num_draws < total:
            order = np.linspace(0, total - 1, num_draws).round().astype(int)
        elif num_draws % total:
            order = np.asarray(jax.random.permutation(key_order, order))
        normals = np.asarray(jax.random.normal(key_rest, (num_draws, *means.shape[1:])), np.float64)
        outputs = means[order] + np.einsum("nm,dmo->dno", rest, normals)
        return jnp.asarray(outputs, jnp.float32), self.target.structs["likelihood"]

    def diagnose(self, x: Data = None) -> Diagnosis:
        """Convergence of the latent function at x, or at the rows of the fit."""
        x = self.x if x is None else self.check_x(x)
        means, _ = self._means(x)
        values = means.reshape(*self.white.shape[:2], num_rows(x), -1)
        return diagnose(values, self.info, "functions", self.facts.get("notes", []), self.facts.get("cut", []))

    def _means(self, x: Data) -> tuple[np.ndarray, np.ndarray]:
        """Of each draw (draw, n, output), and L^-1 k(X, x)."""
        gain: Any = scipy.linalg.solve_triangular(self.factor, self.kernel.cross(self.x, x), lower=True)
        white = self.white.reshape(-1, *self.white.shape[2:]).astype(np.float64)
        return np.sqrt(self.target.temperature) * np.einsum("mn,dmo->dno", gain, white, optimize=True), gain

    def state(self) -> tuple[Json, Arrays]:
        info = {f"info.{name}": value for name, value in self.info.items()}
        return {"kernel_draws": self.kernel.num_draws, "info": list(self.info)}, {"white": self.white} | inputs_to(
            self.x
        ) | info

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "LatentProcessPosterior":
        return cls(
            target,
            LimitKernel(target.without_data(), settings["kernel_draws"]),
            inputs_from(target, arrays),
            arrays["white"],
            {name: arrays[f"info.{name}"] for name in settings["info"]},
            facts=facts,
        )
