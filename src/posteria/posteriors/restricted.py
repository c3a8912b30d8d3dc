"""Posteriors over an affine subspace of the weights: w = centre + directions z, with z from any other posterior."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.models.model import Model
from posteria.models.priors import Leaf
from posteria.models.target import Target
from posteria.networks import Network
from posteria.posteriors.base import Posterior, check_num_draws
from posteria.posteriors.diagnosis import Diagnosis
from posteria.posteriors.draws import Draws
from posteria.random import as_key
from posteria.tree import Arrays, Json


@dataclass(frozen=True, eq=False)
class Plane:
    """The affine subspace of a network's flat weights."""

    structs: tree.Params  # of the network's parameters
    centre: jax.Array  # (size,)
    directions: jax.Array  # (size, rank)
    rest: tree.Params = field(default_factory=dict)  # {"prior": scales that are held}, where the prior infers them

    @property
    def rank(self) -> int:
        return self.directions.shape[1]

    def weights(self, z: jax.Array) -> jax.Array:
        """Flat weights of coordinates (..., rank): (..., size)."""
        return self.centre + z @ self.directions.T

    def params(self, z: jax.Array) -> tree.Params:
        return tree.unraveller(self.structs)(self.weights(z))


def restricted(target: Target, plane: Plane, data: Any = None) -> Target:
    """The same density over the coordinates z of a plane; the likelihood's own parameters stay as they are."""
    model, outputs = target.model, _outputs(target.model)
    network = Network(
        lambda key, x: jax.random.normal(key, (plane.rank,)),
        lambda z, x: outputs(plane.params(z), x),
    )
    prior = RestrictedPrior(target.without_data(), plane)
    return Target(Model(network, model.likelihood, prior, model.temperature), data)


@kept
def _outputs(model: Model) -> Callable[[tree.Params, Data], jax.Array]:
    """Compiled on its own, so that the network is traced once for all its subspaces."""
    return jax.jit(model.outputs)


@dataclass(frozen=True, eq=False)
class RestrictedPrior:
    """The prior of a whole network, along a plane: not normalised, and the plane's coordinates have unit scale."""

    target: Target
    plane: Plane

    is_factorised: ClassVar[bool] = False  # over the coordinates

    @property
    def is_proper(self) -> bool:
        return self.target.model.prior.is_proper

    def joint_log_prob(self, params: tree.Params) -> jax.Array:
        """Of the coordinates with the likelihood's own parameters: ()."""
        return self.target.log_prior(params | self.plane.rest | {"network": self.plane.params(params["network"])})

    def log_prob(self, value: jax.Array, leaf: Leaf) -> jax.Array:
        leaves = zip(jax.tree.leaves(self.plane.params(value)), self.target.leaves)
        return jnp.stack([self.target.model.prior.log_prob(*each) for each in leaves]).sum()

    def sample(self, key: jax.Array, leaf: Leaf) -> jax.Array:
        """Around the centre: a place to start from."""
        return jax.random.normal(key, leaf.shape)

    def unit(self, leaf: Leaf) -> float:
        return 1.0


class SubspacePosterior(Posterior):
    """What `inner` says of the coordinates, as a posterior of the whole network."""

    kind: ClassVar[str] = "subspace"

    def __init__(self, target: Target, inner: Posterior, plane: Plane, facts: Json | None = None) -> None:
        super().__init__(target, facts)
        self.inner: Any = inner
        self.plane = plane

    @property
    def num_draws(self) -> int:
        return self.inner.num_draws

    def draws(self, key: jax.Array, x: Data, num_draws: int) -> tuple[jax.Array, tree.Params]:
        return self.inner.draws(key, x, num_draws)

    def sample(self, key: int | jax.Array, num_draws: int) -> tree.Params:
        """Weight draws in the network's own tree with a leading draw axis."""
        return self.sample_params(as_key(key), check_num_draws(num_draws))["network"]

    def sample_params(self, key: jax.Array, num_draws: int) -> tree.Params:
        """Draws of the network's and the likelihood's parameters, with a leading draw axis."""
        drawn = self.inner.sample_params(key, num_draws)
        return drawn | self._rest((num_draws,)) | {"network": self.plane.params(drawn["network"])}

    def _rest(self, lead: tuple[int, ...]) -> tree.Params:
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*lead, *jnp.shape(leaf))), self.plane.rest)

    def diagnose(self, x: Data = None) -> Diagnosis:
        """Convergence of the functions at x (of the coordinates, where no x is given)."""
        return self.inner.diagnose(x)

    @property
    def stored(self) -> Draws:
        """The chains of `inner`, as weights of the whole network; none where it holds no chains."""
        drawn = self.inner.stored.params
        rest = self._rest(drawn["network"].shape[:2])
        params = drawn | rest | {"network": self.plane.params(jnp.asarray(drawn["network"]))}
        flat = jax.vmap(jax.vmap(tree.ravel))(params)
        return Draws(self.target.structs, flat, self.inner.info)

    def state(self) -> tuple[Json, Arrays]:
        settings, arrays = self.inner.state()
        plane = {"centre": np.asarray(self.plane.centre), "directions": np.asarray(self.plane.directions)}
        if self.plane.rest:
            plane["prior"] = np.asarray(tree.ravel(self.plane.rest["prior"]))
        own = {"kind": self.inner.kind, "settings": settings, "arrays": list(arrays)}
        return {"inner": own}, plane | {f"inner.{name}": array for name, array in arrays.items()}

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "SubspacePosterior":
        from posteria.posteriors.saving import restore

        own = settings["inner"]
        centre, directions = jnp.asarray(arrays["centre"]), jnp.asarray(arrays["directions"])
        rest = {}
        if target.scales:
            rest = {"prior": tree.unraveller(target.structs["prior"])(jnp.asarray(arrays["prior"]))}
        plane = Plane(target.structs["network"], centre, directions, rest)
        x = target.blank_input
        inner_target = restricted(target, plane, None if x is None else (x, None))
        inner = restore(
            inner_target, own["kind"], own["settings"], {name: arrays[f"inner.{name}"] for name in own["arrays"]}, {}
        )
        return cls(target, inner, plane, facts)
