"""A network, a likelihood, a prior and a temperature: everything but the data; and the model that a table has, unless
its user says otherwise."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import nn, tree
from posteria.cards import Card
from posteria.compiled import contents, kept
from posteria.data.arrays import Data, check_x, num_rows, rows
from posteria.errors import NetworkError, PosteriaError, SettingError
from posteria.models import likelihoods, priors
from posteria.models.factorised import Scales
from posteria.models.likelihoods import Gaussian, Likelihood
from posteria.models.priors import FanIn, Leaf, Prior, as_prior
from posteria.networks import (
    BATCH_OF_ONE,
    Apply,
    Network,
    as_batch_of_one,
    check_is_function_of_one_datum,
    check_outputs,
    network,
)
from posteria.random import as_key
from posteria.settings import Positive, checked
from posteria.trace import linear
from posteria.trace.first import input_axes

SCALES_STREAM = 1  # folded into the key of a draw from the prior


@dataclass(frozen=True, eq=False)
class Model:
    """`p(y | x, w) p(w)`, raised to the power 1 / temperature.

    `likelihood` defaults to a Gaussian whose noise is inferred, `prior` to a Normal scaled by fan-in: both are meant
    for standardised data. `prior` may be a dict from path patterns to priors.
    """

    network: Network
    likelihood: Likelihood = field(default_factory=Gaussian)
    prior: Prior = field(default_factory=FanIn)
    temperature: Positive = 1.0
    learnt: str = field(default="", init=False, repr=False)  # of the prior's scales, in a posterior's model

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", network(self.network))
        object.__setattr__(self, "prior", as_prior(self.prior))
        if isinstance(self.likelihood, type) or not hasattr(self.likelihood, "log_prob"):
            raise SettingError(
                f"likelihood is {self.likelihood!r}",
                "an object such as po.likelihoods.Gaussian()",
                "see po.likelihoods",
            )
        temperature = checked("Model", "temperature", self.temperature, Positive, 1.0)
        object.__setattr__(self, "temperature", temperature)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __str__(self) -> str:
        return f"{self!r}\nscales learnt: {self.learnt}" if self.learnt else repr(self)

    def described(self) -> list[tuple[str, str]]:
        """Its parts in words, by name."""
        parts = [
            ("network", self.network.described()),
            ("likelihood", repr(self.likelihood)),
            ("prior", repr(self.prior)),
        ]
        parts += [("scales learnt", self.learnt)] if self.learnt else []
        return parts + ([("temperature", f"{self.temperature:g}")] if self.temperature != 1 else [])

    def _repr_html_(self) -> str:
        return Card("Model", self.described()).html()

    def having_learnt(self, words: str) -> "Model":
        """The same model, which says so when it is printed."""
        model = replace(self)
        object.__setattr__(model, "learnt", words)
        return model

    def _identity(self) -> tuple[object, ...]:
        """As its parts are now: a likelihood or prior of the user's may have changed since it was made."""
        return self.network, contents(self.likelihood), contents(self.prior), self.temperature

    @property
    def compiled_for(self) -> object:
        return self.network.compiled_for

    def outputs(self, network_params: tree.Params, x: Data) -> jax.Array:
        """Network outputs, (batch, output)."""
        outputs = _fast(self.network)(network_params, x)
        return outputs[:, None] if outputs.ndim == 1 else outputs

    def leaves(self, x: Data) -> list[Leaf]:
        """What the prior may know of each leaf of the network's parameters: path, shape, dtype and fan-in."""
        return _leaves_for(self, x if x is None else InputSpec.of(x))

    def sample_prior(self, key: jax.Array, leaves: list[Leaf], treedef: tree.Structure) -> tree.Params:
        """A draw of {"network": ...} from the prior, with "prior" where it has scales to infer."""
        keys = jax.random.split(key, len(leaves))
        network = treedef.unflatten(self.prior.sample(k, leaf) for k, leaf in zip(keys, leaves))
        scales = Scales(self.prior, leaves)
        if not scales:
            return {"network": network}
        own = scales.sample(jax.random.fold_in(key, SCALES_STREAM))
        return {"network": scales.absolute(network, own), "prior": own}

    def prior_functions(self, key: int | jax.Array, x: Data, num_draws: int) -> jax.Array:
        """Network outputs under draws from the prior, (draw, batch, output)."""
        x = check_x(x)
        keys = jax.random.split(as_key(key), num_draws)
        return _prior_functions(self, InputSpec.of(x))(keys, x)


@kept
def _prior_functions(model: Model, spec: "InputSpec") -> Callable[[jax.Array, Data], jax.Array]:
    leaves = _leaves_for(model, spec)
    treedef = jax.tree.structure(network_structs(model.network, spec))

    def one(key: jax.Array, x: Data) -> jax.Array:
        return model.outputs(model.sample_prior(key, leaves, treedef)["network"], x)

    return jax.jit(lambda keys, x: jax.lax.map(lambda key: one(key, x), keys))


@kept
def _fast(network: Network) -> Apply:
    return linear.fast_on_cpu(network.apply)


@dataclass(frozen=True)
class InputSpec:
    """Shapes and dtypes of a batch of one datum, hashable."""

    treedef: tree.Structure
    leaves: tree.Leaves

    @classmethod
    def of(cls, x: Data) -> "InputSpec":
        treedef, leaves = tree.signature(as_batch_of_one(x))
        return cls(treedef, leaves)

    def zeros(self) -> Data:
        return tree.on_device(self.treedef.unflatten(np.zeros(shape, dtype) for shape, dtype in self.leaves))


@kept
def network_structs(network: Network, spec: InputSpec | None) -> tree.Params:
    """Shapes and dtypes of the network's parameters; refuses leaves that are not floating point."""
    x = None if spec is None else spec.zeros()
    try:
        structs = jax.eval_shape(lambda key: network.init(key, x), jax.random.key(0))
    except PosteriaError:
        raise
    except Exception as error:
        if spec is None:
            raise
        shapes = jax.tree.map(lambda leaf: leaf.shape, x)
        raise NetworkError(
            f"init(key, x), given x of {shapes}, raised {type(error).__name__}: {error}",
            "parameters, from a key and a batch of one datum",
            BATCH_OF_ONE,
        ) from error
    if not tree.size(structs):
        raise NetworkError("the network has no parameters", "some to infer", "return them from init(key, x)")
    for path, leaf in jax.tree_util.tree_leaves_with_path(structs):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise NetworkError(
                f"parameter {tree.path_string(path)} is {leaf.dtype}",
                "floating-point parameters",
                "keep counters and buffers outside the parameters",
            )
    return structs


def checked_structs(network: Network, spec: InputSpec | None) -> tree.Params:
    """The same; says so where the network wants an input to initialise and there is none."""
    try:
        return network_structs(network, spec)
    except (AttributeError, TypeError) as error:  # without a spec: those of a network with one are NetworkErrors
        raise NetworkError(
            "data is None, and the network needs an input to initialise",
            "an x for its shapes",
            "pass data=(x, None) for the prior",
        ) from error


def check_network(network: Network, spec: InputSpec, x: Data) -> None:
    """Refuse one whose output for a row depends on the other rows."""
    passed = _checks_passed(network, spec)
    if not passed and not network.by_datum:
        params = initialiser(network, spec)(jax.random.key(0))
        check_is_function_of_one_datum(network, params, rows(x, np.arange(min(3, num_rows(x)))))
        passed.append("is a function of one datum")


@kept
def _checks_passed(network: Network, spec: InputSpec) -> list[str]:
    """Remembered as long as the network is, so that each is made once."""
    return []


@kept
def num_outputs_of(network: Network, spec: InputSpec) -> int:
    return check_outputs(network, network_structs(network, spec), spec.zeros())


@kept
def initialiser(network: Network, spec: InputSpec | None) -> Callable[[jax.Array], tree.Params]:
    """key -> fresh parameters, compiled as one: draws of the leaves by themselves would each be compiled.

    Not where the key is not used: weights that are given would become constants of the compiled code, and would stay
    when they have changed.
    """

    def init(key: jax.Array) -> tree.Params:
        return network.init(key, None if spec is None else spec.zeros())

    traced = jax.make_jaxpr(init)(jax.random.key(0)).jaxpr
    is_drawn = any(traced.invars[0] is variable for equation in traced.eqns for variable in equation.invars)
    return jax.jit(init) if is_drawn else init


def _leaves_for(model: Model, spec: InputSpec | None) -> list[Leaf]:
    leaves = _leaves(model.network, spec)
    if spec is None or not getattr(model.prior, "meets_inputs", False):
        return list(leaves)
    axes = _input_axes(model.network, spec)
    return [leaf._replace(input_axis=axes.get(leaf.path)) for leaf in leaves]


@kept
def _input_axes(network: Network, spec: InputSpec) -> dict[str, int | None]:
    return input_axes(network.apply, network_structs(network, spec), spec.zeros())


@kept
def _leaves(network: Network, spec: InputSpec | None) -> tuple[Leaf, ...]:
    structs = network_structs(network, spec)
    found = {} if spec is None else linear.find(network.apply, structs, spec.zeros())

    def fan_in(path: str, shape: tuple[int, ...]) -> int | None:
        leaf = found.get(path)
        if leaf is not None and leaf.uses:
            return leaf.uses[0].fan_in
        is_seen = leaf is not None and not (leaf.reason or "").startswith("inside")
        return None if is_seen else _fan_in_by_shape(shape)  # seen, and not summed: a bias, a table, a norm's scale

    return tuple(
        Leaf(path, leaf.shape, leaf.dtype, fan_in(path, leaf.shape))
        for path, leaf in zip(tree.paths(structs), jax.tree.leaves(structs))
    )


def _fan_in_by_shape(shape: tuple[int, ...]) -> int | None:
    """JAX's convention (..., in, out) for matrices that the walk could not see (inside a scan, or no data given)."""
    if len(shape) < 2:
        return None
    fan_in = 1
    for dim in shape[:-1]:
        fan_in *= dim
    return fan_in


# ---- the default model of a table: what the estimators, the command line and `compare` start from

WIDE = 2.0  # scale of the prior where targets are classes, or rows are many
MANY_ROWS = 5000  # about twice the weights of mlp:50,50


def model_for(
    kind: str,
    num_outputs: int,
    num_rows: int,
    network: Any = "mlp:50,50",
    *,
    likelihood: Likelihood | None = None,
    prior: Prior | None = None,
    temperature: float = 1.0,
) -> Model:
    """A network (or its spelling) with the likelihood of the targets: noise is inferred, counts are negative binomial,
    classes categorical.

    The prior is scaled by fan-in. For classes it is twice as wide: with 1 the logits are held so small that it is
    unsure of what it gets right (negative log-likelihood of MAP on digits, breast cancer and iris: 0.26, 0.12 and 0.61
    with 1, 0.10, 0.08 and 0.21 with 2). So it is where rows are many (Laplace gains on power and protein, and loses on
    kin8nm); with fewer, a wide prior lets the network fit the noise. `benchmarks/table_prior.py` has these figures.
    """
    if isinstance(network, str):
        network = nn.parse(network, num_outputs * getattr(likelihood, "outputs_per_target", 1))
    if likelihood is None:
        likelihood = default_likelihood(kind, num_outputs)
    if prior is None:
        is_wide = kind == "classes" or num_rows >= MANY_ROWS
        prior = priors.FanIn(scale=WIDE) if is_wide else priors.FanIn()
    return Model(network, likelihood, prior, temperature)


def default_likelihood(kind: str, num_outputs: int = 1) -> Likelihood:
    """Of targets that are "regression", each with its own noise, "counts" or "classes"."""
    if kind == "regression":
        return likelihoods.Gaussian(num_noises=num_outputs)
    found: Any = likelihoods.NegativeBinomial() if kind == "counts" else likelihoods.Categorical()
    likelihood: Likelihood = found
    return likelihood
