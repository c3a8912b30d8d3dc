"""Variational inference with the divergence taken between functions, at context points, not between weights.

    maximise  E_q[log p(y | f)] - KL(q(f(C)) || p(f(C))),    q(f(C)) = N(f(C; mean), J S J^T)

where q(w) = N(mean, S) has independent weights, and J is the network's derivative by them at the context C: the
linearised network is Gaussian, so that the divergence is in closed form. Rudner et al. 2022, Tractable Function-Space
Variational Inference in Bayesian Neural Networks.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from posteria import tree
from posteria.compiled import kept
from posteria.curvature.jacobian import between, factored
from posteria.data.arrays import Data, num_rows, rows
from posteria.data.batches import batch_of, take
from posteria.engine.loop import Kernel, Run
from posteria.errors import DataError, SettingError, TooLargeError
from posteria.functions import FunctionPrior, as_function_prior
from posteria.methods.starts import find_starts
from posteria.methods.variational import bound as variational
from posteria.methods.variational.bound import Bound, Info, State, prior_normals
from posteria.methods.variational.families import ENTROPY_OF_UNIT, DiagonalFamily, Phi, family
from posteria.models.densities import LOG_2PI
from posteria.models.limit import in_float64, limit_kernel
from posteria.models.target import Target, check_starts
from posteria.posteriors.gaussian import GaussianPosterior
from posteria.settings import Count, Optimizer, Positive, Several, Start, check_rows, check_settings, refuse_idle, shown

if TYPE_CHECKING:
    import optax

NETWORK, LIMIT = "network", "limit"
POOL = 512  # context points that are drawn where none are given
WIDENED = 0.5  # of the data's width, by which the box of drawn context points goes beyond it at either side
JITTER = 1e-5  # of the prior's mean variance, added to both covariances: directions that no weight moves then cancel
MOST_DERIVATIVES = 2**27  # of the context's outputs by the weights
CONTEXT_STREAM = 11  # folded into a key


@dataclass(frozen=True)
class FunctionSpaceVI(variational.VariationalCosts):
    """Mean-field weights whose functions, at context points, stay near a prior over functions: yours, in words.

    `prior`: "network", the model's own, seen through the linearised network; "limit", its Gaussian process at infinite
    width; or a kernel such as `po.functions.Periodic(1.0)`, for outputs that are independent and have mean 0.
    `context`: inputs at which functions are compared (None: half of them rows of the data, half drawn from a box that
    is wider than they are by half at either side), of which a step sees `num_context`, drawn anew. A start, an
    optimiser and a learning rate as of `MeanField`. With a prior over functions the model's prior over weights is not
    used. Tuning tries `learning_rate`.
    """

    prior: Any = NETWORK
    context: Any = field(default=None, compare=False)
    num_context: Several = 20
    num_epochs: Count = 2000
    batch_size: Count | None = None
    learning_rate: Positive = 0.01
    optimizer: Optimizer | None = None
    start: Start = "init"
    initial_std: Positive = 0.1

    fidelity: ClassVar[str] = "family-optimum"
    paper: ClassVar[str] = "Rudner et al. 2022"

    def __post_init__(self) -> None:
        check_settings(self)
        check_rows("FunctionSpaceVI", "context", self.context)
        refuse_idle(self, self.optimizer is not None, "learning_rate", "the optimizer")
        if isinstance(self.prior, str) and self.prior not in (NETWORK, LIMIT):
            raise SettingError(
                f"prior={shown(self.prior)}", f"{NETWORK!r}, {LIMIT!r} or a kernel", "as po.functions.RBF(length=1.0)"
            )
        if not isinstance(self.prior, str):
            as_function_prior(self.prior)

    @property
    def model_differs(self) -> str:
        """How the model that is fitted differs from the one that was given."""
        return "" if self.prior == NETWORK else "a prior over functions, in place of that over weights"

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> GaussianPosterior:
        target.check_no_scales("functions are compared, not weights")
        bare = target.without_data()
        if bare.blank_input is None:
            raise SettingError("data is None", "an x for its shapes", "pass data=(x, None) for the prior")
        if self.prior == NETWORK:
            _check_normal(bare)
        run.note(self.model_differs)
        pool, covariance = self._pool(target, run)
        count = min(self.num_context, num_rows(pool))
        _check_room(count, bare)
        key_start, key_init, key_fit, key_elbo = jax.random.split(key, 4)
        starts = find_starts(key_start, target, self.start if start is None else start, 1, run, self.climber())
        batch_size = min(self.batch_size or target.num_data, target.num_data)
        check_starts(target, starts, num_rows=batch_size or None)
        num_steps = self.num_epochs * variational.steps_per_epoch(target, batch_size)
        phi = _initial(bare, self.initial_std)(tree.index(starts, 0))
        del key_init
        seen = (target.data, pool, covariance)
        settings = bare, self.prior == NETWORK, count, batch_size
        trace = run.stage("fit", share=variational.FIT_SHARE).loop(
            ascent(*settings, self.optimizer, self.learning_rate, num_steps),
            key_fit,
            jax.tree.map(lambda leaf: leaf[None], phi),
            seen,
            num_steps=num_steps,
            final_when_late=True,
        )
        phi, before = (tree.index(part, 0) for part in (trace.state.phi, trace.state.before))
        steps = variational.steps_per_epoch(target, batch_size)
        if target.temperature != 1.0 and self.prior != NETWORK:
            return family(bare, "diagonal").posterior(target, phi, {})  # its bound has no normaliser
        facts = variational.estimate_elbo(estimates(*settings), key_elbo, phi, before, seen, run, steps)
        return family(bare, "diagonal").posterior(target, phi, facts)

    def _pool(self, target: Target, run: Run) -> tuple[Data, jax.Array]:
        """Context points, and the covariance of one output between them; nothing where the prior is the network's."""
        pool = _given_context(self.context, target) if self.context is not None else _drawn_context(target, run)
        if self.prior == NETWORK:
            return pool, jnp.zeros(())
        if self.prior == LIMIT:
            kernel, note = limit_kernel(target)
            run.note(note)
            return pool, jnp.asarray(kernel.cross(pool, pool), jnp.float32)
        prior: FunctionPrior = self.prior
        with in_float64():
            wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), pool)
            matrix = np.asarray(prior(wide, wide))
        return pool, jnp.asarray(matrix, jnp.float32)


def _given_context(context: Any, target: Target) -> Data:
    context = jax.tree.map(np.asarray, context)
    got, wanted = (jax.tree.map(lambda leaf: leaf.shape[1:], part) for part in (context, target.blank_input))
    if got != wanted or not num_rows(context):
        raise DataError(f"context has rows of {got}", f"some rows of {wanted}, as x", "pass inputs of the network")
    return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), context, target.blank_input)


def _drawn_context(target: Target, run: Run) -> Data:
    """Half rows of the data, half drawn from a box around them; of data that are no numbers, or none, as they are."""
    rng = np.random.default_rng(0)
    blank: Any = target.blank_input
    if target.data is None:
        return jax.tree.map(lambda leaf: rng.normal(size=(POOL, *leaf.shape[1:])).astype(leaf.dtype), blank)
    x: Any = target.data[0]
    chosen = rows(x, rng.integers(0, num_rows(x), POOL // 2))

    def widened(leaf: Any, some: Any) -> np.ndarray:
        leaf, some = np.asarray(leaf), np.asarray(some)
        if not np.issubdtype(leaf.dtype, np.floating):
            return np.concatenate([some, some])
        low, high = leaf.min(0), leaf.max(0)
        reach = WIDENED * (high - low)
        around = rng.uniform(low - reach, high + reach, size=some.shape)
        return np.concatenate([some, around.astype(leaf.dtype)])

    return jax.tree.map(widened, x, chosen)


def _check_normal(target: Target) -> None:
    target.check_proper()
    if any(normal is None for normal in prior_normals(target)[len(jax.tree.leaves(target.structs["likelihood"])) :]):
        raise SettingError(
            f"the prior {type(target.model.prior).__name__}, whose functions have no closed form",
            "a Normal prior, or a prior over functions",
            "take po.priors.FanIn(), or prior=po.functions.RBF(...)",
        )


def _check_room(count: int, target: Target) -> None:
    size = count * (target.num_outputs or 1) * tree.size(target.structs["network"])
    if size > MOST_DERIVATIVES:
        raise TooLargeError(
            f"{size:.1e} derivatives of {count} context points",
            f"at most {MOST_DERIVATIVES:.1e}",
            "a smaller num_context",
        )


@kept
def _initial(target: Target, initial_std: float) -> Any:
    of = family(target, "diagonal")

    def initial(params: tree.Params) -> Phi:
        mean = jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), params)
        std = jax.tree.map(lambda leaf, unit: jnp.full_like(leaf, initial_std * unit), mean, of.units)
        return of.init(jax.random.key(0), mean, std)

    return jax.jit(initial)


class Objective(NamedTuple):
    """Estimates of the bound: `likelihood(phi, key, batch)` and what is taken off it, `divergence(phi, ...)`."""

    likelihood: Any
    divergence: Any


@kept
def objective(target: Target, is_own_prior: bool) -> Objective:
    of: DiagonalFamily = family(target, "diagonal")
    bound = Bound(target, of, "local")
    structs = target.structs["network"]
    unravel = tree.unraveller(tree.widened(structs))
    normals = prior_normals(target)[len(jax.tree.leaves(target.structs["likelihood"])) :]

    network = factored(target, tuple(tree.paths(structs)))
    order = network.order - tree.size(target.structs["likelihood"])

    def flat_prior() -> tuple[jax.Array, jax.Array]:
        pairs = [
            [jnp.broadcast_to(jnp.asarray(part, jnp.float32), leaf.shape).ravel() for part in normal]
            for leaf, normal in zip(jax.tree.leaves(structs), normals)
            if normal is not None
        ]
        mean, std = (jnp.concatenate(parts) for parts in zip(*pairs))
        return mean, std

    def divergence(phi: Phi, key: jax.Array, context: Data, covariance: jax.Array) -> jax.Array:
        """KL(q(f(C)) || p(f(C))^(1/T)), and of the likelihood's own parameters."""
        mean, std = of.marginals(phi)
        flat, spread = tree.ravel(mean["network"]), tree.ravel(std["network"])

        def params(flat: jax.Array) -> tree.Params:
            return jax.tree.map(lambda leaf, s: leaf.astype(s.dtype), unravel(flat), structs)

        def outputs(flat: jax.Array) -> jax.Array:
            return target.model.outputs(params(flat), context).astype(jnp.float32)

        if is_own_prior:
            prior_mean, prior_std = flat_prior()
            # the mean of the linearised prior is f + J (prior mean - mean)
            values, shift = jax.jvp(outputs, (flat,), (flat - prior_mean,))
        else:
            values = shift = outputs(flat)
        units = jnp.broadcast_to(jnp.eye(values.shape[-1]), (*values.shape, values.shape[-1]))
        jacobian = network.jacobian(params(flat), context, units)

        def seen(std: jax.Array) -> jax.Array:
            """Of weights with this deviation, the functions' covariance."""
            return between(network.weights, jacobian, std[order] ** 2)

        prior = seen(prior_std) if is_own_prior else jnp.kron(covariance, jnp.eye(values.shape[-1]))
        unit = JITTER * jnp.trace(prior) / len(prior) * jnp.eye(len(prior))
        p_factor = jnp.linalg.cholesky(target.temperature * prior + unit)
        q_factor = jnp.linalg.cholesky(seen(spread) + unit)
        ratio = solve_triangular(p_factor, q_factor, lower=True)
        white = solve_triangular(p_factor, shift.ravel(), lower=True)
        log_dets = jnp.log(jnp.diagonal(p_factor)).sum() - jnp.log(jnp.diagonal(q_factor)).sum()
        functions = 0.5 * ((ratio**2).sum() + (white**2).sum() - len(prior)) + log_dets
        return functions - own_bound(mean["likelihood"], std["likelihood"], key) - log_volume()

    def log_volume() -> jax.Array:
        """Between the normalisers of p^(1/T), as other methods count it, and of N(m, T K)."""
        if not is_own_prior or target.temperature == 1.0:
            return jnp.zeros(())
        log_square = LOG_2PI + 2 * jnp.log(flat_prior()[1])
        change = log_square + jnp.log(target.temperature) - log_square / target.temperature
        return 0.5 * change.sum()

    def own_bound(mean: tree.Params, std: tree.Params, key: jax.Array) -> jax.Array:
        """Log prior at a draw, and entropy."""
        size = tree.size(mean)
        if not size:
            return jnp.zeros(())
        noise = tree.unraveller(mean)(jax.random.normal(key, (size,)))
        draw = jax.tree.map(lambda m, s, e: m + s * e, mean, std, noise)
        entropy = sum(jnp.log(s).sum() for s in jax.tree.leaves(std)) + size * ENTROPY_OF_UNIT
        log_prior = target.model.likelihood.log_prior(draw) / target.temperature
        return jnp.asarray(log_prior + entropy)

    def likelihood(phi: Phi, key: jax.Array, batch: Data) -> jax.Array:
        if batch is None:
            return jnp.zeros(())
        return target.tempered(jnp.zeros(()), bound.log_likelihood(phi, key, batch))

    return Objective(likelihood, divergence)


def _estimate(target: Target, is_own_prior: bool, count: int, batch_size: int) -> Any:
    """(phi, key, state, data) -> an estimate of the bound."""
    parts = objective(target, is_own_prior)

    def estimate(phi: Phi, key: jax.Array, state: State, seen: Data) -> jax.Array:
        data, pool, covariance = seen
        key_likelihood, key_context, key_own = jax.random.split(key, 3)
        batch = batch_of(data, state.batch_key, state.step_number, target.num_data, batch_size)
        total = num_rows(pool)
        chosen = jnp.arange(total) if total == count else jax.random.randint(key_context, (count,), 0, total)
        between = covariance[chosen][:, chosen] if covariance.ndim else covariance
        divergence = parts.divergence(phi, key_own, take(pool, chosen), between)
        return jnp.asarray(parts.likelihood(phi, key_likelihood, batch) - divergence)

    return estimate


@kept
def ascent(
    target: Target,
    is_own_prior: bool,
    count: int,
    batch_size: int,
    optimizer: "optax.GradientTransformation | None",
    learning_rate: float,
    num_steps: int,
) -> Kernel:
    import optax

    has_cosine = optimizer is None
    if optimizer is None:
        optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps))
    estimate = _estimate(target, is_own_prior, count, batch_size)
    per_datum = max(target.num_data, 1)

    def init(key: jax.Array, phi: Phi, data: Data) -> State:
        return State(phi, optimizer.init(phi), jax.random.key_data(key), jnp.asarray(0), phi)

    def step(key: jax.Array, state: State, data: Data) -> tuple[State, Info]:
        value, gradient = jax.value_and_grad(lambda phi: -estimate(phi, key, state, data) / per_datum)(state.phi)
        updates, rest = optimizer.update(gradient, state.rest, state.phi)
        phi = optax.apply_updates(state.phi, updates)
        before = variational.remembered(state, num_steps, has_cosine)
        return State(phi, rest, state.batch_key, state.step_number + 1, before), Info(
            -value * per_datum, jnp.asarray(1)
        )

    return Kernel(init, step)


@kept
def estimates(target: Target, is_own_prior: bool, count: int, batch_size: int) -> Kernel:
    """Of a finished fit's bound."""
    estimate = _estimate(target, is_own_prior, count, batch_size)

    def init(key: jax.Array, phi: Phi, data: Data) -> State:
        return State(phi, None, jax.random.key_data(key), jnp.asarray(0))

    def step(key: jax.Array, state: State, data: Data) -> tuple[State, Info]:
        value = estimate(state.phi, key, state, data)
        return state._replace(step_number=state.step_number + 1), Info(value, jnp.asarray(0))

    return Kernel(init, step)
