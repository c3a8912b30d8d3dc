"""Scales of the prior for methods that find modes: those under which the data are most probable, weights integrated.

The mode of scales and weights together is at scales of 0, where the density has no bound, and so it is with the scales
integrated out. Laplace's approximation to the evidence, times the scales' prior, has a maximum. With the curvature H at
the mode and gamma_i = 1 - prior_i (H + prior)^-1_ii, the share of weight i that the data determine, its slope in the
logarithm of weight i's scale is prior_i w_i^2 - gamma_i (MacKay 1992). A round climbs with the scales held, measures
gamma, and moves the scales to where that slope, gamma held, and their prior's cancel.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.curvature.jacobian import factored
from posteria.curvature.measure import Settings, measure
from posteria.engine.loop import Run
from posteria.methods.points.tuning import check_gaussian, own_by_evidence, prior_precision, tuning_settings
from posteria.models.target import Target

NEWTON_STEPS, LARGEST_STEP, LEAST_CURVATURE = 50, 1.0, 1e-6  # of logarithms
STEPS_A_ROUND, LEAST_MOVE = 3, 0.01  # at most, and of logarithms
SCALES_STREAM = 3  # folded into the key of the climb that follows
LEAST_LOG, MOST_LOG = -7.0, 7.0  # of a weight's scale: beyond, the next measurement is not to be trusted


def settled(climber: Any, key: jax.Array, target: Target, starts: tree.Params, run: Run) -> tuple[Target, tree.Params]:
    """The target with scales held, and the likelihood's own parameters, and the starts (leading axis) with those that
    the evidence sets. Of a target with data, and scales to infer.

    `climber` is the MAP that will climb on from there. They are found from the first start, and serve all: they are
    the model's, not a mode's. The evidence is that of temperature 1.
    """
    check_gaussian(target, tree.index(starts, 0))
    at_one = target if target.temperature == 1.0 else Target(replace(target.model, temperature=1.0), target.data)
    key = jax.random.fold_in(key, SCALES_STREAM)
    found = set_scales(climber, key, at_one, tree.index(starts, 0), run)
    size = tree.length(starts)
    if size > 1:  # each climbs from its own weights
        found = {part: value for part, value in found.items() if part != "network"}
    found = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (size, *np.shape(leaf))), found)
    return target.holding("prior", "likelihood"), starts | found


def set_scales(climber: Any, key: jax.Array, target: Target, start: tree.Params, run: Run) -> tree.Params:
    """From one start, parameters with scales and own parameters that the evidence has set.

    Half of the climber's epochs find a mode, at scales of 1 and with own parameters that are free: a noise that was
    held from the start would explain all there is. Then come rounds of `tune_every` epochs, half of its epochs again.
    """
    key, key_climb = jax.random.split(key)
    first = replace(climber, tune=None, validation=0.0, num_epochs=max(1, climber.num_epochs // 2))
    climbed = first.climb(
        key_climb, target.holding("prior"), tree.stack([start]), run.stage("scales 0", share=0.3), final_when_late=True
    )
    num_rounds = max(1, climber.num_epochs // 2 // climber.tune_every)
    ascent = replace(first, num_epochs=min(climber.tune_every, climber.num_epochs))
    settings, held = tuning_settings(target), target.holding("prior", "likelihood")
    for number in range(1, num_rounds + 1):
        key, key_climb, key_measure = jax.random.split(key, 3)
        params = at_given_weights(target, tree.index(climbed.params, 0), settings, key_measure, STEPS_A_ROUND)
        stage = run.stage(f"scales {number}", share=0.5 / (num_rounds + 1 - number))
        climbed = ascent.climb(key_climb, held, tree.stack([params]), stage, final_when_late=True)
    return at_given_weights(target, tree.index(climbed.params, 0), settings, key, STEPS_A_ROUND)


def at_given_weights(
    target: Target, params: tree.Params, settings: Settings, key: jax.Array, most_steps: int = 30
) -> tree.Params:
    """Scales and own parameters for weights that stay where they are."""
    for key_round in jax.random.split(key, most_steps):
        before = params
        params = retuned(target, params, settings, key_round)
        if _largest_move(before, params) < LEAST_MOVE:
            break
    return params


def _largest_move(before: tree.Params, after: tree.Params) -> float:
    """Of scales and own parameters."""
    first, last = ({name: params[name] for name in params if name != "network"} for params in (before, after))
    return float(np.abs(np.asarray(tree.ravel(last)) - np.asarray(tree.ravel(first))).max())


def retuned(target: Target, params: tree.Params, settings: Settings, key: jax.Array) -> tree.Params:
    """Scales and the likelihood's own parameters, one step on."""
    network = factored(target.without_data(), settings.paths)
    prior = prior_precision(target, params)
    precision = measure(target, params, target.data, settings, prior[network.order], key)
    determined = np.zeros(len(prior))
    determined[network.order] = 1 - prior[network.order] * np.asarray(precision.variances, np.float64)
    own = own_by_evidence(target, params, precision, settings) if jax.tree.leaves(params["likelihood"]) else {}
    squares, is_network = _squares(target, params, prior)
    scales = _slope(target.without_data()).maximum(params["prior"], squares, determined[is_network])
    return params | {"likelihood": own or params["likelihood"], "prior": scales}


def log_integral(target: Target, params: tree.Params) -> float:
    """log of the integral over the scales of their prior times the evidence, over the evidence at `params`: Laplace's
    method again. Of a target with scales."""
    squares, _ = _squares(target, params, prior_precision(target, params))
    curvature = np.asarray(_slope(target.without_data()).curvature(params["prior"], squares), np.float64)
    log_prior = float(target.scales.log_prior(params["prior"]))
    return log_prior + 0.5 * (len(curvature) * math.log(2 * math.pi) - float(np.linalg.slogdet(curvature)[1]))


def _squares(target: Target, params: tree.Params, prior: np.ndarray) -> tuple[np.ndarray, slice]:
    """prior_i w_i^2 of the network's weights, and where these are in the flat parameters."""
    is_network = slice(tree.size(params["likelihood"]), len(prior) - tree.size(params["prior"]))
    return (prior * np.asarray(tree.ravel(params), np.float64) ** 2)[is_network], is_network


class Slope(NamedTuple):
    """What a round knows of the log evidence and the scales' prior, as functions of the scales."""

    maximum: Callable[[tree.Params, np.ndarray, np.ndarray], tree.Params]  # (scales now, squares, gamma) -> scales
    curvature: Callable[[tree.Params, np.ndarray], jax.Array]  # (scales, squares) -> of the negative, there


@kept
def _slope(target: Target) -> Slope:
    unravel = tree.unraveller(target.structs["prior"])
    shapes = [leaf.shape for leaf in target.leaves]

    def logs(flat: jax.Array) -> jax.Array:
        """Of every weight: (size,)."""
        each = zip(target.scales.logs(unravel(flat)), shapes)
        return jnp.concatenate([jnp.broadcast_to(log, shape).ravel() for log, shape in each])

    def value(flat: jax.Array, now: jax.Array, squares: jax.Array, determined: jax.Array) -> jax.Array:
        """Concave, since the logarithms are linear in the parameters."""
        log = logs(flat)
        gain = -0.5 * squares * jnp.exp(2 * (now - log)) - determined * log
        return gain.sum() + target.scales.log_prior(unravel(flat))

    @jax.jit
    def maximum(own: tree.Params, squares: jax.Array, determined: jax.Array) -> tree.Params:
        first = tree.ravel(own)
        now = logs(first)

        def newton(flat: jax.Array, _: None) -> tuple[jax.Array, None]:
            gradient, hessian = (derive(value)(flat, now, squares, determined) for derive in (jax.grad, jax.hessian))
            move = jnp.linalg.solve(LEAST_CURVATURE * jnp.eye(len(flat)) - hessian, gradient)
            return (flat + move.clip(-LARGEST_STEP, LARGEST_STEP)).clip(LEAST_LOG, MOST_LOG), None

        return unravel(jax.lax.scan(newton, first, None, length=NEWTON_STEPS)[0])

    @jax.jit
    def curvature(own: tree.Params, squares: jax.Array) -> jax.Array:
        flat = tree.ravel(own)
        hessian: jax.Array = jax.hessian(value)(flat, logs(flat), squares, jnp.zeros_like(squares))
        return -hessian

    return Slope(maximum, curvature)
