"""One scale of the prior, or one a leaf, for weights that stay where they are: by the evidence, or by rows held out.

At given weights the log evidence is log p(data | w) + log p(w | scale) - log det(H + prior) / 2 up to a constant, and
its maximum over the scale is a fixed point of |w|^2 / gamma (MacKay 1992). Held-out rows judge a scale by their density
under the linearised prediction of the other rows' curvature; they should be new to weights that came trained.
Immer et al. 2021; Daxberger et al. 2021.
"""

import jax
import numpy as np

from posteria import tree
from posteria.curvature.jacobian import factored
from posteria.curvature.measure import Settings, measure
from posteria.data.arrays import parts
from posteria.engine.loop import Run
from posteria.errors import SettingError
from posteria.methods import watch
from posteria.methods.points.tuning import fit_own, fit_scales, prior_precision, with_scales
from posteria.models.priors import normal_of
from posteria.models.target import Target
from posteria.posteriors.linearised import LaplacePosterior

HELD_OUT = 0.2  # of the rows
LEAST_LOG, MOST_LOG = np.log(1e-3), np.log(1e3)  # of the prior's own scale
NUM_FIRST, NUM_CLOSER = 13, 9  # scales that are tried, and then closer ones around the best


def tuned(
    tune: str, key: jax.Array, target: Target, params: tree.Params, settings: Settings, run: Run
) -> tuple[Target, tree.Params]:
    """The target with the prior that suits these weights, and the likelihood's own parameters under it."""
    target.check_no_scales("its scales are set by the evidence already")
    if target.data is None:
        raise SettingError(f"tune_prior is {tune!r} without data", "rows that tell a scale", "pass data=(x, y)")
    if target.temperature != 1.0:
        raise SettingError(
            f"tune_prior is {tune!r} at temperature {target.temperature}", "temperature 1", "leave it out"
        )
    if any(normal_of(target.model.prior, leaf) is None for leaf in target.leaves):
        raise SettingError(f"the prior {target.model.prior!r}", "a Normal one, to tune its scale", "see po.priors")
    if tune == "validation":
        scale = _by_validation(key, target, params, settings)
        run.note(f"the prior has {scale:.2g} times its scale, as held-out rows are predicted best; they should be new")
        found = with_scales(target, np.full(len(target.leaves), scale))
        has_own = bool(jax.tree.leaves(params["likelihood"]))
        return found, fit_own(found, params, settings, key) if has_own else params
    return fit_scales(target, params, settings, tune == "layers", key)


def _by_validation(key: jax.Array, target: Target, params: tree.Params, settings: Settings) -> float:
    part, held = watch.hold_out(key, target, HELD_OUT)
    assert held is not None  # there are data
    x, y, weight = parts(held.left_out)
    own = fit_own(part, params, settings, key) if jax.tree.leaves(params["likelihood"]) else params
    precision = prior_precision(part, own)[factored(part.without_data(), settings.paths).order]

    def score(log_scale: float) -> float:
        measured = measure(part, own, part.data, settings, precision * np.exp(-2 * log_scale), key)
        size = tree.size(own["likelihood"])
        still = np.zeros((size, size))
        posterior = LaplacePosterior(part, tree.ravel(own), measured, still, paths=settings.paths)
        return float(np.average(posterior.predict(x).log_prob(y), weights=weight))

    tried = np.linspace(LEAST_LOG, MOST_LOG, NUM_FIRST)
    best = tried[int(np.argmax([score(each) for each in tried]))]
    closer = best + (tried[1] - tried[0]) * np.linspace(-1, 1, NUM_CLOSER)
    return float(np.exp(closer[int(np.argmax([score(each) for each in closer]))]))
