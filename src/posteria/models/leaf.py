"""The contract of a prior, and what it may know of a leaf of the parameters."""

from typing import NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jax.typing import ArrayLike


class Leaf(NamedTuple):
    """What a prior may know of a leaf of the parameters."""

    path: str  # as "layers/0/kernel"
    shape: tuple[int, ...]
    dtype: np.dtype
    fan_in: int | None  # inputs summed by the linear operation it weighs; None for biases, norms and all else
    input_axis: int | None = None  # along which it meets the network's own inputs; told only where `meets_inputs`


@runtime_checkable
class Prior(Protocol):
    """What Posteria needs of a prior.

    Optional: `check(leaves)` is called once, with every leaf; `normal(leaf)` is the mean and standard deviation where
    the prior is Normal (numbers or arrays of the leaf's shape), None where it is not: expectations are then in closed
    form. `meets_inputs = True` asks for `input_axis` in leaves.

    One that correlates the entries of a leaf may have three more, so that samplers move in white coordinates:
    `correlates(leaf)`, and of such a leaf `whitened(value, leaf)`, linear, of which a draw is independent standard
    Normals, and `coloured(white, leaf)`, the way back.

    A prior with scales to infer has four more; all that is above is then said of z, where weights are w = scale * z:

    - `init(leaf) -> own`: a dictionary of what is inferred for the leaf, where it starts; {} where there is nothing;
    - `log_prior(own, leaf) -> ()`: its normalised log density;
    - `sample_own(key, leaf) -> own`: a draw from that;
    - `log_scale(own, leaf)`: the logarithm of the scale, linear in `own`, in a shape that broadcasts to the leaf's.
    """

    @property
    def is_proper(self) -> bool:
        """Whether it is a distribution: methods that need a density, or a draw, refuse one that is not."""

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        """Normalised log density, summed over entries: ()."""

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        """A draw of the leaf's shape and dtype."""

    def unit(self, leaf: Leaf) -> float:
        """The length in which samplers move: the standard deviation where it exists, else the scale parameter."""


def normal_of(prior: Prior, leaf: Leaf) -> tuple[ArrayLike, ArrayLike] | None:
    """Mean and standard deviation of the leaf's prior where it is Normal, else None."""
    return prior.normal(leaf) if hasattr(prior, "normal") else None
