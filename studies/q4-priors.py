"""Question 4: what do priors do? Accuracy and log-likelihood of HMC over the prior's variance and family.

Izmailov et al. 2021: over variances of a Gaussian from 1/40 to 1 (CIFAR-10) and 1/160 to 1 (IMDB) accuracy moves by a
point or two and stays far above SGD's; wide ones do well; logistic and mixture priors of the same variance give nearly
the same. Here the same variances, and Gaussian, logistic, Laplace and a mixture of two Gaussians at the paper's.
Wanted: the spread of accuracies over all but the narrowest variance within three points.

    make study NAME=q4-priors                MNIST at 14 x 14: minutes
    make study NAME=q4-priors SCALE=full     MNIST, IMDB, CIFAR-10: hours; interrupted, it goes on
"""

import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
from _questions import Problem, answer, axes, fit, hmc, methods, percent, save, sweep, table

import posteria as po

VARIANCES = {"mnist": (1 / 160, 1 / 40, 1 / 10, 1 / 5, 1.0), "cifar": (1 / 40, 1 / 20, 1 / 10, 1 / 5, 1.0)}
VARIANCES["imdb"] = (1 / 160, 1 / 80, 1 / 40, 1 / 10, 1.0)
# accuracy over variances, by eye off the paper's figures; of families, its table (IMDB, variance 1/40)
PUBLISHED = {
    "cifar": {1 / 40: 0.867, 1 / 20: 0.869, 1 / 10: 0.875, 1 / 5: 0.876, 1.0: 0.880},
    "imdb": {1 / 160: 0.849, 1.0: 0.866},
}
PUBLISHED_FAMILIES = {"Gaussian": "86.6 %, -0.311", "mixture": "86.3 %, -0.317", "logistic": "86.9 %, -0.304"}
FLAT = 0.03  # of accuracy
CONVERGED = 0.9  # share of functions, for a verdict without a proviso


def families(variance: float) -> dict[str, Any]:
    """Of equal variance."""
    std = math.sqrt(variance)
    narrow = 0.5  # of the mixture: half of the weights at half of the width
    wide = math.sqrt(2 - narrow**2)
    return {
        "Gaussian": po.priors.Normal(std),
        "logistic": po.priors.Logistic(std * math.sqrt(3) / math.pi),
        "Laplace": po.priors.Laplace(std / math.sqrt(2)),
        "mixture": po.priors.ScaleMixture(wide * std, narrow * std, 0.5),
    }


def ask(asked: Problem, arguments: Namespace) -> dict[str, dict[Any, tuple[float, float, float]]]:
    print(f"\n{asked.name}: {asked.about}")
    shorter = sweep(asked, arguments.scale)
    method = shorter or hmc(asked, arguments.scale)
    length = f"{method.num_chains} chains of {method.num_warmup} + {method.num_draws}"
    print(f"HMC: {length}, at most {method.max_leapfrog} steps a draw", flush=True)
    rival = methods(asked, arguments.scale)["map"]
    mode = fit(asked, f"map-{arguments.seed}", rival, arguments.out, key=arguments.seed + 1)
    line = quality(mode, asked)
    print(f"MAP under the paper's prior: {percent(line[0])}, {line[1]:.3f} nats", flush=True)
    found: dict[str, dict[Any, tuple[float, float, float]]] = {"variance": {}, "family": {}}
    priors: list[tuple[str, Any, Any]] = [
        ("variance", value, po.priors.Normal((value * asked.widening) ** 0.5)) for value in VARIANCES[asked.name]
    ]
    priors += [("family", name, prior) for name, prior in families(asked.variance).items()]
    for kind, name, prior in priors:
        is_reference = isinstance(prior, po.priors.Normal) and math.isclose(prior.std**2, asked.variance)
        folder = f"hmc-{kind}-{name if kind == 'family' else round(1 / name)}"
        if is_reference:
            folder = "hmc" if shorter is None else "hmc-paper"
        posterior = fit(asked, folder, method, arguments.out, model=asked.model(prior))
        found[kind][name] = quality(posterior, asked)
    paper = PUBLISHED.get(asked.name, {})
    times = "" if asked.widening == 1 else f"{asked.widening:g} x "  # fewer units
    table(
        f"q4-{asked.name}-variance",
        f"HMC under N(0, {times}variance); {asked.about}; paper: accuracy, off its figure",
        ["variance", "accuracy", "log-likelihood", "converged", "paper"],
        [
            [f"1/{round(1 / v)}" if v < 1 else "1", *cells(scores), percent(paper[v]) if v in paper else ""]
            for v, scores in found["variance"].items()
        ],
    )
    table(
        f"q4-{asked.name}-family",
        f"HMC under families of variance {asked.variance:g}; paper: IMDB, accuracy and log-likelihood",
        ["family", "accuracy", "log-likelihood", "converged", "paper"],
        [[name, *cells(scores), PUBLISHED_FAMILIES.get(name, "")] for name, scores in found["family"].items()],
    )
    wide = [scores[0] for scores in list(found["variance"].values())[1:]]
    spread = max(wide) - min(wide)
    said = f"{asked.name}: accuracies over all variances but the narrowest are {100 * spread:.1f} points apart"
    least = min(scores[2] for scores in found["variance"].values())
    doubt = "" if least >= CONVERGED else f", by chains that have not met (R-hat is good at {least:.0%} at least)"
    print(f"{said} (at most {100 * FLAT:.0f}): {'met' if spread <= FLAT else 'MISSED'}{doubt}")
    above = sum(scores[0] > line[0] for scores in found["variance"].values())
    print(f"{asked.name}: above MAP's accuracy at {above} of {len(found['variance'])} variances")
    of_families = [scores[0] for scores in found["family"].values()]
    apart = 100 * (max(of_families) - min(of_families))
    print(f"{asked.name}: accuracies of families are {apart:.1f} points apart", flush=True)
    return found


def quality(posterior: po.Posterior, asked: Problem) -> tuple[float, float, float]:
    """Accuracy, log-likelihood, and the share of functions that have converged (NaN of a point)."""
    x, y = asked.test
    predictive = posterior.predict(x)
    found = posterior.diagnose(x)
    share = math.nan if found.is_point else found.share_converged
    return float(po.metrics.accuracy(predictive.probs, y)), float(np.mean(predictive.log_prob(y))), share


def cells(scores: tuple[float, float, float]) -> list[str]:
    return [percent(scores[0]), f"{scores[1]:.3f}", percent(scores[2])]


def draw(path: Path, everything: dict[str, Any]) -> None:
    figure, grid, theme = axes(2, len(everything))
    for row, (name, found) in zip(grid, everything.items()):
        for index, (axis, title) in enumerate(zip(row, ("accuracy", "log-likelihood"))):
            style = theme.METHODS[0]
            values = [scores[index] for scores in found["variance"].values()]
            axis.semilogx(
                list(found["variance"]), values, color=style.colour, marker=style.marker, label="Gaussian, HMC"
            )
            if index == 0 and name in PUBLISHED:
                axis.plot(*zip(*PUBLISHED[name].items()), "k|", ms=12, label="paper")
            at = {"imdb": 1 / 40}.get(name, 1 / 5)  # the variance of all families
            for (family, scores), style in list(zip(found["family"].items(), theme.METHODS))[1:]:
                axis.plot(at, scores[index], color=style.colour, marker=style.marker, ls="", label=family)
            axis.set_xlabel("prior variance")
            axis.set_title(f"{title}, {name}")
    grid[0, 0].legend(frameon=False, fontsize=8)
    save(figure, path)


def main() -> None:
    answer(__doc__, ask, draw)


if __name__ == "__main__":
    main()
