"""How much a mean-field fit depends on where it starts: initial spread and initial weights, and the default.

Blundell et al. 2015 and most code after it leave the first standard deviations to the user; too wide, and the network
never learns, too narrow, and the spreads never grow. Every combination is fitted for the same number of epochs on each
set; printed is the ELBO in nats a row, and how far each is below the set's best. A robust default is near the best
everywhere.

    make study NAME=initialisation               diabetes and breast cancer; a minute
    make study NAME=initialisation SCALE=full    concrete, energy, wine and digits
"""

from typing import NamedTuple

import numpy as np
from _study import begin, row

import posteria as po

STARTS = ("init", "map")
STDS = (0.001, 0.01, 0.1, 0.3, 1.0)  # of the prior's
DEFAULT = ("init", 0.1)
HIDDEN = (50,)


class Settings(NamedTuple):
    sets: tuple[str, ...]
    num_epochs: int
    map_epochs: int
    batch_size: int


SETTINGS = {
    "small": Settings(("diabetes", "breast-cancer"), 300, 200, 64),
    "full": Settings(("concrete", "energy", "wine", "digits"), 1000, 500, 128),
}


def problem(name: str) -> tuple[po.Model, tuple]:
    data = po.data.load(name)
    x = po.data.Standardiser.fit(data.x).apply(data.x).astype(np.float32)
    if data.kind == "regression":
        y = po.data.Standardiser.fit(data.y).apply(data.y).astype(np.float32).reshape(len(x), -1)
        return po.Model(po.nn.mlp(HIDDEN), po.likelihoods.Gaussian()), (x, y)
    likelihood = po.likelihoods.Categorical()
    return po.Model(po.nn.mlp(HIDDEN, outputs=int(data.y.max()) + 1), likelihood), (x, data.y)


def main() -> None:
    arguments = begin(__doc__)
    settings = SETTINGS[arguments.scale]
    elbos: dict[tuple[str, float], list[float]] = {(start, std): [] for start in STARTS for std in STDS}
    for name in settings.sets:
        model, data = problem(name)
        num = len(data[1])
        training = {"batch_size": min(settings.batch_size, num), "learning_rate": 0.01}
        mode = po.fit(model, data, po.MAP(settings.map_epochs, **training), key=arguments.seed, progress=False)
        for start, std in elbos:
            method = po.MeanField(settings.num_epochs, initial_std=std, **training)
            begun = mode if start == "map" else None
            posterior = po.fit(model, data, method, key=arguments.seed, start=begun, progress=False)
            elbos[start, std].append(posterior.facts["elbo"] / num)
    best = [max(values[i] for values in elbos.values()) for i in range(len(settings.sets))]
    print(f"hidden units {HIDDEN}, {settings.num_epochs} epochs; ELBO in nats a row, and below the best")
    widths = [7, 8, *[22] * len(settings.sets), 14]
    row(["start", "std", *settings.sets, "at worst"], widths)
    worst = {}
    for (start, std), values in elbos.items():
        below = [top - value for top, value in zip(best, values)]
        worst[start, std] = max(below)
        cells = [f"{value:.3f} (-{gap:.3f})" for value, gap in zip(values, below)]
        row([start, std, *cells, f"{worst[start, std]:.3f}"], widths)
    order = sorted(worst, key=lambda setting: worst[setting])
    print(f"the default {DEFAULT} is number {order.index(DEFAULT) + 1} of {len(order)} by its worst set")


if __name__ == "__main__":
    main()
