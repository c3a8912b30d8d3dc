"""What units do under prior and posterior: their distribution by depth, how many are dead or on for every input.

The talks show units' activations of Bayesian networks. Here a network of three hidden layers of 50 on digits: of draws
from the prior (fan-in) and of a posterior (an ensemble of modes and SGHMC), layer by layer: excess kurtosis of
pre-activations over draws at an input (0: Gaussian, as at infinite width; positive and rising with depth by Vladimirova
2019), the share of units that are off for all inputs (dead), on for all (linear), and the share that is on at an input.

    make study NAME=unit-activations               200 digits: a minute
    make study NAME=unit-activations SCALE=full    1,000 digits, more draws: minutes
"""

from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _questions import axes, percent, save, table
from _study import begin, images

import posteria as po


class Settings(NamedTuple):
    num_train: int
    num_draws: int
    sghmc: po.SGHMC


SETTINGS = {
    "small": Settings(200, 200, po.SGHMC(num_chains=2, num_draws=100, num_warmup=1000, thinning=20, batch_size=50)),
    "full": Settings(1000, 1000, po.SGHMC(num_chains=4, num_draws=250, num_warmup=5000, thinning=50, batch_size=100)),
}
HIDDEN = (50, 50, 50)
NUM_INPUTS = 50
NUM_PRIOR = {"small": 4000, "full": 20_000}  # draws: the excess of a layer is a few hundredths


def layers(weights: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """(kernel (draw, in, out), bias (draw, out)) of each layer, the read-out last, from the network's own tree."""
    import jax

    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(weights)]  # in the order of their names
    return list(zip((leaf for leaf in leaves if leaf.ndim == 3), (leaf for leaf in leaves if leaf.ndim == 2)))


def pre_activations(weights: Any, x: np.ndarray) -> list[np.ndarray]:
    """(draw, row, unit) of each hidden layer."""
    h = np.broadcast_to(x, (len(layers(weights)[0][0]), *x.shape))
    found = []
    for kernel, bias in layers(weights)[:-1]:
        found.append(np.einsum("dni,dio->dno", h, kernel) + bias[:, None])
        h = np.maximum(found[-1], 0)
    return found


def kurtosis(values: np.ndarray) -> float:
    """Excess, over draws and units at an input, averaged over inputs; each input by its own variance."""
    centred = values - values.mean((0, 2), keepdims=True)
    return float(((centred**4).mean((0, 2)) / (centred**2).mean((0, 2)) ** 2 - 3).mean())


def run(arguments: Namespace) -> dict[str, list[np.ndarray]]:
    settings = SETTINGS[arguments.scale]
    rows = images("small", settings.num_train)
    std = rows.train[0].std()
    x, test = (part[0].reshape(len(part[0]), -1) / std for part in rows)
    test, y = test[:NUM_INPUTS], rows.train[1]
    network = po.nn.mlp(HIDDEN, outputs=10)
    model = po.Model(network, po.likelihoods.Categorical(), po.priors.FanIn())
    methods = {"ensemble": po.Ensemble(po.MAP(num_epochs=100, batch_size=50), 10), "sghmc": settings.sghmc}
    weights = {"prior": prior_draws(model, x, NUM_PRIOR[arguments.scale], arguments.seed)}
    for name, method in methods.items():
        posterior = po.fit(
            model, (x, y), method, key=arguments.seed, out=arguments.out / name, if_exists="resume", progress=False
        )
        number = 10 if name == "ensemble" else settings.num_draws
        weights[name] = posterior.sample(arguments.seed + 1, number)
    found = {name: pre_activations(drawn, test) for name, drawn in weights.items()}
    check = network.apply(first_of(weights["sghmc"]), test)
    mine = (
        np.maximum(found["sghmc"][-1][0], 0) @ layers(weights["sghmc"])[-1][0][0] + layers(weights["sghmc"])[-1][1][0]
    )
    print(f"outputs by hand and by the network differ by at most {np.abs(np.asarray(check) - mine).max():.1e}")
    lines = []
    for name, parts in found.items():
        for number, values in enumerate(parts, 1):
            is_on = values > 0
            shares = (is_on.mean(), (~is_on.any(1)).mean(), is_on.all(1).mean())
            lines.append([name, number, float(values.std()), kurtosis(values), *(percent(float(s)) for s in shares)])
    columns = ["weights from", "layer", "deviation", "excess kurtosis", "on at an input", "dead", "always on"]
    caption = f"three hidden layers of 50, {settings.num_train} digits, {NUM_INPUTS} test inputs"
    table("unit-activations", caption, columns, lines)
    deeper = [kurtosis(values) for values in found["prior"]]
    said = "prior: excess kurtosis rises with depth"
    print(f"{said}: {'met' if all(np.diff(deeper) > 0) else 'MISSED'} ({', '.join(f'{each:.2f}' for each in deeper)})")
    return found


def first_of(weights: Any) -> Any:
    import jax

    return jax.tree.map(lambda leaf: leaf[0], weights)


def prior_draws(model: po.Model, x: np.ndarray, number: int, seed: int) -> Any:
    import jax

    from posteria.models.target import Target

    target = Target(model, (x, None))
    return jax.vmap(target.sample_prior)(jax.random.split(jax.random.key(seed), number))["network"]


def draw(path: Path, found: dict[str, list[np.ndarray]]) -> None:
    figure, grid, theme = axes(len(HIDDEN))
    for number, axis in enumerate(grid[0]):
        for (name, parts), style in zip(found.items(), theme.METHODS):
            values = parts[number] / parts[number].std()
            heights, edges = np.histogram(values, np.linspace(-8, 8, 81), density=True)
            middle = (edges[1:] + edges[:-1]) / 2
            axis.semilogy(middle, np.maximum(heights, 1e-7), color=style.colour, ls=style.dash, label=name)
        normal = np.exp(-(middle**2) / 2) / np.sqrt(2 * np.pi)
        axis.semilogy(middle, normal, color=theme.RULE, label="Gaussian", zorder=0)
        axis.set_ylim(1e-6, 2)
        axis.set_title(f"pre-activations, layer {number + 1}")
        axis.set_xlabel("in standard deviations")
    grid[0, 0].legend(frameon=False, fontsize=8)
    save(figure, path)


def main() -> None:
    arguments = begin(__doc__, picture=True)
    found = run(arguments)
    if arguments.picture is not None:
        draw(arguments.picture, found)


if __name__ == "__main__":
    main()
