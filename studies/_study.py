"""What studies share: their arguments, the lines that say what was run, MNIST or the digits in its place, tables."""

import argparse
import platform
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

import posteria as po

PACKAGES = ("posteria", "jax", "jaxlib", "numpy", "optax")


def begin(
    description: str | None,
    picture: bool = False,
    seed: bool = True,
    only: Mapping[str, Iterable[str]] | None = None,
    folder: str | None = None,
    **choices: Sequence[str],
) -> argparse.Namespace:
    """The arguments of a study; prints the command, versions and seed that its results stand under.

    A study with `seed` False numbers its own: those of its splits or repeats. `only` are arguments that take some of
    the values named (all of them if not given), `choices` those that take one, the first if not given. Fits are kept in
    `folder`, where studies share them, else in one of the study's own.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=["small", "full"], default="small")
    parser.add_argument("--out", type=Path, help="where fits are kept, and found again")
    if seed:
        parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--progress", action="store_true")
    if picture:
        parser.add_argument("--picture", type=Path, help="draw to this file (PNG)")
    for name, values in (only or {}).items():
        parser.add_argument(f"--{name}", nargs="+", choices=list(values), help="only these")
    for name, values in choices.items():
        parser.add_argument(f"--{name}", choices=values, default=values[0])
    arguments = parser.parse_args()
    po.use_cores()
    name = Path(sys.argv[0]).stem
    own = arguments.scale if not getattr(arguments, "seed", 0) else f"{arguments.scale}-{arguments.seed}"
    arguments.out = arguments.out or Path("runs") / (folder or name) / own
    versions = ", ".join(f"{package} {metadata.version(package)}" for package in PACKAGES)
    print(f"$ python studies/{name}.py {shlex.join(_without_folders(sys.argv[1:]))}".rstrip())
    seeds = f"seed {arguments.seed}" if seed else "seeds from 0"
    print(f"{arguments.scale}, {seeds}; python {platform.python_version()}, {versions}\n", flush=True)
    return arguments


def _without_folders(words: Sequence[str]) -> list[str]:
    """The command for whoever repeats it: where results were kept on this machine says nothing."""
    hidden = ("--out", "--picture")
    is_shown = [
        word not in (*hidden, "--progress") and before not in hidden for before, word in zip(["", *words], words)
    ]
    return [word for word, shown in zip(words, is_shown) if shown]


class Rows(NamedTuple):
    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def images(scale: str, num_train: int) -> Rows:
    """Flat images of digits in [0, 1] with their classes: MNIST at full scale, scikit-learn's 8 x 8 ones at small."""
    if scale == "full":
        train, test = po.data.load("mnist", "train"), po.data.load("mnist", "test")
        x, x_test = (part.x.reshape(len(part.x), -1) for part in (train, test))
        return Rows((x[:num_train], train.y[:num_train]), (x_test, test.y))
    digits = po.data.load("digits")
    x = (digits.x / digits.x.max()).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:num_train], order[num_train:]
    return Rows((x[train], digits.y[train]), (x[test], digits.y[test]))


def two_rates(learning_rate: float, num_steps: int, name: str, factor: float) -> optax.GradientTransformation:
    """Adam with a cosine decay; parameters with `name` in their path move `factor` times as fast."""

    def adam(learning_rate: float) -> optax.GradientTransformation:
        return optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps))

    def is_named(params: Any) -> Any:
        return jax.tree_util.tree_map_with_path(lambda path, _: name in jax.tree_util.keystr(path), params)

    return optax.multi_transform({False: adam(learning_rate), True: adam(factor * learning_rate)}, is_named)


def error(posterior: po.Posterior, data: tuple[np.ndarray, np.ndarray], num_draws: int = 100) -> float:
    """% wrong of the average over draws."""
    x, y = data
    return 100 * float(np.mean(posterior.predict(x, num_draws).probs.argmax(1) != y))


def error_of_means(posterior: po.Posterior, data: tuple[np.ndarray, np.ndarray]) -> float:
    """% wrong of the network at the posterior's mean."""
    x, y = data
    blocks = np.array_split(np.arange(len(y)), -(-len(y) // 1000))
    outputs = np.concatenate([np.asarray(posterior.model.outputs(posterior.mean_params, x[rows])) for rows in blocks])
    return 100 * float(np.mean(outputs.argmax(1) != y))


def row(cells: Iterable[object], widths: Sequence[int]) -> None:
    """A line of a table, to the right; printed at once, so that a long study shows where it is."""
    print("".join(f"{_text(cell):>{width}}" for cell, width in zip(cells, widths)), flush=True)


def _text(cell: object) -> str:
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)
