"""What a fit has learnt of the prior's scales, as numbers for its facts."""

from typing import Any

import jax
import numpy as np

from posteria import tree
from posteria.models.target import Target
from posteria.tree import Json

DRAWS = 200  # of posteriors that hold none, and whose Gaussian is not at hand
SUMMARY_KEY = 0
MOST_SHOWN = 20  # inputs that are told one by one


def prior_scales(posterior: Any) -> dict[str, Json]:
    """By leaf: mean, standard deviation, and quantiles of its scale; under "inputs" lists of them, one an input."""
    target: Target = posterior.target
    draws = _logarithms(posterior)
    found: dict[str, Json] = {}
    for path, own in draws.items():
        for name in own:
            alone = {other: value if other == name else np.zeros_like(value) for other, value in own.items()}
            factors = np.exp(
                np.asarray(jax.vmap(lambda one, path=path: target.scales.log(path, one))(alone), np.float64)
            )
            summary = _summary(factors.reshape(len(factors), -1))
            if name == "scale":
                found[path] = {key: value[0] for key, value in summary.items()} | found.get(path, {})
            else:
                found.setdefault(path, {})[name] = summary
    return found


def in_words(scales: dict[str, Json]) -> str:
    """What `prior_scales` found, on one line."""
    said = []
    for path, own in scales.items():
        if "mean" in own:
            said.append(f"{path} {own['mean']:.3g} ({own['q05']:.3g} to {own['q95']:.3g})")
        for name, several in ((name, part) for name, part in own.items() if isinstance(part, dict)):
            shown = ", ".join(f"{mean:.2g}" for mean in several["mean"][:MOST_SHOWN])
            more = f" and {len(several['mean']) - MOST_SHOWN} more" if len(several["mean"]) > MOST_SHOWN else ""
            said.append(f"{path}, its {name} {shown}{more}")
    return "; ".join(said)


def _summary(draws: np.ndarray) -> dict[str, list[float]]:
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    parts = {"mean": draws.mean(0), "sd": draws.std(0), "q05": low, "q95": high}
    return {name: [float(f"{value:.4g}") for value in part] for name, part in parts.items()}


def _logarithms(posterior: Any) -> dict[str, dict[str, np.ndarray]]:
    """Draws of what is inferred, with a leading axis."""
    structs = posterior.target.structs
    if hasattr(posterior, "spread"):  # by the quantiles of its marginals, which need no draw of all weights
        from scipy.special import ndtri

        size = tree.size(structs["prior"])  # "prior" comes last in the flat vector
        mean, std = np.asarray(posterior.mean)[-size:], np.sqrt(np.asarray(posterior.spread.variances))[-size:]
        points = ndtri((np.arange(DRAWS) + 0.5) / DRAWS)
        return _on_host(tree.unraveller(structs["prior"])(mean + std * points[:, None]))
    if hasattr(posterior, "stored"):
        prior = posterior.stored.params["prior"]
        return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:]), prior)
    if isinstance(getattr(posterior, "members", None), list):
        parts = [_logarithms(member) for member in posterior.members]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    return _on_host(posterior.sample_params(jax.random.key(SUMMARY_KEY), DRAWS)["prior"])


def _on_host(params: Any) -> Any:
    return jax.tree.map(np.asarray, params)
