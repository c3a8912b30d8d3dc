"""What the evidence says of scales and noise, checked by rows that are held out.

A network that is linearised where it was trained bends more freely than training lets it bend. So where weights
outnumber rows, its variances, with the scales and the noise of the evidence, are larger than the squares of its errors
on other rows (`benchmarks/learnt_scales.py`). Here weights are found, and variances measured, without a share of the
rows; those of noise and prior alike are then multiplied by the mean of squared error over variance on these. The mode
stays where it is, for what the noise is to the prior stays.
"""

import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from posteria import tree
from posteria.curvature.jacobian import factored
from posteria.curvature.measure import measure
from posteria.data.arrays import Data, parts
from posteria.engine.loop import Run
from posteria.methods import watch
from posteria.methods.points.map import MAP
from posteria.methods.points.tuning import prior_precision, tuning_settings
from posteria.models.target import Target
from posteria.posteriors.linearised import LaplacePosterior

HELD_OUT = 0.2  # of the rows
CHECK_STREAM = 4  # folded into the key of the climb before


def cross_checked(climber: MAP, key: jax.Array, target: Target, params: tree.Params, run: Run) -> tree.Params:
    """Of a target with scales: `params` with the likelihood's own parameters and the scales that the held-out rows ask
    for; as they are where the evidence is to be trusted, or there is no noise to infer."""
    is_checked = target.data is not None and target.temperature == 1.0
    likelihood: Any = target.model.likelihood
    has_noise = hasattr(likelihood, "noise_std") and jax.tree.leaves(params["likelihood"])
    if not is_checked or not has_noise or tree.size(target.structs["network"]) < target.total_weight:
        return params
    key_split, key_init, key_climb, key_measure = jax.random.split(jax.random.fold_in(key, CHECK_STREAM), 4)
    part, held = watch.hold_out(key_split, target.holding("prior", "likelihood"), HELD_OUT)
    assert held is not None
    x, y, weight = parts(held.left_out)
    ascent = replace(climber, tune=None, validation=0.0, num_epochs=max(1, climber.num_epochs // 2))
    start = part.init(key_init) | {name: value for name, value in params.items() if name != "network"}
    climbed = ascent.climb(key_climb, part, tree.stack([start]), run.stage("held out"), final_when_late=True)
    mean, variances = _moments(part, tree.index(climbed.params, 0), x, key_measure)
    noise = np.asarray(likelihood.noise_std(params["likelihood"]), np.float64)
    ratios = (np.asarray(y, np.float64).reshape(mean.shape) - mean) ** 2 / (variances + noise**2)
    factor = float(np.average(ratios.mean(1), weights=weight))
    run.note(f"scales and noise have {factor:.2g} times the evidence's variances, as {len(mean)} held-out rows ask for")
    return params | {part: _with_variances(params[part], factor) for part in ("likelihood", "prior")}


def _moments(target: Target, params: tree.Params, x: Data, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of the linearised outputs, (n, output) each."""
    settings = tuning_settings(target)
    prior = prior_precision(target, params)[factored(target.without_data(), settings.paths).order]
    precision = measure(target, params, target.data, settings, prior, key)
    size = tree.size(params["likelihood"])
    posterior = LaplacePosterior(target, tree.ravel(params), precision, np.zeros((size, size)), paths=settings.paths)
    mean, covariance = posterior.function_moments(x)
    return np.asarray(mean, np.float64), np.diagonal(covariance, axis1=1, axis2=2).astype(np.float64)


def _with_variances(own: tree.Params, factor: float) -> tree.Params:
    """Logarithms of scales and of the noise's precision, with variances `factor` times theirs."""
    shares = {"scale": 0.5, "log_precision": -1.0}
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf + shares.get(path[-1].key, 0.0) * math.log(factor), own
    )
