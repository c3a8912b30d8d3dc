"""Initial weights of the ready networks."""

import math

import jax
import jax.numpy as jnp


class Normals:
    """Initial weights as slices of one vector of standard normals: it compiles ten times faster than a draw a leaf.

    Without the vector it hands out zeros and counts how many numbers are needed.
    """

    def __init__(self, numbers: jax.Array | None = None) -> None:
        self.numbers, self.used = numbers, 0

    def he(self, *shape: int) -> jax.Array:
        """Variance 2 / fan-in: keeps the scale through ReLU. He et al. 2015."""
        return self.draw(math.sqrt(2 / math.prod(shape[:-1])), *shape)

    def lecun(self, *shape: int) -> jax.Array:
        """Variance 1 / fan-in: keeps the scale through a linear layer. LeCun et al. 1998."""
        return self.draw(math.sqrt(1 / math.prod(shape[:-1])), *shape)

    def draw(self, std: float, *shape: int) -> jax.Array:
        start, self.used = self.used, self.used + math.prod(shape)
        if self.numbers is None:
            return jnp.zeros(shape)
        return std * self.numbers[start : self.used].reshape(shape)
