"""A model with its data: the unnormalised log posterior. The only place that knows N and the temperature."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data, check_same_length, check_x, is_frame, num_rows, rows
from posteria.errors import DataError, DensityError, NetworkError, SettingError
from posteria.machine import check_room
from posteria.models.model import InputSpec, Model, initialiser, network_structs
from posteria.models.priors import Leaf
from posteria.networks import Network, check_is_function_of_one_datum, check_outputs

COPIES = 4  # of the weights: with their gradient, and an optimiser's two moments
Params = tree.Params  # {"network": ..., "likelihood": ...}


class Target:
    """`(log p(w) + N/B sum_batch log p(y | x, w)) / T` over `{"network": ..., "likelihood": ...}`.

    Equal for equal models, numbers of data and parameter shapes, whatever the data: compiled code is shared between
    fits, and takes `data` as an argument. Without data the target is the prior.
    """

    def __init__(self, model: Model, data: Data = None) -> None:
        self.model = model
        self._spec: InputSpec | None = None
        self.num_outputs: int | None = None
        self.columns: list[str] | None = None  # of a frame
        x, y = _pair(data)
        if x is not None:
            self.columns = list(x.columns) if is_frame(x) else None
            x = check_x(x)
            self._spec = InputSpec.of(x)
            check_room(COPIES * tree.num_bytes(network_structs(model.network, self._spec)), "training this network")
            self.num_outputs = _num_outputs(model.network, self._spec)
            if y is not None:
                y = model.likelihood.check(y, self.num_outputs)
                check_same_length(x, y)
            _check_network(model.network, self._spec, x)
        self._network_structs = _structs(model, self._spec)
        self.num_data = 0 if y is None else num_rows(x)
        self.data = None if y is None else tree.on_device((x, y))
        self._leaves = model.leaves(x)
        if hasattr(model.prior, "check"):
            model.prior.check(self._leaves)

    def without_data(self) -> "Target":
        """The same density for use inside compiled functions, which hand it their batch; safe to keep in a cache."""
        bare = object.__new__(Target)
        bare.__dict__.update(self.__dict__, data=None)
        return bare

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    @property
    def compiled_for(self) -> object:
        return self.model.compiled_for

    def _identity(self) -> tuple[object, ...]:
        return self.model, self.num_data, self._spec, tree.signature(self._network_structs)

    @property
    def temperature(self) -> float:
        return self.model.temperature

    @property
    def leaves(self) -> list[Leaf]:
        """What the prior may know of each leaf of the network."""
        return self._leaves

    @property
    def caveat(self) -> str:
        """What the user should know of this target; empty where there is nothing."""
        if self._spec is None and any(leaf.fan_in for leaf in self._leaves):
            return (
                "no x was given, so fan-in was read off the kernels' shapes as (..., in, out); (x, None) would tell it"
            )
        return ""

    # ---- the density

    def log_prior(self, params: Params) -> jax.Array:
        if hasattr(self.model.prior, "joint_log_prob"):
            return self.model.prior.joint_log_prob(params)
        leaves = zip(jax.tree.leaves(params["network"]), self._leaves)
        own = self.model.likelihood.log_prior(params["likelihood"])
        return sum((self.model.prior.log_prob(value, leaf) for value, leaf in leaves), start=own)

    def log_likelihood(self, params: Params, batch: Data) -> jax.Array:
        """One term a datum, never averaged: (batch,)."""
        x, y = batch
        return self.model.likelihood.log_prob(params["likelihood"], self.model.outputs(params["network"], x), y)

    def log_density(self, params: Params, batch: Data = None, likelihood_power: jax.Array | float = 1.0) -> jax.Array:
        """Tempered and unnormalised; `batch` stands for all N data. No batch and no data: the prior."""
        batch = self.data if batch is None else batch
        log_likelihood = None if batch is None else likelihood_power * self.log_likelihood(params, batch)
        return self.tempered(self.log_prior(params), log_likelihood)

    def tempered(self, log_prior: jax.Array, log_likelihood: jax.Array | None) -> jax.Array:
        """(log prior + N/B sum of a batch's log likelihoods) / T, for methods that have these by themselves."""
        if log_likelihood is not None:
            log_prior += (self.num_data / len(log_likelihood)) * log_likelihood.sum()
        return log_prior / self.model.temperature

    # ---- inputs and parameters

    @property
    def blank_input(self) -> Data:
        """A batch of one datum, all zeros, for its shapes and dtypes; None where no x was given."""
        return None if self._spec is None else self._spec.zeros()

    @property
    def structs(self) -> Params:
        """Shapes and dtypes of the parameters."""
        own = jax.eval_shape(self.model.likelihood.init, jax.random.key(0))
        return {"network": self._network_structs, "likelihood": own}

    @property
    def units(self) -> Params:
        """The prior's unit for each leaf, as a number: samplers move in these."""
        structs = self.structs
        network = jax.tree.structure(structs["network"]).unflatten(map(self.model.prior.unit, self._leaves))
        return {"network": network, "likelihood": jax.tree.map(lambda _: 1.0, structs["likelihood"])}

    def init(self, key: jax.Array) -> Params:
        """A start from the network's own initialiser (a trained network: its weights)."""
        key_network, key_likelihood = jax.random.split(key)
        network = initialiser(self.model.network, self._spec)(key_network)
        return {"network": network, "likelihood": self.model.likelihood.init(key_likelihood)}

    def sample_prior(self, key: jax.Array) -> Params:
        """A start drawn from the prior (the likelihood's own parameters start where it says)."""
        self.check_proper()
        key_network, key_likelihood = jax.random.split(key)
        network = _prior_sampler(self.without_data())(key_network)
        return {"network": network, "likelihood": self.model.likelihood.init(key_likelihood)}

    def check_proper(self) -> None:
        """Refuse an improper prior; for methods that need a density or a draw from it."""
        if not self.model.prior.is_proper:
            raise SettingError(
                f"{type(self.model.prior).__name__} is improper: it has neither a density nor draws",
                "a proper prior for this method",
                "take po.priors.FanIn(), or a method made for it (sparse variational dropout)",
            )

    def several_inits(self, key: jax.Array, num: int) -> tuple[Params, str]:
        """`num` different starts with a leading axis, and a note: a trained network has but one initialisation."""
        check_room(COPIES * num * tree.num_bytes(self.structs), f"{num:,} starts")
        keys = jax.random.split(key, num)
        if num > 1 and self.model.network.trained:
            return tree.stack([self.sample_prior(k) for k in keys]), (
                "the network came trained and has no initialiser: starts were drawn from the prior"
            )
        return tree.stack([self.init(k) for k in keys]), ""

    def as_starts(self, start: Params, num: int) -> Params:
        """Weights given by the user, as `num` starts with a leading axis; the likelihood's part may be left out."""
        structs = self.structs
        if jax.tree.structure(start) == jax.tree.structure(structs["network"]):
            own = self.model.likelihood.init(jax.random.key(0))
            lead = np.ndim(jax.tree.leaves(start)[0]) > len(jax.tree.leaves(structs["network"])[0].shape)
            if lead:
                own = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], tree.length(start), 0), own)
            start = {"network": start, "likelihood": own}
        return broadcast_starts(start, structs, num)


def broadcast_starts(start: Params, structs: Params, num: int) -> Params:
    """One start, or one with a leading axis of `num`, as `num` starts of the right shapes and dtypes."""
    check_room(COPIES * num * tree.num_bytes(structs), f"{num:,} starts")
    if jax.tree.structure(start) != jax.tree.structure(structs):
        raise NetworkError(
            f"start has leaves {tree.paths(start)}",
            f"leaves {tree.paths(structs)}",
            "pass the network's own parameters",
        )

    def one(path: tuple[Any, ...], value: jax.Array, struct: jax.ShapeDtypeStruct) -> jax.Array:
        value = jnp.asarray(value, struct.dtype)
        if value.shape == struct.shape:
            return jnp.broadcast_to(value, (num, *struct.shape))
        if value.shape == (num, *struct.shape):
            return value
        raise NetworkError(
            f"start's {tree.path_string(path)} is {value.shape}",
            f"{struct.shape}, or {(num, *struct.shape)} with a leading axis of starts",
            "pass one set of weights, or one a chain",
        )

    return jax.tree_util.tree_map_with_path(one, start, structs)


class Density:
    """Any log density over any pytree as a target: no network, no data, units of 1."""

    data = None
    num_data = 0
    temperature = 1.0
    caveat = ""

    def __init__(self, log_density: Callable[[Params], jax.Array], start: Params) -> None:
        self._log_density = log_density
        self.structs = tree.structs(jax.tree.map(jnp.asarray, start))
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.structs):
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise SettingError(
                    f"start's {tree.path_string(path) or 'value'} is {leaf.dtype}", "floating point", "pass 0.0, not 0"
                )

    def without_data(self) -> "Density":
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Density) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    @property
    def compiled_for(self) -> object:
        return self._log_density if hasattr(self._log_density, "__dict__") else self

    def _identity(self) -> tuple[object, ...]:
        return self._log_density, tree.signature(self.structs)

    @property
    def units(self) -> Params:
        return jax.tree.map(lambda _: 1.0, self.structs)

    def log_density(self, params: Params, batch: Data = None, likelihood_power: jax.Array | float = 1.0) -> jax.Array:
        del batch, likelihood_power
        return self._log_density(params)

    def check_proper(self) -> None:
        """A user's own density is taken as it is."""

    def as_starts(self, start: Params, num: int) -> Params:
        return broadcast_starts(start, self.structs, num)


def check_starts(target: Target | Density, starts: Params, num_rows: int | None = None) -> None:
    """Refuse starts whose density, of the first rows or of all, is not finite."""
    values = log_densities(target, starts, num_rows)
    if not np.isfinite(values).all():
        chain = int(np.flatnonzero(~np.isfinite(values))[0])
        raise DensityError(
            f"the log density at start {chain} is {values[chain]}",
            "a finite density at every start",
            "standardise x and y, check the likelihood's scale, or give another start",
        )


def log_densities(target: Target | Density, starts: Params, num_rows: int | None = None) -> np.ndarray:
    """At each of several parameters (leading axis), by the first rows of the data or by all: (start,)."""
    batch = target.data if num_rows is None or target.data is None else rows(target.data, slice(num_rows))
    return np.asarray(_log_densities(target.without_data())(starts, batch))


@kept
def _log_densities(target: Target | Density) -> Callable[[Params, Data], jax.Array]:
    return jax.jit(lambda starts, data: jax.lax.map(lambda params: target.log_density(params, data), starts))


def _structs(model: Model, spec: InputSpec | None) -> Params:
    try:
        return network_structs(model.network, spec)
    except (AttributeError, TypeError) as error:
        if spec is None:
            raise NetworkError(
                "data is None, and the network needs an input to initialise",
                "an x for its shapes",
                "pass data=(x, None) for the prior",
            ) from error
        raise


def _pair(data: Data) -> tuple[Data, Data]:
    if data is None:
        return None, None
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise DataError(f"data is {type(data).__name__}", "a pair (x, y), or None for the prior", "pass (x, y)")
    return data[0], data[1]


def _check_network(network: Network, spec: InputSpec, x: Data) -> None:
    passed = _checks_passed(network, spec)
    if not passed:
        params = initialiser(network, spec)(jax.random.key(0))
        check_is_function_of_one_datum(network, params, rows(x, np.arange(min(3, num_rows(x)))))
        passed.append("is a function of one datum")


@kept
def _prior_sampler(target: Target) -> Callable[[jax.Array], Params]:
    """key -> a draw of the network's parameters, compiled as one."""
    treedef = jax.tree.structure(target.structs["network"])
    return jax.jit(lambda key: target.model.sample_prior(key, target.leaves, treedef))


@kept
def _checks_passed(network: Network, spec: InputSpec) -> list[str]:
    """Remembered as long as the network is, so that each is made once."""
    return []


@kept
def _num_outputs(network: Network, spec: InputSpec) -> int:
    return check_outputs(network, network_structs(network, spec), spec.zeros())
