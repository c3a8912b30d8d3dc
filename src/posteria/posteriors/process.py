"""Gaussian processes on a model's outputs, exactly: mean and covariance in closed form, in float64 on the host.

    mean(x) = k(x, X) (K + noise^2)^-1 y,    covariance(x, x') = k(x, x') - k(x, X) (K + noise^2)^-1 k(X, x')

Rasmussen & Williams 2006, chapter 2. The posterior holds the rows it was fitted to, and says so: its prediction is a
function of them. Or summed up by some of these rows, the inducing ones, Z:

    mean(x) = k(x, Z) alpha,    covariance(x, x') = k(x, x') - k(x, Z) B k(Z, x')

B = K_ZZ^-1 - (K_ZZ + K_ZX K_XZ / noise^2)^-1. With all rows inducing it is the exact process. Titsias 2009.
"""

import math
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.scipy.special import log_ndtr, logsumexp

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data, num_rows
from posteria.errors import CapabilityError, TooLargeError
from posteria.models.limit import LimitKernel
from posteria.models.target import Target
from posteria.posteriors.base import Posterior, check_num_draws
from posteria.posteriors.linearised import spread_points
from posteria.posteriors.predictive import Predictive
from posteria.tree import Arrays, Json

MOST_JOINT = 4000  # rows whose functions are drawn together
SMOOTHED = 0.25
NODES = 24  # of the integral over the noise of the largest of several
LEAST_JITTER = 1e-12  # of the mean variance, tried first where rounding makes a matrix indefinite


class Noise(NamedTuple):
    """Of the targets; `log_std` is the standard deviation of its inferred log precision, None where it is given."""

    std: float
    log_std: float | None = None


class HeldRows(Posterior):
    """A process that predicts from rows that it holds, and says so."""

    holds_training_data: ClassVar[bool] = True

    def __init__(self, target: Target, facts: Json | None) -> None:
        super().__init__(target, (facts or {}) | {"holds": "the rows it was fitted to"})

    def export(self, path: str | Path, num_draws: int | None = None, if_exists: str = "error") -> int:
        raise CapabilityError(
            "a Gaussian process, which predicts in float64 from rows that it holds",
            "a posterior that is a function of weights",
            "save it (posterior.save), or export a Laplace or MeanField fit of the network",
        )


class ProcessPosterior(HeldRows):
    """N(mean(x), covariance(x, x')) of every output, given rows X, y and their noise.

    A weight w of a row divides its noise's variance: its likelihood to the power w. `is_labels`: y are centred labels
    of classes. A class is then as probable as it is that its output, with its noise, is the largest. `SMOOTHED` of
    the outputs' variance is integrated out with the noise, so that few draws do not make zeros of small probabilities.
    """

    kind = "process"

    def __init__(
        self,
        target: Target,
        kernel: LimitKernel,
        x: Data,
        y: np.ndarray,
        noise: Noise,
        *,
        weight: np.ndarray | None = None,
        is_labels: bool = False,
        log_evidence: float | None = None,
        facts: Json | None = None,
    ) -> None:
        super().__init__(target, facts)
        self.kernel, self.x, self.y, self.noise = kernel, x, np.asarray(y, np.float64), noise
        self.is_labels, self._log_evidence = is_labels, log_evidence
        self.root = np.ones(len(self.y)) if weight is None else np.sqrt(np.asarray(weight, np.float64))

    def log_evidence(self) -> float:
        """log p(y | x), with the noise integrated out where it is inferred."""
        if self.is_labels:
            raise CapabilityError(
                "a regression on labels: its evidence is of numbers, not of classes",
                "a likelihood of numbers",
                'po.log_evidence(model, data, method="smc") of the network itself',
            )
        if self.target.temperature != 1.0 or self._log_evidence is None:
            raise CapabilityError(
                f"the evidence at temperature {self.target.temperature}",
                "temperature 1, and data",
                "fit the model at 1",
            )
        return self._log_evidence

    def function_moments(self, x: Data) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n, output) and covariance (n, output, output) of the outputs, which are independent."""
        mean, variance = self.moments(self.check_x(x))
        return mean, variance[:, None, None] * np.eye(mean.shape[-1])

    def moments(self, x: Data) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n, output), and the variance (n,) that all outputs share; float64."""
        prior = self.kernel.diagonal(x)
        if not len(self.y):
            return np.zeros((num_rows(x), self.y.shape[1])), self.target.temperature * prior
        mean, gain = self._solved(x)
        return mean, self.target.temperature * np.maximum(prior - (gain**2).sum(0), 0.0)

    def joint(self, x: Data) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n, output), and the covariance (n, n) of the rows of any one output."""
        prior = self.kernel.cross(x, x)
        if not len(self.y):
            return np.zeros((num_rows(x), self.y.shape[1])), self.target.temperature * prior
        mean, gain = self._solved(x)
        return mean, self.target.temperature * (prior - gain.T @ gain)

    def draws(self, key: jax.Array, x: Data, num_draws: int) -> tuple[jax.Array, tree.Params]:
        """Whole functions, over all rows of x at once."""
        n = num_rows(x)
        if n > MOST_JOINT:
            raise TooLargeError(
                f"functions of a Gaussian process at {n:,} rows",
                f"at most {MOST_JOINT:,} rows at once",
                "ask for parts",
            )
        mean, covariance = self.joint(x)
        factor, _ = cholesky(covariance)
        key_functions, key_own = jax.random.split(key)
        normals = np.asarray(jax.random.normal(key_functions, (num_draws, n, mean.shape[-1])), np.float64)
        deviations = np.einsum("nm,dmo->dno", factor, normals)
        points = np.asarray(jax.random.normal(key_own, (num_draws, self._num_own)))
        return self._as_outputs(mean, deviations, np.diag(covariance)), self._own(points)

    def predict(self, x: Data, num_draws: int | None = None) -> Predictive:
        """The Bayesian model average at x, from the closed-form moments."""
        x = self.check_x(x)
        num_draws = self.num_draws if num_draws is None else check_num_draws(num_draws)
        num_outputs = self.y.shape[1]
        points = spread_points(num_draws, num_outputs + self._num_own)
        own = self._own(points[:, num_outputs:])

        def forward(x: Data) -> tuple[jax.Array, tree.Params]:
            mean, variance = self.moments(x)
            deviations = np.sqrt(variance)[:, None] * points[:, None, :num_outputs]
            return self._as_outputs(mean, deviations, variance), own

        return Predictive(self.model.likelihood, forward, x, num_draws, num_outputs)

    # ---- in parts

    @cached_property
    def factor(self) -> np.ndarray:
        """Lower triangular, of K + noise^2, rows and columns times the roots of their weights."""
        matrix = np.outer(self.root, self.root) * self.kernel.cross(self.x, self.x)
        return cholesky(_with_noise(matrix, self.noise.std**2))[0]

    @cached_property
    def _white(self) -> np.ndarray:
        return np.asarray(scipy.linalg.solve_triangular(self.factor, self.root[:, None] * self.y, lower=True))

    def _solved(self, x: Data) -> tuple[np.ndarray, np.ndarray]:
        gain = scipy.linalg.solve_triangular(
            self.factor, self.root[:, None] * self.kernel.cross(self.x, x), lower=True, overwrite_b=True
        )
        return gain.T @ self._white, gain

    @property
    def _num_own(self) -> int:
        return tree.size(self.target.structs["likelihood"])

    def _own(self, points: np.ndarray) -> tree.Params:
        """The likelihood's log precision at standard normal points (draw, 1), where it is inferred."""
        structs = self.target.structs["likelihood"]
        if not self._num_own:
            return structs
        flat = -2 * math.log(self.noise.std) + (self.noise.log_std or 0.0) * points
        return tree.unraveller(structs)(jnp.asarray(flat, jnp.float32))

    def _as_outputs(self, mean: np.ndarray, deviations: np.ndarray, variance: np.ndarray) -> jax.Array:
        """Mean (n, output) and deviations from it (draw, n, output), as the likelihood wants its outputs."""
        if not self.is_labels:
            return jnp.asarray(mean + deviations, jnp.float32)
        std = np.sqrt(self.noise.std**2 + SMOOTHED * variance)[:, None]
        units = (mean + math.sqrt(1 - SMOOTHED) * deviations) / std
        log_probs: jax.Array = _log_probs_of_largest()(jnp.asarray(units, jnp.float32))
        return log_probs

    def state(self) -> tuple[Json, Arrays]:
        settings = self._settings() | {"log_evidence": self._log_evidence}
        return settings, {"y": self.y, "weight": self.root**2} | inputs_to(self.x)

    def _settings(self) -> Json:
        return {
            "kernel_draws": self.kernel.num_draws,
            "noise": self.noise.std,
            "noise_log_std": self.noise.log_std,
            "is_labels": self.is_labels,
        }

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "ProcessPosterior":
        return cls(
            target,
            LimitKernel(target.without_data(), settings["kernel_draws"]),
            inputs_from(target, arrays),
            arrays["y"],
            Noise(settings["noise"], settings["noise_log_std"]),
            weight=arrays["weight"],
            is_labels=settings["is_labels"],
            log_evidence=settings["log_evidence"],
            facts=facts,
        )


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
        return self._settings(), {"alpha": self.alpha, "root": self.gain_root} | inputs_to(self.x)

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


def inputs_to(x: Data) -> Arrays:
    """Rows as arrays of a store."""
    return {f"x.{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(x))}


def inputs_from(target: Target, arrays: Arrays) -> Data:
    structure = jax.tree.structure(target.blank_input)
    return structure.unflatten(arrays[f"x.{i}"] for i in range(structure.num_leaves))


def cholesky(matrix: np.ndarray, of: np.ndarray | None = None) -> tuple[np.ndarray, float]:
    """The lower factor, of the matrix with as little added to its diagonal as makes it positive; and how much.

    `of`: the matrix from which a difference was taken, whose rounding it has, though it may itself be next to 0.
    """
    scale = float(np.mean(np.diag(matrix if of is None else of))) or 1.0
    jitter = 0.0
    while True:
        try:
            return scipy.linalg.cholesky(_with_noise(matrix, jitter), lower=True, overwrite_a=True), jitter
        except scipy.linalg.LinAlgError:
            jitter = 10 * jitter if jitter else LEAST_JITTER * scale
            if jitter > scale:
                raise


def _with_noise(matrix: np.ndarray, variance: float) -> np.ndarray:
    """A copy, in the order of columns, which LAPACK works on in place."""
    noisy = np.array(matrix, order="F")
    noisy[np.diag_indices_from(noisy)] += variance
    return noisy


@kept
def _log_probs_of_largest() -> Any:
    """outputs (draw, n, class) -> log P(a class's output, with a standard normal added to each, is the largest); of one
    output, the log odds that it is above 0."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    log_weights = np.log(weights / weights.sum()).astype(np.float32)

    @jax.jit
    def log_probs(outputs: jax.Array) -> jax.Array:
        if outputs.shape[-1] == 1:
            return log_ndtr(outputs) - log_ndtr(-outputs)
        lead = outputs[..., :, None] - outputs[..., None, :]  # (draw, n, class, other)
        others = 1.0 - jnp.eye(outputs.shape[-1])

        def at(node: jax.Array) -> jax.Array:
            return (others * log_ndtr(lead + node)).sum(-1)

        logs = jax.lax.map(at, jnp.asarray(nodes, jnp.float32))  # (node, draw, n, class)
        return logsumexp(logs + log_weights[:, None, None, None], axis=0)

    return log_probs
