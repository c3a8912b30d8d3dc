"""Posteriors that are stored draws of the weights: chains of samplers, points, ensembles of points."""

from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.data.directions import in_words
from posteria.models.target import Target
from posteria.posteriors.base import Posterior, check_num_draws
from posteria.posteriors.diagnosis import Diagnosis, diagnose
from posteria.random import as_key
from posteria.tree import Arrays, Json


class Draws:
    """Chains over a pytree: `flat` is (chain, draw, size), `info` has (chain, draw) arrays by name."""

    def __init__(self, structs: tree.Params, flat: ArrayLike, info: Arrays) -> None:
        self.structs = structs
        self.flat = np.asarray(flat)
        self.info = info
        self.facts: Json = {}

    @property
    def params(self) -> tree.Params:
        """The tree with leaves (chain, draw, ...)."""
        return jax.tree.map(np.asarray, tree.unraveller(self.structs)(self.flat))

    @property
    def num_draws(self) -> int:
        return self.flat.shape[0] * self.flat.shape[1]

    def pick(self, key: jax.Array, num_draws: int) -> np.ndarray:
        """`num_draws` rows, spread evenly over chains, repeated only past their number: (num_draws, size)."""
        num_chains, length, _ = self.flat.shape
        rounds = []
        with jax.ensure_compile_time_eval():  # also where an export traces this
            for key_round in jax.random.split(key, -(-num_draws // self.num_draws)):
                keys = jax.random.split(key_round, num_chains)
                orders = np.stack([np.asarray(jax.random.permutation(k, length)) for k in keys])  # (chain, draw)
                chains = np.tile(np.arange(num_chains), length)
                rounds.append(self.flat[chains, orders.T.reshape(-1)])
        return np.concatenate(rounds)[:num_draws]

    def diagnose(self) -> Diagnosis:
        """Convergence of every coordinate."""
        return diagnose(self.flat, self.info, "coordinates", self.facts.get("notes", []), self.facts.get("cut", []))

    def to_arviz(self) -> Any:
        """As an ArviZ DataTree: groups posterior and sample_stats."""
        import arviz_base

        names = [path.replace("/", ".") or "x" for path in tree.paths(self.structs)]
        posterior = dict(zip(names, jax.tree.leaves(self.params)))
        return arviz_base.from_dict({"posterior": posterior, "sample_stats": self.info})


class DrawsPosterior(Posterior):
    """Stored draws of the weights, and of the likelihood's own parameters."""

    kind = "draws"

    def __init__(self, target: Target, stored: Draws, facts: Json | None = None) -> None:
        super().__init__(target, facts)
        self.stored = stored

    @property
    def num_draws(self) -> int:
        return self.stored.num_draws

    @property
    def info(self) -> Arrays:
        """What the sampler said of each draw: (chain, draw) arrays by name."""
        return self.stored.info

    @property
    def params(self) -> tree.Params:
        """All stored weights, in the network's own tree, with leaves (chain, draw, ...)."""
        return self.stored.params["network"]

    def draws(self, key: jax.Array, x: Data, num_draws: int) -> tuple[jax.Array, tree.Params]:
        is_all = num_draws is None or num_draws == self.num_draws
        flat = self._all_rows() if is_all else self.stored.pick(key, num_draws)
        return forward(self.target)(flat, x)

    def sample(self, key: int | jax.Array, num_draws: int) -> tree.Params:
        """Weight draws in the network's own tree with a leading draw axis."""
        return self.sample_params(as_key(key), check_num_draws(num_draws))["network"]

    def sample_params(self, key: jax.Array, num_draws: int) -> tree.Params:
        """Draws of the network's and the likelihood's parameters, with a leading draw axis."""
        return tree.unraveller(self.target.structs)(self.stored.pick(key, num_draws))

    def diagnose(self, x: Data = None) -> Diagnosis:
        """Convergence of the functions at x (of the weights, where no x is given), with a verdict in plain words."""
        flat = in_words(self.facts.get("flat_directions"))
        said = [*self.facts.get("notes", []), *([flat] if flat else [])], self.facts.get("cut", [])
        if x is None:
            return diagnose(self.stored.flat, self.info, "weights", *said)
        num_chains, length, _ = self.stored.flat.shape
        outputs, own = forward(self.target)(self._all_rows(), self.check_x(x))
        means, _ = jax.jit(jax.vmap(self.model.likelihood.moments))(own, outputs)
        return diagnose(np.asarray(means).reshape(num_chains, length, *means.shape[1:]), self.info, "functions", *said)

    def to_arviz(self) -> Any:
        """As an ArviZ DataTree: groups posterior and sample_stats."""
        return self.stored.to_arviz()

    def state(self) -> tuple[Json, Arrays]:
        return {"info": list(self.info)}, {"draws": self.stored.flat} | {f"info.{k}": v for k, v in self.info.items()}

    @classmethod
    def from_state(cls, target: Target, settings: Json, arrays: Arrays, facts: Json) -> "DrawsPosterior":
        info = {name: arrays[f"info.{name}"] for name in settings["info"]}
        return cls(target, Draws(target.structs, arrays["draws"], info), facts)

    def _all_rows(self) -> np.ndarray:
        return self.stored.flat.reshape(-1, self.stored.flat.shape[-1])


@kept
def forward(target: Target) -> Any:
    """(flat weights (draw, size), x) -> (outputs (draw, batch, output), own parameters with a leading draw axis)."""
    unravel = tree.unraveller(target.structs)

    def one(flat: jax.Array, x: Data) -> tuple[jax.Array, tree.Params]:
        params = unravel(flat)
        return target.model.outputs(params["network"], x), params["likelihood"]

    return jax.jit(lambda flat, x: jax.lax.map(lambda row: one(row, x), flat))
