"""Arrays behind the report's pictures that only a posterior can give: curves, quality against draws, chains."""

from typing import Any

import jax
import numpy as np
from scipy.special import logsumexp

from posteria import diagnostics
from posteria.comparison.ask.question import Curve, Fold
from posteria.comparison.judge.convergence import FEW_ROWS, diagnose, weight_rhat
from posteria.data.arrays import num_rows, rows

CURVE_DRAWS = 20
CURVE_LEVEL = 0.9
KEY = 0


def of_posterior(posterior: Any, fold: Fold, curve: Curve | None) -> dict[str, np.ndarray]:
    """Whatever this posterior has."""
    arrays: dict[str, np.ndarray] = {}
    if curve is not None:
        arrays |= curve_of(posterior, fold, curve)
    if hasattr(posterior, "draws"):
        arrays |= by_draws(posterior, fold)
        arrays |= chains(posterior, fold)
    return arrays


def curve_of(posterior: Any, fold: Fold, curve: Curve) -> dict[str, np.ndarray]:
    predictive = fold.predict(posterior, curve.inputs)
    lower, upper = predictive.quantile_table([(1 - CURVE_LEVEL) / 2, (1 + CURVE_LEVEL) / 2])
    arrays = {
        "curve_x": curve.x,
        "curve_mean": predictive.mean[:, 0],
        "curve_std": predictive.std[:, 0],
        "curve_lower": lower[:, 0],
        "curve_upper": upper[:, 0],
        "train_x": curve.train_x,
        "train_y": fold.y_train,
    }
    if hasattr(posterior, "draws"):
        outputs, own = posterior.draws(jax.random.key(KEY), curve.inputs, CURVE_DRAWS)
        means = np.asarray(jax.vmap(posterior.model.likelihood.moments)(own, outputs)[0])[..., 0]  # (draw, g)
        arrays["curve_draws"] = means if fold.scale is None else fold.scale.invert(means)
    return {name: np.asarray(array) for name, array in arrays.items()}


def by_draws(posterior: Any, fold: Fold) -> dict[str, np.ndarray]:
    """The NLL of predictions from the first 1, 2, 5, 10, ... draws, which are spread over chains."""
    total = posterior.num_draws
    if total < 2:
        return {}
    few = np.arange(min(FEW_ROWS, num_rows(fold.x_test)))
    y = fold.y_test[few]
    if fold.scale is not None:
        y = fold.scale.apply(np.asarray(y, np.float64)).astype(np.float32)
    outputs, own = posterior.draws(jax.random.key(KEY), rows(fold.x_test, few), total)
    likelihood: Any = posterior.model.likelihood
    y = likelihood.check(y, outputs.shape[-1])
    log_probs = np.asarray(jax.vmap(lambda own, outputs: likelihood.log_prob(own, outputs, y))(own, outputs))
    log_probs = log_probs[np.random.default_rng(KEY).permutation(total)].astype(np.float64)  # (draw, row)
    jacobian = 0.0 if fold.scale is None else float(np.log(fold.scale.std).sum())
    counts = [k for power in range(6) for k in (10**power, 2 * 10**power, 5 * 10**power) if k < total] + [total]
    nll = [-(logsumexp(log_probs[:k], axis=0) - np.log(k)).mean() + jacobian for k in counts]
    return {"by_draws": np.array([counts, nll])}


def chains(posterior: Any, fold: Fold) -> dict[str, np.ndarray]:
    """R-hat in function space and in weight space, and the trace of the log density."""
    stored = getattr(posterior, "stored", None)
    if stored is None or stored.flat.shape[0] < 2 or stored.flat.shape[1] < diagnostics.chains.MIN_DRAWS:
        return {}
    arrays = {"function_rhat": diagnose(posterior, fold).rhat, "weight_rhat": weight_rhat(posterior)}
    if "log_density" in stored.info:
        arrays["trace"] = np.asarray(stored.info["log_density"])
    return arrays
