"""Bayes by Backprop on MNIST and its weights removed by signal-to-noise, beside the published table.

Blundell et al. 2015, tables 1 and 2: two hidden layers of 1200 ReLU units, a scale mixture prior, pixels / 126, 50,000
rows to train on and 10,000 to choose settings by; then weights with the smallest |mean| / std are removed, without
training again. The errors are of the network at the means that are left, after the last epoch.

What makes weights removable is that fits begin with the narrow part's spread: a weight that the data do not hold is
then drawn into that part, its mean to 0. Begun wider, all weights stay in the wide part, and none of them is noise.

The posterior is a cold one (the paper does not say so of its own, nor how far from the optimum of its bound it
stopped): at temperature 1 the optimum removes more than the network can spare, which `--temperature 1` shows.

    make study NAME=bbb-pruning               scikit-learn's digits, 2 x 100 units, a minute
    make study NAME=bbb-pruning SCALE=full    MNIST; interrupted, it goes on where it was (--out)
    python studies/bbb-pruning.py --scale full --temperature 1
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from _study import begin, error, error_of_means, two_rates

import posteria as po

PUBLISHED = {0.0: 1.24, 0.5: 1.24, 0.75: 1.24, 0.95: 1.29, 0.98: 1.39}  # share removed -> test error %
UNPRUNED_TARGET, DIFFERENCE_TARGET = 1.8, 0.2  # % unpruned at most; points lost at 95 % removed, at most
WIDE, NARROW = float(np.exp(-1)), float(np.exp(-5.5))
WIDE_SHARES = {"0.01": 0.75, "1": 0.25}  # temperature -> the prior's share of the wide part, by validation error
SPREADS_FASTER = 3  # times the learning rate for rho: spreads have further to go than means, and wander less


class Settings(NamedTuple):
    hidden: int
    epochs: int
    batch_size: int
    learning_rate: float


SETTINGS = {"small": Settings(100, 400, 64, 3e-3), "full": Settings(1200, 40, 128, 1e-3)}


class Data(NamedTuple):
    train: tuple
    validation: tuple
    test: tuple


def load(scale: str) -> Data:
    if scale == "full":
        train, test = po.data.load("mnist", "train"), po.data.load("mnist", "test")
        x, x_test = (part.x * np.float32(255 / 126) for part in (train, test))
        return Data((x[:50_000], train.y[:50_000]), (x[50_000:], train.y[50_000:]), (x_test, test.y))
    digits = po.data.load("digits")
    x = (2 * digits.x / digits.x.max()).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(x))
    parts = np.split(order, [1200, 1500])
    return Data(*((x[rows], digits.y[rows]) for rows in parts))


def method(settings: Settings, num_rows: int, prior: po.priors.ScaleMixture) -> po.MeanField:
    num_steps = settings.epochs * -(-num_rows // settings.batch_size)
    optimizer = two_rates(settings.learning_rate, num_steps, "rho", SPREADS_FASTER)
    initial_std = prior.std_narrow / prior.unit(None)
    return po.MeanField(settings.epochs, settings.batch_size, optimizer=optimizer, initial_std=initial_std)


def main() -> None:
    args = begin(__doc__, picture=True, temperature=tuple(WIDE_SHARES))
    prior = po.priors.ScaleMixture(std_wide=WIDE, std_narrow=NARROW, weight=WIDE_SHARES[args.temperature])
    settings = SETTINGS[args.scale]
    data = load(args.scale)
    network = po.nn.mlp((settings.hidden, settings.hidden), outputs=10)
    posterior = po.fit(
        po.Model(network, po.likelihoods.Categorical(), prior, temperature=float(args.temperature)),
        data.train,
        method(settings, len(data.train[1]), prior),
        key=args.seed,
        out=args.out / f"temperature-{args.temperature}",
        if_exists="resume",
        progress=args.progress,
    )
    errors = {}
    print(f"{settings}, {prior}, temperature {args.temperature}")
    print("removed %   weights left   validation %   test %   published (MNIST)")
    for share, published in PUBLISHED.items():
        pruned = posterior.prune(by="snr", fraction=share)
        errors[share] = error_of_means(pruned, data.test)
        total = sum(int(np.prod(leaf.shape)) for leaf in posterior.target.leaves if leaf.fan_in is not None)
        left = round(total / pruned.compression)
        validation = error_of_means(pruned, data.validation)
        print(f"{100 * share:9.0f}{left:15,}{validation:15.2f}{errors[share]:9.2f}{published:20.2f}")
    print(f"averaged over 100 draws, nothing removed: {error(posterior, data.test):.2f} %")
    if args.picture:
        draw(args.picture, posterior, errors)
    if args.scale == "full":
        is_met = errors[0.0] <= UNPRUNED_TARGET and errors[0.95] - errors[0.0] <= DIFFERENCE_TARGET
        print(
            f"target: at most {UNPRUNED_TARGET} % unpruned and {DIFFERENCE_TARGET} points more at 95 % removed: "
            f"{'met' if is_met else 'MISSED'}"
        )
        raise SystemExit(0 if is_met else 1)


def draw(file: Path, posterior: po.Posterior, errors: dict[float, float]) -> None:
    from matplotlib import pyplot

    from posteria.plots import pruning

    figure, (density, cumulative, removed) = pyplot.subplots(1, 3, figsize=(12, 3.5), layout="constrained")
    pruning.signal_to_noise(density, cumulative, posterior)
    curves = {"here": (list(errors), list(errors.values())), "published": (list(PUBLISHED), list(PUBLISHED.values()))}
    pruning.error_against_removed(removed, curves)
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main()
