"""Concrete dropout on a line with unit noise: what data can remove shrinks as they grow, the noise stays.

Gal, Hron and Kendall 2017, section 4.1, with the figures of their notebook beside: y = 2 x + 8 + N(0, 1), three hidden
layers, mean and noise from the network, a prior so wide that only the dropout rates and the data speak. Wanted: learned
rates and epistemic spread fall with the number of rows, the noise's standard deviation goes to 1.

    make study NAME=concrete-synthetic               three layers of 64, up to 1,000 rows; a minute
    make study NAME=concrete-synthetic SCALE=full    three layers of 512, up to 10,000 rows
"""

from typing import NamedTuple

import numpy as np
from _study import begin, row

import posteria as po

# rows -> RMSE, rate of the first layer, mean rate of the later ones, aleatoric and epistemic standard deviation
PUBLISHED = {
    10: (1.90, 0.076, 0.403, 1.257, 1.278),
    100: (1.258, 0.073, 0.236, 1.317, 0.716),
    1000: (1.036, 0.056, 0.233, 1.222, 0.644),
    10_000: (1.004, 0.051, 0.167, 1.125, 0.531),
}
PRIOR = po.priors.Normal(100.0)
NUM_TEST = 1000


class Settings(NamedTuple):
    hidden: tuple[int, ...]
    sizes: tuple[int, ...]
    num_steps: int
    batch_size: int


SETTINGS = {
    "small": Settings((64, 64, 64), (10, 100, 1000), 4000, 20),
    "full": Settings((512, 512, 512), tuple(PUBLISHED), 10_000, 100),
}


def line(rng: np.random.Generator, num: int) -> tuple[np.ndarray, np.ndarray]:
    x = rng.normal(size=(num, 1)).astype(np.float32)
    return x, 2 * x + 8 + rng.normal(size=(num, 1)).astype(np.float32)


def main() -> None:
    arguments = begin(__doc__)
    settings = SETTINGS[arguments.scale]
    rng = np.random.default_rng(arguments.seed)
    x_test, y_test = line(rng, NUM_TEST)
    model = po.Model(po.nn.mlp(settings.hidden, outputs=2), po.likelihoods.HeteroscedasticGaussian(), PRIOR)
    print(f"hidden layers {settings.hidden}, {PRIOR}; here | published")
    widths = [7, *[18] * 5]
    row(["rows", "RMSE", "first rate", "later rates", "aleatoric", "epistemic"], widths)
    epistemic, aleatoric = [], []
    for size in settings.sizes:
        batch_size = min(settings.batch_size, size)
        method = po.ConcreteDropout(
            num_epochs=-(-settings.num_steps * batch_size // size), batch_size=batch_size, learning_rate=3e-3
        )
        posterior = po.fit(model, line(rng, size), method, key=arguments.seed, progress=False)
        first, *later = (float(np.mean(rate)) for rate in posterior.rates.values())
        predictive = posterior.predict(x_test)
        rmse = float(np.sqrt(np.mean((predictive.mean - y_test) ** 2)))
        spreads = [float(np.sqrt(np.mean(part))) for part in (predictive.aleatoric, predictive.epistemic)]
        aleatoric.append(spreads[0])
        epistemic.append(spreads[1])
        here = (rmse, first, float(np.mean(later)), *spreads)
        row([size, *(f"{a:.3f} | {b:.3f}" for a, b in zip(here, PUBLISHED[size]))], widths)
    falls = epistemic[-1] < epistemic[0] and abs(aleatoric[-1] - 1) < 0.25
    print(f"epistemic spread falls, noise within a quarter of 1 at the end: {'met' if falls else 'MISSED'}")
    raise SystemExit(0 if falls else 1)


if __name__ == "__main__":
    main()
