"""The noise of gradients under four ways of drawing the weights of variational dropout.

Kingma, Salimans and Welling 2015, table 1: variance of the gradient of the expected log likelihood of a batch, in the
top and the bottom layer, early and late in training. Weights are theta (1 + sqrt(alpha) noise), gradients those with
respect to theta: without noise (only the choice of rows is left), with noise drawn at the outputs of layers (local),
with a draw of the weights for every datum, with one for the batch.

    make study NAME=gradient-variance               scikit-learn's digits, two hidden layers of 50; a minute
    make study NAME=gradient-variance SCALE=full    MNIST, three hidden layers of 300
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from _study import begin, images, row

import posteria as po
from posteria import tree
from posteria.methods.variational.bound import Bound
from posteria.methods.variational.families import DiagonalFamily

# estimator -> top layer early and late, bottom layer early and late
PUBLISHED = {
    "none": (2.8e3, 5.9e1, 1.3e2, 9.0e0),
    "local": (7.8e3, 1.2e3, 1.9e2, 1.1e2),
    "separate": (1.4e4, 2.6e3, 4.3e2, 2.5e2),
    "single": (4.9e4, 4.3e3, 8.5e2, 3.3e2),
}


class Settings(NamedTuple):
    rows: int
    hidden: tuple[int, ...]
    epochs: tuple[int, int]  # early and late
    batch_size: int
    num_gradients: int


SETTINGS = {
    "small": Settings(1400, (50, 50), (10, 100), 100, 500),
    "full": Settings(10_000, (300, 300, 300), (10, 60), 100, 300),
}


class Multiplied(DiagonalFamily):
    """w = theta (1 + ratio * noise)."""

    def marginals(self, phi: dict) -> tuple[tree.Params, tree.Params]:
        return phi["mean"], jax.tree.map(lambda m, ratio: ratio * jnp.abs(m), phi["mean"], phi["ratio"])


def estimates(target: po.Target, family: DiagonalFamily) -> dict[str, Callable]:
    """(phi, key, batch) -> the log likelihood of all data."""
    bounds = {name: Bound(target, family, name) for name in ("local", "weights")}

    def none(phi: dict, key: jax.Array, batch: tuple) -> jax.Array:
        return target.log_likelihood(phi["mean"], batch)

    def separate(phi: dict, key: jax.Array, batch: tuple) -> jax.Array:
        def one(key: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
            return target.log_likelihood(family.draw(phi, key), (x[None], y[None]))[0]

        return jax.vmap(one)(jax.random.split(key, len(batch[1])), *batch)

    return {
        "none": none,
        "local": bounds["local"].log_likelihood,
        "separate": separate,
        "single": bounds["weights"].log_likelihood,
    }


def variances(settings: Settings, estimate: Callable, phi: dict, data: tuple, seed: int) -> tuple[float, float]:
    """Of the gradient of all data's log likelihood in the top and the bottom layer, averaged over weights."""
    x, y = map(jnp.asarray, data)

    @jax.jit
    def gradient(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        key_rows, key_noise = jax.random.split(key)
        rows = jax.random.choice(key_rows, len(y), (settings.batch_size,), replace=False)

        def log_likelihood(mean: tree.Params) -> jax.Array:
            return len(y) * estimate(phi | {"mean": mean}, key_noise, (x[rows], y[rows])).mean()

        layers = jax.grad(log_likelihood)(phi["mean"])["network"]["layers"]
        return layers[str(len(settings.hidden))]["kernel"], layers["0"]["kernel"]

    keys = jax.random.split(jax.random.key(seed), settings.num_gradients)
    sums = None
    for key in keys:  # one at a time: gradients of a large layer do not all fit
        both = [np.asarray(part, np.float64) for part in gradient(key)]
        terms = [np.stack([part, part**2]) for part in both]
        sums = terms if sums is None else [a + b for a, b in zip(sums, terms)]
    num = settings.num_gradients
    top, bottom = (float(np.mean((square - total**2 / num) / (num - 1))) for total, square in sums)
    return top, bottom


def main() -> None:
    arguments = begin(__doc__)
    settings = SETTINGS[arguments.scale]
    data = images(arguments.scale, settings.rows).train
    model = po.Model(po.nn.mlp(settings.hidden, outputs=10), po.likelihoods.Categorical(), po.priors.LogUniform())
    target = po.Target(model, data).without_data()
    family = Multiplied(target)
    found: dict[str, list[float]] = {name: [] for name in PUBLISHED}
    for epochs in settings.epochs:
        method = po.VariationalDropout("weight", 0.5, num_epochs=epochs, batch_size=settings.batch_size)
        posterior = po.fit(model, data, method, key=arguments.seed, progress=False)
        mean, std = (family.unravel(jnp.asarray(part)) for part in (posterior.mean, posterior.spread.std))
        phi = {"mean": mean, "ratio": jax.tree.map(lambda m, s: s / (jnp.abs(m) + 1e-20), mean, std)}
        for name, estimate in estimates(target, family).items():
            found[name] += variances(settings, estimate, phi, data, arguments.seed)
    print(f"{len(data[1])} rows, hidden layers {settings.hidden}, batches of {settings.batch_size}")
    early, late = settings.epochs
    print(f"variance of the gradient after {early} and {late} epochs, here and published; in brackets times local's")
    row(["", "top early", "top late", "bottom early", "bottom late", *["published"] * 4], widths := [10, *[16] * 8])
    for name, published in PUBLISHED.items():
        top_early, bottom_early, top_late, bottom_late = found[name]
        here, local = (top_early, top_late, bottom_early, bottom_late), found["local"]
        of_local = (local[0], local[2], local[1], local[3])
        pairs = [*zip(here, of_local), *zip(published, PUBLISHED["local"])]
        row([name, *(f"{a:.1e} ({a / b:.2f})" for a, b in pairs)], widths)
    orders = [[found[name][i] for name in PUBLISHED] for i in range(4)]
    is_met = all(np.all(np.diff(order) > 0) for order in orders)
    print(f"none < local < separate < single in both layers, early and late: {'met' if is_met else 'MISSED'}")
    raise SystemExit(0 if is_met else 1)


if __name__ == "__main__":
    main()
