"""Gaussian processes on a model's outputs, summed up by some of the rows they were fitted to: the inducing ones, Z.

    mean(x) = k(x, Z) alpha,    covariance(x, x') = k(x, x') - k(x, Z) B k(Z, x')

B = K_ZZ^-1 - (K_ZZ + K_ZX K_XZ / noise^2)^-1. With all rows inducing it is the exact process. Titsias 2009.
"""

import numpy as np

from posteria.data.arrays import Data
from posteria.errors import CapabilityError
from posteria.models.limit import LimitKernel
from posteria.models.target import Target
from posteria.posteriors.process import Noise, ProcessPosterior, inputs_from, inputs_to
from posteria.tree import Arrays, Json


class SparseProcessPosterior(ProcessPosterior):
    """`root` is R with R^T R = B; `alpha` is (inducing, output)."""

    kind = "sparse-process"

    def __init__(
        self,
        target: Target,
        kernel: LimitKernel,
        inducing: Data,
        alpha: np.ndarray,
        gain_root: np.ndarray,
        noise: Noise,
        *,
        is_labels: bool = False,
        facts: Json | None = None,
    ) -> None:
        super().__init__(target, kernel, inducing, alpha, noise, is_labels=is_labels, facts=facts)
        self.facts["holds"] = f"{len(alpha):,} of the rows it was fitted to"
        self.alpha, self.gain_root = np.asarray(alpha, np.float64), np.asarray(gain_root, np.float64)

    def log_evidence(self) -> float:
        raise CapabilityError(
            "a process by inducing points, of which only a lower bound of the evidence is known",
            'facts["elbo"], that bound',
            "take fewer rows, or more inducing points, for a tighter one",
        )

    def _solved(self, x: Data) -> tuple[np.ndarray, np.ndarray]:
        cross = self.kernel.cross(self.x, x)  # (inducing, n)
        return cross.T @ self.alpha, self.gain_root @ cross

    def state(self) -> tuple[Json, Arrays]:
        settings = {
            "kernel_draws": self.kernel.num_draws,
            "noise": self.noise.std,
            "noise_log_std": self.noise.log_std,
            "is_labels": self.is_labels,
        }
        return settings, {"alpha": self.alpha, "root": self.gain_root} | inputs_to(self.x)

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "SparseProcessPosterior":
        return cls(
            target,
            LimitKernel(target.without_data(), settings["kernel_draws"]),
            inputs_from(target, arrays),
            arrays["alpha"],
            arrays["root"],
            Noise(settings["noise"], settings["noise_log_std"]),
            is_labels=settings["is_labels"],
            facts=facts,
        )
