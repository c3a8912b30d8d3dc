"""Priors over a network's weights, factorised over their entries.

A prior is a frozen dataclass of settings that is asked leaf by leaf. The `Prior` protocol is the whole contract: any
class that meets it will do, and needs no inheritance.
"""

import fnmatch
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from posteria.errors import SettingError
from posteria.models import densities, parts
from posteria.models.from_posterior import FromPosterior as FromPosterior
from posteria.models.horseshoe_like import HorseshoeLike as HorseshoeLike
from posteria.settings import Positive, ProperShare, check_settings
from posteria.tree import Json


class Leaf(NamedTuple):
    """What a prior may know of a leaf of the parameters."""

    path: str  # as "layers/0/kernel"
    shape: tuple[int, ...]
    dtype: np.dtype
    fan_in: int | None  # inputs summed by the linear operation it weighs; None for biases, norms and all else


@runtime_checkable
class Prior(Protocol):
    """What Posteria needs of a prior.

    Optional: `check(leaves)` is called once, with every leaf; `normal(leaf)` is the mean and standard deviation where
    the prior is Normal (numbers or arrays of the leaf's shape), None where it is not: expectations are then in closed
    form.
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


@dataclass(frozen=True)
class Normal:
    """w ~ N(0, std^2)."""

    std: Positive = 1.0
    is_proper: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self)

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        return densities.normal(densities.widen(value) / self.std, math.log(self.std)).sum()

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        return _scaled_draw(jax.random.normal, key, leaf, self.std)

    def unit(self, leaf: Leaf) -> float:
        return self.std

    def normal(self, leaf: Leaf) -> tuple[ArrayLike, ArrayLike]:
        return 0.0, self.std


@dataclass(frozen=True)
class FanIn:
    """Weights w ~ N(0, scale^2 / fan_in), all else N(0, bias_std^2): a layer's sums keep the size of its inputs.

    Neal 1996, Bayesian Learning for Neural Networks, chapter 2.
    """

    scale: Positive = 1.0
    bias_std: Positive = 1.0
    is_proper: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self)

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        return Normal(self.unit(leaf)).log_prob(value, leaf)

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        return Normal(self.unit(leaf)).sample(key, leaf)

    def unit(self, leaf: Leaf) -> float:
        return self.bias_std if leaf.fan_in is None else self.scale / math.sqrt(leaf.fan_in)

    def normal(self, leaf: Leaf) -> tuple[ArrayLike, ArrayLike]:
        return 0.0, self.unit(leaf)


@dataclass(frozen=True)
class Laplace:
    """p(w) = exp(-|w| / scale) / (2 scale). Its gradient at 0 is taken as 0."""

    scale: Positive = 1.0
    is_proper: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self)

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        value = densities.widen(value)
        size = jnp.sign(value) * value  # |w|; jnp.abs has the gradient 1 at 0
        return (-size / self.scale - math.log(2 * self.scale)).sum()

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        return _scaled_draw(jax.random.laplace, key, leaf, self.scale)

    def unit(self, leaf: Leaf) -> float:
        return math.sqrt(2) * self.scale


@dataclass(frozen=True)
class StudentT:
    """w ~ scale * t(df): heavy tails."""

    df: Positive = 3.0
    scale: Positive = 1.0
    is_proper: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self)

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        return densities.student_t(densities.widen(value) / self.scale, math.log(self.scale), self.df).sum()

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        return _scaled_draw(partial(_standard_t, df=self.df), key, leaf, self.scale)

    def unit(self, leaf: Leaf) -> float:
        return self.scale * (math.sqrt(self.df / (self.df - 2)) if self.df > 2 else 1.0)


@dataclass(frozen=True)
class Logistic:
    """p(w) = sigmoid(w / scale) sigmoid(-w / scale) / scale."""

    scale: Positive = 1.0
    is_proper: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self)

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        z = densities.widen(value) / self.scale
        return (jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z) - math.log(self.scale)).sum()

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        return _scaled_draw(jax.random.logistic, key, leaf, self.scale)

    def unit(self, leaf: Leaf) -> float:
        return math.pi / math.sqrt(3) * self.scale


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


@dataclass(frozen=True, init=False)
class ByPath:
    """A prior for each pattern of leaf paths: the first that matches is taken, and `default` where none does.

    Patterns are shell globs on paths such as "layers/0/kernel"; case counts, and * also crosses the slashes.
    """

    priors: tuple[tuple[str, Prior], ...]
    default: Prior

    def __init__(self, priors: Mapping[str, Prior] | Iterable[tuple[str, Prior]], default: Prior | None = None) -> None:
        pairs = priors.items() if isinstance(priors, Mapping) else priors
        object.__setattr__(self, "priors", tuple((pattern, _single(prior)) for pattern, prior in pairs))
        object.__setattr__(self, "default", FanIn() if default is None else _single(default))

    @property
    def is_proper(self) -> bool:
        return self.default.is_proper and all(prior.is_proper for _, prior in self.priors)

    def check(self, leaves: Sequence[Leaf]) -> None:
        """Refuse a pattern that decides nothing: it is misspelt, or stands behind those that take all it matches."""
        left = list(leaves)
        for pattern, _ in self.priors:
            if not any(_matches(leaf, pattern) for leaf in left):
                is_shadowed = any(_matches(leaf, pattern) for leaf in leaves)
                raise SettingError(
                    f"the prior's pattern {pattern!r} matches no leaf" + (" that is left to it" if is_shadowed else ""),
                    "a pattern for some of " + ", ".join(leaf.path for leaf in leaves),
                    "put it before the wider patterns" if is_shadowed else "correct or drop the pattern",
                )
            left = [leaf for leaf in left if not _matches(leaf, pattern)]

    def prior_of(self, leaf: Leaf) -> Prior:
        return next((prior for pattern, prior in self.priors if _matches(leaf, pattern)), self.default)

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        return self.prior_of(leaf).log_prob(value, leaf)

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        return self.prior_of(leaf).sample(key, leaf)

    def unit(self, leaf: Leaf) -> float:
        return self.prior_of(leaf).unit(leaf)

    def normal(self, leaf: Leaf) -> tuple[ArrayLike, ArrayLike] | None:
        return normal_of(self.prior_of(leaf), leaf)


def normal_of(prior: Prior, leaf: Leaf) -> tuple[ArrayLike, ArrayLike] | None:
    """Mean and standard deviation of the leaf's prior where it is Normal, else None."""
    return prior.normal(leaf) if hasattr(prior, "normal") else None


def as_prior(obj: object) -> Prior:
    """A prior as it is; a dictionary from patterns to priors as `ByPath`."""
    if isinstance(obj, Mapping):
        return ByPath(obj)
    if isinstance(obj, type):
        raise SettingError(f"the class {obj.__name__} as a prior", "an object of it", f"write {obj.__name__}()")
    if not isinstance(obj, Prior):
        raise SettingError(
            f"{obj!r} as a prior",
            "is_proper, log_prob, sample and unit, or a dictionary from leaf paths to priors",
            "use posteria.priors.FanIn() or another of its members",
        )
    return obj


def _single(obj: object) -> Prior:
    """A prior that is not itself by path: nested patterns would hide which one decides."""
    if isinstance(obj, ByPath | Mapping):
        raise SettingError("a ByPath or a dictionary inside ByPath", "one level of patterns", "write them as one")
    return as_prior(obj)


def _matches(leaf: Leaf, pattern: str) -> bool:
    return fnmatch.fnmatchcase(leaf.path, pattern)


def _scaled_draw(
    draw: Callable[[jax.Array, tuple[int, ...], np.dtype], jax.Array], key: jax.Array, leaf: Leaf, scale: ArrayLike
) -> jax.Array:
    """scale * draw(key, shape, dtype), made in at least float32 and returned in the leaf's dtype."""
    drawn = draw(key, leaf.shape, jnp.promote_types(leaf.dtype, jnp.float32))
    return jnp.multiply(scale, drawn).astype(leaf.dtype)


def _standard_t(key: jax.Array, shape: tuple[int, ...], dtype: np.dtype, df: float) -> jax.Array:
    return jax.random.t(key, df, shape, dtype)


MEMBERS = {
    cls.__name__: cls for cls in (Normal, FanIn, Laplace, StudentT, Logistic, ScaleMixture, HorseshoeLike, LogUniform)
}


def to_json(prior: Prior) -> Json | None:
    """{"name", "settings"}; None for a user's own class, or a ByPath that holds one."""
    if type(prior) is not ByPath:
        return parts.to_json(prior, MEMBERS)
    default, stored = to_json(prior.default), [[pattern, to_json(inner)] for pattern, inner in prior.priors]
    if default is None or any(inner is None for _, inner in stored):
        return None
    return {"name": "ByPath", "settings": {"priors": stored, "default": default}}


def from_json(stored: Json) -> Prior:
    """The prior that `to_json` wrote."""
    with parts.refuse_damage(stored):
        if stored["name"] != "ByPath":
            return parts.from_json(stored, MEMBERS)
        pairs, default = stored["settings"]["priors"], stored["settings"]["default"]
        return ByPath([(pattern, from_json(prior)) for pattern, prior in pairs], from_json(default))
