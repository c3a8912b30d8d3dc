"""Priors over a network's weights.

A prior is a frozen dataclass of settings that is asked leaf by leaf. The `Prior` protocol is the whole contract: any
class that meets it will do, and needs no inheritance. Here are those that are made of others; `factorised.py` has the
rest.
"""

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from posteria import settings
from posteria.errors import SettingError
from posteria.models import densities
from posteria.models.empirical_covariance import EmpiricalCovariance as EmpiricalCovariance
from posteria.models.factorised import FanIn as FanIn
from posteria.models.factorised import Laplace as Laplace
from posteria.models.factorised import Logistic as Logistic
from posteria.models.factorised import LogUniform as LogUniform
from posteria.models.factorised import Normal as Normal
from posteria.models.factorised import Own
from posteria.models.factorised import ScaleMixture as ScaleMixture
from posteria.models.factorised import StudentT as StudentT
from posteria.models.from_posterior import FromPosterior as FromPosterior
from posteria.models.horseshoe_like import HorseshoeLike as HorseshoeLike
from posteria.models.leaf import Leaf as Leaf
from posteria.models.leaf import Prior as Prior
from posteria.models.leaf import normal_of as normal_of
from posteria.models.matched import matched_scales
from posteria.settings import Positive, check_settings
from posteria.tree import Json


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

    def init(self, leaf: Leaf) -> Own:
        return _init(self.prior_of(leaf), leaf)

    def log_prior(self, own: Own, leaf: Leaf) -> jax.Array:
        prior: Any = self.prior_of(leaf)  # one that has parameters of its own
        density: jax.Array = prior.log_prior(own, leaf)
        return density

    def sample_own(self, key: jax.Array, leaf: Leaf) -> Own:
        prior: Any = self.prior_of(leaf)
        own: Own = prior.sample_own(key, leaf)
        return own

    def log_scale(self, own: Own, leaf: Leaf) -> jax.Array:
        prior: Any = self.prior_of(leaf)
        log_scale: jax.Array = prior.log_scale(own, leaf)
        return log_scale


def matched(network: Any, kernel: Any, x: Any, **settings: Any) -> ByPath:
    """The prior of the weights whose functions are nearest to a Gaussian process, as `po.functions.RBF(length=1.0)`.

    A Normal for each leaf of the network, with the scale at which its functions, at inputs drawn from the rows of x,
    are nearest to the process's in sliced Wasserstein distance. It serves every method. `settings`: `num_steps`,
    `num_functions`, `num_inputs`, `learning_rate`, `key`. Tran et al. 2022.
    """
    return ByPath(matched_scales(network, kernel, x, **settings))


@dataclass(frozen=True)
class InputScales:
    """`prior`, in which each input of the network has a scale of its own: one that says nothing is left out.

    The weights that input j meets first are multiplied by exp(s_j), which is the same as to multiply the input. The
    s_j are inferred, with the prior N(0, log_std^2): automatic relevance, MacKay 1994; Neal 1996. The linear operation
    that the inputs meet is found; where it is a convolution, or its weights are used otherwise too, that is refused.
    """

    prior: Prior = field(default_factory=FanIn)
    log_std: Positive = 1.0
    meets_inputs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", as_prior(self.prior))
        check_settings(self)
        if isinstance(self.prior, InputScales) or hasattr(self.prior, "joint_log_prob"):
            raise SettingError(
                f"InputScales of {type(self.prior).__name__}", "a prior that is asked leaf by leaf", "as FanIn()"
            )

    @property
    def is_proper(self) -> bool:
        return self.prior.is_proper

    def check(self, leaves: Sequence[Leaf]) -> None:
        if hasattr(self.prior, "check"):
            self.prior.check(leaves)
        if all(leaf.input_axis is None for leaf in leaves):
            raise SettingError(
                "InputScales, and no weights that meet the inputs column by column",
                "a network that begins with a dense layer, and an x that shows it",
                "pass data=(x, None) where there are no data; leave InputScales out where a convolution comes first",
            )

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        return self.prior.log_prob(value, leaf)

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        return self.prior.sample(key, leaf)

    def unit(self, leaf: Leaf) -> float:
        return self.prior.unit(leaf)

    def normal(self, leaf: Leaf) -> tuple[ArrayLike, ArrayLike] | None:
        return normal_of(self.prior, leaf)

    def init(self, leaf: Leaf) -> Own:
        own = _init(self.prior, leaf)
        if leaf.input_axis is None:
            return own
        return own | {"inputs": np.zeros(leaf.shape[leaf.input_axis], jnp.result_type(float))}

    def log_prior(self, own: Own, leaf: Leaf) -> jax.Array:
        rest, inputs = _apart(own)
        log_prior = self.prior.log_prior(rest, leaf) if rest else jnp.zeros(())  # type: ignore[attr-defined]
        return log_prior if inputs is None else log_prior + densities.normal(inputs, 0.0).sum()

    def sample_own(self, key: jax.Array, leaf: Leaf) -> Own:
        key_rest, key_inputs = jax.random.split(key)
        own = self.prior.sample_own(key_rest, leaf) if _init(self.prior, leaf) else {}  # type: ignore[attr-defined]
        if leaf.input_axis is None:
            return own
        return own | {"inputs": jax.random.normal(key_inputs, (leaf.shape[leaf.input_axis],))}

    def log_scale(self, own: Own, leaf: Leaf) -> jax.Array:
        """`own["inputs"]` is in units of `log_std`, so that samplers move in units of the prior here too."""
        rest, inputs = _apart(own)
        log_scale = self.prior.log_scale(rest, leaf) if rest else jnp.zeros(())  # type: ignore[attr-defined]
        if inputs is None or leaf.input_axis is None:
            return log_scale
        others = [axis for axis in range(len(leaf.shape)) if axis != leaf.input_axis]
        return log_scale + self.log_std * jnp.expand_dims(inputs, others)


def _apart(own: Own) -> tuple[Own, Any]:
    return {name: value for name, value in own.items() if name != "inputs"}, own.get("inputs")


def _init(prior: Any, leaf: Leaf) -> Own:
    return prior.init(leaf) if hasattr(prior, "log_scale") else {}


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
    if isinstance(obj, InputScales):
        raise SettingError("InputScales inside ByPath", "ByPath inside InputScales", "write InputScales(ByPath(...))")
    return as_prior(obj)


def _matches(leaf: Leaf, pattern: str) -> bool:
    return fnmatch.fnmatchcase(leaf.path, pattern)


MEMBERS = {
    cls.__name__: cls for cls in (Normal, FanIn, Laplace, StudentT, Logistic, ScaleMixture, HorseshoeLike, LogUniform)
}


def to_json(prior: Prior) -> Json | None:
    """{"name", "settings"}; None for a user's own class, or for one of these that holds one."""
    if type(prior) is InputScales:
        inner = to_json(prior.prior)
        return inner and {"name": "InputScales", "settings": {"prior": inner, "log_std": prior.log_std}}
    if type(prior) is not ByPath:
        return settings.to_json(prior, MEMBERS)
    default, stored = to_json(prior.default), [[pattern, to_json(inner)] for pattern, inner in prior.priors]
    if default is None or any(inner is None for _, inner in stored):
        return None
    return {"name": "ByPath", "settings": {"priors": stored, "default": default}}


def from_json(stored: Json) -> Prior:
    """The prior that `to_json` wrote."""
    with settings.refuse_damage(stored):
        if stored["name"] == "InputScales":
            return InputScales(from_json(stored["settings"]["prior"]), stored["settings"]["log_std"])
        if stored["name"] != "ByPath":
            prior: Prior = settings.from_json(stored, MEMBERS)
            return prior
        pairs, default = stored["settings"]["priors"], stored["settings"]["default"]
        return ByPath([(pattern, from_json(prior)) for pattern, prior in pairs], from_json(default))
