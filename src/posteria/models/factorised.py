"""Priors over a network's weights, factorised over their entries: frozen dataclasses of settings. Their scales may be
inferred with the weights: w = scale * z, where z follows the prior as it is at scale 1.

A scale and its many weights form a funnel: as the scale falls, the weights are held to a neck that no one step size
fits, and their joint density grows without bound. So whatever moves them moves z, the weights relative to their scale,
beside the scale's logarithm, which are independent before there are data. Neal 1996, Bayesian Learning for Neural
Networks; Fortuin et al. 2022 and Tran et al. 2022 for what the scale decides.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from posteria.errors import SettingError
from posteria.models import densities
from posteria.models.leaf import Leaf
from posteria.settings import Infer, Positive, ProperShare, check_settings, infer
from posteria.tree import Params

HALF_NORMAL_STD = 2.0

Own = dict[str, Any]  # of a leaf: "scale", a logarithm; "inputs", of each input


def given(setting: float | Infer) -> float:
    """A prior's own scale: what was given, and 1 where it is to be inferred."""
    return 1.0 if setting is infer else float(setting)


class LearntScale:
    """The part of a prior's contract that concerns a scale to infer: one for each leaf that has one to infer.

    So the weights of a linear operation share one scale, and the biases beside them another. Its prior is half-normal
    with standard deviation 2. Near 0 that is flat, so a layer without a signal may shrink to nothing, as it may not
    under a density of the logarithm, such as a log-normal; and its tail is light, so that few data do not buy
    functions of a hundred standard deviations, as a half-Cauchy lets them. Half of its mass is above 1.35, 5 % above
    3.9: of fixed scales, 1 to 3 were best for standardised tables with fan-in.
    """

    scale: Any

    def infers(self, leaf: Leaf) -> bool:
        return self.scale is infer

    def init(self, leaf: Leaf) -> Own:
        return {"scale": np.zeros((), jnp.result_type(float))} if self.infers(leaf) else {}

    def log_prior(self, own: Own, leaf: Leaf) -> jax.Array:
        if not own:
            return jnp.zeros(())
        size = jnp.exp(own["scale"]) / HALF_NORMAL_STD
        return (
            densities.normal(size, math.log(HALF_NORMAL_STD / 2)) + own["scale"]
        )  # the last is the logarithm's Jacobian

    def sample_own(self, key: jax.Array, leaf: Leaf) -> Own:
        scale = math.log(HALF_NORMAL_STD) + jnp.log(jnp.abs(jax.random.normal(key)))
        return {"scale": scale} if self.infers(leaf) else {}

    def log_scale(self, own: Own, leaf: Leaf) -> jax.Array:
        return own["scale"]


@dataclass(frozen=True)
class Normal(LearntScale):
    """w ~ N(0, std^2)."""

    std: Positive | Infer = 1.0
    is_proper: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self)

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        std = given(self.std)
        return densities.normal(densities.widen(value) / std, math.log(std)).sum()

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        return _scaled_draw(jax.random.normal, key, leaf, given(self.std))

    def unit(self, leaf: Leaf) -> float:
        return given(self.std)

    def normal(self, leaf: Leaf) -> tuple[ArrayLike, ArrayLike]:
        return 0.0, given(self.std)

    def infers(self, leaf: Leaf) -> bool:
        return self.std is infer


@dataclass(frozen=True)
class FanIn(LearntScale):
    """Weights w ~ N(0, scale^2 / fan_in), all else N(0, bias_std^2): a layer's sums keep the size of its inputs.

    With `scale=infer` each layer's weights have a scale of their own, with `bias_std=infer` each leaf of biases.
    Neal 1996, Bayesian Learning for Neural Networks, chapter 2.
    """

    scale: Positive | Infer = 1.0
    bias_std: Positive | Infer = 1.0
    is_proper: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self)

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        return Normal(self.unit(leaf)).log_prob(value, leaf)

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        return Normal(self.unit(leaf)).sample(key, leaf)

    def unit(self, leaf: Leaf) -> float:
        return given(self.bias_std) if leaf.fan_in is None else given(self.scale) / math.sqrt(leaf.fan_in)

    def normal(self, leaf: Leaf) -> tuple[ArrayLike, ArrayLike]:
        return 0.0, self.unit(leaf)

    def infers(self, leaf: Leaf) -> bool:
        return (self.bias_std if leaf.fan_in is None else self.scale) is infer


@dataclass(frozen=True)
class Laplace(LearntScale):
    """p(w) = exp(-|w| / scale) / (2 scale). Its gradient at 0 is taken as 0."""

    scale: Positive | Infer = 1.0
    is_proper: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self)

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        value = densities.widen(value)
        size = jnp.sign(value) * value  # |w|; jnp.abs has the gradient 1 at 0
        return (-size / given(self.scale) - math.log(2 * given(self.scale))).sum()

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        return _scaled_draw(jax.random.laplace, key, leaf, given(self.scale))

    def unit(self, leaf: Leaf) -> float:
        return math.sqrt(2) * given(self.scale)


@dataclass(frozen=True)
class StudentT(LearntScale):
    """w ~ scale * t(df): heavy tails."""

    df: Positive = 3.0
    scale: Positive | Infer = 1.0
    is_proper: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self)

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        scale = given(self.scale)
        return densities.student_t(densities.widen(value) / scale, math.log(scale), self.df).sum()

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        return _scaled_draw(partial(_standard_t, df=self.df), key, leaf, given(self.scale))

    def unit(self, leaf: Leaf) -> float:
        return given(self.scale) * (math.sqrt(self.df / (self.df - 2)) if self.df > 2 else 1.0)


@dataclass(frozen=True)
class Logistic(LearntScale):
    """p(w) = sigmoid(w / scale) sigmoid(-w / scale) / scale."""

    scale: Positive | Infer = 1.0
    is_proper: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self)

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        z = densities.widen(value) / given(self.scale)
        return (jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z) - math.log(given(self.scale))).sum()

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        return _scaled_draw(jax.random.logistic, key, leaf, given(self.scale))

    def unit(self, leaf: Leaf) -> float:
        return math.pi / math.sqrt(3) * given(self.scale)


NARROW = math.exp(-6)


@dataclass(frozen=True)
class ScaleMixture:
    """w ~ weight N(0, std_wide^2) + (1 - weight) N(0, std_narrow^2): some weights free, the rest near 0.

    Blundell et al. 2015, Weight Uncertainty in Neural Networks.
    """

    std_wide: Positive = 1.0
    std_narrow: Positive = NARROW
    weight: ProperShare = 0.5
    is_proper: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self)
        if self.std_narrow > self.std_wide:
            raise SettingError(
                f"ScaleMixture with std_narrow={self.std_narrow!r} above std_wide={self.std_wide!r}",
                "the narrow one below the wide one",
                "swap them",
            )

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        value = densities.widen(value)
        wide = densities.normal(value / self.std_wide, math.log(self.std_wide / self.weight))
        # log(wide + narrow) = log wide + softplus(log narrow - log wide): one exponential a weight, not four
        at_zero = math.log((1 - self.weight) / self.weight * self.std_wide / self.std_narrow)
        excess = at_zero - 0.5 * (self.std_narrow**-2 - self.std_wide**-2) * value**2
        return (wide + densities.softplus(excess)).sum()

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        key_component, key_value = jax.random.split(key)
        is_wide = jax.random.bernoulli(key_component, self.weight, leaf.shape)
        return _scaled_draw(jax.random.normal, key_value, leaf, jnp.where(is_wide, self.std_wide, self.std_narrow))

    def unit(self, leaf: Leaf) -> float:
        return math.sqrt(self.weight * self.std_wide**2 + (1 - self.weight) * self.std_narrow**2)


@dataclass(frozen=True)
class LogUniform:
    """p(w) proportional to 1/|w|: log|w| is uniform, no scale is preferred. Improper. Kingma et al. 2015.

    The pole at 0 is cut off at the smallest normal number: there the density is finite and its gradient 0. It has no
    scale, so its unit is 1.
    """

    is_proper: ClassVar[bool] = False

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        value = densities.widen(value)
        return -jnp.log(jnp.maximum(jnp.abs(value), jnp.finfo(value.dtype).tiny)).sum()

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        raise SettingError(
            f"a draw of {leaf.path!r} from the prior LogUniform",
            "a proper prior, which has draws",
            "start from the network's initialiser, or use FanIn or another proper prior",
        )

    def unit(self, leaf: Leaf) -> float:
        return 1.0


def _scaled_draw(
    draw: Callable[[jax.Array, tuple[int, ...], np.dtype], jax.Array], key: jax.Array, leaf: Leaf, scale: ArrayLike
) -> jax.Array:
    """scale * draw(key, shape, dtype), made in at least float32 and returned in the leaf's dtype."""
    drawn = draw(key, leaf.shape, jnp.promote_types(leaf.dtype, jnp.float32))
    return jnp.multiply(scale, drawn).astype(leaf.dtype)


def _standard_t(key: jax.Array, shape: tuple[int, ...], dtype: np.dtype, df: float) -> jax.Array:
    return jax.random.t(key, df, shape, dtype)


# ---- of all leaves of a network


class Scales:
    """All scales that a prior infers for a network's leaves; false where there are none.

    `own` is {path of a leaf: what is inferred for it}.
    """

    def __init__(self, prior: Any, leaves: Sequence[Leaf]) -> None:
        self._prior = prior
        self._leaves = leaves
        found = {leaf.path: prior.init(leaf) for leaf in leaves} if hasattr(prior, "log_scale") else {}
        self._first = {path: own for path, own in found.items() if own}

    def __bool__(self) -> bool:
        return bool(self._first)

    def init(self) -> dict[str, Own]:
        """Where they start: scale 1."""
        return jax.tree.map(np.array, self._first)

    def log_prior(self, own: dict[str, Own]) -> jax.Array:
        return sum((self._prior.log_prior(own[leaf.path], leaf) for leaf in self._learnt), start=jnp.zeros(()))

    def sample(self, key: jax.Array) -> dict[str, Own]:
        keys = jax.random.split(key, max(1, len(self._first)))
        return {leaf.path: self._prior.sample_own(k, leaf) for k, leaf in zip(keys, self._learnt)}

    def logs(self, own: dict[str, Own]) -> list[Any]:
        """The logarithm for each leaf, in a shape that broadcasts to it; 0.0 where nothing is inferred."""
        return [self._prior.log_scale(own[leaf.path], leaf) if leaf.path in own else 0.0 for leaf in self._leaves]

    def log(self, path: str, own: Own) -> jax.Array:
        """Of one leaf."""
        return self._prior.log_scale(own, next(leaf for leaf in self._learnt if leaf.path == path))

    def log_volume(self, own: dict[str, Own]) -> jax.Array:
        """log |dw / dz|: the logarithms of all weights' scales, summed."""
        terms = (jnp.broadcast_to(log, leaf.shape).sum() for log, leaf in zip(self.logs(own), self._leaves))
        return sum(terms, start=jnp.zeros(()))

    def scaled(self, relative: Params, own: dict[str, Own]) -> Params:
        """w = scale * z, in 32 bits at least."""
        leaves, treedef = jax.tree.flatten(relative)
        return treedef.unflatten(
            densities.widen(z) * jnp.exp(jnp.asarray(log)) for z, log in zip(leaves, self.logs(own))
        )

    def absolute(self, relative: Params, own: dict[str, Own]) -> Params:
        """The same, in the leaves' own dtypes."""
        leaves, treedef = jax.tree.flatten(self.scaled(relative, own))
        return treedef.unflatten(w.astype(leaf.dtype) for w, leaf in zip(leaves, self._leaves))

    def relative(self, network: Params, own: dict[str, Own]) -> Params:
        """z = w / scale, in 32 bits at least."""
        leaves, treedef = jax.tree.flatten(network)
        return treedef.unflatten(
            densities.widen(w) * jnp.exp(-jnp.asarray(log)) for w, log in zip(leaves, self.logs(own))
        )

    @property
    def _learnt(self) -> list[Leaf]:
        return [leaf for leaf in self._leaves if leaf.path in self._first]
