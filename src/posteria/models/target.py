"""A model with its data: the unnormalised log posterior. The only place that knows N and the temperature."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import keep_on_disk, kept
from posteria.data.arrays import (
    Data,
    Rows,
    check_same_length,
    check_x,
    given_parts,
    in_memory,
    is_frame,
    is_source,
    num_rows,
    parts,
    rows,
    rows_that_count,
    weighted,
)
from posteria.data.batches import Augment
from posteria.data.sources import Source, as_source
from posteria.errors import DataError, DensityError, SettingError
from posteria.machine import check_room
from posteria.models import sums
from posteria.models.bare_density import COPIES, broadcast_starts
from posteria.models.bare_density import Density as Density
from posteria.models.factorised import Scales
from posteria.models.leaf import Leaf
from posteria.models.likelihoods import factor_of
from posteria.models.model import (
    InputSpec,
    Model,
    check_network,
    checked_structs,
    initialiser,
    network_structs,
    num_outputs_of,
)

FEWEST_A_ROW, MOST_A_ROW = 0.1, 10.0  # weight on average, beyond which the user is told what it means
AUGMENTED = (
    "batches were augmented: the likelihood is of changed rows, as if each had been seen once, and the spread of the "
    "posterior is not that of the rows that were given"
)
ROWS_OF_A_SOURCE = 2048  # by which starts are judged
Params = tree.Params  # {"network": ..., "likelihood": ...}, and "prior" where it has scales to infer


class Target:
    """`(log p(w) + N/B sum_batch log p(y | x, w)) / T` over `{"network": ..., "likelihood": ...}`.

    `data` are (x, y), or (x, y, weight): each row's log likelihood is then multiplied by its weight, so that a weight
    of 2 is the row twice, and rows of weight 0 are left out.

    Equal for equal models, numbers of data and parameter shapes, whatever the data: compiled code is shared between
    fits, and takes `data` as an argument. Without data the target is the prior.

    Where the prior has scales to infer, their logarithms are the part "prior" of the parameters, and weights have
    relative coordinates as well: z = w / scale. The temperature is of the density of z: of weights and scales it would
    have no integral below T = 1, where it would grow without bound as a scale falls.
    """

    def __init__(self, model: Model, data: Data = None) -> None:
        keep_on_disk()
        self.model = model
        self._spec: InputSpec | None = None
        self.num_outputs: int | None = None
        self.columns: list[str] | None = None  # of a frame
        source = None if in_memory(data) else as_source(data)
        x, y, weight = given_parts(data if source is None else source.first)
        if x is not None:
            self.columns = list(x.columns) if is_frame(x) else None
            x = check_x(x)
            self._spec = InputSpec.of(x)
            check_room(COPIES * tree.num_bytes(network_structs(model.network, self._spec)), "training this network")
            self.num_outputs = num_outputs_of(model.network, self._spec)
            if y is not None:
                y = model.likelihood.check(y, self.num_outputs)
                check_same_length(x, y)
                x, y, weight = rows_that_count(x, y, weight)
            check_network(model.network, self._spec, x)
        self._network_structs = checked_structs(model.network, self._spec)
        self.num_data = 0 if y is None else num_rows(x)
        self.data = None if y is None else tree.on_device((x, y) if weight is None else (x, y, weight))
        self.total_weight = self.num_data if y is None or weight is None else float(np.sum(weight, dtype=np.float64))
        if source is not None:
            self.num_data = self.total_weight = len(source)
            self.data = source.checked(self._checked)
        self._leaves = model.leaves(x)
        if hasattr(model.prior, "check"):
            model.prior.check(self._leaves)
        self.scales = Scales(model.prior, self._leaves)
        self.held: tuple[str, ...] = ()  # parts of the parameters that no gradient moves
        self.augment: Augment | None = None  # of batches, in methods that take such

    def without_data(self) -> "Target":
        """The same density for use inside compiled functions, which hand it their batch; safe to keep in a cache."""
        bare = object.__new__(Target)
        bare.__dict__.update(self.__dict__, data=None)
        return bare

    def of_rows(self, chosen: Rows) -> "Target":
        """The same model with some of the rows."""
        part = object.__new__(Target)
        is_streamed = is_source(self.data)
        data = (
            self._source.subset(np.arange(self.num_data)[chosen])
            if is_streamed
            else tree.on_device(rows(self.data, chosen))
        )
        weight = None if is_streamed else parts(data)[2]
        count = num_rows(data)
        total = count if weight is None else float(np.sum(weight, dtype=np.float64))
        part.__dict__.update(self.__dict__, data=data, num_data=count, total_weight=total)
        return part

    def in_memory(self, why: str) -> "Target":
        """With all rows of a source read; refused where they do not fit."""
        held = object.__new__(Target)
        held.__dict__.update(self.__dict__, data=tree.on_device(self._source.in_memory(why)))
        return held

    @property
    def _source(self) -> Source:
        source: Source = self.data  # type: ignore[assignment]
        return source

    def _checked(self, batch: Data) -> Data:
        """Rows of a source as all rows are held to."""
        x, y = batch
        x, y = check_x(x), self.model.likelihood.check(y, self.num_outputs or 1)
        check_same_length(x, y)
        return x, y

    def augmented(self, augment: Augment) -> "Target":
        """The same, whose batches are changed at random; refused where they would not be batches any more."""
        batch = rows(self.data, slice(2))
        try:
            changed = jax.eval_shape(augment, jax.random.key(0), batch)
        except Exception as error:
            raise DataError(
                f"augment, called with a key and a batch, raised {type(error).__name__}: {error}",
                "a function of a key and a batch (x, y) that JAX can trace",
                "see po.fit",
            ) from error
        if tree.signature(changed) != tree.signature(batch):
            raise DataError(
                f"augment returns {tree.structs(changed)}",
                f"a batch of the same shapes and dtypes, {tree.structs(batch)}",
                "return (x, y) as they came, with other values",
            )
        part = object.__new__(Target)
        part.__dict__.update(self.__dict__, augment=augment)
        return part

    def holding(self, *parts: str) -> "Target":
        """The same density, in which no gradient moves "prior" or "likelihood": what is inferred beside the weights.

        For methods that climb: at the joint mode of weights and scales these are 0.
        """
        held = object.__new__(Target)
        present = self.structs
        held.__dict__.update(self.__dict__, held=tuple(part for part in parts if jax.tree.leaves(present.get(part))))
        return held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    @property
    def compiled_for(self) -> object:
        return self.model.compiled_for

    def _identity(self) -> tuple[object, ...]:
        return self.model, self.num_data, self._spec, tree.signature(self._network_structs), self.held, self.augment

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
        said = [self._caveat_of_weights(), self._caveat_of_fan_in(), self.model.network.note]
        if self.augment is not None:
            said.append(AUGMENTED)
        return "; ".join(text for text in said if text)

    def _caveat_of_weights(self) -> str:
        if not FEWEST_A_ROW < self.total_weight / max(1, self.num_data) < MOST_A_ROW and self.num_data:
            return f"the weights of {self.num_data} rows add up to {self.total_weight:.3g}: as many rows they count as"
        return ""

    def _caveat_of_fan_in(self) -> str:
        if self._spec is None and any(leaf.fan_in for leaf in self._leaves):
            return (
                "no x was given, so fan-in was read off the kernels' shapes as (..., in, out); (x, None) would tell it"
            )
        return ""

    # ---- the density

    def log_prior(self, params: Params) -> jax.Array:
        if self.scales:
            return self.relative_log_prior(self.relative(params)) - self.scales.log_volume(params["prior"])
        return self.relative_log_prior(params)

    def log_likelihood(self, params: Params, batch: Data) -> jax.Array:
        """One term a datum, times its weight, never averaged: (batch,)."""
        x, y, _ = parts(batch)
        terms = factor_of(self.model.likelihood, params["likelihood"], self.model.outputs(params["network"], x), y)
        return weighted(terms, batch)

    def total_log_likelihood(self, params: Params, batch: Data) -> tuple[jax.Array, int]:
        """The sum over the rows of a batch, and their number; in blocks of rows, where all at once would take much."""
        return sums.total(self.without_data(), params, batch)

    def log_density(self, params: Params, batch: Data = None, likelihood_power: jax.Array | float = 1.0) -> jax.Array:
        """Tempered and unnormalised; `batch` stands for all N data. No batch and no data: the prior."""
        if self.held:
            params = params | {part: jax.lax.stop_gradient(params[part]) for part in self.held}
        if self.scales:
            relative = self.relative_log_density(self.relative(params), batch, likelihood_power)
            return relative - self.scales.log_volume(params["prior"])
        return self.relative_log_density(params, batch, likelihood_power)

    def tempered(self, log_prior: jax.Array, log_likelihood: jax.Array | None) -> jax.Array:
        """(log prior + N/B sum of a batch's log likelihoods) / T, for methods that have these by themselves."""
        if log_likelihood is not None:
            log_prior += (self.num_data / len(log_likelihood)) * log_likelihood.sum()
        return log_prior / self.model.temperature

    # ---- the same in relative coordinates, which are the parameters themselves where no scale is inferred

    def relative(self, params: Params) -> Params:
        """Weights divided by their scales."""
        if not self.scales:
            return params
        return params | {"network": self.scales.relative(params["network"], params["prior"])}

    def absolute(self, relative: Params) -> Params:
        """The way back."""
        if not self.scales:
            return relative
        return relative | {"network": self.scales.absolute(relative["network"], relative["prior"])}

    def relative_log_prior(self, relative: Params) -> jax.Array:
        prior: Any = self.model.prior
        if hasattr(prior, "joint_log_prob"):
            density: jax.Array = prior.joint_log_prob(relative)
            return density
        leaves = zip(jax.tree.leaves(relative["network"]), self._leaves)
        own = self.model.likelihood.log_prior(relative["likelihood"])
        if self.scales:
            own += self.scales.log_prior(relative["prior"])
        return sum((prior.log_prob(value, leaf) for value, leaf in leaves), start=own)

    def relative_log_density(
        self, relative: Params, batch: Data = None, likelihood_power: jax.Array | float = 1.0
    ) -> jax.Array:
        batch = self.data if batch is None else batch
        log_joint = self.relative_log_prior(relative)
        if batch is not None:
            log_likelihood, num = self.total_log_likelihood(self.absolute(relative), batch)
            log_joint += (self.num_data / num) * (likelihood_power * log_likelihood)
        return log_joint / self.model.temperature

    # ---- inputs and parameters

    @property
    def blank_input(self) -> Data:
        """A batch of one datum, all zeros, for its shapes and dtypes; None where no x was given."""
        return None if self._spec is None else self._spec.zeros()

    @property
    def structs(self) -> Params:
        """Shapes and dtypes of the parameters."""
        own = jax.eval_shape(self.model.likelihood.init, jax.random.key(0))
        return self._with_scales({"network": self._network_structs, "likelihood": own}, tree.structs)

    @property
    def units(self) -> Params:
        """The prior's unit for each leaf, as a number: samplers move in these."""
        structs = self.structs
        network = jax.tree.structure(structs["network"]).unflatten(map(self.model.prior.unit, self._leaves))
        rest = {name: part for name, part in structs.items() if name != "network"}
        return jax.tree.map(lambda _: 1.0, rest) | {"network": network}

    @property
    def correlated(self) -> dict[int, Leaf]:
        """Leaves whose entries the prior correlates, by their place in the network: samplers move in white ones."""
        correlates = getattr(self.model.prior, "correlates", None)
        return {place: leaf for place, leaf in enumerate(self._leaves) if correlates is not None and correlates(leaf)}

    def init(self, key: jax.Array) -> Params:
        """A start from the network's own initialiser (a trained network: its weights)."""
        key_network, key_likelihood = jax.random.split(key)
        network = initialiser(self.model.network, self._spec)(key_network)
        return self._with_scales({"network": network, "likelihood": self.model.likelihood.init(key_likelihood)})

    def sample_prior(self, key: jax.Array) -> Params:
        """A start drawn from the prior (the likelihood's own parameters start where it says)."""
        self.check_proper()
        key_network, key_likelihood = jax.random.split(key)
        drawn = _prior_sampler(self.without_data())(key_network)
        return drawn | {"likelihood": self.model.likelihood.init(key_likelihood)}

    def check_proper(self) -> None:
        """Refuse an improper prior; for methods that need a density or a draw from it."""
        if not self.model.prior.is_proper:
            raise SettingError(
                f"{type(self.model.prior).__name__} is improper: it has neither a density nor draws",
                "a proper prior for this method",
                "take po.priors.FanIn(), or a method made for it (sparse variational dropout)",
            )

    def check_no_scales(self, why: str) -> None:
        """Refuse a prior that infers scales; for methods that cannot, with the reason."""
        if self.scales:
            raise SettingError(
                f"the prior {self.model.prior!r}: {why}",
                "a prior whose scales are given, for this method",
                "give them as numbers, or take po.NUTS(), po.MCLMC(), po.Laplace() or po.MeanField()",
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
        """Weights given by the user, as `num` starts with a leading axis; all other parts may be left out."""
        structs = self.structs
        if jax.tree.structure(start) == jax.tree.structure(structs["network"]):
            start = {"network": start}
        if isinstance(start, dict) and "network" in start and set(start) < set(structs):
            rest = self._with_scales({"likelihood": self.model.likelihood.init(jax.random.key(0))})
            network = start["network"]
            lead = np.ndim(jax.tree.leaves(network)[0]) > len(jax.tree.leaves(structs["network"])[0].shape)
            if lead:
                rest = jax.tree.map(lambda leaf: jnp.repeat(jnp.asarray(leaf)[None], tree.length(network), 0), rest)
            start = rest | start
        return broadcast_starts(start, structs, num)

    def _with_scales(self, params: Params, form: Callable[[Any], Any] = tree.on_device) -> Params:
        return params | {"prior": form(self.scales.init())} if self.scales else params


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
    if num_rows is None and is_source(target.data):
        num_rows = ROWS_OF_A_SOURCE
    batch = target.data if num_rows is None or target.data is None else rows(target.data, slice(num_rows))
    return np.asarray(_log_densities(target.without_data())(starts, batch))


@kept
def _log_densities(target: Target | Density) -> Callable[[Params, Data], jax.Array]:
    return jax.jit(lambda starts, data: jax.lax.map(lambda params: target.log_density(params, data), starts))


@kept
def _prior_sampler(target: Target) -> Callable[[jax.Array], Params]:
    """key -> a draw of the network's parameters, and of their scales where they are inferred, compiled as one."""
    treedef = jax.tree.structure(target.structs["network"])
    return jax.jit(lambda key: target.model.sample_prior(key, target.leaves, treedef))
