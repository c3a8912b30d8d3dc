"""The kernel of the Gaussian process that a model becomes as its network grows wide, between any rows.

By the walk of `trace/kernels.py`, or estimated from draws of the network as it is. Computed in float64 on the host
whatever JAX's default is: a kernel's small eigenvalues are lost in 32 bits.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data, num_rows, rows
from posteria.errors import SettingError
from posteria.models.factorised import StudentT
from posteria.models.horseshoe_like import HorseshoeLike
from posteria.models.leaf import Leaf, Prior, normal_of
from posteria.models.target import Target
from posteria.trace.covariances import NotFollowed
from posteria.trace.kernels import pair_kernel
from posteria.trace.linear import trace_datum

MOST_TILE = 1024  # rows and columns of the kernel that are computed at once
TILE_ELEMENTS = 2**25  # of the largest array on the way
DRAWS_AT_ONCE = 50  # of the network, for an estimated kernel
KERNEL_SEED = 12  # of those draws: the same for all rows, so that they make one kernel


@dataclass(frozen=True)
class LimitKernel:
    """k(x, x') of each output; outputs are independent, with one kernel for all. `num_draws` 0: by the walk."""

    target: Target  # without data
    num_draws: int = 0

    def cross(self, x: Data, other: Data) -> np.ndarray:
        """(rows of x, rows of other), float64."""
        if self.num_draws:
            return self._mean_product(x, other, "dno,dmo->nm")
        n, m = num_rows(x), num_rows(other)
        kernel, most = _tile_kernel(self.target)
        size = min(most, 1 << (max(n, m) - 1).bit_length())
        result = np.empty((n, m))
        is_same = x is other
        with in_float64():
            for i in range(0, n, size):
                for j in range(i if is_same else 0, m, size):
                    tile = np.asarray(kernel(_block(x, i, size), _block(other, j, size))[1])[: n - i, : m - j]
                    result[i : i + size, j : j + size] = tile
                    if is_same:
                        result[j : j + size, i : i + size] = tile.T
        return result

    def diagonal(self, x: Data) -> np.ndarray:
        """k(x, x) of each row, (n,)."""
        n = num_rows(x)
        if self.num_draws:
            return self._mean_product(x, x, "dno,dno->n")
        kernel, most = _tile_kernel(self.target)
        size = min(most, 1 << (n - 1).bit_length())
        with in_float64():
            one = rows(x, np.zeros(1, int))
            parts = [np.asarray(kernel(_block(x, i, size), one)[0])[: n - i, 0] for i in range(0, n, size)]
        return np.concatenate(parts)

    def _mean_product(self, x: Data, other: Data, sums: str) -> np.ndarray:
        """Over draws of the network and over its outputs."""
        total: Any = 0.0
        count = 0
        for number in range(math.ceil(self.num_draws / DRAWS_AT_ONCE)):
            key = jax.random.fold_in(jax.random.key(KERNEL_SEED), number)
            size = min(DRAWS_AT_ONCE, self.num_draws - number * DRAWS_AT_ONCE)
            left = np.asarray(self.target.model.prior_functions(key, x, size), np.float64)
            right = left if x is other else self.target.model.prior_functions(key, other, size)
            total = total + np.einsum(sums, left, np.asarray(right, np.float64), optimize=True)
            count += size * left.shape[-1]
        return np.asarray(total / count)


def limit_kernel(target: Target, how: str = "auto", num_draws: int = 1000) -> tuple[LimitKernel, str]:
    """The kernel of a target, and a note for the user; refuses priors that have no such limit.

    `how` is "walk", "monte-carlo", or "auto": the walk where it can follow the network.
    """
    bare = target.without_data()
    _check_prior(bare.model.prior, bare.leaves, how)
    bare.check_no_scales("the limit of infinite width has one kernel, of given scales")
    if how != "monte-carlo":
        try:
            _tile_kernel(bare)
            return LimitKernel(bare), ""
        except NotFollowed as error:
            if how == "walk":
                raise
            reason = f"{error.got}; its closed form"
    else:
        reason = "as asked, the kernel's closed form"
    note = f"{reason} was not used: the kernel is a Monte Carlo estimate from {num_draws:,} draws of the finite network"
    return LimitKernel(bare, num_draws), note


def _check_prior(prior: Any, leaves: list[Leaf], how: str) -> None:
    name = type(prior).__name__
    if not prior.is_proper or any(map(_has_infinite_variance, _priors_of(prior, leaves))):
        raise SettingError(
            f"the prior {name} has no finite variance: its networks tend to a stable process, which is not Gaussian",
            "a prior of finite variance, for a Gaussian process",
            "take po.priors.FanIn(); the study stable-limits shows the other limit",
        )
    normals = [normal_of(prior, leaf) for leaf in leaves]
    if how != "monte-carlo" and any(normal is None for normal in normals):
        raise SettingError(
            f"the prior {name} is not Normal, so that the first layer of an infinitely wide network is not Gaussian",
            "FanIn, Normal, or ByPath of these",
            'kernel="monte-carlo" estimates the kernel for a prior of finite variance',
        )
    if any(normal is not None and (np.ndim(normal[1]) or np.any(normal[0])) for normal in normals):
        raise SettingError(
            f"the prior {name} is not centred, or has a scale for each weight",
            "one centred Normal for each leaf",
            "take FanIn, Normal, or ByPath of these",
        )


def _priors_of(prior: Any, leaves: list[Leaf]) -> Iterator[Prior]:
    for leaf in leaves:
        yield prior.prior_of(leaf) if hasattr(prior, "prior_of") else prior


def _has_infinite_variance(prior: Prior) -> bool:
    return isinstance(prior, HorseshoeLike) or (isinstance(prior, StudentT) and prior.df <= 2)


@contextmanager
def in_float64() -> Iterator[None]:
    """JAX in 64 bits, on the host."""
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        yield


def _block(x: Data, first: int, size: int) -> Data:
    """Rows from `first` on; the last one is repeated, so that every block has one shape."""
    return jax.tree.map(np.asarray, rows(x, np.minimum(np.arange(first, first + size), num_rows(x) - 1)))


@kept
def _tile_kernel(target: Target) -> tuple[Callable[..., tree.Tree], int]:
    """(block of x, block of x') -> kernels of all pairs, (x, x), (x, x') and (x', x'); and how many rows at most."""
    model, blank = target.model, target.blank_input
    if blank is None:
        raise SettingError("data is None", "an x for its shapes", "pass data=(x, None) for the prior")
    datum = tree.index(blank, 0)
    closed, _ = trace_datum(model.network.apply, target.structs["network"], datum)
    stds = {leaf.path: _std(model.prior, leaf) for leaf in target.leaves}
    with in_float64():
        pair = pair_kernel(closed, stds, datum)
        both = jax.vmap(jax.vmap(pair, (None, 0)), (0, None))
        traced = jax.make_jaxpr(both)(*(_repeated(datum, n) for n in TRIAL_SIZES))
    held = [var.aval.shape for eqn in traced.jaxpr.eqns for var in eqn.outvars]
    largest = max((math.prod(shape[2:]) for shape in held if shape[:2] == TRIAL_SIZES), default=1)
    most = 1 << int(math.log2(max(1.0, min(MOST_TILE, math.sqrt(TILE_ELEMENTS / largest)))))
    return jax.jit(both), most


TRIAL_SIZES = (5, 7)  # told apart from all else in the shapes of arrays


def _repeated(datum: tree.Tree, n: int) -> tree.Tree:
    return jax.tree.map(lambda leaf: np.zeros((n, *leaf.shape), leaf.dtype), datum)


def _std(prior: Prior, leaf: Leaf) -> float:
    normal = normal_of(prior, leaf)
    assert normal is not None  # refused above
    return float(np.asarray(normal[1]))
