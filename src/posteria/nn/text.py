"""Networks for sequences of tokens, (n, length)."""

import jax
import jax.numpy as jnp
from flax import nnx

from posteria.data.arrays import Data
from posteria.errors import NetworkError
from posteria.nn.blueprint import Dense, Normals
from posteria.nn.convolution import convolution, max_pool

FORGET_BIAS = 1.0  # added to the forget gate, so that memory is kept at first


class CNNLSTM(nnx.Module):
    def __init__(
        self,
        x: Data,
        normals: Normals,
        vocabulary: int,
        outputs: int,
        embedding: int,
        filters: int,
        kernel: int,
        pool: int,
        cells: int,
    ) -> None:
        del x  # all sizes are settings
        self.embedding = normals.draw(1.0, vocabulary, embedding)
        self.kernel = normals.he(kernel, embedding, filters)
        self.bias = nnx.Param(jnp.zeros(filters))
        self.lstm = LSTM(filters, cells, normals)
        self.last = Dense(normals.lecun(cells, outputs))
        self.window, self.pool = kernel, pool

    def __call__(self, x: jax.Array | dict[str, jax.Array]) -> jax.Array:
        tokens, mask = (x["tokens"], x["mask"].astype(bool)) if isinstance(x, dict) else (x, None)
        self._check(tokens)
        # NaN for a token outside the vocabulary: JAX would otherwise read the last row in silence
        x = self.embedding[...].at[tokens].get(mode="fill", fill_value=jnp.nan)  # (n, length, embedding)
        if mask is not None:
            x = jnp.where(mask[..., None], x, 0.0)
        x = jax.nn.relu(convolution(x, self.kernel[...], padding="VALID") + self.bias[...])
        x = max_pool(x, (self.pool,))  # (n, steps, filters)
        return self.last(self.lstm(x, None if mask is None else self._sees_a_token(mask)))

    def _sees_a_token(self, mask: jax.Array) -> jax.Array:
        """Whether any real token enters each step after convolution and pooling, (n, steps)."""
        windows = mask.shape[1] - self.window + 1
        seen = jnp.stack([mask[:, i : i + windows] for i in range(self.window)]).any(axis=0)
        return max_pool(seen[..., None], (self.pool,))[..., 0]

    def _check(self, tokens: jax.Array) -> None:
        shortest = self.window + self.pool - 1
        if not jnp.issubdtype(tokens.dtype, jnp.integer) or tokens.ndim != 2 or tokens.shape[1] < shortest:
            raise NetworkError(
                f"tokens are {tokens.dtype} of shape {tokens.shape}",
                f"integers of shape (n, length), length {shortest} or more",
                "pad short texts, with a mask",
            )


class LSTM(nnx.Module):
    """The last hidden state of one layer, from zero. Hochreiter & Schmidhuber 1997, with forget gates."""

    def __init__(self, inputs: int, cells: int, normals: Normals) -> None:
        std = (inputs + cells) ** -0.5
        self.kernel = normals.draw(std, inputs, 4 * cells)
        self.recurrent_kernel = normals.draw(std, cells, 4 * cells)
        self.bias = nnx.Param(jnp.zeros(4 * cells))
        self.cells = cells

    def __call__(self, x: jax.Array, is_step: jax.Array | None) -> jax.Array:
        """x (n, steps, inputs); where `is_step` (n, steps) is false, the state stays as it is."""
        recurrent_kernel = self.recurrent_kernel[...]

        Pair = tuple[jax.Array, jax.Array]

        def step(state: Pair, inputs: tuple[jax.Array, jax.Array | None]) -> tuple[Pair, None]:
            from_x, is_step = inputs
            hidden, memory = state
            write, candidate, forget, read = jnp.split(from_x + hidden @ recurrent_kernel, 4, axis=-1)
            new_memory = jax.nn.sigmoid(forget + FORGET_BIAS) * memory + jax.nn.sigmoid(write) * jnp.tanh(candidate)
            new = jax.nn.sigmoid(read) * jnp.tanh(new_memory), new_memory
            if is_step is not None:
                new = jax.tree.map(lambda new, old: jnp.where(is_step[:, None], new, old), new, state)
            return new, None

        from_x = x @ self.kernel[...] + self.bias[...]  # all steps in one matmul
        zeros = jnp.zeros((x.shape[0], self.cells), from_x.dtype)
        by_step = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), (from_x, is_step))
        (hidden, _), _ = jax.lax.scan(step, (zeros, zeros), by_step)
        return hidden
