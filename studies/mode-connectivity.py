"""Two modes of one network, the barrier on the straight line between them, and the curve that goes around it.

Garipov et al. 2018. Two networks are trained from different initialisations; a Bezier and a polygonal curve with one
bend are trained between them. The loss is the mean negative log likelihood of the training rows. Wanted: a barrier of
at least 0.5 nats on the straight line, and on the curve at most a fifth of it.

    make study NAME=mode-connectivity               scikit-learn's digits, under a minute
    make study NAME=mode-connectivity SCALE=full    MNIST, two hidden layers of 100; minutes
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from _study import begin

import posteria as po
from posteria import tree
from posteria.landscape.connect import Curve
from posteria.plots import theme
from posteria.plots.plane import plane

LEAST_BARRIER = 0.5  # nats
LARGEST_SHARE = 0.2  # of the barrier, on the curve
FORMS = ("bezier", "polygonal")
LEARNING_RATE = 0.003
FEW_ROWS = 2000  # for curvature and pictures, which need many evaluations
AT = np.linspace(0.0, 1.0, 61)


class Settings(NamedTuple):
    hidden: tuple[int, ...]
    prior_scale: float  # of FanIn; wide, so that modes are those of ordinary training
    num_epochs: int
    batch_size: int
    num_snapshots: int
    grid: int


SETTINGS = {
    "small": Settings((50, 50), 10.0, 60, 32, 20, 15),
    "full": Settings((100, 100), 10.0, 10, 128, 20, 17),
}


def load(scale: str) -> tuple[tuple, tuple]:
    """Training and test rows."""
    if scale == "full":
        train, test = po.data.load("mnist", "train"), po.data.load("mnist", "test")
        return (train.x, train.y), (test.x, test.y)
    digits = po.data.load("digits")
    order = np.random.default_rng(0).permutation(len(digits.x))
    return tuple((digits.x[rows], digits.y[rows]) for rows in (order[:1400], order[1400:]))


def report(curves: dict[str, Curve], test: tuple) -> dict[str, np.ndarray]:
    """Losses along the curves, and whether the barrier is there and the curves avoid it."""
    test_data = (jnp.asarray(test[0]), jnp.asarray(test[1]))
    losses = {}
    print(f"{'':10s}    loss at ends   middle    worst   excess    test, at ends    worst")
    for name, curve in {"straight": curves["bezier"].straight, **curves}.items():
        on_train, on_test = curve.losses(AT), curve.losses(AT, test_data)
        losses[name] = on_train
        print(
            f"{name:10s} {on_train[0]:7.4f} {on_train[-1]:7.4f} {on_train[len(AT) // 2]:8.4f} {on_train.max():8.4f}"
            f" {excess(on_train):8.4f}  {on_test[0]:7.4f} {on_test[-1]:7.4f} {on_test.max():8.4f}",
            flush=True,
        )
    barrier = excess(losses["straight"])
    is_met = "met" if barrier >= LEAST_BARRIER else "MISSED"
    print(f"\nbarrier on the straight line: {barrier:.3f} nats (at least {LEAST_BARRIER}: {is_met})")
    for form in curves:
        share = excess(losses[form]) / barrier
        is_met = "met" if share <= LARGEST_SHARE else "MISSED"
        print(f"excess on the {form} curve: {share:.3f} of the barrier (at most {LARGEST_SHARE}: {is_met})", flush=True)
    return losses


def excess(losses: np.ndarray) -> float:
    """As `Curve.excess`, of losses that are there already."""
    return float(losses.max() - max(losses[0], losses[-1]))


def draw(path: Path, target: po.Target, ends: list, curve: Curve, losses: dict, swag: Any, grid: int) -> None:
    """The plane of the curve; the losses along it; the plane of SWAG's two widest directions around one mode."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    draws = {"SWAG draws": np.asarray(jax.vmap(tree.ravel)(swag.sample_params(jax.random.key(0), 100)))}
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4.4), layout="constrained")
    bend = np.asarray(curve.points[1])
    through = po.surface(target, [*ends, tree.unraveller(target.structs)(jnp.asarray(bend))], num=grid, margin=0.2)
    plane(through, names=("mode", "mode", "bend"), curve=curve, draws=draws, ax=left)
    left.set_title("Loss on the plane of the curve")

    for (name, along), style in zip(losses.items(), (theme.REFERENCE, *theme.METHODS)):
        middle.plot(AT, along, color=style.colour, ls=style.dash, label=name)
    middle.set_title("Loss between the modes")
    middle.set_xlabel("t")
    middle.set_ylabel("nats")
    middle.legend(fontsize=9, frameon=False)
    middle.spines[["top", "right"]].set_visible(False)

    directions, widths, _ = np.linalg.svd(np.asarray(swag.spread.factor), full_matrices=False)
    wide, next_wide = 3.0 * (directions[:, :2] * widths[:2]).T
    mean = np.asarray(swag.mean)
    corners = [mean - wide - next_wide, mean + wide - next_wide, mean - wide + next_wide]
    plane(po.surface(target, corners, num=grid, margin=0.1), draws=draws, ax=right)
    right.set_title("SWAG's two widest directions")
    for axes in (left, right):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3, fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    arguments = begin(__doc__, picture=True)
    settings = SETTINGS[arguments.scale]
    train, test = load(arguments.scale)
    network = po.nn.mlp(settings.hidden, outputs=10)
    model = po.Model(network, po.likelihoods.Categorical(), po.priors.FanIn(settings.prior_scale))
    target = po.Target(model, train)
    num_steps = settings.num_epochs * -(-len(train[1]) // settings.batch_size)

    training = po.MAP(settings.num_epochs, settings.batch_size, learning_rate=LEARNING_RATE)
    modes = po.fit(model, train, po.Ensemble(training, 2), key=arguments.seed, progress=False)
    ends = [jax.tree.map(lambda leaf: leaf[i, 0], modes.params) for i in range(2)]  # noqa: B023
    print(f"{len(train[1]):,} rows, hidden layers {settings.hidden}", flush=True)
    curves = {
        form: po.connect(
            *ends, target, form=form, num_steps=num_steps, batch_size=settings.batch_size, learning_rate=LEARNING_RATE
        )
        for form in FORMS
    }
    losses = report(curves, test)
    few = po.Target(model, (train[0][:FEW_ROWS], train[1][:FEW_ROWS]))
    for name, place in {"first mode": 0.0, "middle of the curve": 0.5}.items():
        found = po.surface(few, [curves["bezier"](place)], num=2).flatness[0]
        print(f"{name}: sharpness {found.sharpness:.2f}, trace {found.trace:.1f} ± {found.trace_error:.1f}", flush=True)
    if arguments.picture is not None:
        swag = po.SWAG(None, settings.num_snapshots, rank=10, batch_size=settings.batch_size)
        around = po.fit(model, train, swag, start=ends[0], key=arguments.seed, progress=False)
        draw(arguments.picture, few, ends, curves["bezier"], losses, around, settings.grid)
        print(f"picture: {arguments.picture.name}")


if __name__ == "__main__":
    main()
