"""Flax NNX, Linen and Equinox modules as pure functions; the module itself is never changed.

A framework is looked up among the imported modules: whoever hands us its objects has imported it.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.errors import NetworkError, described
from posteria.tree import Json, Layout, Params, Tree, check_parameters

WANTED = (
    "a Network, (init, apply), an NNX, Linen, Equinox or PyTorch module, or a builder from a key to an NNX or Equinox "
    "module"
)
Builder = Callable[[jax.Array], Any]  # key -> a module


class Functions(NamedTuple):
    """What `Network` has."""

    init: Callable[..., Params]  # (key, x)
    apply: Callable[[Params, Data], jax.Array]
    spec: Json | None = None
    trained: bool = False
    note: str = ""
    by_datum: bool = False


def is_of_torch(obj: object) -> bool:
    return "torch" in sys.modules and isinstance(obj, sys.modules["torch"].nn.Module)


def functions_of(obj: object) -> Functions | None:
    """Of a module, or of a builder of one; None for anything else."""
    if adapter := _adapter_of(obj):
        return adapter(obj)
    return _from_builder(obj) if callable(obj) else None


def _adapter_of(obj: object) -> Callable[..., Functions] | None:
    adapters = {"flax.nnx": _from_nnx, "flax.linen": _from_linen, "equinox": _from_equinox}
    for name, adapter in adapters.items():
        if name in sys.modules and isinstance(obj, sys.modules[name].Module):
            return adapter
    return None


def _from_builder(build: Builder) -> Functions:
    """Built once with a fixed key, to see what it is; what is not a parameter is frozen as it came from that key."""
    try:
        module = build(jax.random.key(0))
    except Exception as error:
        raise NetworkError(
            f"{described(build)}, called with a key, raised {type(error).__name__}: {error}",
            WANTED,
            "pass lambda key: MyModule(..., rngs=nnx.Rngs(key)), or for Equinox lambda key: MyModule(..., key=key)",
        ) from error
    adapter = _adapter_of(module)
    if adapter is None or adapter is _from_linen:
        raise NetworkError(
            f"the builder returned {described(module)}",
            "an NNX or Equinox module",
            "pass a Linen module itself, and anything else as Network(init, apply)",
        )
    return adapter(module, build)


def _from_nnx(module: Any, build: Builder | None = None) -> Functions:
    from flax import nnx

    def is_parameter(path: tuple[object, ...], variable: object) -> bool:
        del path
        return isinstance(variable, nnx.Param) and _holds_inexact(variable)

    note = _note_of_nnx(module)
    module = nnx.clone(module)
    module.eval()
    graph, weights, frozen = _copied(nnx.split(module, is_parameter, ...))
    layout = Layout.of(weights)

    def apply(params: Params, x: Data) -> jax.Array:
        # copy: a layer that writes to its statistics writes to the copy, which is thrown away
        outputs: jax.Array = nnx.merge(graph, layout.from_dict(params), frozen, copy=True)(x)
        return outputs

    if build is None:
        return _trained(layout.to_dict(weights), apply, note)

    def init(key: jax.Array, x: Data = None) -> Params:
        del x
        return layout.to_dict(nnx.state(build(key), is_parameter))

    return Functions(init, apply, note=note)


def _note_of_nnx(module: Any) -> str:
    """What evaluation mode makes of a module that its author may not expect."""
    from flax import nnx

    untrained, switched_off = [], []
    for path, node in nnx.iter_graph(module):
        name = ".".join(map(str, path)) or type(node).__name__
        if isinstance(node, nnx.BatchNorm) and not np.any(node.mean[...]) and np.all(node.var[...] == 1):
            untrained.append(name)
        if isinstance(node, nnx.Dropout) and node.rate > 0:
            switched_off.append(name)
    notes = []
    if untrained:
        notes.append(
            f"the statistics of BatchNorm ({', '.join(untrained)}) were never trained: means of 0 and variances of 1 "
            "normalise nothing; train the module first and pass it as it is, po.network(module), which keeps them"
        )
    if switched_off:
        notes.append(
            f"nnx.Dropout ({', '.join(switched_off)}) is off: a network is a function of its weights here, in "
            "evaluation mode; po.MCDropout() has dropout as inference, without such layers"
        )
    return "; ".join(notes)


def _from_equinox(module: Any, build: Builder | None = None) -> Functions:
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

    return Functions(init, apply)


def _from_linen(module: Any) -> Functions:
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
        check_parameters(params)
        return _trained(params, lambda params, x: call(params, frozen, x))

    def init(key: jax.Array, x: Data) -> Params:
        params, _ = split(module.init(key, x))
        check_parameters(params)
        return params

    def initial_state(signature: tree.Signature) -> Frozen:
        """What is not a parameter: a function of the datum's shape alone, the same in every process."""
        treedef, leaves = signature

        def variables() -> Tree:
            zeros = treedef.unflatten(jnp.zeros(shape, dtype) for shape, dtype in leaves)
            return module.init(jax.random.key(0), zeros)

        if not split(jax.eval_shape(variables))[1]:
            return {}
        with jax.ensure_compile_time_eval():  # values also when `apply` is being traced
            return split(variables())[1]

    def apply(params: Params, x: Data) -> jax.Array:
        return call(params, _kept_state(initial_state, tree.signature(tree.index(x, slice(1)))), x)

    return Functions(init, apply)


@kept
def _kept_state(initial_state: Callable[[tree.Signature], Tree], signature: tree.Signature) -> Tree:
    """Kept with the function, which goes with its network."""
    return initial_state(signature)


def as_variables(obj: object, example: Data = None) -> tuple[Params, Callable[[Params], Any]] | None:
    """Every floating leaf of a module, statistics of norms too, and the way back to a module; None for anything else.

    A Linen module that is not bound is initialised for the example.
    """
    adapter = _adapter_of(obj)
    if adapter is _from_nnx:
        return _variables_of_nnx(obj)
    if adapter is _from_equinox:
        import equinox as eqx

        weights, rest = eqx.partition(_copied(obj), eqx.is_inexact_array)
        layout = Layout.of(weights)
        return layout.to_dict(weights), lambda leaves: eqx.combine(layout.from_dict(leaves), rest)
    if adapter is _from_linen:
        from flax.core import meta, unfreeze

        module: Any = obj
        if module.scope is not None:
            module, variables = module.unbind()
        elif example is None:
            return None
        else:
            variables = module.init(jax.random.key(0), tree.index(example, slice(1)))
        variables = _copied(meta.unbox(unfreeze(variables)))
        # by path within each collection, as parameters are named elsewhere
        return variables, lambda leaves: module.bind(leaves)
    return None


def _variables_of_nnx(module: Any) -> tuple[Params, Callable[[Params], Any]]:
    from flax import nnx

    graph, weights, rest = _copied(nnx.split(nnx.clone(module), lambda path, variable: _holds_inexact(variable), ...))
    layout = Layout.of(weights)
    return layout.to_dict(weights), lambda leaves: nnx.merge(graph, layout.from_dict(leaves), rest)


def _trained(weights: Params, apply: Callable[[Params, Data], jax.Array], note: str = "") -> Functions:
    def init(key: jax.Array, x: Data = None) -> Params:
        del key, x
        return weights

    return Functions(init, apply, trained=True, note=note)


def _copied(module: Tree) -> Tree:
    """Its own buffers, since the user's next training step may donate the present ones."""
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, jax.Array) else leaf, module)


def _holds_inexact(variable: Tree) -> bool:
    return any(jnp.issubdtype(jnp.result_type(leaf), jnp.inexact) for leaf in jax.tree.leaves(variable))
