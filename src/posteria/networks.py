"""A network as two pure functions, and the ways from Flax NNX, Linen and Equinox to them."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.data.arrays import Data
from posteria.errors import NetworkError
from posteria.tree import Json, Leaves, Params, Structure, Tree

ROUNDING = 1e-4  # of the output's scale: what float32 may move one datum's output when its neighbours change
PROBE_ROWS, PROBE_NUMBERS, PROBE_DIGITS = 8, 8, 5  # a fingerprint: rows of input, numbers kept, significant digits


Apply = Callable[[Params, Data], jax.Array]  # (params, batch) -> outputs
Builder = Callable[[jax.Array], Any]  # key -> a module


@dataclass(frozen=True)
class Network:
    """`init(key, x) -> params`, with x a batch of one datum, and `apply(params, x) -> outputs (n, outputs)`.

    `spec` describes a ready network so that it can be rebuilt (None: it cannot). `trained` says that there is no
    initialiser: `init` returns the trained weights whatever the key.
    """

    init: Callable[[jax.Array, Data], Params]
    apply: Apply
    spec: Json | None = field(default=None, compare=False)
    trained: bool = False

    @property
    def compiled_for(self) -> Any:
        """What compiled code is kept by: the function, which may be in several `Network`s, where it can hold any."""
        return self.apply if hasattr(self.apply, "__dict__") and not hasattr(self.apply, "__self__") else self


def network(obj: object) -> Network:
    """A `Network` from what the user has.

    A Flax NNX or Equinox builder (`key -> module`), a trained NNX or Equinox module, a Linen module (trained if it is
    bound to its variables), a pair `(init, apply)`, or a `Network`. Parameters are the floating-point leaves, in plain
    nested dicts; everything else (statistics, keys, buffers) stays frozen as it is, and layers are in evaluation mode.
    The user's module is never changed.
    """
    if isinstance(obj, Network):
        return obj
    if isinstance(obj, tuple) and len(obj) == 2 and all(map(callable, obj)):
        return Network(*obj)
    if adapter := _adapter_of(obj):
        return adapter(obj)
    if callable(obj):
        return _from_builder(obj)
    raise NetworkError(f"got {_describe(obj)} as a network", _WANTED, "or write Network(init, apply) yourself")


def as_batch_of_one(x: Data) -> Data:
    """The first datum, as a batch."""
    return jax.tree.map(lambda leaf: leaf[:1], x)


# ---- adapters; a framework is looked up among the imported modules: whoever hands us its objects has imported it

_WANTED = (
    "a Network, (init, apply), an NNX, Linen or Equinox module, or a builder from a key to an NNX or Equinox module"
)


def _adapter_of(obj: object) -> Callable[..., Network] | None:
    adapters = {"flax.nnx": _from_nnx, "flax.linen": _from_linen, "equinox": _from_equinox}
    for name, adapter in adapters.items():
        if name in sys.modules and isinstance(obj, sys.modules[name].Module):
            return adapter
    return None


def _describe(obj: object) -> str:
    return f"the class {obj.__name__}" if isinstance(obj, type) else f"an object of type {type(obj).__name__}"


def _from_builder(build: Builder) -> Network:
    """Built once with a fixed key, to see what it is; what is not a parameter is frozen as it came from that key."""
    try:
        module = build(jax.random.key(0))
    except Exception as error:
        raise NetworkError(
            f"{_describe(build)}, called with a key, raised {type(error).__name__}: {error}",
            _WANTED,
            "pass lambda key: MyModule(..., rngs=nnx.Rngs(key)), or for Equinox lambda key: MyModule(..., key=key)",
        ) from error
    adapter = _adapter_of(module)
    if adapter is None or adapter is _from_linen:
        raise NetworkError(
            f"the builder returned {_describe(module)}",
            "an NNX or Equinox module",
            "pass a Linen module itself, and anything else as Network(init, apply)",
        )
    return adapter(module, build)


def _from_nnx(module: Any, build: Builder | None = None) -> Network:
    from flax import nnx

    def is_parameter(path: tuple[object, ...], variable: object) -> bool:
        del path
        return isinstance(variable, nnx.Param) and _holds_inexact(variable)

    module = nnx.clone(module)
    module.eval()
    graph, weights, frozen = _copied(nnx.split(module, is_parameter, ...))
    layout = Layout.of(weights)

    def apply(params: Params, x: Data) -> jax.Array:
        # copy: a layer that writes to its statistics writes to the copy, which is thrown away
        outputs: jax.Array = nnx.merge(graph, layout.from_dict(params), frozen, copy=True)(x)
        return outputs

    if build is None:
        return _trained(layout.to_dict(weights), apply)

    def init(key: jax.Array, x: Data = None) -> Params:
        del x
        return layout.to_dict(nnx.state(build(key), is_parameter))

    return Network(init, apply)


def _from_equinox(module: Any, build: Builder | None = None) -> Network:
    import equinox as eqx

    weights, frozen = eqx.partition(eqx.nn.inference_mode(_copied(module)), eqx.is_inexact_array)
    layout = Layout.of(weights)

    def apply(params: Params, x: Data) -> jax.Array:
        outputs: jax.Array = jax.vmap(eqx.combine(layout.from_dict(params), frozen))(x)  # it maps one datum
        return outputs

    if build is None:
        return _trained(layout.to_dict(weights), apply)

    def init(key: jax.Array, x: Data = None) -> Params:
        del x
        return layout.to_dict(eqx.filter(build(key), eqx.is_inexact_array))

    return Network(init, apply)


def _from_linen(module: Any) -> Network:
    from flax.core import meta, unfreeze

    Frozen = dict[str, Tree]  # what is not a parameter

    def split(variables: Tree) -> tuple[Params, Frozen]:
        variables = dict(meta.unbox(unfreeze(variables)))
        return variables.pop("params", {}), variables

    def call(params: Params, frozen: Frozen, x: Data) -> jax.Array:
        outputs: jax.Array
        if not frozen:
            outputs = module.apply({"params": params}, x)
        else:  # mutable, and thrown away: a layer that updates its statistics is judged by its outputs, like in NNX
            outputs = module.apply({"params": params, **frozen}, x, mutable=list(frozen))[0]
        return outputs

    if module.scope is not None:
        module, variables = module.unbind()
        params, frozen = split(_copied(variables))
        _check_parameters(params)
        return _trained(params, lambda params, x: call(params, frozen, x))

    def init(key: jax.Array, x: Data) -> Params:
        params, _ = split(module.init(key, x))
        _check_parameters(params)
        return params

    @lru_cache(maxsize=16)  # which goes with this network
    def initial_state(treedef: Structure, leaves: Leaves) -> Frozen:
        """What is not a parameter: a function of the datum's shape alone, the same in every process."""

        def variables() -> Tree:
            zeros = treedef.unflatten(jnp.zeros(shape, dtype) for shape, dtype in leaves)
            return module.init(jax.random.key(0), zeros)

        if not split(jax.eval_shape(variables))[1]:
            return {}
        with jax.ensure_compile_time_eval():  # values also when `apply` is being traced
            return split(variables())[1]

    def apply(params: Params, x: Data) -> jax.Array:
        return call(params, initial_state(*tree.signature(as_batch_of_one(x))), x)

    return Network(init, apply)


def _trained(weights: Params, apply: Apply) -> Network:
    def init(key: jax.Array, x: Data = None) -> Params:
        del key, x
        return weights

    return Network(init, apply, trained=True)


def _copied(module: Tree) -> Tree:
    """Its own buffers, since the user's next training step may donate the present ones."""
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, jax.Array) else leaf, module)


def _holds_inexact(variable: Tree) -> bool:
    return any(jnp.issubdtype(jnp.result_type(leaf), jnp.inexact) for leaf in jax.tree.leaves(variable))


@dataclass(frozen=True)
class Layout:
    """The way between a framework's own tree of parameters and plain nested dicts with the same paths."""

    treedef: Structure
    paths: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, weights: Tree) -> "Layout":
        _check_parameters(weights)
        paths = tuple(_names(path) for path, _ in jax.tree_util.tree_leaves_with_path(weights))
        return cls(jax.tree.structure(weights), paths)

    def to_dict(self, weights: Tree) -> Params:
        nested: Params = {}
        for names, leaf in zip(self.paths, jax.tree.leaves(weights), strict=True):
            folder = nested
            for name in names[:-1]:
                folder = folder.setdefault(name, {})
            folder[names[-1]] = leaf
        return nested

    def from_dict(self, nested: Params) -> Tree:
        def leaf(names: tuple[str, ...]) -> Tree:
            value = nested
            for name in names:
                value = value[name]
            return value

        return self.treedef.unflatten(map(leaf, self.paths))


def _check_parameters(weights: Tree) -> None:
    if not jax.tree.leaves(weights):
        raise NetworkError("the module has no floating-point parameters", "at least one", "check that it was built")
    for path, leaf in jax.tree_util.tree_leaves_with_path(weights):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise NetworkError(
                f"parameter {'/'.join(_names(path))} is {leaf.dtype}",
                "real floating-point parameters",
                "hold a complex one as two real ones, and counters outside the parameters",
            )


def _names(path: tuple[Any, ...]) -> tuple[str, ...]:
    """A path's keys as strings, without the `value` that NNX hangs below each variable."""
    if isinstance(path[0], jax.tree_util.DictKey) and path[-1] == jax.tree_util.GetAttrKey("value"):
        path = path[:-1]
    return tuple(tree.path_string((key,)) for key in path)


# ---- what every network is held to


def check_is_function_of_one_datum(network: Network, params: Params, x: Data) -> None:
    """Refuse a network whose output for a datum depends on the rest of its batch: it has no likelihood a datum.

    The first datum is evaluated beside two very different ones, at weights near `params` but in general position
    (an output layer that starts at zero would hide everything).
    """
    params = jax.tree.map(lambda a, b: np.asarray(a) + b, params, _generic_params(tree.structs(params)))
    first, second = (jax.tree.map(lambda leaf, s=size: _beside_another(leaf, s), x) for size in (3.0, -1.0))
    for rows in (1, 2):
        check_outputs(network, params, jax.tree.map(lambda leaf, n=rows: leaf[:n], first))
    apply = jax.jit(network.apply)
    one, other = (np.asarray(apply(params, batch), np.float64)[0] for batch in (first, second))
    size = np.abs(one[np.isfinite(one)]).max(initial=0.0)
    if not np.allclose(one, other, rtol=0.0, atol=ROUNDING * size, equal_nan=True):
        raise NetworkError(
            "the network's output for one datum changes with the rest of its batch",
            "a function of one datum",
            "call BatchNorm in evaluation mode (frozen statistics), or use filter response, layer or group norm",
        )


def check_outputs(network: Network, params: Params, x: Data) -> int:
    """The number of outputs; refuses a network that does not give one row of floating-point outputs a datum."""
    rows = tree.length(x)
    shapes = jax.tree.map(lambda leaf: leaf.shape, x)
    try:
        outputs = jax.eval_shape(network.apply, params, x)
    except Exception as error:
        raise NetworkError(
            f"the network, given x of {shapes}, raised {type(error).__name__}: {error}",
            f"outputs for a batch of {rows}",
            "x has a leading axis of data; layers that need a key (dropout) must be in evaluation mode",
        ) from error
    if not isinstance(outputs, jax.ShapeDtypeStruct):
        raise NetworkError(f"the network returns {_describe(outputs)}", "one array", "return the outputs alone")
    if outputs.ndim not in (1, 2) or outputs.shape[0] != rows:
        raise NetworkError(
            f"the network returns {outputs.shape} for x of {shapes}",
            f"({rows}, outputs)",
            "keep the leading axis of data, and flatten the rest",
        )
    if not jnp.issubdtype(outputs.dtype, jnp.floating):
        raise NetworkError(
            f"the network returns {outputs.dtype}", "floating-point outputs", "return logits, not labels"
        )
    return outputs.shape[1] if outputs.ndim == 2 else 1


def _beside_another(x: Data, size: float) -> np.ndarray:
    """The first datum of x, and a strange one: large, of mixed signs; for integers the largest seen, or 0."""
    x = np.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.floating):
        another = size * max(float(np.abs(x).max(initial=0.0)), 1.0) * _numbers(x.shape[1:], stream=0)
    else:
        another = x.max(axis=0) if size > 0 else np.zeros(x.shape[1:])
    return np.stack([x[0], another.astype(x.dtype)])


# ---- identity


def fingerprint(network: Network, x: Data) -> list[float]:
    """Outputs at fixed pseudo-random weights and inputs: equal, to rounding, for equal functions of equal parameters.

    Of x, only shapes and dtypes are used.
    """
    structs = jax.eval_shape(lambda x: network.init(jax.random.key(0), x), tree.structs(as_batch_of_one(x)))
    leaves, treedef = jax.tree.flatten(x)
    probe = jax.tree.unflatten(treedef, [_probe(leaf, stream=i) for i, leaf in enumerate(leaves)])
    outputs = np.asarray(jax.jit(network.apply)(_generic_params(structs), probe), np.float64).ravel()
    kept = outputs[np.linspace(0, outputs.size - 1, PROBE_NUMBERS).astype(int)]
    return [float(f"{number:.{PROBE_DIGITS - 1}e}") for number in np.nan_to_num(kept)]


def structure(params: Params) -> list[list[Any]]:
    """[path, shape, dtype] of each leaf, fit for JSON."""
    leaves = jax.tree.leaves(tree.structs(params))
    return [[path, list(leaf.shape), leaf.dtype.name] for path, leaf in zip(tree.paths(params), leaves)]


def _generic_params(structs: Params) -> Params:
    """Pseudo-random parameters whose layers keep their inputs' scale, about."""
    leaves, treedef = jax.tree.flatten(structs)
    scaled = (_numbers(s.shape, stream=i) / math.sqrt(math.prod(s.shape[:-1]) or 1) for i, s in enumerate(leaves))
    return jax.tree.unflatten(treedef, [np.asarray(number, s.dtype) for number, s in zip(scaled, leaves)])


def _probe(x: Data, stream: int) -> jax.Array:
    shape, dtype = (PROBE_ROWS, *x.shape[1:]), x.dtype
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.asarray(_numbers(shape, stream), dtype)
    if np.issubdtype(dtype, np.bool_):
        return jnp.ones(shape, dtype)  # a mask that hides nothing
    return jnp.asarray(_numbers(shape, stream) > 0.0, dtype)  # 0 and 1: indices into any table of two rows or more


def _numbers(shape: tuple[int, ...], stream: int) -> np.ndarray:
    """Uniform numbers of mean 0 and variance 1 from Philox's raw bits, which no version of a library changes."""
    bits = np.random.Philox(key=stream).random_raw(math.prod(shape)).reshape(shape)
    return math.sqrt(3.0) * ((bits >> np.uint64(11)) * 2.0**-52 - 1.0)
