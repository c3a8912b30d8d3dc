"""Convolutional networks for images, (n, height, width, channels)."""

from itertools import pairwise

import jax
import jax.numpy as jnp
from flax import nnx

from posteria.data.arrays import Data
from posteria.errors import NetworkError
from posteria.nn.blueprint import Dense, Normals
from posteria.nn.convolution import Maps

FRN_EPSILON = 1e-6  # added to the mean square


class Convolution(nnx.Module):
    def __init__(
        self, window: int, inputs: int, outputs: int, normals: Normals, stride: int = 1, padding: str = "SAME"
    ):
        self.kernel = normals.he(window, window, inputs, outputs)
        self.bias = nnx.Param(jnp.zeros(outputs))
        self.strides, self.padding = (stride, stride), padding

    def __call__(self, maps: Maps) -> Maps:
        return maps.convolution(self.kernel[...], self.strides, self.padding).each(jnp.add, self.bias[...])


class LeNet5(nnx.Module):
    def __init__(self, x: Data, normals: Normals, outputs: int) -> None:
        height, width, channels = _image_shape(x)
        if min(height, width) < 16:
            raise NetworkError(
                f"images are {height} x {width}", "at least 16 x 16 for LeNet-5", "use mlp or resnet20_frn"
            )
        flat = 50 * _after_pooling(height) * _after_pooling(width)
        self.first = Convolution(5, channels, 20, normals, padding="VALID")
        self.second = Convolution(5, 20, 50, normals, padding="VALID")
        self.hidden = Dense(normals.he(flat, 500))
        self.last = Dense(normals.lecun(500, outputs))

    def __call__(self, x: jax.Array) -> jax.Array:
        maps = self.first(_maps(x)).max_pool((2, 2))
        maps = self.second(maps).max_pool((2, 2))
        return self.last(jax.nn.relu(self.hidden(maps.flat())))


def _after_pooling(size: int) -> int:
    return ((size - 4) // 2 - 4) // 2


class FilterResponseNorm(nnx.Module):
    """max(gamma * x / rms(x) + beta, tau), with the root mean square over positions. Singh & Krishnan 2020."""

    def __init__(self, channels: int) -> None:
        self.gamma = nnx.Param(jnp.ones(channels))
        self.beta = nnx.Param(jnp.zeros(channels))
        self.tau = nnx.Param(jnp.zeros(channels))

    def __call__(self, maps: Maps) -> Maps:
        return maps.each(_normed, self.gamma[...], self.beta[...], self.tau[...])


def _normed(x: jax.Array, gamma: jax.Array, beta: jax.Array, tau: jax.Array) -> jax.Array:
    mean_square = jnp.mean(jnp.square(x), axis=(1, 2), keepdims=True)
    return jnp.maximum(gamma * x * jax.lax.rsqrt(mean_square + FRN_EPSILON) + beta, tau)


class NormedConvolution(nnx.Module):
    def __init__(self, window: int, inputs: int, outputs: int, normals: Normals, stride: int = 1) -> None:
        self.convolution = Convolution(window, inputs, outputs, normals, stride)
        self.norm = FilterResponseNorm(outputs)

    def __call__(self, maps: Maps) -> Maps:
        return self.norm(self.convolution(maps))


class ResidualBlock(nnx.Module):
    def __init__(self, inputs: int, outputs: int, normals: Normals) -> None:
        is_new_stage = inputs != outputs
        stride = 2 if is_new_stage else 1
        self.first = NormedConvolution(3, inputs, outputs, normals, stride)
        self.second = NormedConvolution(3, outputs, outputs, normals)
        self.shortcut = NormedConvolution(1, inputs, outputs, normals, stride) if is_new_stage else None

    def __call__(self, maps: Maps) -> Maps:
        inner = self.second(self.first(maps).each(jax.nn.swish))
        beside = maps if self.shortcut is None else self.shortcut(maps)
        return inner.each(lambda x: jax.nn.swish(x + beside.values))


class ResNet20FRN(nnx.Module):
    def __init__(self, x: Data, normals: Normals, outputs: int, width: int) -> None:
        self.stem = NormedConvolution(3, _image_shape(x)[-1], width, normals)
        sizes = [width] * 4 + [2 * width] * 3 + [4 * width] * 3
        self.blocks = nnx.List(ResidualBlock(i, o, normals) for i, o in pairwise(sizes))
        self.last = Dense(normals.he(4 * width, outputs))

    def __call__(self, x: jax.Array) -> jax.Array:
        maps = self.stem(_maps(x)).each(jax.nn.swish)
        for block in self.blocks:
            maps = block(maps)
        return self.last(maps.mean())


def _maps(x: jax.Array) -> Maps:
    return Maps.of(x[..., None] if x.ndim == 3 else x)


def _image_shape(x: Data) -> tuple[int, int, int]:
    """(height, width, channels) of a batch of images, or of its shapes."""
    if x is None or len(x.shape) not in (3, 4):
        raise NetworkError(
            f"x is {None if x is None else x.shape}", "images of shape (n, height, width, channels)", "reshape x"
        )
    return (*x.shape[1:], 1) if len(x.shape) == 3 else x.shape[1:]
