"""A Gaussian process on a network's features, summed up by inducing points Z in the space of features.

    mean(x) = k(x, Z) alpha,    variance(x) = k(x, x) - k(x, Z) B k(Z, x)

With Z the features of all rows, alpha = (K + noise^2)^-1 y and B = (K + noise^2)^-1 it is exact.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.stats

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data, num_rows, rows
from posteria.errors import CapabilityError, TooLargeError
from posteria.functions import matern
from posteria.models.limit import in_float64
from posteria.models.target import Target
from posteria.posteriors.base import check_num_draws
from posteria.posteriors.linearised import spread_points
from posteria.posteriors.predictive import Predictive
from posteria.posteriors.process import MOST_JOINT, HeldRows, cholesky
from posteria.trace.linear import Operation, interpret
from posteria.tree import Arrays, Json

NUM_COMPONENTS = 4  # of a spectral mixture
FEATURE_ROWS = 1024  # at once
PAIRS = 2000  # of rows whose distances are compared
COLLAPSED_DIMENSION, COLLAPSED_CORRELATION = 1.5, 0.3

KernelParams = dict[str, Any]
KernelFn = Callable[[KernelParams, jax.Array, jax.Array], jax.Array]


# ---- features and kernels


@kept
def features(target: Target, largest: float | None) -> Callable[[tree.Params, Data], jax.Array]:
    """What the last linear operation of the network is given, flat, (n, feature): x itself where the model is linear.

    `largest`: matrices are scaled down to this spectral norm at most.
    """
    order: list[tuple[str, int]] = []

    def rule(operation: Operation, extra: None) -> tuple[jax.Array, jax.Array]:
        order.append((operation.path, operation.use))
        return operation.op(operation.x, operation.weight), operation.x

    run = interpret(target.model.network.apply, rule)

    def of(params: tree.Params, x: Data) -> jax.Array:
        if largest is not None:
            params = jax.tree.map(lambda leaf: _no_larger(leaf, largest), params)
        _, records = run(params, x)
        if not order:
            raise CapabilityError(
                "no linear operation was found in the network", "one that ends in a layer of weights", "use another"
            )
        path, use = order[-1]
        found: jax.Array = records[path][use]
        return found.reshape(found.shape[0], -1).astype(jnp.float32)

    return of


def _no_larger(leaf: jax.Array, largest: float) -> jax.Array:
    if leaf.ndim < 2:
        return leaf
    matrix = leaf.reshape(-1, leaf.shape[-1])
    vector = jnp.ones(matrix.shape[1]) / math.sqrt(matrix.shape[1])
    for _ in range(8):  # of the power method
        vector = matrix.T @ (matrix @ vector)
        vector = vector / (jnp.linalg.norm(vector) + 1e-12)
    norm = jnp.linalg.norm(matrix @ jax.lax.stop_gradient(vector))
    return leaf * jnp.minimum(1.0, largest / (norm + 1e-12))


def deep_kernel(name: str) -> KernelFn:
    """(parameters, features (n, d), features (m, d)) -> (n, m)."""
    return {"rbf": _rbf, "matern": _matern, "spectral-mixture": _spectral_mixture}[name]


def typical_distance(sample: np.ndarray) -> float:
    """The median between pairs of rows of features."""
    differences = sample[: len(sample) // 2] - sample[len(sample) // 2 : 2 * (len(sample) // 2)]
    length = float(np.median(np.linalg.norm(differences, axis=1))) if len(sample) > 1 else 0.0
    return length if length > 1e-6 else 1.0


def first_kernel(name: str, num_features: int, length: float, scale: float = 1.0) -> KernelParams:
    """Of that length and amplitude."""
    zero = jnp.zeros(())
    if name != "spectral-mixture":
        return {"log_length": zero + math.log(length), "log_amplitude": zero + math.log(scale)}
    rng = np.random.default_rng(0)
    count = NUM_COMPONENTS
    return {
        "log_weights": jnp.full((count,), 2 * math.log(scale) - math.log(count)),
        "log_scales": jnp.asarray(np.log(np.geomspace(0.3, 3.0, count) / (2 * math.pi * length)), jnp.float32),
        "means": jnp.asarray(rng.normal(size=(count, num_features)) * 0.1 / length, jnp.float32),
    }


def amplitude(params: KernelParams) -> jax.Array:
    """k(x, x)."""
    if "log_weights" in params:
        return jnp.exp(params["log_weights"]).sum()
    return jnp.exp(2 * params["log_amplitude"])


def _squares(a: jax.Array, b: jax.Array) -> jax.Array:
    centre = b.mean(0)  # so that products cancel less
    a, b = a - centre, b - centre
    return jnp.maximum((a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T, 0.0)


def _rbf(params: KernelParams, a: jax.Array, b: jax.Array) -> jax.Array:
    return amplitude(params) * jnp.exp(-0.5 * _squares(a, b) * jnp.exp(-2 * params["log_length"]))


def _matern(params: KernelParams, a: jax.Array, b: jax.Array) -> jax.Array:
    r = math.sqrt(5.0) * jnp.sqrt(_squares(a, b) * jnp.exp(-2 * params["log_length"]) + 1e-10)
    return amplitude(params) * matern(r, "5/2")


def _spectral_mixture(params: KernelParams, a: jax.Array, b: jax.Array) -> jax.Array:
    """sum_q w_q exp(-2 pi^2 s_q^2 |t|^2) cos(2 pi m_q . t), t = a - b. Wilson & Adams 2013."""
    squares = _squares(a, b)
    total = jnp.zeros_like(squares)
    for q in range(NUM_COMPONENTS):
        envelope = jnp.exp(params["log_weights"][q] - 2 * math.pi**2 * jnp.exp(2 * params["log_scales"][q]) * squares)
        phase = 2 * math.pi * (a @ params["means"][q])[:, None] - 2 * math.pi * (b @ params["means"][q])[None]
        total += envelope * jnp.cos(phase)
    return total


class Summary(NamedTuple):
    """What inducing points say, in float64; `inner` is (m, m), or (output, m, m)."""

    alpha: np.ndarray  # (m, output)
    inner: np.ndarray
    log_evidence: float  # or its lower bound


def exact_summary(kff: np.ndarray, y: np.ndarray, noise: float) -> Summary:
    """Of a process with all rows as inducing points."""
    factor, _ = cholesky(kff + noise**2 * np.eye(len(kff)))
    alpha = scipy.linalg.cho_solve((factor, True), y)
    log_det = np.log(np.diag(factor)).sum()
    evidence = -0.5 * (y * alpha).sum() - y.shape[1] * (log_det + 0.5 * len(y) * math.log(2 * math.pi))
    return Summary(alpha, scipy.linalg.cho_solve((factor, True), np.eye(len(y))), float(evidence))


def sparse_summary(kuu: np.ndarray, kuf: np.ndarray, variance: float, y: np.ndarray, noise: float) -> Summary:
    """The best that these inducing points can do, and their bound on the evidence. Titsias 2009."""
    factor, _ = cholesky(kuu)
    white = scipy.linalg.solve_triangular(factor, kuf, lower=True) / noise  # (m, n)
    inner = np.eye(len(kuu)) + white @ white.T
    inner_factor, _ = cholesky(inner)
    target = scipy.linalg.solve_triangular(inner_factor, white @ y, lower=True) / noise
    back = scipy.linalg.solve_triangular(inner_factor, scipy.linalg.inv(factor), lower=True)
    prior = scipy.linalg.cho_solve((factor, True), np.eye(len(kuu)))
    n, columns = y.shape
    bound = -0.5 * columns * (n * math.log(2 * math.pi * noise**2) + 2 * np.log(np.diag(inner_factor)).sum())
    bound += -0.5 * (y**2).sum() / noise**2 + 0.5 * (target**2).sum()
    bound -= 0.5 * columns * (n * variance / noise**2 - (white**2).sum())
    return Summary(back.T @ target, prior - back.T @ back, float(bound))


def collapse(x: np.ndarray, phi: np.ndarray) -> Json:
    """How many dimensions the features fill, and whether they are far apart where inputs are (rank correlation); of one
    row nothing can be said."""
    if len(phi) < 2:
        return {}
    values = np.linalg.eigvalsh(np.atleast_2d(np.cov(phi.T)))
    dimension = float(values.sum() ** 2 / max((values**2).sum(), 1e-30))
    rng = np.random.default_rng(0)
    left, right = rng.integers(0, len(x), (2, PAIRS))
    flat = x.reshape(len(x), -1)
    far = [np.linalg.norm(part[left] - part[right], axis=1) for part in (flat, phi)]
    correlation = float(scipy.stats.spearmanr(*far).statistic) if min(map(np.ptp, far)) > 0 else 0.0
    return {"feature_dimension": dimension, "distance_correlation": correlation}


def collapse_note(found: Json) -> str:
    if not found:
        return "of one row it cannot be told whether features have collapsed"
    is_collapsed = (
        found["feature_dimension"] < COLLAPSED_DIMENSION or found["distance_correlation"] < COLLAPSED_CORRELATION
    )
    if not is_collapsed:
        return ""
    return (
        f"features have collapsed: they fill {found['feature_dimension']:.1f} dimensions, and their distances go with "
        f"those of the inputs by {found['distance_correlation']:.2f} (rank correlation), so that uncertainty far from "
        "the data is not to be trusted: spectral_norm=1.0 holds against it"
    )


# ---- the posterior


class DeepProcessPosterior(HeldRows):
    """The process given the weights, the kernel and the noise that were found; it holds features of rows, all of them
    where it is exact."""

    kind = "deep-process"

    def __init__(
        self,
        target: Target,
        params: tree.Params,
        kernel: str,
        kernel_params: KernelParams,
        inducing: np.ndarray,
        summary: Summary,
        *,
        spectral_norm: float | None = None,
        facts: Json | None = None,
    ) -> None:
        super().__init__(target, facts)
        self.params, self.kernel, self.spectral_norm = params, kernel, spectral_norm
        self.kernel_params = {name: np.asarray(value, np.float64) for name, value in kernel_params.items()}
        self.inducing, self.summary = np.asarray(inducing, np.float64), summary

    def log_evidence(self) -> float:
        """Of the data given the weights and the kernel: exact, or Titsias's lower bound; it overfits as they do."""
        if math.isnan(self.summary.log_evidence):
            raise CapabilityError(
                "a process under a likelihood that is not Gaussian, or without data", "Gaussian noise", "use Laplace"
            )
        return self.summary.log_evidence

    def function_moments(self, x: Data) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n, output) and covariance (n, output, output) of the outputs, which are independent."""
        mean, variance = self.moments(self.check_x(x))
        return mean, variance[..., None] * np.eye(mean.shape[-1])

    def moments(self, x: Data) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance, each (n, output)."""
        cross = self._cross(x)
        inner = np.atleast_3d(self.summary.inner.T).T  # (1 or output, m, m)
        explained = np.stack([((cross @ each) * cross).sum(1) for each in inner], axis=1)
        variance = np.maximum(self._amplitude - explained, 0.0)
        mean = cross @ self.summary.alpha
        return mean, np.broadcast_to(variance, mean.shape)

    def draws(self, key: jax.Array, x: Data, num_draws: int) -> tuple[jax.Array, tree.Params]:
        """Whole functions, over all rows of x at once."""
        n = num_rows(x)
        if n > MOST_JOINT:
            raise TooLargeError(
                f"functions of a Gaussian process at {n:,} rows", f"at most {MOST_JOINT:,} at once", "ask for parts"
            )
        cross, phi = self._cross(x), self._features(x)
        prior = self._kernel(phi, phi)
        mean = cross @ self.summary.alpha
        inner = np.atleast_3d(self.summary.inner.T).T
        factors = np.stack([cholesky(prior - cross @ each @ cross.T, of=prior)[0] for each in inner])
        factors = np.broadcast_to(factors, (mean.shape[1], n, n))
        normals = np.asarray(jax.random.normal(key, (num_draws, n, mean.shape[1])), np.float64)
        outputs = mean + np.einsum("onm,dmo->dno", factors, normals)
        return jnp.asarray(outputs, jnp.float32), self._own(num_draws)

    def predict(self, x: Data, num_draws: int | None = None) -> Predictive:
        """The average over the process at x, from its moments."""
        x = self.check_x(x)
        num_draws = self.num_draws if num_draws is None else check_num_draws(num_draws)
        num_outputs = self.summary.alpha.shape[1]
        points, own = spread_points(num_draws, num_outputs), self._own(num_draws)

        def forward(x: Data) -> tuple[jax.Array, tree.Params]:
            mean, variance = self.moments(x)
            return jnp.asarray(mean + np.sqrt(variance) * points[:, None], jnp.float32), own

        return Predictive(self.model.likelihood, forward, x, num_draws, num_outputs)

    @property
    def _amplitude(self) -> float:
        return float(amplitude({name: jnp.asarray(value) for name, value in self.kernel_params.items()}))

    def _own(self, num_draws: int) -> tree.Params:
        return jax.tree.map(lambda leaf: jnp.repeat(jnp.asarray(leaf)[None], num_draws, 0), self.params["likelihood"])

    def _features(self, x: Data) -> np.ndarray:
        return network_features(self.target, self.params["network"], x, self.spectral_norm)

    def _kernel(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return kernel_matrix(self.kernel, self.kernel_params, a, b)

    def _cross(self, x: Data) -> np.ndarray:
        if not len(self.inducing):
            return np.zeros((num_rows(x), 0))
        return self._kernel(self._features(x), self.inducing)

    def state(self) -> tuple[Json, Arrays]:
        settings = {
            "kernel": self.kernel,
            "spectral_norm": self.spectral_norm,
            "kernel_params": list(self.kernel_params),
        }
        evidence = self.summary.log_evidence
        settings["log_evidence"] = None if math.isnan(evidence) else evidence
        arrays = {f"kernel.{name}": value for name, value in self.kernel_params.items()}
        arrays |= {"params": np.asarray(tree.ravel(self.params)), "inducing": self.inducing}
        return settings, arrays | {"alpha": self.summary.alpha, "inner": self.summary.inner}

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "DeepProcessPosterior":
        evidence = math.nan if settings["log_evidence"] is None else settings["log_evidence"]
        return cls(
            target,
            tree.unraveller(target.structs)(jnp.asarray(arrays["params"])),
            settings["kernel"],
            {name: arrays[f"kernel.{name}"] for name in settings["kernel_params"]},
            arrays["inducing"],
            Summary(arrays["alpha"], arrays["inner"], evidence),
            spectral_norm=settings["spectral_norm"],
            facts=facts,
        )


def network_features(target: Target, params: tree.Params, x: Data, largest: float | None) -> np.ndarray:
    """Of all rows, block by block, (n, feature), float64."""
    of = _compiled_features(target.without_data(), largest)
    n = num_rows(x)
    size = min(FEATURE_ROWS, 1 << (n - 1).bit_length())
    blocks = [rows(x, np.minimum(np.arange(i, i + size), n - 1)) for i in range(0, n, size)]
    return np.concatenate([np.asarray(of(params, block), np.float64) for block in blocks])[:n]


def kernel_matrix(name: str, params: KernelParams, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """In float64 on the host."""
    with in_float64():
        wide = {key: jnp.asarray(np.asarray(value, np.float64)) for key, value in params.items()}
        return np.asarray(deep_kernel(name)(wide, jnp.asarray(a), jnp.asarray(b)))


@kept
def _compiled_features(target: Target, largest: float | None) -> Any:
    return jax.jit(features(target, largest))
