"""Several mean-field layers make a product whose entries are correlated, though no layer's are.

Farquhar, Smith and Gal 2020, Liberty or Depth: in a deep linear network with an independent Gaussian for every weight,
the product of the matrices has correlated entries from two layers on, as the posterior over that product has. Here:
linear networks of one to four layers fitted to the same data, whose inputs are correlated; the posterior of the one
layer network is known in closed form. Beside the correlations of the product's entries their error as an
approximation: the mean difference from the exact correlations.

    make study NAME=product-matrix               4 inputs, 3 outputs; under a minute
    make study NAME=product-matrix SCALE=full    10 inputs, 5 outputs
"""

from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from _study import begin, row

import posteria as po

NOISE = 0.5
CORRELATION = 0.8  # of the inputs
NUM_DRAWS = 20_000
WIDTH_OF_HIDDEN = 16


class Settings(NamedTuple):
    inputs: int
    outputs: int
    depths: tuple[int, ...]
    rows: int
    num_epochs: int


SETTINGS = {"small": Settings(4, 3, (1, 2, 3, 4), 50, 4000), "full": Settings(10, 5, (1, 2, 3, 4, 6), 100, 10_000)}


def linear_network(depth: int, num_outputs: int) -> po.Network:
    """x @ W1 @ ... @ Wk."""

    def init(key: jax.Array, x: jax.Array) -> dict:
        sizes = [x.shape[1], *[WIDTH_OF_HIDDEN] * (depth - 1), num_outputs]
        keys = jax.random.split(key, depth)
        shapes = list(pairwise(sizes))
        return {f"w{i}": jax.random.normal(keys[i], shape) / np.sqrt(shape[0]) for i, shape in enumerate(shapes)}

    def apply(params: dict, x: jax.Array) -> jax.Array:
        for i in range(depth):
            x = x @ params[f"w{i}"]
        return x

    return po.Network(init, apply)


def correlations(flat: np.ndarray) -> np.ndarray:
    """Between the entries of a matrix: (draw, entry) -> (entry, entry), zeros on the diagonal."""
    matrix = np.corrcoef(flat, rowvar=False)
    return matrix - np.diag(np.diag(matrix))


def exact(x: np.ndarray, num_outputs: int) -> np.ndarray:
    """Of the posterior of one layer: the same for each output, none between outputs."""
    precision = x.T @ x / NOISE**2 + x.shape[1] * np.eye(x.shape[1])  # FanIn: variance 1 / inputs
    covariance = np.linalg.inv(precision)
    std = np.sqrt(np.diag(covariance))
    within = covariance / std[:, None] / std - np.eye(len(std))
    return np.kron(within, np.eye(num_outputs))


def main() -> None:
    arguments = begin(__doc__)
    settings = SETTINGS[arguments.scale]
    rng = np.random.default_rng(arguments.seed)
    shape = CORRELATION * np.ones((settings.inputs,) * 2) + (1 - CORRELATION) * np.eye(settings.inputs)
    x = rng.multivariate_normal(np.zeros(settings.inputs), shape, settings.rows).astype(np.float32)
    truth = rng.normal(size=(settings.inputs, settings.outputs)) / np.sqrt(settings.inputs)
    y = (x @ truth + NOISE * rng.normal(size=(settings.rows, settings.outputs))).astype(np.float32)
    wanted = exact(x, settings.outputs)
    chance = 4 / np.sqrt(NUM_DRAWS)
    print(
        f"{settings.inputs} x {settings.outputs} product, {NUM_DRAWS} draws; by chance a correlation is < {chance:.3f}"
    )
    widths = [8, 22, 24, 24, 12]
    row(["layers", "largest correlation", "mean within outputs", "difference from exact", "ELBO"], widths)
    same = np.kron(np.ones((settings.inputs,) * 2), np.eye(settings.outputs)) > 0  # pairs of one output
    same &= ~np.eye(len(same), dtype=bool)
    largest = {}
    for depth in settings.depths:
        model = po.Model(linear_network(depth, settings.outputs), po.likelihoods.Gaussian(NOISE))
        method = po.MeanField(num_epochs=settings.num_epochs, learning_rate=3e-3, start="init")
        posterior = po.fit(model, (x, y), method, key=arguments.seed, progress=False)
        product = posterior.functions(arguments.seed, jnp.eye(settings.inputs), NUM_DRAWS)  # (draw, input, output)
        found = correlations(np.asarray(product).reshape(NUM_DRAWS, -1))
        largest[depth] = float(np.abs(found).max())
        cells = [depth, largest[depth], float(found[same].mean()), float(np.abs(found - wanted)[same].mean())]
        row([*cells, f"{posterior.facts['elbo']:.1f}"], widths)
    print(f"exact, one layer: largest {np.abs(wanted).max():.3f}, mean within outputs {wanted[same].mean():.3f}")
    is_met = largest[1] < chance and all(value > 2 * chance for depth, value in largest.items() if depth > 1)
    print(f"none with one layer, correlated with more: {'met' if is_met else 'MISSED'}")
    raise SystemExit(0 if is_met else 1)


if __name__ == "__main__":
    main()
