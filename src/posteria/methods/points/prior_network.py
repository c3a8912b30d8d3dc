"""Prior networks and evidential learning: a network that says a Dirichlet over class probabilities.

Its concentrations are a = exp(outputs), so that the class probabilities on average are the softmax, and an unchanged
classifier serves. Each row asks for a Dirichlet of 1 + `concentration` at its label, a row from elsewhere for a flat
one, by the divergence from it (in the order below, and not divided):

    evidential   maximise sum_n E_a[log p(y_n)] - KL(Dirichlet(a_n) || flat) / concentration
                 the same as -KL(Dirichlet(a_n) || Dirichlet(1 + concentration at y_n)) / concentration
    forward      maximise -sum_n KL(Dirichlet(1 + concentration at y_n) || Dirichlet(a_n)) / concentration

Malinin & Gales 2018, Predictive Uncertainty Estimation via Prior Networks (forward), and 2019 (reverse); Sensoy et al.
2018, Evidential Deep Learning; Joo et al. 2020, Being Bayesian about Categorical Probability.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data, check_x, num_rows, parts, weighted
from posteria.data.batches import batch_of
from posteria.engine.loop import Kernel, Run
from posteria.errors import SettingError
from posteria.methods.costs import EpochCosts, num_batches
from posteria.models.target import Target, check_starts
from posteria.posteriors.dirichlet import DirichletPosterior, divergence, expected_log_prob
from posteria.posteriors.draws import Draws
from posteria.settings import Count, Positive, Weights, check_rows, check_settings

MODEL_DIFFERS = "a Dirichlet over class probabilities for each row, trained by a loss that is no likelihood"
LARGEST = 15.0  # of a logarithm of a concentration, in size: beyond it float32 has no digamma to speak of


@dataclass(frozen=True)
class PriorNetwork(EpochCosts):
    """A classifier that tells rows unlike any seen from rows that are ambiguous, by one pass: where it was shown some.

    `outside` are rows of x from elsewhere, for which it learns to say that it does not know; None: there are none, and
    then nothing makes it say so. `loss` is "evidential" or "forward". `predict(x).uncertainty()` splits the entropy
    into data, distributional, and (an `Ensemble` of it) model uncertainty. Adam with a cosine decay from
    `learning_rate`. Tuning tries `learning_rate`.

    Its uncertainty is a setting, not an inference: for labels of frequencies p at some x the best concentrations are
    1 + `concentration` * p with a hundred rows as with a hundred thousand. What is called epistemic here does not
    vanish with more data, and cannot tell few from many (Bengs et al. 2022; Shen et al. 2024). `concentration` decides
    it, so compare its rankings of rows, and not its numbers, with a posterior's.
    """

    num_epochs: Count = 1000
    batch_size: Count | None = None
    learning_rate: Positive = 0.01
    loss: Literal["evidential", "forward"] = "evidential"
    concentration: Positive = 100.0
    outside: Weights | None = None

    fidelity: ClassVar[str] = "procedure"
    paper: ClassVar[str] = "Malinin & Gales 2018"
    model_differs: ClassVar[str] = MODEL_DIFFERS

    def __post_init__(self) -> None:
        check_settings(self)
        check_rows("PriorNetwork", "outside", self.outside)

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> DirichletPosterior:
        return self.fit_members(key, target, start, run, 1)

    def fit_members(
        self, key: jax.Array, target: Target, start: tree.Params, run: Run, size: int
    ) -> DirichletPosterior:
        """`size` networks from as many starts."""
        target.check_proper()
        target.check_no_scales("its loss is no likelihood")
        if target.model.likelihood.kind != "classes" or (target.num_outputs or 2) < 2:
            raise SettingError(
                f"PriorNetwork of {type(target.model.likelihood).__name__}",
                "classes, with an output for each",
                "take po.likelihoods.Categorical() and a network with two or more outputs",
            )
        run.note(self.model_differs)
        if self.outside is None:
            run.note("no rows from elsewhere: nothing teaches it what it does not know")
        outside = None if self.outside is None else _checked(target, self.outside)
        key_start, key_fit = jax.random.split(key)
        if start is None:
            starts, note = target.several_inits(key_start, size)
            run.note(note)
        else:
            starts = target.as_starts(start, size)
        batch_size = min(self.batch_size or target.num_data, target.num_data)
        check_starts(target, starts, num_rows=batch_size)
        num_steps = self.num_epochs * num_batches(target.num_data, self.batch_size)
        kernel = _ascent(
            target.without_data(),
            self.loss,
            self.concentration,
            self.learning_rate,
            num_steps,
            batch_size,
            0 if outside is None else num_rows(outside),
        )
        trace = run.loop(kernel, key_fit, starts, (target.data, outside), num_steps=num_steps)
        flat = np.asarray(tree.ravel_each(trace.state.params))[:, None]  # (member, 1, size)
        info = {"log_density": np.asarray(trace.info.log_density)[:, -1:]}
        return DirichletPosterior(target.without_data(), Draws(target.structs, flat, info))


def _checked(target: Target, outside: Data) -> Data:
    x = check_x(outside)
    got, wanted = (jax.tree.map(lambda leaf: np.shape(leaf)[1:], rows) for rows in (x, target.blank_input))
    if got != wanted:
        raise SettingError(f"outside has rows of {got}", f"{wanted}, as x has", "pass x of the same features")
    return tree.on_device(x)


class State(NamedTuple):
    params: tree.Params
    optimizer: tree.Tree
    batch_key: jax.Array
    step_number: jax.Array


class Info(NamedTuple):
    log_density: jax.Array  # of the loss in place of the likelihood
    num_gradients: jax.Array


@kept
def _ascent(
    target: Target,
    loss: str,
    concentration: float,
    learning_rate: float,
    num_steps: int,
    batch_size: int,
    num_outside: int,
) -> Kernel:
    import optax

    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps))

    def log_concentration(params: tree.Params, x: Data) -> jax.Array:
        return jnp.clip(target.model.outputs(params["network"], x), -LARGEST, LARGEST)

    def gains(log_a: jax.Array, y: jax.Array | None) -> jax.Array:
        """One a row; of rows from elsewhere, which have no y, how near to the flat one they are."""
        a, flat = jnp.exp(log_a), jnp.ones_like(log_a)
        if loss == "forward":
            wanted = flat if y is None else flat + concentration * jax.nn.one_hot(y, log_a.shape[-1])
            return -divergence(wanted, a) / (1.0 if y is None else concentration)
        near_flat: jax.Array = -divergence(a, flat)
        if y is None:
            return near_flat
        of_label = jnp.take_along_axis(expected_log_prob(log_a), y[:, None], axis=-1)[:, 0]
        return of_label + near_flat / concentration

    def objective(params: tree.Params, batch: Data, elsewhere: Data) -> jax.Array:
        terms = None
        if batch is not None:
            x, y, _ = parts(batch)
            terms = weighted(gains(log_concentration(params, x), y), batch)
        log_joint = target.relative_log_prior(params)
        if terms is not None:
            log_joint += target.num_data / len(terms) * terms.sum()
        if elsewhere is not None:
            found = gains(log_concentration(params, elsewhere), None)
            log_joint += num_outside / len(found) * found.sum()
        return log_joint / target.temperature

    def init(key: jax.Array, start: tree.Params, data: Data) -> State:
        return State(start, optimizer.init(start), jax.random.key_data(key), jnp.asarray(0))

    def step(key: jax.Array, state: State, data: Data) -> tuple[State, Info]:
        del key  # batches follow the chain's own key and the step's number
        train, outside = data
        batch = batch_of(train, state.batch_key, state.step_number, target.num_data, batch_size)
        if outside is not None:
            few = min(batch_size or num_outside, num_outside)
            outside = batch_of(outside, state.batch_key, state.step_number, num_outside, few)
        scale = max(1, target.num_data)
        value, gradient = jax.value_and_grad(lambda params: -objective(params, batch, outside) / scale)(state.params)
        updates, rest = optimizer.update(gradient, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        return State(params, rest, state.batch_key, state.step_number + 1), Info(-value * scale, jnp.asarray(1))

    return Kernel(init, step)
