"""Finite networks approach their Gaussian process: posteriors by NUTS at growing widths beside the limit's closed form.

One hidden layer of tanh units under the fan-in prior, on points of a wave with a gap; the Wasserstein-2 distance
between the posterior of f(x) at each width and the limit's, averaged over x, and the error that sampling itself would
make (of as many independent draws of the limit as the chains have effective ones). Neal 1996; Matthews et al. 2018,
section 5.

    make study NAME=infinite-width               widths 3, 10 and 30: some minutes
    make study NAME=infinite-width SCALE=full    up to 300 and longer chains: some minutes
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
from _study import begin, row

import posteria as po

WIDTHS = {"small": (3, 10, 30), "full": (3, 10, 30, 100, 300)}
DRAWS = {"small": 300, "full": 1000}  # a chain, of four
NOISE = 0.1
LINE = np.linspace(-2.5, 2.5, 40, dtype=np.float32)[:, None]
PRIOR = po.priors.FanIn(scale=2.0)  # so that the wave is no surprise


def wave() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-2, -0.7, 6), rng.uniform(0.5, 2, 6)]).astype(np.float32)[:, None]
    return x, (np.sin(2 * x[:, 0]) + NOISE * rng.normal(size=12)).astype(np.float32)


def distance(draws: np.ndarray, mean: np.ndarray, std: np.ndarray) -> float:
    """Wasserstein-2 of each column of draws from N(mean, std^2), averaged: by quantiles."""
    from scipy.special import ndtri

    wanted = mean + std * ndtri((np.arange(len(draws)) + 0.5) / len(draws))[:, None]
    return float(np.sqrt(((np.sort(draws, axis=0) - wanted) ** 2).mean(0)).mean())


def main() -> None:
    args = begin(__doc__, picture=True)
    data = wave()

    def model(width: int) -> po.Model:
        return po.Model(po.nn.mlp((width,), activation="tanh"), po.likelihoods.Gaussian(NOISE), PRIOR)

    limit = po.fit(model(10), data, po.InfiniteWidth(), progress=False)
    mean, variance = limit.moments(LINE)
    mean, std = mean[:, 0], np.sqrt(variance)
    widths, found = (8, 22, 16, 14, 12), {}
    row(["width", "distance from limit", "of sampling", "least ESS", "R-hat"], widths)
    for width in WIDTHS[args.scale]:
        method = po.NUTS(num_chains=4, num_draws=DRAWS[args.scale], num_warmup=DRAWS[args.scale])
        out = args.out / str(width)
        posterior = po.fit(
            model(width), data, method, key=args.seed, out=out, if_exists="resume", progress=args.progress
        )
        draws = np.asarray(posterior.functions(0, LINE, posterior.num_draws))[..., 0]
        diagnosis = posterior.diagnose(LINE)
        effective = int(np.median(diagnosis.ess))
        rng = np.random.default_rng(0)
        floor = np.mean([distance(mean + std * rng.normal(size=(effective, 40)), mean, std) for _ in range(20)])
        found[width] = distance(draws, mean, std), draws
        row([width, found[width][0], float(floor), float(diagnosis.ess.min()), float(diagnosis.rhat.max())], widths)
    distances = [value for value, _ in found.values()]
    falls = all(b < a for a, b in pairwise(distances))
    print("\nthe distance falls with every width" if falls else "\nthe distance does NOT fall with every width")
    if args.picture:
        draw(args.picture, data, mean, std, {width: draws for width, (_, draws) in found.items()})


def draw(file: Path, data: tuple[np.ndarray, np.ndarray], mean: np.ndarray, std: np.ndarray, found: dict) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(found), figsize=(4 * len(found), 3.4), layout="constrained", sharey=True)
    for axes, (width, draws) in zip(panels, found.items()):
        axes.fill_between(LINE[:, 0], mean - 2 * std, mean + 2 * std, color="#0072B2", alpha=0.25, label="limit")
        for level in (2.275, 97.725):
            axes.plot(LINE[:, 0], np.percentile(draws, level, axis=0), color="#D55E00", lw=1)
        axes.plot(LINE[:, 0], draws.mean(0), color="#D55E00", label="NUTS")
        axes.plot(*data, "k.", ms=5)
        axes.set(title=f"{width} hidden units", xlabel="x")
    panels[0].legend(fontsize=8)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
