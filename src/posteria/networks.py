"""A network as two pure functions: how it is made, traced, checked and known again."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.data.arrays import Data
from posteria.errors import NetworkError, described
from posteria.tree import Json, Params

if TYPE_CHECKING:
    from posteria.modules import Functions

ROUNDING = 1e-4  # of the output's scale: what float32 may move one datum's output when its neighbours change
PROBE_ROWS, PROBE_NUMBERS, PROBE_DIGITS = 8, 8, 5  # a fingerprint: rows of input, numbers kept, significant digits
BATCH_OF_ONE = "x has a leading axis of data, also in init(key, x), where it is 1: take sizes from x.shape[1:]"

Apply = Callable[[Params, Data], jax.Array]  # (params, batch) -> outputs


@dataclass(frozen=True)
class Network:
    """`init(key, x) -> params`, with x a batch of one datum, and `apply(params, x) -> outputs (n, outputs)`.

    In both, x has a leading axis of data, so that `init` may call `apply`'s layers: of a table with five columns it is
    (1, 5) in `init`, and the number of columns is `x.shape[-1]` there as in `apply`.

    `spec` describes a ready network so that it can be rebuilt (None: it cannot). `trained` says that there is no
    initialiser: `init` returns the trained weights whatever the key. `note` is what the user should know of how the
    network was made; a fit's notes have it too. `by_datum` says that `apply` maps a function of one datum over a batch,
    so that no output can depend on the rest of it. `num_frozen` counts weights that `apply` holds and that are no
    parameters: what a pass costs beyond what the parameters tell.
    """

    init: Callable[[jax.Array, Data], Params]
    apply: Apply
    spec: Json | None = field(default=None, compare=False)
    trained: bool = False
    note: str = field(default="", compare=False, repr=False)
    by_datum: bool = field(default=False, compare=False, repr=False)
    num_frozen: int = field(default=0, compare=False, repr=False)

    def __str__(self) -> str:
        return self.note or repr(self)

    def described(self) -> str:
        """In a line: a ready network by its settings, another by its note or its function's name."""
        if self.spec is None:
            return self.note or str(getattr(self.apply, "__qualname__", "a function"))
        said = [f"{name}={value!r}" for name, value in self.spec.get("settings", {}).items() if value is not None]
        return f"{self.spec['name']}({', '.join(said)})"

    @property
    def compiled_for(self) -> Any:
        """What compiled code is kept by: the function, which may be in several `Network`s, where it can hold any."""
        return self.apply if hasattr(self.apply, "__dict__") and not hasattr(self.apply, "__self__") else self


def network(obj: Any, example: Data = None, *, compute_dtype: Any = None) -> Network:
    """A `Network` from what the user has.

    A Flax NNX or Equinox builder (`key -> module`), a trained NNX or Equinox module, a Linen module (trained if it is
    bound to its variables), a PyTorch module, a pair `(init, apply)`, or a `Network`. Parameters are the floating-point
    leaves, in plain nested dicts; everything else (statistics, keys, buffers) stays frozen as it is, and layers are in
    evaluation mode. The user's module is never changed. Statistics of a BatchNorm are kept as they came: train the
    module with its own framework first, and pass it trained, so that they are those of the data.

    A PyTorch module needs an `example`, a few rows of x: an array, a tuple of its arguments or a dict by their names.
    It is exported by `torch.export` and becomes a function of JAX that needs no PyTorch any more; its parameters keep
    their names ("layer1/0/weight"), its weights are the start, and those with `requires_grad=False` stay as they are.
    Its outputs on the example are compared with PyTorch's: `print(network)` says how well they agree.

    `compute_dtype` (as "bfloat16") casts the forward pass alone: weights, prior, likelihood and outputs keep theirs.
    """
    if compute_dtype is not None:
        return computing_in(network(obj, example), compute_dtype)
    if isinstance(obj, Network) and example is None:
        return obj
    from posteria import modules

    if modules.is_of_torch(obj):
        from posteria.bridges import torch as bridge

        return _from_functions(bridge.functions_of(obj, example))
    if example is not None:
        raise NetworkError(f"an example for {described(obj)}", "one for a PyTorch module only", "leave example= out")
    if isinstance(obj, tuple) and len(obj) == 2 and all(map(callable, obj)):
        return Network(*obj)
    if found := modules.functions_of(obj):
        return _from_functions(found)
    raise NetworkError(f"got {described(obj)} as a network", modules.WANTED, "or write Network(init, apply) yourself")


def from_graph(graph: Json) -> Network:
    """A PyTorch network that a store describes."""
    from posteria.bridges.graph import functions

    return _from_functions(functions(graph))


def _from_functions(found: "Functions") -> Network:
    return Network(*found)


def computing_in(network: Network, compute_dtype: Any) -> Network:
    """The same network, whose forward pass is computed in another floating dtype."""
    dtype = jnp.dtype(compute_dtype)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise NetworkError(f"compute_dtype is {dtype}", "a floating one", 'take "bfloat16" or "float16"')

    def cast(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree)

    def apply(params: Params, x: Data) -> jax.Array:
        params, x = jax.tree.map(jnp.asarray, (params, x))
        wide = jnp.result_type(jnp.float32, *jax.tree.leaves(params))
        return network.apply(cast(params), cast(x)).astype(wide)

    spec = None if network.spec is None else network.spec | {"compute_dtype": dtype.name}
    return replace(network, apply=apply, spec=spec)


def as_batch_of_one(x: Data) -> Data:
    """The first datum, as a batch."""
    return jax.tree.map(lambda leaf: leaf[:1], x)


# ---- how a network is traced

# While a network is traced so that its convolutions can be found, they must be seen as such. A user context is part of
# the key of jit's caches, so that what was traced under it is not run outside it.
kept_whole = jax.make_user_context(default_value=False)


def prefers_slices() -> bool:
    """Whether a convolution traced here is to be slices and a matmul: on CPU, where XLA's is 20 times slower in a scan.

    Not `lax.platform_dependent`: its jaxpr holds both ways, so that nobody can tell whether XLA's is still there.
    """
    return jax.default_backend() == "cpu" and not kept_whole.value


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
            f"{BATCH_OF_ONE}; layers that need a key (dropout) must be in evaluation mode",
        ) from error
    if not isinstance(outputs, jax.ShapeDtypeStruct):
        raise NetworkError(f"the network returns {described(outputs)}", "one array", "return the outputs alone")
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
