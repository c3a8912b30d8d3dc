"""The mode of the posterior, by gradient ascent on the log density."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

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
from posteria.methods.costs import EpochCosts, num_batches
from posteria.methods.points.learnt_scales import settled
from posteria.methods.points.polish import SHARE as POLISH_SHARE
from posteria.methods.points.polish import measured, polish
from posteria.models.target import Target, check_starts, log_densities
from posteria.posteriors.base import Posterior
from posteria.posteriors.draws import Draws, DrawsPosterior
from posteria.posteriors.mixture import MixturePosterior
from posteria.settings import Count, Optimizer, Positive, Share, check_settings, refuse_idle

if TYPE_CHECKING:
    import optax


@dataclass(frozen=True)
class MAP(EpochCosts):
    """The single best network, where a point is enough or as a start: the mode, as training with weight decay finds it.

    `batch_size=None` is the full batch. `optimizer` is any Optax transformation of the network's own tree; by default
    Adam with a cosine decay from `learning_rate` to 0. With `validation` a share of the rows is held out, the best
    parameters by their likelihood are kept, and training stops after `patience` epochs without a better one.

    `tune` sets what the evidence can set, each `tune_every` epochs of the first half: "noise" the likelihood's own
    parameters, "evidence" also one scale of the prior, "layers" also one for each leaf. The posterior's model then has
    the tuned prior. Scales that the prior infers are set by the evidence in such rounds, with the likelihood's own
    parameters, before the climb, and held in it.

    `polish` goes on to a stationary point by L-BFGS on all rows, in at most a fifth as many steps or about a second's;
    None does so where batches are full, no rows are held out and nothing is augmented. `facts["decrement"]` says how
    far from a mode the weights are, in nats that a Newton step would gain. A budget leaves it out. Tuning tries
    `learning_rate`.
    """

    num_epochs: Count = 1000
    batch_size: Count | None = None
    learning_rate: Positive = 0.01
    optimizer: Optimizer | None = None
    validation: Share = 0.0
    patience: Count = 50
    tune: Literal["noise", "evidence", "layers"] | None = None
    tune_every: Count = 100
    polish: bool | None = None

    fidelity: ClassVar[str] = "point"
    paper: ClassVar[str] = "MacKay 1992; Kingma & Ba 2015 (Adam); Liu & Nocedal 1989 (L-BFGS)"

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.optimizer is not None, "learning_rate", "the optimizer")
        if self.tune and self.validation:
            raise SettingError("tune and validation", "one of them", "the evidence needs no rows held out")
        if self.polish and self.validation:
            raise SettingError("polish and validation", "one of them", "held-out rows choose where it stops")

    def climb_gradients(self, num_data: int) -> float:
        """Of the climb alone."""
        return float(self.num_epochs * num_batches(num_data, self.batch_size))

    def expected_gradients(self, num_data: int) -> float:
        share = POLISH_SHARE if self._polishes(num_data) else 0.0
        return self.climb_gradients(num_data) + share * self.num_epochs

    def with_budget(self, gradients: float, num_data: int) -> Any:
        return super(MAP, replace(self, polish=False)).with_budget(gradients, num_data)

    def _polishes(self, num_data: int) -> bool:
        if self.polish is not None:
            return self.polish
        return not self.validation and (not self.batch_size or self.batch_size >= num_data)

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> Posterior:
        return self.fit_members(key, target, start, run, 1)

    def fit_members(self, key: jax.Array, target: Target, start: tree.Params, run: Run, size: int) -> Posterior:
        """`size` modes from as many starts, as chains of one draw."""
        is_full = not self.batch_size or self.batch_size >= target.num_data
        polishes = self._polishes(target.num_data) and (target.augment is None or bool(self.polish))
        found = self.find(key, target, start, run, size, polishes)
        members: list[Posterior] = [
            DrawsPosterior(
                modes.target,
                Draws(
                    modes.target.structs,
                    np.asarray(tree.ravel_each(modes.params))[:, None],  # (member, 1, size)
                    {"log_density": modes.log_density[:, None]},
                ),
                measured(modes.target, modes.params, run, modes.held, self.remedy(is_full)),
            )
            for modes in found
        ]
        if len(members) == 1:
            return members[0]
        worst = max((member.facts for member in members), key=lambda facts: facts.get("decrement", 0.0))
        return MixturePosterior(target, members, dict(worst))

    def find(
        self, key: jax.Array, target: Target, start: tree.Params, run: Run, size: int, polishes: bool
    ) -> "list[Modes]":
        """`size` modes from as many starts; each by itself where it has a prior of its own, else all together."""
        key_start, key_climb = jax.random.split(key)
        if start is None:
            starts, note = target.several_inits(key_start, size)
            run.note(note)
        else:
            starts = target.as_starts(start, size)
        if self.tune:
            target.check_no_scales(f"MAP sets its scales by the evidence, and tune={self.tune!r} as well")
        if self.tune and target.data is not None:
            found = self._find_tuned(key_climb, target, starts, run, size)
        else:
            held = target.holding("prior")
            if target.scales and target.data is not None:
                held, starts = settled(self, key_climb, target, starts, run)
            climbed = self.climb(key_climb, held, starts, run)
            found = [Modes(target, climbed.params, climbed.log_density, held.held, run)]
        return [modes.polished(key_climb, self.num_epochs) for modes in found] if polishes else found

    def _find_tuned(self, key: jax.Array, target: Target, starts: tree.Params, run: Run, size: int) -> "list[Modes]":
        from posteria.methods.points.tuning import climb_tuned

        if target.temperature != 1.0:
            raise SettingError(
                f"tune is {self.tune!r} at temperature {target.temperature}",
                "temperature 1: there is no evidence at another",
                "leave tune out, and choose T by held-out data",
            )
        found = []
        for i, key_member in enumerate(jax.random.split(key, size)):
            stage = run if size == 1 else run.stage(f"member {i + 1}", share=1 / (size - i))
            tuned, climbed = climb_tuned(self, key_member, target, tree.index(starts, i), stage)
            found.append(Modes(tuned, climbed.params, climbed.log_density, ("likelihood",), stage))
        return found

    def remedy(self, is_full: bool) -> str:
        """What brings weights that are not at a mode closer to one."""
        if self.validation:
            return "held-out rows chose where to stop"
        if self.polish is False or not is_full:
            return "polish=True goes on to one"
        return "more epochs come closer"

    def climb(
        self, key: jax.Array, target: Target, starts: tree.Params, run: Run, final_when_late: bool = False
    ) -> "Climbed":
        """Ascend from every start (leading axis); `final_when_late` as in `Run.loop`."""
        target.check_proper()
        key_split, key_loop = jax.random.split(key)
        target, held = watch.hold_out(key_split, target, self.validation)
        batch_size = min(self.batch_size or target.num_data, target.num_data)
        check_starts(target, starts, num_rows=batch_size)
        steps_per_epoch = math.ceil(target.num_data / batch_size) if batch_size else 1
        bare = target.without_data()
        kernel = ascent(bare, self.optimizer, self.learning_rate, self.num_epochs, steps_per_epoch, batch_size)
        found, trace = watch.loop(
            run,
            kernel,
            key_loop,
            tree.on_device(tree.as_wide(starts)),
            target,
            held,
            draw=_narrowed(bare),
            part=_params_of,
            num_draws=1,
            num_epochs=self.num_epochs,
            steps_per_epoch=steps_per_epoch,
            patience=self.patience,
            final_when_late=final_when_late,
        )
        found = tree.on_device(tree.cast_like(found, target.structs))
        if held is None:
            return Climbed(found, trace.info.log_density[:, -1])
        return Climbed(found, log_densities(target, found, num_rows=batch_size))


class Modes(NamedTuple):
    """What a climb has found; the parts `held` were set by other means than climbing."""

    target: Target  # with its tuned prior
    params: tree.Params  # with a leading axis
    log_density: np.ndarray  # (start,)
    held: tuple[str, ...]
    run: Run

    def polished(self, key: jax.Array, num_epochs: int) -> "Modes":
        if self.run.skips():
            return self
        params, log_density = polish(key, self.target, self.params, self.run, num_epochs, self.held)
        return self._replace(params=params, log_density=log_density)


class Climbed(NamedTuple):
    params: tree.Params  # with a leading axis of starts
    log_density: np.ndarray  # (start,), of a batch


class Ascent(NamedTuple):
    params: tree.Params  # in 32 bits at least: steps are too small for weights in 16 to feel
    optimizer: tree.Tree
    batch_key: jax.Array
    step_number: jax.Array


class Info(NamedTuple):
    log_density: jax.Array
    num_gradients: jax.Array


def _params_of(state: Ascent) -> tree.Params:
    return state.params


@kept
def _narrowed(target: Target) -> watch.Draw:
    structs = target.structs
    return lambda number, params: tree.cast_like(params, structs)


@kept
def ascent(
    target: Target,
    optimizer: "optax.GradientTransformation | None",
    learning_rate: float,
    num_epochs: int,
    steps_per_epoch: int,
    batch_size: int,
) -> Kernel:
    import optax

    if optimizer is None:
        optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, num_epochs * steps_per_epoch))
    structs = target.structs

    def init(key: jax.Array, start: tree.Params, data: Data) -> Ascent:
        return Ascent(start, optimizer.init(start), jax.random.key_data(key), jnp.asarray(0))

    def negative_log_density(params: tree.Params, batch: Data) -> jax.Array:
        """Per datum, so that a learning rate means the same for any amount of data."""
        return -target.log_density(tree.cast_like(params, structs), batch) / max(target.num_data, 1)

    def step(key: jax.Array, state: Ascent, data: Data) -> tuple[Ascent, Info]:
        del key  # batches follow the chain's own key and the step's number
        batch = batch_of(data, state.batch_key, state.step_number, target.num_data, batch_size, target.augment)
        value, gradient = jax.value_and_grad(negative_log_density)(state.params, batch)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        if target.held:  # nor may an optimiser's weight decay
            params |= {part: state.params[part] for part in target.held}
        state = state._replace(params=params, optimizer=optimizer_state, step_number=state.step_number + 1)
        return state, Info(-value * max(target.num_data, 1), jnp.asarray(1))

    return Kernel(init, step, rows_ahead(target.num_data, batch_size))
