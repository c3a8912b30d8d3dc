"""Units of deeper layers have heavier tails: of layer l they are sub-Weibull with parameter l / 2. Vladimirova 2019.

Under independent Gaussian weights the pre-activations of the first layer are Gaussian (tail parameter 1/2), and those
of layer l have P(|u| > x) <= exp(-x^(2 / l) / K) for ReLU and other activations that let large inputs through: moments
grow as E[|u|^k]^(1/k) ~ k^(l / 2). At one input, in narrow layers (2 units) and wide ones (100), without biases: the
slope of log E[|u|^k]^(1/k) over log k in closed form, of the orders 6 to 30 and of 10,000 to 100,000, and the slope of
log log 1/P over log x by draws. In closed form: given the layer before, a unit is N(0, |h|^2), and |h'|^2 is |h|^2
times an independent sum of rectified squares, so that moments are products. Wanted: the slopes of large orders rise by
1/2 a layer, to a tenth, at every width. Those of small orders show how far out that is in a wide layer.

    make study NAME=sub-weibull               200,000 draws, three layers: seconds
    make study NAME=sub-weibull SCALE=full    20,000,000 draws, six layers: minutes
"""

from argparse import Namespace
from pathlib import Path

import numpy as np
from _questions import axes, percent, save, table
from _study import begin
from scipy import special

WIDTHS = (2, 100)
LAYERS = {"small": 3, "full": 6}
NUM_DRAWS = {"small": 200_000, "full": 20_000_000}
BLOCK = 1_000_000
ORDERS = {"6 to 30": np.arange(6, 31), "1e4 to 1e5": np.geomspace(1e4, 1e5, 20)}  # of moments
ERROR = 0.1
TAIL = (1e-4, 1e-2)  # probabilities between which the survival's slope is read at small scale


def log_moments(layer: int, width: int, orders: np.ndarray) -> np.ndarray:
    """log E|u|^k of a unit of a layer (1: the first), weights N(0, 1 / fan-in), ReLU, |input|^2 = fan-in: exact.

    u = g |h| / sqrt(width), and |h'|^2 = |h|^2 / width * sum of relu(g_i)^2, each layer's independent of the others; a
    sum over the number of units that are on, each with probability 1/2, of moments of chi-squares.
    """
    k = orders.astype(np.float64)
    normal = k / 2 * np.log(2) + special.gammaln((k + 1) / 2) - special.gammaln(0.5)
    on = np.arange(1, width + 1)
    choose = special.gammaln(width + 1) - special.gammaln(on + 1) - special.gammaln(width - on + 1)
    chi = (k[:, None] / 2) * np.log(2) + special.gammaln((k[:, None] + on) / 2) - special.gammaln(on / 2)
    rectified = special.logsumexp(choose - width * np.log(2) + chi, axis=1) - k / 2 * np.log(width)
    return normal + (layer - 1) * rectified


def draws(layer: int, width: int, number: int, rng: np.random.Generator) -> np.ndarray:
    """|u| of one unit, by the layers themselves: Gaussian weights at one input with |x|^2 = fan-in."""
    blocks = []
    for start in range(0, number, BLOCK):
        size = min(BLOCK, number - start)
        norm = np.ones(size)  # |h| / sqrt(width) of the layer before
        for _ in range(layer - 1):
            on = rng.binomial(width, 0.5, size)
            norm *= np.sqrt(2 * rng.gamma(np.maximum(on, 1) / 2) * (on > 0) / width)
        blocks.append(np.abs(rng.normal(size=size)) * norm)
    return np.concatenate(blocks)


def by_weights(layer: int, width: int, number: int, rng: np.random.Generator) -> np.ndarray:
    """The same by matrices of weights, a network a draw: what `draws` and `log_moments` are held to."""
    h = np.ones((number, width))
    for _ in range(layer - 1):
        h = np.maximum(np.einsum("nij,nj->ni", rng.normal(size=(number, width, width)), h) / np.sqrt(width), 0)
    return np.abs((rng.normal(size=(number, width)) * h).sum(1)) / np.sqrt(width)


def slope_of_moments(layer: int, width: int, orders: np.ndarray) -> float:
    roots = log_moments(layer, width, orders) / orders
    return float(np.polyfit(np.log(orders), roots, 1)[0])


def slope_of_survival(values: np.ndarray) -> float:
    """1 / slope of log log 1/P over log x: l / 2 in the far tail; nearer in it is below."""
    low, high = np.quantile(values, [1 - TAIL[1], 1 - TAIL[0]])
    at = np.geomspace(low, high, 20)
    survival = 1 - np.searchsorted(np.sort(values), at) / len(values)
    return float(1 / np.polyfit(np.log(at), np.log(-np.log(survival)), 1)[0])


def run(arguments: Namespace) -> dict[int, list[np.ndarray]]:
    rng = np.random.default_rng(arguments.seed)
    scale, found = arguments.scale, {}
    lines = []
    num_met = 0
    for width in WIDTHS:
        found[width] = [draws(layer, width, NUM_DRAWS[scale], rng) for layer in range(1, LAYERS[scale] + 1)]
        slopes = [
            [slope_of_moments(layer, width, orders) for orders in ORDERS.values()]
            for layer in range(1, LAYERS[scale] + 1)
        ]
        rises = np.diff([0.0, *(large for _, large in slopes)])
        for layer, (values, by_order, rise) in enumerate(zip(found[width], slopes, rises), 1):
            num_met += abs(rise - 0.5) < ERROR
            kurtosis = (values**4).mean() / (values**2).mean() ** 2
            beyond = percent(float((values > 4 * np.sqrt((values**2).mean())).mean()))
            lines.append([width, layer, layer / 2, *by_order, slope_of_survival(values), f"{kurtosis:.1f}", beyond])
    print(f"weights, {by_weights(3, 2, 100_000, rng).mean():.3f}, and products, {found[2][2].mean():.3f}: mean |u|")
    columns = ["width", "layer", "theory", *(f"moments {each}" for each in ORDERS), "by draws", "kurtosis"]
    columns += ["beyond 4 deviations"]
    caption = f"tail parameter of pre-activations; {NUM_DRAWS[scale]:,} draws, of which the tail 1e-2 to 1e-4"
    table("sub-weibull", caption, columns, lines)
    said = f"rise of 1/2 a layer by moments, to {ERROR}: {num_met} of {len(lines)}"
    print(f"{said}: {'met' if num_met == len(lines) else 'MISSED'}")
    return found


def draw(path: Path, found: dict[int, list[np.ndarray]]) -> None:
    figure, grid, theme = axes(len(found))
    for axis, (width, layers) in zip(grid[0], found.items()):
        for number, (values, style) in enumerate(zip(layers, theme.METHODS), 1):
            at = np.sort(values / np.sqrt((values**2).mean()))[::-1]
            rows = np.unique(np.geomspace(1, len(at), 200).astype(int)) - 1
            axis.semilogy(at[rows], (rows + 1) / len(at), color=style.colour, ls=style.dash, label=f"layer {number}")
        axis.set_xlabel("|u| in standard deviations")
        axis.set_ylabel("share beyond")
        axis.set_title(f"width {width}")
        axis.set_xlim(0, 20)
    grid[0, 0].legend(frameon=False)
    save(figure, path)


def main() -> None:
    arguments = begin(__doc__, picture=True)
    found = run(arguments)
    if arguments.picture is not None:
        draw(arguments.picture, found)


if __name__ == "__main__":
    main()
