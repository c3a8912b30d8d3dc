"""A network as data: a list of PyTorch's operations by name, evaluated in JAX by the table of them.

The graph is plain JSON, so that a saved posterior carries its network: it names operations of the table and nothing
else, and runs nothing by itself. It was exported from a batch of one datum, which `vmap` makes a batch of any size.

    {"inputs":     [[value, path in x, shape, dtype], ...],
     "parameters": [[value, "layer1.0.weight", shape, dtype], ...],
     "constants":  [[value, shape, dtype, base64 of the bytes], ...],           # buffers, frozen weights
     "nodes":      [[value, "aten.add.Tensor", arguments, keywords, results], ...],
     "output":     value}

`results` are the shape and dtype that PyTorch computed: results are cast to the dtype, and another shape is an error.
An argument is a number, text, null, a list of arguments, or one of {"value": name}, {"dtype": name}, {"float": "inf"}.
"""

import base64
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes  # noqa: F401  (bfloat16 and the like by name)
import numpy as np

from posteria import tree
from posteria.bridges import aten
from posteria.data.arrays import Data
from posteria.errors import NetworkError
from posteria.modules import Functions
from posteria.tree import Arrays, Json, Params

NAME = "torch"  # of the spec that holds a graph


@dataclass(frozen=True)
class _NotComputed:
    """A result that the table leaves out, such as the places of max pooling's largest values."""

    name: str


def evaluate(graph: Json, params: Arrays, constants: Arrays, inputs: Arrays) -> jax.Array:
    """The outputs for a batch of one datum; `params` by PyTorch's names, `constants` by value, `inputs` by path."""
    values: dict[str, Any] = {value: jnp.asarray(array) for value, array in constants.items()}
    values |= {value: _cast(params[name], dtype) for value, name, _, dtype in graph["parameters"]}
    values |= {value: _cast(inputs[path], dtype) for value, path, _, dtype in graph["inputs"]}

    def decoded(argument: Any) -> Any:
        if isinstance(argument, list):
            return [decoded(part) for part in argument]
        if not isinstance(argument, dict):
            return argument
        [(kind, content)] = argument.items()
        if kind == "value":
            if isinstance(values[content], _NotComputed):
                raise _unknown([f"a second result of {values[content].name}"])
            return values[content]
        return _dtype(content) if kind == "dtype" else float(content)

    for value, name, arguments, keywords, results in graph["nodes"]:
        if name == "getitem":
            found = values[arguments[0]["value"]][arguments[1]]
        else:
            function = aten.find(name)
            if function is None:
                raise _unknown([name])
            found = function(*decoded(arguments), **{key: decoded(part) for key, part in keywords.items()})
        values[value] = _as_recorded(found, results, name)
    return values[graph["output"]]


def _as_recorded(found: Any, results: Any, name: str) -> Any:
    if isinstance(found, tuple | list):
        return [_as_recorded(each, result, name) for each, result in zip(found, results)]
    if found is None or isinstance(found, _NotComputed):
        return found or _NotComputed(name)
    shape, dtype = results
    if tuple(found.shape) != tuple(shape):
        raise NetworkError(
            f"{name} gave the shape {tuple(found.shape)} in JAX",
            f"{tuple(shape)}, as in PyTorch",
            f"po.bridges.register({name!r}, function) replaces it",
        )
    return _cast(found, dtype)


def _cast(array: Any, dtype: str) -> jax.Array:
    array = jnp.asarray(array)
    return array.astype(_dtype(dtype))


def _dtype(name: str) -> np.dtype:
    """As JAX has it: of 32 bits where the user has not asked for more."""
    return jax.dtypes.canonicalize_dtype(np.dtype(name))


def unknown_operations(nodes: list[Any]) -> list[str]:
    """Operations that are not in the table."""
    return sorted({node[1] for node in nodes if node[1] != "getitem" and aten.find(node[1]) is None})


def _unknown(names: Iterable[str]) -> NetworkError:
    return NetworkError(
        f"the network has {', '.join(names)}",
        "operations that are in Posteria's table or that you registered",
        "po.bridges.register(name, function) as when it was converted",
    )


# ---- a graph as a network


class Spec(dict[str, Any]):
    """Printed without the graph, which is long."""

    def __repr__(self) -> str:
        return f"{{'name': {NAME!r}}}"


def functions(graph: Json, weights: Arrays | None = None) -> Functions:
    """init and apply; parameters are nested by the parts of PyTorch's names: "layer1.0.weight" is layer1/0/weight.

    Without weights, as when it was read from a store, there is nothing to start from: only shapes are known.
    """
    if missing := unknown_operations(graph["nodes"]):
        raise _unknown(missing)
    structs = {name: jax.ShapeDtypeStruct(shape, _dtype(dtype)) for _, name, shape, dtype in graph["parameters"]}
    constants = {value: _decoded_array(*rest) for value, *rest in graph["constants"]}
    start = None if weights is None else tree.on_device(nested({n: _host(weights[n], s) for n, s in structs.items()}))

    def init(key: jax.Array, x: Data = None) -> Params:
        del x
        if start is not None:
            return start
        if isinstance(key, jax.core.Tracer):  # its shapes are asked for
            return nested({name: jnp.zeros(s.shape, s.dtype) for name, s in structs.items()})
        raise NetworkError(
            "the weights that a PyTorch network starts from are not stored with a fit",
            "the network",
            "pass network=po.network(module, example=x)",
        )

    def apply(params: Params, x: Data) -> jax.Array:
        named = flat(params)

        def one(datum: Data) -> jax.Array:
            leaves = jax.tree_util.tree_leaves_with_path(datum)
            inputs = {tree.path_string(path): leaf[None] for path, leaf in leaves}
            check_inputs(graph, inputs)
            return jnp.atleast_1d(evaluate(graph, named, constants, inputs)[0])  # a number is one output

        return jax.vmap(one)(x)

    spec = Spec({"name": NAME, "settings": {}, "graph": graph})
    return Functions(init, apply, spec, trained=True, by_datum=True)


def check_inputs(graph: Json, inputs: Arrays) -> None:
    wanted = {path: tuple(shape) for _, path, shape, _ in graph["inputs"]}
    got = {path: tuple(leaf.shape) for path, leaf in inputs.items()}
    if got != wanted:
        raise NetworkError(
            f"a datum of {_shapes(got)}", f"{_shapes(wanted)}, as in the example", "convert it again with such an x"
        )


def _shapes(shapes: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{path or 'x'} {shape[1:]}" for path, shape in shapes.items())


def nested(named: dict[str, Any]) -> Params:
    """{"layer1.0.weight": ...} as {"layer1": {"0": {"weight": ...}}}."""
    folders: Params = {}
    for name, leaf in named.items():
        *above, last = name.split(".")
        folder = folders
        for part in above:
            folder = folder.setdefault(part, {})
        folder[last] = leaf
    return folders


def flat(params: Params) -> dict[str, Any]:
    """The way back from `nested`; leaves may have leading axes."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {".".join(str(key.key) for key in path): leaf for path, leaf in leaves}


def _host(weight: np.ndarray, struct: jax.ShapeDtypeStruct) -> np.ndarray:
    return np.asarray(weight).astype(struct.dtype)


# ---- arrays as text


def encoded_array(array: np.ndarray) -> list[Any]:
    array = np.asarray(array, order="C")
    return [list(array.shape), array.dtype.name, base64.b64encode(array.tobytes()).decode()]


def _decoded_array(shape: list[int], dtype: str, text: str) -> np.ndarray:
    array = np.frombuffer(base64.b64decode(text, validate=True), np.dtype(dtype)).reshape(shape)
    return array.astype(_dtype(dtype))


def census(graph: Json) -> Counter[str]:
    """How often each operation occurs."""
    return Counter(node[1] for node in graph["nodes"] if node[1] != "getitem")
