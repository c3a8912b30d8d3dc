"""A Gaussian process on what a network makes of its inputs, trained together by the marginal likelihood.

    k(x, x') = kernel(phi(x; w), phi(x'; w)),    maximise  log p(y | X, w, kernel, noise)

phi are the inputs of the network's last layer of weights, which the process takes the place of: the user's network is
not changed. Wilson et al. 2016, Deep Kernel Learning. Beyond `EXACT_ROWS`, and for likelihoods that are not Gaussian,
by inducing points and mini-batches: Titsias 2009; Hensman, Matthews & Ghahramani 2015.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data, num_rows, parts, rows, weighted
from posteria.data.batches import batch_of
from posteria.engine.loop import Kernel, Run
from posteria.errors import SettingError
from posteria.methods.costs import EpochCosts, num_batches
from posteria.methods.functions.deep_end import summed_up
from posteria.methods.functions.deep_start import (
    JITTER,
    at_optimum,
    at_prior,
    best_process,
    given_std,
    with_noise,
)
from posteria.methods.functions.spectrum import check_one_noise, has_gaussian_noise
from posteria.methods.starts import find_starts
from posteria.models import densities
from posteria.models.likelihoods import factor_of
from posteria.models.target import Target, check_starts
from posteria.posteriors.deep_process import (
    DeepProcessPosterior,
    Summary,
    amplitude,
    collapse,
    collapse_note,
    deep_kernel,
    features,
    first_kernel,
    kernel_matrix,
    network_features,
    typical_distance,
)
from posteria.settings import Count, Optimizer, Positive, Start, check_settings, refuse_idle

if TYPE_CHECKING:
    import optax

EXACT_ROWS = 3000
BATCH = 256  # rows of a step beyond them
NUM_SAMPLES = 2  # draws of outputs, a step, and their mirror images
START_ROWS = 500  # by whose evidence the kernel's length and amplitude and the noise of an exact process begin


@dataclass(frozen=True)
class DeepKernel(EpochCosts):
    """The network as features, and a Gaussian process on them: fits well, and knows less of what is far than it says.

    `kernel`: "rbf", "matern" or "spectral-mixture". Up to 3,000 rows of Gaussian noise by the exact marginal
    likelihood; beyond, and for classes, by `num_inducing` points and mini-batches. Known failing: features collapse and
    the evidence overfits (Ober, Rasmussen & van der Wilk 2021); how far they have is measured, and said in
    `facts["feature_dimension"]` and `facts["distance_correlation"]`. `spectral_norm` keeps the matrices of layers at
    most so large. The weights are a point, without a prior: features of weights near 0 and a short length are the same
    process, so that a prior would only make them vanish. All else begins at its best given the first weights: length,
    amplitude and noise by the evidence of some rows, inducing values at their optimum (of classes, at the prior).
    Tuning tries `learning_rate`.
    """

    kernel: Literal["rbf", "matern", "spectral-mixture"] = "rbf"
    num_inducing: Count = 200
    num_epochs: Count = 500
    batch_size: Count | None = None
    learning_rate: Positive = 0.01
    optimizer: Optimizer | None = None
    spectral_norm: Positive | None = None
    start: Start = "init"

    fidelity: ClassVar[str] = "procedure"
    paper: ClassVar[str] = "Wilson et al. 2016"
    model_differs: ClassVar[str] = "a Gaussian process in place of the last layer, and no prior of the weights"

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.optimizer is not None, "learning_rate", "the optimizer")

    def expected_gradients(self, num_data: int) -> float:
        return float(self.num_epochs * num_batches(num_data, self._batch(num_data, is_exact=num_data <= EXACT_ROWS)))

    def _batch(self, num_data: int, is_exact: bool) -> int:
        return num_data if is_exact else min(self.batch_size or BATCH, num_data)

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> DeepProcessPosterior:
        bare = target.without_data()
        _check(bare)
        key_start, key_rows, key_fit = jax.random.split(key, 3)
        starts = find_starts(key_start, target, self.start if start is None else start, 1, run)
        first = tree.index(starts, 0)
        if target.data is None:
            return self._prior(bare, first)
        check_starts(target, starts)
        x, y, weight = parts(target.data)
        n = num_rows(x)
        is_gaussian = has_gaussian_noise(target.model.likelihood)
        is_exact = is_gaussian and n <= EXACT_ROWS
        if is_exact and self.batch_size is not None:
            run.note("batch_size is not used: the marginal likelihood is of all rows")
        begin: Any = self._begin(key_rows, bare, first, (x, np.asarray(y), weight), is_exact, is_gaussian)
        batch_size = self._batch(n, is_exact)
        num_steps = self.num_epochs * num_batches(n, batch_size)
        trace = run.loop(
            ascent(
                bare,
                self.kernel,
                self.spectral_norm,
                is_exact,
                batch_size,
                self.optimizer,
                self.learning_rate,
                num_steps,
            ),
            key_fit,
            jax.tree.map(lambda leaf: densities.widen(leaf)[None], begin),
            target.data,
            num_steps=num_steps,
        )
        found = tree.index(tree.on_device(trace.state.phi), 0)
        found["params"] = _as_they_are(target, found["params"])
        phi = network_features(bare, found["params"]["network"], x, self.spectral_norm)
        inducing, summary, note = summed_up(self.kernel, found, phi, np.asarray(y), weight, is_exact, target)
        facts = collapse(np.asarray(jax.tree.leaves(x)[0], np.float64), phi)
        run.note(note)
        run.note(collapse_note(facts))
        run.note("the weights of the features are a point: only the process on them is averaged over")
        return self._posterior(bare, found, inducing, summary, facts)

    def _begin(self, key: jax.Array, target: Target, first: Any, data: Any, is_exact: bool, is_gaussian: bool) -> Any:
        x, y, weight = data
        n = num_rows(x)
        weight = np.ones(n) if weight is None else np.asarray(weight, np.float64)
        order = np.asarray(jax.random.permutation(key, n))

        def seen(some: np.ndarray) -> np.ndarray:
            return network_features(target, first["network"], rows(x, some), self.spectral_norm)

        inducing = None if is_exact else seen(order[: self.num_inducing])
        some = order[: START_ROWS if is_exact else EXACT_ROWS]
        counts = weight[some] if is_exact else weight[some] * n / len(some)  # these stand for all rows
        sample, values = seen(some), np.asarray(y[some], np.float64)
        length, noise, scale = typical_distance(sample), 1.0, 1.0
        if is_gaussian:
            length, noise, scale = best_process(self.kernel, sample, values, given_std(target), counts, inducing)
        kernel = first_kernel(self.kernel, sample.shape[1], length, scale)
        if is_gaussian:
            first = first | {"likelihood": with_noise(target, first["likelihood"], noise)}
        begin = {"params": first, "kernel": kernel}
        if inducing is None:
            return begin
        begin |= at_prior(inducing, target.num_outputs or 1)
        if is_gaussian:  # else noise would explain all before the process has learnt anything
            begin |= at_optimum(
                kernel_matrix(self.kernel, kernel, inducing, inducing),
                kernel_matrix(self.kernel, kernel, inducing, sample),
                values,
                noise,
                counts,
            )
        return begin

    def _prior(self, target: Target, params: tree.Params) -> DeepProcessPosterior:
        outputs = target.num_outputs or 1
        sample = network_features(target, params["network"], target.blank_input, self.spectral_norm)
        found = {"params": params, "kernel": first_kernel(self.kernel, sample.shape[1], typical_distance(sample))}
        nothing = Summary(np.zeros((0, outputs)), np.zeros((0, 0)), math.nan)
        return self._posterior(target, found, np.zeros((0, sample.shape[1])), nothing, {})

    def _posterior(
        self, target: Target, found: Any, inducing: np.ndarray, summary: Summary, facts: dict[str, float]
    ) -> DeepProcessPosterior:
        return DeepProcessPosterior(
            target,
            found["params"],
            self.kernel,
            found["kernel"],
            inducing,
            summary,
            spectral_norm=self.spectral_norm,
            facts=facts,
        )


def _check(target: Target) -> None:
    target.check_no_scales("the weights of its features are a point, of which no scale can be inferred")
    if target.temperature != 1.0:
        raise SettingError(
            f"temperature {target.temperature}", "1: the marginal likelihood has no temperature", "take temperature 1"
        )
    check_one_noise(target)
    if target.blank_input is None:
        raise SettingError("data is None", "an x for its shapes", "pass data=(x, None) for the prior")


def _as_they_are(target: Target, params: tree.Params) -> tree.Params:
    """In the network's own types: steps are taken in 32 bits at least, since 16 have no room for an optimiser."""
    return jax.tree.map(lambda leaf, struct: leaf.astype(struct.dtype), params, target.structs)


class State(NamedTuple):
    phi: Any
    rest: Any  # of the optimiser
    batch_key: jax.Array
    step_number: jax.Array


class Info(NamedTuple):
    log_density: jax.Array
    num_gradients: jax.Array


@kept
def ascent(
    target: Target,
    kernel: str,
    spectral_norm: float | None,
    is_exact: bool,
    batch_size: int,
    optimizer: "optax.GradientTransformation | None",
    learning_rate: float,
    num_steps: int,
) -> Kernel:
    import optax

    if optimizer is None:
        optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps))
    features_of, k = features(target, spectral_norm), deep_kernel(kernel)
    likelihood: Any = target.model.likelihood

    def of(params: Any, x: Data) -> jax.Array:
        return features_of(_as_they_are(target, params)["network"], x)

    def exact(phi: Any, key: jax.Array, batch: Data) -> jax.Array:
        x, y, weight = parts(batch)
        noise = likelihood.noise_std(phi["params"]["likelihood"])
        root = jnp.ones(len(y)) if weight is None else jnp.sqrt(weight)
        found = of(phi["params"], x)
        matrix = jnp.outer(root, root) * k(phi["kernel"], found, found)
        jitter = JITTER * amplitude(phi["kernel"])
        factor = jnp.linalg.cholesky(matrix + (noise**2 + jitter) * jnp.eye(len(y)))
        white = solve_triangular(factor, root[:, None] * y, lower=True)
        missing = 0.5 * (len(y) - (root**2).sum()) * jnp.log(2 * math.pi * noise**2)
        each = missing - jnp.log(jnp.diagonal(factor)).sum() - 0.5 * len(y) * math.log(2 * math.pi)
        return jnp.asarray(-0.5 * (white**2).sum() + y.shape[1] * each)

    def sparse(phi: Any, key: jax.Array, batch: Data) -> jax.Array:
        x, y, _ = parts(batch)
        found = of(phi["params"], x)
        inducing, variance = phi["inducing"], amplitude(phi["kernel"])
        kuu = k(phi["kernel"], inducing, inducing)
        factor = jnp.linalg.cholesky(kuu + JITTER * variance * jnp.eye(len(inducing)))
        gain = solve_triangular(factor, k(phi["kernel"], inducing, found), lower=True)  # (m, batch)
        spread = jnp.tril(phi["factor"])  # (output, m, m)
        through = jnp.einsum("omk,mb->okb", spread, gain)
        variances = variance - (gain**2).sum(0) + (through**2).sum(1)  # (output, batch)
        std = jnp.sqrt(jnp.maximum(variances, 1e-10)).T
        noise = jax.random.normal(key, (NUM_SAMPLES, *std.shape))
        noise = jnp.concatenate([noise, -noise])
        own, outputs = phi["params"]["likelihood"], gain.T @ phi["mean"] + std * noise
        terms = jax.vmap(lambda f: factor_of(likelihood, own, f, y))(outputs).mean(0)
        log_dets = jnp.log(jnp.abs(jnp.diagonal(spread, axis1=1, axis2=2)) + 1e-12).sum()
        divergence = 0.5 * ((spread**2).sum() + (phi["mean"] ** 2).sum() - phi["mean"].size) - log_dets
        return jnp.asarray(target.tempered(jnp.zeros(()), weighted(terms, batch)) - divergence)

    objective = exact if is_exact else sparse
    per_datum = max(target.num_data, 1)

    def loss(phi: Any, key: jax.Array, batch: Data) -> jax.Array:
        own = likelihood.log_prior(phi["params"]["likelihood"])
        return jnp.asarray(-(objective(phi, key, batch) + own) / per_datum)

    def init(key: jax.Array, phi: Any, data: Data) -> State:
        return State(phi, optimizer.init(phi), jax.random.key_data(key), jnp.asarray(0))

    def step(key: jax.Array, state: State, data: Data) -> tuple[State, Info]:
        batch = batch_of(data, state.batch_key, state.step_number, target.num_data, batch_size)
        value, gradient = jax.value_and_grad(loss)(state.phi, key, batch)
        updates, rest = optimizer.update(gradient, state.rest, state.phi)
        phi = optax.apply_updates(state.phi, updates)
        return State(phi, rest, state.batch_key, state.step_number + 1), Info(-value * per_datum, jnp.asarray(1))

    return Kernel(init, step)
