"""Epistemic neural networks: a trained network, and a small one beside it of an index z ~ N(0, I).

    f(x, z) = network(x) + learnt(features of x, z) + fixed(features of x, z)

The fixed head is a draw from the prior. The learnt one is trained to bring the sum to the targets at all z at once,
each row's target with noise of its own direction, y_n + noise_n c_n . z: where there are data it undoes the fixed head
up to what their noise leaves open, and elsewhere the fixed head stays. Without a hidden layer, and on a linear
network, the functions are those of the posterior as the number of indices grows. Osband et al. 2023, Epistemic Neural
Networks; Dwaracherla et al. 2020, Hypermodels for Exploration.
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data, parts, rows, weighted
from posteria.data.batches import batch_of
from posteria.engine.loop import Kernel, Run
from posteria.errors import DataError
from posteria.machine import check_room
from posteria.methods.costs import Costed, num_batches
from posteria.methods.points.map import MAP
from posteria.models.leaf import Leaf
from posteria.models.likelihoods import factor_of
from posteria.models.target import Target
from posteria.posteriors.indexed import Head, IndexedPosterior, base_and_features, head_outputs
from posteria.settings import Count, CountFromZero, Positive, Several, check_settings

BLOCK = 1024  # rows of which features are computed at once
MAP_SHARE = 0.5  # of max_seconds


@dataclass(frozen=True)
class Epinet(Costed):
    """A trained network that knows what it does not know, for little more than its training: good joint predictions.

    `map` trains the network, which is then frozen with its noise. Beside it a network of one hidden layer of
    `num_hidden` units (0: none) is fitted to its last features (and x), by Adam with a cosine decay from
    `learning_rate`, with `num_samples` indices a step, each of `num_indices` numbers. Labels and counts have no noise
    of their own, as in the paper. Tuning tries `learning_rate`.
    """

    map: MAP = field(default_factory=MAP)
    num_indices: Several = 20
    num_hidden: CountFromZero = 50
    num_epochs: Count = 1000
    batch_size: Count | None = None
    learning_rate: Positive = 0.01
    num_samples: Several = 8

    fidelity: ClassVar[str] = "procedure"
    paper: ClassVar[str] = "Osband et al. 2023"
    tuned: ClassVar[dict[str, tuple[float, ...]]] = {"learning_rate": (1 / 3, 3.0)}

    def __post_init__(self) -> None:
        check_settings(self)

    def expected_gradients(self, num_data: int) -> float:
        """Those of the small network count as much as those of the other."""
        return self.map.expected_gradients(num_data) + self._own_gradients(num_data)

    def with_budget(self, gradients: float, num_data: int) -> "Epinet":
        share = self._own_gradients(num_data) / self.expected_gradients(num_data)
        an_epoch = self.num_samples * num_batches(num_data, self.batch_size)
        num_epochs = max(1, int(share * gradients / an_epoch))
        rest = max(1.0, gradients - num_epochs * an_epoch)
        return replace(self, num_epochs=num_epochs, map=self.map.with_budget(rest, num_data))

    def _own_gradients(self, num_data: int) -> float:
        return float(self.num_samples * self.num_epochs * num_batches(num_data, self.batch_size))

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> IndexedPosterior:
        target.check_proper()
        target.check_no_scales("the heads are drawn from a prior whose scales are known")
        if target.blank_input is None:
            raise DataError("data is None", "an x for the features' shape", "pass data=(x, None) for the prior")
        key_mode, key_fixed, key_learnt, key_noise, key_fit = jax.random.split(key, 5)
        bare = target.without_data()
        _, features = jax.eval_shape(base_and_features(bare), target.structs["network"], target.blank_input)
        shape = Shape(features.shape[1], int(target.num_outputs or 1), self.num_indices, self.num_hidden)
        self._check_room(bare, shape)
        found: Any = self.map.fit(key_mode, target, start, run.stage("mode", share=MAP_SHARE))
        params = tree.index(found.sample_params(key_mode, 1), 0)
        width = target.temperature**0.5
        fixed = jax.tree.map(lambda leaf: width * leaf, _head(bare, shape, key_fixed, is_learnt=False))
        learnt = _head(bare, shape, key_learnt, is_learnt=True)
        if target.data is not None:
            learnt = self._learn(key_noise, key_fit, target, shape, params, fixed, learnt, run)
        facts = {name: value for name, value in found.facts.items() if name.startswith("decrement")}
        return IndexedPosterior(bare, tree.ravel(params), learnt, fixed, facts)

    def _check_room(self, bare: Target, shape: "Shape") -> None:
        """Before the climb: what the two heads, a gradient and Adam's two moments take, and what a step computes."""
        head = jax.eval_shape(lambda key: _head(bare, shape, key, is_learnt=True), jax.random.key(0))
        batch_size = min(self.batch_size or bare.num_data, bare.num_data)
        a_row = max(shape.num_hidden, shape.num_outputs * shape.num_indices) * np.dtype(np.float32).itemsize
        check_room(
            5 * tree.num_bytes(head) + 2 * self.num_samples * batch_size * a_row,
            f"heads of {shape.num_hidden:,} hidden units and {shape.num_indices:,} indices",
        )

    def _learn(
        self,
        key_noise: jax.Array,
        key_fit: jax.Array,
        target: Target,
        shape: "Shape",
        params: tree.Params,
        fixed: Head,
        learnt: Head,
        run: Run,
    ) -> Head:
        data = _prepared(key_noise, target, params, shape.num_indices)
        if target.model.likelihood.kind != "regression":
            run.note("labels and counts have no noise of their own: the spread is that of the fixed head")
        batch_size = min(self.batch_size or target.num_data, target.num_data)
        num_steps = self.num_epochs * num_batches(target.num_data, self.batch_size)
        kernel = _ascent(target.without_data(), shape, self.learning_rate, num_steps, batch_size, self.num_samples)
        starts = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (learnt, fixed, params["likelihood"]))
        trace = run.stage("epinet").loop(kernel, key_fit, starts, data, num_steps=num_steps)
        found: Head = tree.index(trace.state.learnt, 0)
        return found


class Shape(NamedTuple):
    num_features: int
    num_outputs: int
    num_indices: int
    num_hidden: int


def _head(target: Target, shape: Shape, key: jax.Array, is_learnt: bool) -> Head:
    """A draw from the prior, over the indices together; one that is learnt begins at 0."""
    key_hidden, key_out, key_bias = jax.random.split(key, 3)
    below, coefficients = shape.num_features, shape.num_outputs * shape.num_indices
    head: Head = {}
    if shape.num_hidden:
        below += shape.num_indices
        units = _units(target, below)
        head["hidden"] = units[0] * jax.random.normal(key_hidden, (below, shape.num_hidden))
        head["hidden_bias"] = jnp.zeros(shape.num_hidden)
        below = shape.num_hidden
    scale = 0.0 if is_learnt else shape.num_indices**-0.5
    weight, bias = _units(target, below)
    head["out"] = scale * weight * jax.random.normal(key_out, (below, coefficients))
    head["out_bias"] = scale * bias * jax.random.normal(key_bias, (coefficients,))
    return head


def _units(target: Target, fan_in: int) -> tuple[float, float]:
    """The prior's standard deviations of a matrix with so many inputs, and of a bias."""
    dtype = np.dtype(np.float32)
    prior = target.model.prior
    return prior.unit(Leaf("epinet", (fan_in, 1), dtype, fan_in)), prior.unit(Leaf("epinet", (1,), dtype, None))


def _prepared(key: jax.Array, target: Target, params: tree.Params, num_indices: int) -> Data:
    """((outputs, features, noise (n, target, index)), y, weights): the network is frozen, and computed once."""
    x, y, weight = parts(target.data)
    both = base_and_features(target.without_data())
    blocks = [
        jax.tree.map(
            np.asarray, both(params["network"], rows(x, np.arange(first, min(first + BLOCK, target.num_data))))
        )
        for first in range(0, target.num_data, BLOCK)
    ]
    outputs, features = (np.concatenate(part) for part in zip(*blocks))
    noise = np.zeros((target.num_data, 1, num_indices), np.float32)
    if target.model.likelihood.kind == "regression":
        variance = np.asarray(target.model.likelihood.moments(params["likelihood"], jnp.asarray(outputs))[1])
        turned = np.asarray(jax.random.normal(key, (*variance.shape, num_indices)))
        turned = turned / np.linalg.norm(turned, axis=-1, keepdims=True)
        size = np.sqrt(target.temperature * np.where(np.isfinite(variance), variance, 0.0))
        if weight is not None:
            size = size * np.asarray(weight).clip(1e-30)[:, None] ** -0.5 * (np.asarray(weight) > 0)[:, None]
        noise = size[..., None] * turned
    return tree.on_device(((outputs, features, noise.astype(np.float32)), y, *([] if weight is None else [weight])))


class State(NamedTuple):
    learnt: Head
    fixed: Head
    own: tree.Params
    optimizer: tree.Tree
    batch_key: jax.Array
    step_number: jax.Array


class Info(NamedTuple):
    log_density: jax.Array
    num_gradients: jax.Array


@kept
def _ascent(
    target: Target, shape: Shape, learning_rate: float, num_steps: int, batch_size: int, num_samples: int
) -> Kernel:
    import optax

    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps))
    likelihood: Any = target.model.likelihood
    is_real = likelihood.kind == "regression"
    units = _units(target, shape.num_hidden or shape.num_features)

    def log_prior(learnt: Head) -> jax.Array:
        """Of what it adds to a function, on average over indices."""
        value: jax.Array = -0.5 * ((learnt["out"] / units[0]) ** 2).sum()
        value -= 0.5 * ((learnt["out_bias"] / units[1]) ** 2).sum()
        if "hidden" in learnt:
            unit = _units(target, shape.num_features + shape.num_indices)[0]
            value -= 0.5 * ((learnt["hidden"] / unit) ** 2).sum()
        return value

    def negative(learnt: Head, state: State, z: jax.Array, batch: Data) -> jax.Array:
        (outputs, features, noise), y, _ = parts(batch)

        def one(index: jax.Array) -> jax.Array:
            heads = (head_outputs(head, features, index, shape.num_outputs) for head in (learnt, state.fixed))
            moved = y + noise @ index if is_real else y
            terms: jax.Array = factor_of(likelihood, state.own, sum(heads, start=outputs), moved)
            return weighted(terms, batch).sum()

        log_likelihood = jax.vmap(one)(z).mean()
        log_joint: jax.Array = log_prior(learnt) + target.num_data / batch_size * log_likelihood
        return -log_joint / target.num_data

    def init(key: jax.Array, start: tuple[Head, Head, tree.Params], data: Data) -> State:
        learnt, fixed, own = start
        return State(learnt, fixed, own, optimizer.init(learnt), jax.random.key_data(key), jnp.asarray(0))

    def step(key: jax.Array, state: State, data: Data) -> tuple[State, Info]:
        batch = batch_of(data, state.batch_key, state.step_number, target.num_data, batch_size)
        half = jax.random.normal(key, ((num_samples + 1) // 2, shape.num_indices))
        z = jnp.concatenate([half, -half])[:num_samples]  # in pairs: what is odd in z has no noise
        value, gradient = jax.value_and_grad(negative)(state.learnt, state, z, batch)
        updates, rest = optimizer.update(gradient, state.optimizer, state.learnt)
        learnt = optax.apply_updates(state.learnt, updates)
        moved = state._replace(learnt=learnt, optimizer=rest, step_number=state.step_number + 1)
        return moved, Info(-value * target.num_data, jnp.asarray(num_samples))

    return Kernel(init, step)
