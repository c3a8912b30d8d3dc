"""Inputs moved a little so that the model average fails: the talks' fooled networks.

    x' = x + steps along sign(gradient of -log p(y | x)),  |x' - x| <= size in every entry

p is the model average, so the gradient is that over draws: d log mean_w p(y | x, w). One step is the fast gradient sign
method (Goodfellow et al. 2015); several are projected gradient descent (Madry et al. 2018).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria.data.arrays import Data, check_same_length
from posteria.errors import DataError, SettingError
from posteria.posteriors.base import PREDICT_KEY, Posterior
from posteria.random import as_key
from posteria.settings import Count, checked, shown

FIRST_STEP = 2.5  # times size / steps: so that the edge can be reached from anywhere within
AT_ONCE = 256  # rows
MOST_DRAWS = 30  # of which gradients are averaged, unless told otherwise


def attack(
    posterior: Posterior,
    x: Data,
    y: Any,
    size: float,
    steps: int = 1,
    *,
    num_draws: int | None = None,
    bounds: tuple[float, float] | None = None,
) -> np.ndarray:
    """x moved by at most `size` in every entry, where the model average gives y least.

    `steps=1` is the fast gradient sign method, more are projected steps; `bounds` are what an input may be (0 and 1 of
    pixels). Gradients are averaged over `num_draws` draws (30, or as many as are stored). An attack made on one
    posterior and predicted by another measures the transfer.
    """
    if not (isinstance(size, int | float | np.number) and not isinstance(size, bool) and 0 <= size < float("inf")):
        raise SettingError(f"size is {size!r}", "a finite number, 0 or more", "0.1 is a tenth of the range of pixels")
    size, steps = float(size), checked("attack", "steps", steps, Count, 1)
    if num_draws is not None:
        checked("attack", "num_draws", num_draws, Count, None)
    if not hasattr(posterior, "check_x"):
        raise SettingError(
            f"an attack on {type(posterior).__name__}",
            "a fitted posterior",
            "pass what po.fit returned, or model.posterior_",
        )
    x = posterior.check_x(x)
    if not isinstance(x, np.ndarray | jax.Array) or not jnp.issubdtype(x.dtype, jnp.floating):
        raise DataError(f"x is {_words(x)}", "one array of floats", "tokens and labels have no gradient")
    if bounds is not None:
        bounds = _least_and_largest(bounds)
        if len(x) and not (bounds[0] <= x.min() and x.max() <= bounds[1]):
            raise DataError(
                f"x from {x.min():.3g} to {x.max():.3g}",
                f"values within the bounds, {bounds[0]:g} to {bounds[1]:g}",
                "pass the bounds in the units of x: where it is standardised, so are they",
            )
    likelihood = posterior.model.likelihood
    y = likelihood.check(y, posterior.target.num_outputs or 1)
    check_same_length(x, y)
    num = min(posterior.num_draws, MOST_DRAWS) if num_draws is None else num_draws
    step = size if steps == 1 else FIRST_STEP * size / steps
    gradient = _gradient(posterior, num)
    blocks = []
    for first in range(0, len(x), AT_ONCE):
        here, labels = np.asarray(x[first : first + AT_ONCE]), y[first : first + AT_ONCE]
        moved = here
        for _ in range(steps):
            moved = moved + step * np.sign(np.asarray(gradient(jnp.asarray(moved), jnp.asarray(labels))))
            moved = np.clip(moved, here - size, here + size)
            moved = moved if bounds is None else np.clip(moved, *bounds)
        blocks.append(moved.astype(here.dtype))
    return np.concatenate(blocks) if blocks else np.asarray(x)


def _gradient(posterior: Posterior, num_draws: int) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """(x, y) -> the gradient by x of -log of the model average; by the draws that a prediction takes."""
    likelihood, key = posterior.model.likelihood, as_key(PREDICT_KEY)

    def loss(x: jax.Array, y: jax.Array) -> jax.Array:
        outputs, own = posterior.draws(key, x, num_draws)  # (draw, batch, output)
        log_probs = jax.vmap(likelihood.log_prob, (0, 0, None))(own, outputs, y)
        return -jax.nn.logsumexp(log_probs, axis=0).sum()

    return jax.grad(loss)  # not compiled as one: weights would become constants of the code


def _least_and_largest(bounds: Any) -> tuple[float, float]:
    try:
        least, largest = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        least, largest = np.nan, np.nan
    if not least < largest or isinstance(bounds, str | set):
        raise SettingError(f"bounds are {shown(bounds)}", "a least and a largest value", "pass (0.0, 1.0)")
    return least, largest


def _words(x: Any) -> str:
    return f"{x.dtype}" if hasattr(x, "dtype") else type(x).__name__
