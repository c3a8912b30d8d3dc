"""Layers and the linear function beside them, climbed apart by the same folds, and how much each of them counts.

Climbed together, layers with more weights than rows learn by heart what is left over, also where a linear function is
all there is. Apart, rows left out tell how much of each to take: stacking, Wolpert 1992, of the outputs.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import nn, tree
from posteria.compiled import kept
from posteria.data.arrays import parts
from posteria.engine.loop import Run
from posteria.methods.points import fold_climb
from posteria.methods.points.fold_climb import FoldClimb
from posteria.models.model import Model
from posteria.models.priors import ByPath, InputScales
from posteria.models.target import Target

SHARES = (1.0, 0.5, 0.0)  # of the layers; of equal ones the first is taken
LINEAR, SKIP = "layers/0/kernel", "skip"  # one leaf's name in the linear model, and in the whole network


def are_apart(model: Model) -> bool:
    """Whether the network is a sum of layers and a linear function, under a prior that knows neither by its name."""
    leaf_by_leaf = model.prior.prior if isinstance(model.prior, InputScales) else model.prior
    has_names = isinstance(leaf_by_leaf, ByPath) or hasattr(model.prior, "joint_log_prob")
    return nn.apart(model.network) is not None and not has_names


def climb(
    key: jax.Array, target: Target, folds: list[np.ndarray], run: Run, *, num_repeats: int, **settings: Any
) -> tuple[FoldClimb, float]:
    """As `fold_climb.climb`, and the share of the layers. Gradients of the linear part, some hundredths, do not count.

    Members are of the whole network: the sum of both parts' outputs, each times its share.
    """
    apart = nn.apart(target.model.network)
    assert apart is not None
    assert target.data is not None
    model, climbs, targets = target.model, [], []
    x, *rest = target.data
    first = apart[1].spec["settings"]["inputs"] if apart[1].spec else None
    for name, network, inputs in zip(("layers", "linear"), apart, (x, x[:, :first])):
        own = Target(Model(network, model.likelihood, model.prior, model.temperature), (inputs, *rest))
        stage = run if name == "layers" else run.stage(name)
        is_counted = name == "layers"
        climbs.append(
            fold_climb.climb(key, own, folds, stage, num_repeats=num_repeats, is_counted=is_counted, **settings)
        )
        targets.append(own)
    layers, linear = climbs
    _, y, weight = parts(jax.tree.map(np.asarray, target.data or (None, None)))
    outputs = np.stack([share * layers.outputs + (1 - share) * linear.outputs for share in SHARES])
    own, scores = _scores(target, fold_climb.own_of(targets[0], layers.flat.mean(0)), outputs, y, weight, len(folds))
    best = int(np.argmax(scores))
    flat = [
        _joined(target, targets, each, SHARES[best], jax.tree.map(lambda leaf: leaf[best], own))
        for each in zip(layers.flat, linear.flat)
    ]
    together = layers._replace(flat=np.stack(flat), outputs=outputs[best], log_likelihood=float(scores[best]))
    return together, SHARES[best]


def of_all(terms: np.ndarray, num_members: int, weight: np.ndarray | None = None) -> float:
    """The mean log likelihood of rows left out by the average of all members, from `terms` (repeat, row), each of one.

    An average of m members has about a + b / m: one and the average of the repeats show both. Layers gain more by
    averaging than a linear function, and one member alone would tell nothing of it.
    """
    num_repeats = len(terms)
    peak = terms.max(0)
    averaged = np.average(np.log(np.exp(terms - peak).mean(0)) + peak, weights=weight)
    if num_repeats == 1:
        return float(averaged)
    one = np.average(terms.mean(0), weights=weight)
    return float(averaged + (averaged - one) * (1 / num_repeats - 1 / num_members) / (1 - 1 / num_repeats))


def _scores(
    target: Target, first: tree.Params, outputs: np.ndarray, y: np.ndarray, weight: np.ndarray | None, num_members: int
) -> tuple[tree.Params, list[float]]:
    """The likelihood's own parameters by rows left out, and their log likelihood by all members, of each share."""
    bare, num_repeats = target.without_data(), outputs.shape[1]
    repeated = [None if each is None else np.concatenate([each] * num_repeats) for each in (y, weight)]
    stacked = outputs.reshape(len(outputs), -1, *outputs.shape[3:])
    starts = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * len(outputs)), first)
    own, _ = fold_climb.own_by_moment(bare)(starts, stacked, *repeated)
    terms = np.asarray(_terms(bare)(own, stacked, repeated[0]), np.float64)
    terms = np.where(np.isfinite(terms), terms, -math.inf).reshape(len(outputs), num_repeats, -1)
    own = jax.tree.map(np.asarray, own)
    with np.errstate(invalid="ignore"):
        scores = [of_all(each, num_members, weight) for each in terms]
    return own, [score if math.isfinite(score) else -math.inf for score in scores]


@kept
def _terms(target: Target) -> Any:
    return jax.jit(jax.vmap(target.model.likelihood.log_prob, in_axes=(0, 0, None)))


def _joined(
    target: Target, targets: list[Target], flats: tuple[np.ndarray, ...], share: float, own: tree.Params
) -> np.ndarray:
    """One member's weights in the whole network."""
    layers, linear = (tree.unraveller(part.structs)(flat) for part, flat in zip(targets, flats))
    inner, outer = layers["network"]["layers"], linear["network"]["layers"]["0"]
    last = str(len(inner) - 1)
    top = {
        "kernel": share * inner[last]["kernel"],
        "bias": share * inner[last]["bias"] + (1 - share) * outer["bias"],
    }
    params = {"network": {"layers": inner | {last: top}, SKIP: (1 - share) * outer["kernel"]}, "likelihood": own}
    if target.scales:
        scales = layers["prior"] | {SKIP: linear["prior"].get(LINEAR)}
        params["prior"] = {path: scales[path] for path in target.structs["prior"]}
    params = jax.tree.map(lambda leaf, like: jnp.broadcast_to(leaf, like.shape), params, target.structs)
    return np.asarray(tree.ravel(params))
