"""Equal mixtures of posteriors: ensembles of any method; and of folds, whose members each left some of the rows out,
with widths that were learnt from those rows."""

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import nn, tree
from posteria.data.arrays import Data
from posteria.errors import SettingError
from posteria.models import priors
from posteria.models.error_size import ErrorSize
from posteria.models.model import Model
from posteria.models.target import Target
from posteria.posteriors.base import Posterior, check_num_draws
from posteria.posteriors.diagnosis import Diagnosis
from posteria.posteriors.draws import Draws, DrawsPosterior, forward
from posteria.posteriors.predictive import Predictive, half_widths_of
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


# ---- members that each left a fold out

WIDTHS_HIDDEN = (32,)
MOST_WIDENED = 4.0  # the logarithm of a width is within this


class Widths:
    """log width(x, centre), the mean of several small networks' outputs."""

    def __init__(self, target: Target, flat: np.ndarray, centre: np.ndarray, spread: np.ndarray) -> None:
        self.target = target.without_data()
        self.flat = flat  # (member, size)
        self.centre, self.spread = centre, spread  # (target,): of the centres that it was fitted to

    def inputs(self, x: Any, centre: Any) -> jax.Array:
        return jnp.concatenate([x, (centre - self.centre) / self.spread], axis=1, dtype=jnp.float32)

    def log_widths(self, x: Any, centre: Any) -> jax.Array:
        """(row, target)."""
        outputs, _ = forward(self.target)(self.flat, self.inputs(x, centre))
        return jnp.clip(outputs, -MOST_WIDENED, MOST_WIDENED).mean(0)


class FoldsPosterior(MixturePosterior):
    """An equal mixture of members of which each left a fold of the rows out.

    Its prediction, once calibrated, has the average centre of the members and the average of their widths: each row
    left out was predicted by one member, so the scores of those rows are of such widths.
    """

    kind = "folds"

    def __init__(
        self, target: Target, members: list[Posterior], widths: Widths | None = None, facts: Json | None = None
    ) -> None:
        super().__init__(target, members, facts)
        self.widths = widths

    def predict(self, x: Data, num_draws: int | None = None) -> Predictive:
        """The average over the members; of `num_draws` so many as divide evenly over them."""
        num_members = len(self.members)
        if num_draws is not None:
            num_draws = max(1, num_draws // num_members) * num_members
        plain = super().predict(x, num_draws)
        return FoldsPredictive(plain, self.check_x(x), num_members, self.widths)

    def half_widths_of(self, x: Data, own: tree.Params, outputs: jax.Array) -> tuple[jax.Array, ...]:
        likelihood, members = self.model.likelihood, jnp.zeros(len(self.members))
        centre, below, above = half_widths_of(likelihood, own, outputs, None, members)
        if self.widths is None:
            return centre, below, above
        factor = jnp.exp(self.widths.log_widths(x, centre))
        return centre, below * factor, above * factor

    def state(self) -> tuple[Json, Arrays]:
        settings, arrays = super().state()
        if self.widths is not None:
            of_widths = {"flat": self.widths.flat, "centre": self.widths.centre, "spread": self.widths.spread}
            arrays |= {f"widths.{name}": array for name, array in of_widths.items()}
        return settings | {"has_widths": self.widths is not None}, arrays

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "FoldsPosterior":
        plain = MixturePosterior.from_state(target, settings, arrays, facts)
        widths = None
        if settings["has_widths"]:
            flat, centre, spread = (arrays[f"widths.{name}"] for name in ("flat", "centre", "spread"))
            num_columns = np.shape(target.blank_input)[1] + len(centre)
            widths = Widths(widths_target(num_columns, len(centre)), flat, centre, spread)
        return cls(target, plain.members, widths, facts)


class FoldsPredictive(Predictive):
    """A mixture of the members' predictions; its half-widths are the members' on average, times the learnt widths."""

    def __init__(self, plain: Predictive, x: Data, num_members: int, widths: Widths | None) -> None:
        self.__dict__.update(plain.__dict__, _num_members=num_members)
        self._widths = widths

    @cached_property
    def half_widths(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        centre, below, above = super().half_widths
        if self._widths is None:
            return centre, below, above
        factor = np.exp(np.asarray(self._widths.log_widths(self._x, centre), np.float64))
        return centre, below * factor, above * factor


def widths_target(num_columns: int, num_targets: int, data: Data = None) -> Target:
    """A small network of the size of errors; without data, for its shapes."""
    model = Model(
        nn.mlp(WIDTHS_HIDDEN, outputs=num_targets, activation="swish"),
        ErrorSize(),
        priors.InputScales(priors.FanIn(scale=2.0)),
    )
    return Target(model, (np.zeros((1, num_columns), np.float32), None) if data is None else data)
