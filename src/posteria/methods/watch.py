"""Rows held out of training: scores of every epoch, the best epoch kept, and an end when no better one comes.

What all optimised methods share. A watched kernel is the method's own, and a judge at the end of each epoch: the log
likelihood of a row held out, under the prediction that the method would make then (the average over a few draws where
it has more than one set of weights), and the same of as many rows that it trains on.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data, is_source, parts, rows
from posteria.engine.loop import Kernel, Run, Trace
from posteria.models.densities import widen
from posteria.models.target import Target

DRAWS = 8  # of methods whose weights are random, that an epoch's prediction averages over; the same noise every time
MOST_OF_A_SOURCE = 8192  # of the rows held out of a source, that are kept in memory and scored
HOLD_OUT_STREAM = 11  # folded into a fit's key

Draw = Callable[[jax.Array, tree.Tree], tree.Params]  # (number of the draw, what was found) -> parameters
Part = Callable[[tree.Tree], tree.Tree]  # of a kernel's state, what the method has found


class HeldOut(NamedTuple):
    left_out: Data
    trained: Data  # as many rows, of those that are trained on


def hold_out(key: jax.Array, target: Target, share: float) -> tuple[Target, HeldOut | None]:
    """The target of the other rows, and a share of them; the same target where the share is 0 or there are no data."""
    if not share or target.data is None:
        return target, None
    num_held = min(max(1, round(share * target.num_data)), target.num_data - 1)
    order = np.asarray(jax.random.permutation(key, target.num_data))
    left_out, trained = order[:num_held], order[num_held:]
    most = MOST_OF_A_SOURCE if is_source(target.data) else num_held
    beside = trained[: min(num_held, len(trained), most)]
    of_rows = (rows(target.data, part) for part in (left_out[:most], beside))
    return target.of_rows(trained), HeldOut(*(tree.on_device(part) for part in of_rows))


def loop(
    run: Run,
    kernel: Kernel,
    key: jax.Array,
    starts: tree.Tree,
    target: Target,
    held: HeldOut | None,
    *,
    draw: Draw,
    part: Part,
    num_draws: int = DRAWS,
    num_epochs: int,
    steps_per_epoch: int,
    patience: int,
    final_when_late: bool = False,
) -> tuple[tree.Tree, Trace]:
    """What `part` says was found, at the best epoch where rows are held out, else at the end; and the trace, whose
    state is the kernel's own."""
    num_steps = num_epochs * steps_per_epoch
    if held is None:
        trace = run.loop(
            kernel,
            key,
            starts,
            target.data,
            num_steps=num_steps,
            final_when_late=final_when_late,
            epoch=steps_per_epoch,
        )
        return part(trace.state), trace
    score = scores(target.without_data(), draw, num_draws)
    trace = run.loop(
        watched(kernel, score, part, steps_per_epoch, patience, target.num_data),
        key,
        starts,
        (target.data, held),
        num_steps=num_steps,
        is_over=lambda info: bool(np.all(info.is_stopped)),
        final_when_late=final_when_late,
        epoch=steps_per_epoch,
    )
    return trace.state.best, trace._replace(state=trace.state.inner)


class Watched(NamedTuple):
    inner: tree.Tree  # the method's own state
    best: tree.Tree  # what it had found at the best epoch
    best_score: jax.Array
    stale_epochs: jax.Array
    num_steps: jax.Array
    scores: dict[str, jax.Array]  # of the last epoch


class Info(NamedTuple):
    log_density: jax.Array
    num_gradients: jax.Array
    is_stopped: jax.Array
    scores: dict[str, jax.Array]


@kept
def watched(
    kernel: Kernel,
    score: Callable[[tree.Tree, Data], dict[str, jax.Array]],
    part: Part,
    steps_per_epoch: int,
    patience: int,
    num_data: int,
) -> Kernel:
    def all_scores(inner: tree.Tree, held: HeldOut) -> dict[str, jax.Array]:
        found = part(inner)
        of_trained, of_left_out = score(found, held.trained), score(found, held.left_out)
        named = {_name("training", name): value for name, value in of_trained.items()}
        return named | {_name("validation", name): value for name, value in of_left_out.items()}

    def init(key: jax.Array, start: tree.Tree, data: tuple[Data, HeldOut]) -> Watched:
        train, held = data
        inner = kernel.init(key, start, train)
        none = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(all_scores, inner, held))
        zero = jnp.asarray(0)
        return Watched(inner, part(inner), jnp.full_like(none["validation"], -jnp.inf), zero, zero, none)

    def judge(state: Watched, held: HeldOut) -> Watched:
        found = all_scores(state.inner, held)
        is_better = found["validation"] > state.best_score
        best = jax.tree.map(lambda new, old: jnp.where(is_better, new, old), part(state.inner), state.best)
        return state._replace(
            best=best,
            best_score=jnp.maximum(found["validation"], state.best_score),
            stale_epochs=jnp.where(is_better, 0, state.stale_epochs + 1),
            scores=found,
        )

    def advance(key: jax.Array, state: Watched, data: tuple[Data, HeldOut]) -> tuple[Watched, Info]:
        train, held = data
        inner, info = kernel.step(key, state.inner, train)
        state = state._replace(inner=inner, num_steps=state.num_steps + 1)
        is_end = state.num_steps % steps_per_epoch == 0
        state = jax.lax.cond(is_end, lambda s: judge(s, held), lambda s: s, state)
        return state, Info(widen(info.log_density), info.num_gradients, jnp.asarray(False), state.scores)

    def step(key: jax.Array, state: Watched, data: tuple[Data, HeldOut]) -> tuple[Watched, Info]:
        # one that has stopped stands still, so that the loop may end it whenever it next looks
        like = jax.eval_shape(lambda: advance(key, state, data))[1]
        value = (state.best_score * num_data).astype(like.log_density.dtype)
        idle = Info(value, jnp.zeros((), like.num_gradients.dtype), jnp.asarray(True), state.scores)
        taken: tuple[Watched, Info] = jax.lax.cond(
            state.stale_epochs >= patience, lambda s: (s, idle), lambda s: advance(key, s, data), state
        )
        return taken

    ahead = kernel.rows
    rows_of = None if ahead is None else lambda state, steps: ahead(state.inner, steps)
    return Kernel(init, step, rows_of)


def _name(of: str, score: str) -> str:
    return of if score == "log_likelihood" else f"{of}_{score}"


def random_draw(draw: Callable[[jax.Array, tree.Tree], tree.Params]) -> Draw:
    """From a function of a key: the same noise at every epoch."""
    return lambda number, found: draw(jax.random.fold_in(jax.random.key(0), number), found)


@kept
def scores(target: Target, draw: Draw, num_draws: int) -> Callable[[tree.Tree, Data], dict[str, jax.Array]]:
    """(what was found, rows) -> the prediction's log likelihood of a row, and its accuracy or rmse."""
    likelihood: Any = target.model.likelihood
    is_classes = likelihood.kind == "classes"

    def of_draw(number: jax.Array, found: tree.Tree, batch: Data) -> tuple[jax.Array, jax.Array]:
        params = draw(number, found)
        x, y, _ = parts(batch)
        outputs = target.model.outputs(params["network"], x)
        own = params["likelihood"]
        center = likelihood.probs(own, outputs) if is_classes else likelihood.moments(own, outputs)[0]
        return widen(likelihood.log_prob(own, outputs, y)), widen(center)

    def score(found: tree.Tree, batch: Data) -> dict[str, jax.Array]:
        _, y, weight = parts(batch)
        log_probs, centers = jax.lax.map(
            lambda number: of_draw(number, found, batch), jnp.arange(num_draws)
        )  # (draw, row, ...)
        mixture = jax.scipy.special.logsumexp(log_probs, axis=0) - jnp.log(float(num_draws))
        center = centers.mean(0)
        measured = {"log_likelihood": jnp.average(mixture, weights=weight)}
        if is_classes:
            return measured | {"accuracy": jnp.average((center.argmax(-1) == y).astype(mixture.dtype), weights=weight)}
        return measured | {
            "rmse": jnp.sqrt(jnp.average(jnp.square(center - y.reshape(center.shape)).mean(-1), weights=weight))
        }

    return score
