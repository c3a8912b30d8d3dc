"""Normalising flows over the weights: unit noise through couplings by splines, then an affine map.

A coupling moves every other coordinate along a monotone spline, a scale and a shift that the coordinates between them
choose, so that its slope is known (a plain one has no spline). Dinh et al. 2017; Durkan et al. 2019, Neural Spline
Flows.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from posteria.compiled import kept
from posteria.models.densities import normal as normal_density
from posteria.posteriors.gaussian import GaussianPosterior, Spread
from posteria.tree import Arrays

REACH = 5.0  # unit noise beyond it is left as it is
BINS = 8
NUM_CHOSEN = 3 * BINS + 1  # of a coordinate: widths, heights and inner slopes of the spline, a scale and a shift
NUM_PLAIN = 2  # a scale and a shift
LARGEST_SCALE = 3.0  # of its logarithm
LEAST_BIN, LEAST_SLOPE = 1e-3, 1e-3
MOMENT_DRAWS = 20_000  # from which mean and covariance are read, of few coordinates; fewer of many
MOMENT_ELEMENTS = 2**24

Layer = dict[str, Any]  # weights of the network that chooses the splines: "inner", "inner_bias", "outer", "outer_bias"


def new_layers(
    key: jax.Array, size: int, num_layers: int, num_hidden: int, num_chosen: int = NUM_CHOSEN
) -> list[Layer]:
    """Couplings that leave all as it is; of `NUM_PLAIN` chosen for a coordinate, without splines."""
    layers = []
    for number, key_layer in enumerate(jax.random.split(key, num_layers)):
        num_moved = len(range(number % 2, size, 2))
        num_given = size - num_moved
        inner = jax.random.normal(key_layer, (num_given, num_hidden)) / max(1, num_given) ** 0.5
        outer = jnp.zeros((num_hidden, num_moved * num_chosen))
        layers.append(
            {
                "inner": inner,
                "inner_bias": jnp.zeros(num_hidden),
                "outer": outer,
                "outer_bias": jnp.zeros(outer.shape[1]),
            }
        )
    return layers


def evenly(layers: list[Layer]) -> list[Layer]:
    """As an optimiser should see them: the weights of hidden units in units of their number. A step moves all of them
    at once, and what they choose together should then move as far as a bias does, not as many times as they are."""
    return [layer | {"outer": layer["outer"] / len(layer["outer"])} for layer in layers]


def through(layers: list[Layer], noise: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where noise (size,) is moved to, and the logarithm of the volume that it is stretched by."""
    log_volume = jnp.zeros(())
    for number, layer in enumerate(layers):
        noise, log_slopes = _couple(layer, number % 2, noise)
        log_volume += log_slopes.sum()
    return noise, log_volume


def _couple(layer: Layer, first: int, values: jax.Array) -> tuple[jax.Array, jax.Array]:
    given, moved = values[1 - first :: 2], values[first::2]
    if not len(moved):  # of one coordinate, every other coupling
        return values, moved
    moved, log_slopes = _moved(layer, given, moved)
    return _in_turn(*((given, moved) if first else (moved, given))), log_slopes


def _moved(layer: Layer, given: jax.Array, moved: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where a coupling moves its coordinates, and the logarithms of their slopes."""
    hidden = jnp.tanh(given @ layer["inner"] + layer["inner_bias"])
    raw = (hidden @ layer["outer"] + layer["outer_bias"]).reshape(len(moved), -1)
    log_slopes = jnp.zeros(())
    if raw.shape[1] > NUM_PLAIN:
        moved, log_slopes = jax.vmap(spline)(moved, raw[:, :-2])
    log_scale = LARGEST_SCALE * jnp.tanh(raw[:, -2] / LARGEST_SCALE)
    return jnp.exp(log_scale) * moved + raw[:, -1], log_slopes + log_scale


def _in_turn(even: jax.Array, odd: jax.Array) -> jax.Array:
    """Coordinates 0, 2, 4... and 1, 3, 5...; a scatter would do it too, slowly."""
    size = len(even) + len(odd)
    pairs = jnp.stack([even, jnp.concatenate([odd, jnp.zeros(len(even) - len(odd), odd.dtype)])], axis=1)
    return pairs.reshape(-1)[:size]


def spline(value: jax.Array, raw: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A monotone rational-quadratic spline on [-REACH, REACH], the identity beyond, at one value: with the logarithm of
    its slope. `raw` of zeros is the identity."""
    widths, heights = (
        2 * REACH * (LEAST_BIN + (1 - LEAST_BIN * BINS) * jax.nn.softmax(part))
        for part in (raw[:BINS], raw[BINS : 2 * BINS])
    )
    inner = LEAST_SLOPE + jax.nn.softplus(raw[2 * BINS :] + np.log(np.expm1(1 - LEAST_SLOPE)))
    slopes = jnp.concatenate([jnp.ones(1), inner, jnp.ones(1)])
    xs, ys = (jnp.concatenate([jnp.full(1, -REACH), -REACH + jnp.cumsum(part)]) for part in (widths, heights))
    inside = jnp.clip(value, -REACH, REACH)
    place = jnp.clip(jnp.searchsorted(xs, inside, side="right") - 1, 0, BINS - 1)
    x, y, width, height, left, right = (part[place] for part in (xs, ys, widths, heights, slopes, slopes[1:]))
    mean_slope = height / width
    share = jnp.clip((inside - x) / width, 0.0, 1.0)
    rest = share * (1 - share)
    below = mean_slope + (left + right - 2 * mean_slope) * rest
    found = y + height * (mean_slope * share**2 + left * rest) / below
    log_slope = 2 * jnp.log(mean_slope) - 2 * jnp.log(below)
    log_slope += jnp.log(right * share**2 + 2 * mean_slope * rest + left * (1 - share) ** 2)
    is_beyond = jnp.abs(value) >= REACH
    return jnp.where(is_beyond, value, found), jnp.where(is_beyond, 0.0, log_slope)


def affine(factor: jax.Array, moved: jax.Array) -> jax.Array:
    """By a lower triangle (size, size), or a diagonal (size,)."""
    return factor @ moved if factor.ndim == 2 else factor * moved


def log_prob_of(layers: list[Layer], factor: jax.Array, noise: jax.Array) -> jax.Array:
    """The log density of affine(factor, flow of noise) where this noise is taken to."""
    _, log_volume = through(layers, noise)
    diagonal = jnp.diagonal(factor) if factor.ndim == 2 else factor
    return normal_density(noise, 0.0).sum() - log_volume - jnp.log(diagonal).sum()


def log_prob_and_slope(layers: list[Layer], factor: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same, and its gradient with respect to where the noise is taken to, without the flow's inverse.

    Carried from coupling to coupling: g_y = J^-T (g_x - gradient of log |J|), where J is lower triangular in what is
    given and what is moved. Vaitl et al. 2022, Path-Gradient Estimators for Continuous Normalizing Flows.
    """
    values, slope, log_volume = noise, -noise, jnp.zeros(())
    for number, layer in enumerate(layers):
        first = number % 2
        if not len(values[first::2]):
            continue

        given, moved = values[1 - first :: 2], values[first::2]
        (found, log_slopes), back = jax.vjp(partial(_moved, layer), given, moved)
        by_given, by_moved = back((jnp.zeros_like(found), jnp.ones_like(log_slopes)))
        slope_moved = (slope[first::2] - by_moved) * jnp.exp(-log_slopes)
        through_given, _ = back((slope_moved, jnp.zeros_like(log_slopes)))
        slope_given = slope[1 - first :: 2] - by_given - through_given
        values, slope = (
            _in_turn(*((g, m) if first else (m, g))) for g, m in ((given, found), (slope_given, slope_moved))
        )
        log_volume += log_slopes.sum()
    diagonal = jnp.diagonal(factor) if factor.ndim == 2 else factor
    slope = solve_triangular(factor, slope, lower=True, trans=1) if factor.ndim == 2 else slope / factor
    return normal_density(noise, 0.0).sum() - log_volume - jnp.log(diagonal).sum(), slope


@partial(jax.tree_util.register_dataclass, data_fields=["offset", "factor", "layers"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class Flow(Spread):
    """affine(factor, flow of unit noise) - offset, of mean 0. Not Gaussian."""

    offset: Any  # (size,)
    factor: Any  # (size, size) or (size,)
    layers: list[Layer]

    kind = "flow"

    def noise(self, key: jax.Array) -> jax.Array:
        offset = jnp.asarray(self.offset)
        moved, _ = through(self.layers, jax.random.normal(key, offset.shape))
        return affine(jnp.asarray(self.factor), moved) - offset

    @property
    def variances(self) -> jax.Array:
        """By draws."""
        return _moments(self)[1]

    def covariance(self) -> jax.Array:
        """By draws."""
        draws = _draws(self)
        residual = draws - draws.mean(0)
        return residual.T @ residual / len(draws)

    def arrays(self) -> Arrays:
        return {"offset": np.asarray(self.offset), "factor": np.asarray(self.factor)} | layers_to_arrays(self.layers)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Flow":
        return cls(arrays["offset"], arrays["factor"], layers_from_arrays(arrays))


def layers_to_arrays(layers: list[Layer]) -> Arrays:
    return {
        f"{number}.{name}": np.asarray(array) for number, layer in enumerate(layers) for name, array in layer.items()
    }


def layers_from_arrays(arrays: Arrays) -> list[Layer]:
    """From those of `layers_to_arrays`, which have a dot in their names."""
    names = [name.split(".", 1) for name in arrays if "." in name]
    layers: list[Layer] = [{} for _ in range(1 + max((int(number) for number, _ in names), default=-1))]
    for number, name in names:
        layers[int(number)][name] = arrays[f"{number}.{name}"]
    return layers


def centred(layers: list[Layer], factor: jax.Array) -> Flow:
    """With its mean, by draws, as the offset."""
    plain = Flow(jnp.zeros(len(factor)), factor, layers)
    return Flow(_moments(plain)[0], factor, layers)


def _moments(flow: Flow) -> tuple[jax.Array, jax.Array]:
    draws = _draws(flow)
    return draws.mean(0), draws.var(0)


def _draws(flow: Flow) -> jax.Array:
    num = int(np.clip(MOMENT_ELEMENTS // len(flow.offset), 100, MOMENT_DRAWS))
    return _sampler()(flow, jax.random.split(jax.random.key(0), num))


@kept
def _sampler() -> Any:
    return jax.jit(lambda flow, keys: jax.lax.map(flow.noise, keys, batch_size=100))


class FlowPosterior(GaussianPosterior):
    """A flow over the weights, by its mean and what differs from it."""

    kind = "flow"
