"""Equal mixtures of posteriors: ensembles of any method."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.data.arrays import Data
from posteria.errors import SettingError
from posteria.models.target import Target
from posteria.posteriors.base import Posterior, check_num_draws
from posteria.posteriors.diagnosis import Diagnosis
from posteria.posteriors.draws import Draws, DrawsPosterior
from posteria.random import as_key
from posteria.tree import Arrays, Json


class MixturePosterior(Posterior):
    """Each member has the same weight; `num_draws` are divided over them as evenly as they go."""

    kind = "mixture"

    def __init__(self, target: Target, members: list[Posterior], facts: Json | None = None) -> None:
        super().__init__(target, facts)
        self.members = members

    @property
    def num_draws(self) -> int:
        return len(self.members) * min(member.num_draws for member in self.members)

    def draws(self, key: jax.Array, x: Data, num_draws: int) -> tuple[jax.Array, tree.Params]:
        parts = [member.draws(k, x, num) for member, k, num in self._shares(key, num_draws or self.num_draws)]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)

    def sample(self, key: int | jax.Array, num_draws: int) -> tree.Params:
        """Weight draws in the network's own tree with a leading draw axis."""
        return self.sample_params(as_key(key), check_num_draws(num_draws))["network"]

    def sample_params(self, key: jax.Array, num_draws: int) -> tree.Params:
        if not all(hasattr(member, "sample_params") for member in self.members):
            raise SettingError("a member has no weights to sample", "members in weight space", "use functions()")
        parts = [member.sample_params(k, num) for member, k, num in self._shares(key, num_draws)]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)

    def diagnose(self, x: Data = None) -> Diagnosis:
        """Whether the members' chains agree, as chains of one posterior would."""
        return self._as_one().diagnose(x)

    def to_arviz(self) -> Any:
        """As an ArviZ DataTree, the members' chains side by side."""
        return self._as_one().to_arviz()

    def _as_one(self) -> DrawsPosterior:
        members = [member for member in self.members if isinstance(member, DrawsPosterior)]
        if len(members) < len(self.members):
            raise SettingError("a member holds no chains", "members that are chains", "diagnose the members")
        flat = np.concatenate([member.stored.flat for member in members])
        info = {name: np.concatenate([member.info[name] for member in members]) for name in members[0].info}
        return DrawsPosterior(self.target, Draws(self.target.structs, flat, info), self.facts)

    def _shares(self, key: jax.Array, num_draws: int) -> list[tuple[Any, jax.Array, int]]:
        keys = jax.random.split(key, len(self.members))
        shares = [len(part) for part in np.array_split(np.arange(num_draws), len(self.members))]
        return [(member, k, share) for member, k, share in zip(self.members, keys, shares) if share]

    def state(self) -> tuple[Json, Arrays]:
        settings: list[Json] = []
        arrays: Arrays = {}
        for i, member in enumerate(self.members):
            own_settings, own_arrays = member.state()
            settings.append({"kind": member.kind, "settings": own_settings, "arrays": list(own_arrays)})
            arrays |= {f"{i}.{name}": array for name, array in own_arrays.items()}
        return {"members": settings}, arrays

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "MixturePosterior":
        from posteria.posteriors.saving import restore

        members = [
            restore(target, own["kind"], own["settings"], {name: arrays[f"{i}.{name}"] for name in own["arrays"]}, {})
            for i, own in enumerate(settings["members"])
        ]
        return cls(target, members, facts)
