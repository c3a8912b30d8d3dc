"""Variational inference: the Gaussian over the weights that is closest to the posterior in KL(q || p).

Maximises E_q[log joint] / T + entropy(q) by stochastic gradients. Hinton & van Camp 1993; Graves 2011; Blundell et al.
2015, Weight Uncertainty in Neural Networks; Kingma, Salimans & Welling 2015 (`local`); Wen et al. 2018 (`flipout`);
Louizos & Welling 2017 (`multiplicative`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.data.batches import batch_of, rows_ahead
from posteria.engine.loop import Kernel, Run
from posteria.errors import SettingError
from posteria.methods import watch
from posteria.methods.starts import find_starts
from posteria.methods.variational import bound as variational
from posteria.methods.variational import families
from posteria.methods.variational.boosting import boosted
from posteria.methods.variational.bound import Bound, Info, State
from posteria.methods.variational.families import Phi
from posteria.methods.variational.flow_family import FlowFamily
from posteria.methods.variational.multiplicative_family import MultiplicativeBound, MultiplicativeFamily
from posteria.methods.variational.rank_one_family import FACTOR_PRIOR, RankOneFamily
from posteria.models.target import Target, check_starts
from posteria.posteriors.gaussian import GaussianPosterior, NormalMixture, NormalMixturePosterior
from posteria.settings import Count, Optimizer, Positive, Several, Share, Start, check_settings, refuse_idle
from posteria.trace.local import FLIPOUT, SHARED, treatments
from posteria.trace.moments import moments

if TYPE_CHECKING:
    import optax

DEFAULT_ESTIMATORS = {
    "diagonal": "local",
    "full": "path",
    "lowrank": "path",
    "rank-one": "weights",
    "flow": "path",
    "multiplicative": "local",
    "mixture": "local",  # of its first component
}
MAX_FULL = 5000  # parameters: the full family holds their square, a flow networks of them
WITHOUT_SCALES = {  # families, and why they cannot infer the prior's scales
    "rank-one": "a matrix of the rank-one family is a point, of which no scale can be inferred",
    "flow": "a flow is over the weights themselves",
    "multiplicative": "its multipliers are of the weights themselves",
    "mixture": "its components are over the weights themselves",
}
BOOST_STREAM = 2**30  # folded into the key of the bound, beyond the number of any of its steps


@dataclass(frozen=True)
class MeanField(variational.VariationalCosts):
    """A Gaussian for every weight, fitted to the posterior: fast, scales to any network, spreads too narrow.

    `estimator`: how the likelihood's part is drawn.
      "local" draws outputs of each layer where a weight meets a datum once, "flipout" elsewhere: the default.
      "flipout" one deviation of the weights, with signs for each datum; "weights" one draw of the weights a step.
      "moments" no draws: means and variances carried through the network in closed form (ReLU networks).
      "local-independent" fresh noise at every position of a convolution: the literature's, the optimum of another q.
    `family`: "diagonal"; "full" (any covariance; small networks); "lowrank" (diagonal plus `rank` directions);
    "rank-one" (each matrix is a point times noise of two vectors: the memory of one network); "flow" (any shape, by
    couplings of splines; up to some thousand weights, and better with several `num_samples`; its mean and variances are
    read off draws); "multiplicative" (each matrix's means times a flow over its input units, of any size: what a flow
    is to weights, this is to units; its bound is of the weights and the flow together, and so a little lower than that
    of the weights); "mixture" (up to `num_components` Gaussians of independent weights, added one after another where
    the bound gains most).
    `num_samples` draws a step. `start`: "init", "map", "prior", or weights; `initial_std` in units of the prior.
    `kl_weights`: "even" over an epoch's batches, or "blundell" (2^-i for batch i). `optimizer` is any Optax
    transformation; by default Adam with a cosine decay from `learning_rate` to 0. The posterior's `facts` hold the
    "elbo" at the end and its "drift" over the last tenth of the path, with their Monte Carlo errors "elbo_error" and
    "drift_error"; a drift above 0.05 nats is noted. `validation` and `patience` as in MAP.
    Tuning tries `learning_rate`.
    """

    num_epochs: Count = 2000
    batch_size: Count | None = None
    learning_rate: Positive = 0.01
    optimizer: Optimizer | None = None
    estimator: Literal["local", "flipout", "weights", "moments", "local-independent"] | None = None
    family: Literal["diagonal", "full", "lowrank", "rank-one", "flow", "multiplicative", "mixture"] = "diagonal"
    rank: Several = 10
    num_components: Several = 4
    num_samples: Several = 1
    start: Start = "init"
    initial_std: Positive = 0.1
    kl_weights: Literal["even", "blundell"] = "even"
    validation: Share = 0.0
    patience: Count = 50

    fidelity: ClassVar[str] = "family-optimum"
    paper: ClassVar[str] = "Blundell et al. 2015"

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.optimizer is not None, "learning_rate", "the optimizer")
        refuse_idle(self, self.family != "lowrank", "rank", f"family={self.family!r}")
        refuse_idle(self, self.family != "mixture", "num_components", f"family={self.family!r}")
        if self.family == "mixture" and (self.validation or self.optimizer is not None):
            raise SettingError(
                'family="mixture" with validation or an optimizer', "neither: each component is fitted anew", "leave it"
            )
        if self.family != "diagonal" and self.estimator is not None:
            raise SettingError(
                f"estimator={self.estimator!r} with family={self.family!r}",
                "the diagonal family: the others draw weights",
                "leave the estimator out",
            )

    @property
    def gradients_a_step(self) -> int:  # type: ignore[override]
        num_after = self.num_components - 1 if self.family == "mixture" else 0  # which draw from the others too
        return self.num_samples * (1 + 2 * num_after)

    @property
    def is_updatable(self) -> bool:
        """Whether its posterior is a Gaussian, which can be the prior of further data."""
        return self.family in ("diagonal", "full", "lowrank")

    @property
    def model_differs(self) -> str:
        """How the model that is fitted differs from the one that was given."""
        return FACTOR_PRIOR if self.family == "rank-one" else ""

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> GaussianPosterior:
        target.check_proper()
        if self.family in WITHOUT_SCALES:
            target.check_no_scales(WITHOUT_SCALES[self.family])
        target, held = watch.hold_out(jax.random.fold_in(key, watch.HOLD_OUT_STREAM), target, self.validation)
        bare = target.without_data()
        estimator = self.estimator or DEFAULT_ESTIMATORS[self.family]
        run.note(self.model_differs)
        run.note(_caveat(bare, estimator))
        family = _family(bare, self.family, self.rank)
        key_start, key_init, key_fit, key_elbo = jax.random.split(key, 4)
        start = self.start if start is None else start
        starts = find_starts(key_start, target, start, 1, run, self.climber())
        batch_size = min(self.batch_size or target.num_data, target.num_data)
        check_starts(target, starts, num_rows=batch_size or None)
        steps_per_epoch = variational.steps_per_epoch(target, batch_size)
        phi = _initial(family, self.initial_std)(key_init, target.relative(tree.index(starts, 0)))
        found, trace = watch.loop(
            run.stage("fit", share=variational.FIT_SHARE),
            _ascent(
                bare,
                family,
                estimator,
                self.optimizer,
                self.learning_rate,
                self.num_epochs * steps_per_epoch,
                batch_size,
                self.num_samples,
                self.kl_weights,
            ),
            key_fit,
            tree.one_of_many(phi),
            target,
            held,
            draw=variational.draw_of(bare, family),
            part=variational.phi_of,
            num_epochs=self.num_epochs,
            steps_per_epoch=steps_per_epoch,
            patience=self.patience,
            final_when_late=True,
        )
        phi = tree.index(found, 0)
        facts: dict[str, float] = {}
        if family.has_elbo:
            kernel = variational.elbo_kernel(bare, family, batch_size)
            before = None if held else tree.index(trace.state.before, 0)  # an end that rows chose is no optimum
            facts = variational.estimate_elbo(kernel, key_elbo, phi, before, target.data, run, steps_per_epoch)
        if self.family == "mixture":
            num_steps = self.num_epochs * steps_per_epoch
            key_boost = jax.random.fold_in(key_elbo, BOOST_STREAM)
            return self._boosted(key_boost, target, family, phi, run, batch_size, num_steps, facts)
        posterior: GaussianPosterior = family.posterior(target, phi, facts)
        return posterior

    def _boosted(
        self,
        key: jax.Array,
        target: Target,
        family: Any,
        phi: Phi,
        run: Run,
        batch_size: int,
        num_steps: int,
        facts: dict[str, float],
    ) -> GaussianPosterior:
        """`facts`: of the first Gaussian, whose drift stands for that of all, which take as many steps."""
        mean, spread = family.normal(phi)
        mixture, bound = boosted(
            key,
            target,
            (mean, jnp.asarray(spread.std)),
            run,
            self.num_components,
            num_steps,
            batch_size,
            self.num_samples,
            self.learning_rate,
        )
        there = np.flatnonzero(np.isfinite(mixture.log_shares))
        shares, means, stds = np.exp(mixture.log_shares)[there], mixture.means[there], mixture.stds[there]
        centre = shares @ means
        return NormalMixturePosterior(target, centre, NormalMixture(shares, means - centre, stds), facts | bound)


@kept
def _ascent(
    target: Target,
    family: Any,
    estimator: str,
    optimizer: "optax.GradientTransformation | None",
    learning_rate: float,
    num_steps: int,
    batch_size: int,
    num_samples: int,
    kl_weights: str,
) -> Kernel:
    import optax

    has_cosine = optimizer is None
    if optimizer is None:
        # along the path gradients shrink to nothing: a longer memory of how large they were would hold up the end
        squares_decay = 0.99 if estimator == "path" else 0.999
        optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps), b2=squares_decay)
    bound = (MultiplicativeBound if isinstance(family, MultiplicativeFamily) else Bound)(target, family, estimator)
    num_batches = variational.steps_per_epoch(target, batch_size)
    is_turned = _each_datum_has_its_noise(target, estimator)

    def kl_weight(step_number: jax.Array) -> jax.Array | float:
        """Times the number of batches, so that an epoch counts the KL divergence once."""
        if kl_weights == "even":
            return 1.0
        return num_batches * 2.0 ** -(step_number % num_batches + 1.0) / (1 - 0.5**num_batches)

    def noise_of(key: jax.Array, state: State) -> tuple[jax.Array, jax.Array | int]:
        """Steps come in groups whose noise is one, turned from step to step, so that most of it cancels."""
        if not is_turned:
            return key, 0
        stream = jax.random.fold_in(jax.random.wrap_key_data(state.batch_key), variational.NOISE_STREAM)
        group, place = jnp.divmod(state.step_number.astype(jnp.uint32), variational.TURNS)
        return jax.random.fold_in(stream, group), (place // 2) * (2**33 // variational.TURNS) + place % 2

    def negative_elbo(
        phi: Phi, noise: tuple[jax.Array, jax.Array | int], batch: Data, weight: jax.Array | float
    ) -> jax.Array:
        """Per datum, so that a learning rate means the same for any amount of data."""
        key, turn = noise
        value = variational.average(lambda k: bound(phi, k, batch, weight, turn), key, num_samples)
        return -value / max(target.num_data, 1)

    def init(key: jax.Array, phi: Phi, data: Data) -> State:
        return State(phi, optimizer.init(phi), jax.random.key_data(key), jnp.asarray(0), phi)

    def step(key: jax.Array, state: State, data: Data) -> tuple[State, Info]:
        batch = batch_of(data, state.batch_key, state.step_number, target.num_data, batch_size, target.augment)
        weight = kl_weight(state.step_number)
        value, gradient = jax.value_and_grad(negative_elbo)(state.phi, noise_of(key, state), batch, weight)
        updates, rest = optimizer.update(gradient, state.rest, state.phi)
        phi = optax.apply_updates(state.phi, updates)
        info = Info(-value * max(target.num_data, 1), jnp.asarray(num_samples))
        before = variational.remembered(state, num_steps, has_cosine)
        return State(phi, rest, state.batch_key, state.step_number + 1, before), info

    return Kernel(init, step, rows_ahead(target.num_data, batch_size))


@kept
def _family(target: Target, name: str, rank: int) -> Any:
    if name in ("full", "flow") and tree.size(target.structs) > MAX_FULL:
        raise SettingError(
            f"family={name!r} for {tree.size(target.structs)} parameters",
            f"at most {MAX_FULL}",
            'take family="lowrank"',
        )
    if name == "flow":
        return FlowFamily(target)
    if name == "multiplicative":
        return MultiplicativeFamily(target)
    if name == "lowrank":
        return families.LowRankFamily(target, rank)
    return RankOneFamily(target) if name == "rank-one" else families.family(target, name.replace("mixture", "diagonal"))


@kept
def _initial(family: Any, initial_std: float) -> Callable[[jax.Array, tree.Params], Phi]:
    """(key, weights) -> phi: the weights, with standard deviations of `initial_std` prior units around them."""

    def initial(key: jax.Array, params: tree.Params) -> Phi:
        mean = jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), params)
        std = jax.tree.map(lambda leaf, unit: jnp.full_like(leaf, initial_std * unit), mean, family.units)
        return family.init(key, mean, std)

    return jax.jit(initial)


def _each_datum_has_its_noise(target: Target, estimator: str) -> bool:
    """Noise that data share is too little to be turned: many steps would then be along the same few directions."""
    if estimator not in ("local", "local-independent") or target.blank_input is None:
        return False
    how = treatments(target.model.network.apply, target.structs["network"], target.blank_input, estimator)
    return not {SHARED, FLIPOUT} & set(how.values())


@kept
def _caveat(target: Target, estimator: str) -> str:
    """What the user should know of the estimator on this network; refuses one that cannot follow it."""
    if estimator == "moments" and target.blank_input is not None:
        structs = target.structs["network"]
        jax.eval_shape(moments(target.model.network.apply), structs, structs, target.blank_input)
    if estimator == "local-independent":
        return "local-independent: noise at a weight's positions is independent in training, and shared in prediction"
    if estimator not in ("local", "flipout") or target.blank_input is None:
        return ""
    how = treatments(target.model.network.apply, target.structs["network"], target.blank_input, estimator)
    shared = [path for path, treatment in how.items() if treatment == SHARED]
    return f"one draw a step for all data of {', '.join(shared)}" if shared else ""
