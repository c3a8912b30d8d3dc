"""A PyTorch module as pure functions of JAX: exported to a graph of core ATen operations, which JAX evaluates.

`torch.export` follows the module's forward pass on a batch of one datum, in evaluation mode, and takes it apart to
operations of the table in `aten`. PyTorch is needed for this alone: the graph is data, and stays with the network.
"""

import contextlib
import re
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import torch
from torch.nn import Module
from torch.utils import _pytree

from posteria import tree
from posteria.bridges import aten
from posteria.bridges.agreement import BATCH_NORM, arguments, as_numpy_array, compared, compared_rows, outputs
from posteria.bridges.graph import encoded_array, functions, unknown_operations
from posteria.data.arrays import Data, check_x
from posteria.errors import NetworkError
from posteria.modules import Functions
from posteria.tree import Arrays, Json

LARGEST_SPEC = 64 * 2**20  # bytes of buffers and frozen weights that a store may carry as text
WITHOUT_MEANING = ("device", "layout", "pin_memory", "memory_format", "non_blocking")  # in JAX
OF_THE_BATCH = ("_native_batch_norm_legit", "native_batch_norm", "_native_batch_norm_legit_functional")
OF_CHANCE = ("bernoulli", "native_dropout", "rand", "randn", "rand_like", "randn_like", "normal", "randint")


def functions_of(module: Module, example: Data) -> Functions:
    """init, apply, and the graph as a spec."""
    name = type(module).__name__
    if example is None:
        raise NetworkError(
            f"the PyTorch module {name} without an example",
            "a few rows of x",
            f"po.network({name.lower()}, example=x[:4])",
        )
    _check_batch_norms(module)
    rows = _as_tensors(example, module)
    with _evaluating(module):
        outputs(module, compared_rows(rows))  # what PyTorch cannot run itself is said in its words
        exported = _exported(module, _first_row(rows))
        graph, weights = _graph_of(exported, module, rows)
        found = functions(graph, weights)
        words = compared(module, rows, found, graph)
    num_bytes = sum(len(text) for *_, text in graph["constants"])
    spec = found.spec if num_bytes <= LARGEST_SPEC else None
    note = f"{name}, from PyTorch: {words}{_left_out(module, graph)}"
    return found._replace(spec=spec, note=note + ("" if spec else "; too large to be stored: pass it again to po.load"))


# ---- what goes in


def _as_tensors(example: Data, module: Module) -> Any:
    """The example as PyTorch wants it: floating inputs in the module's dtype, whole numbers of 64 bits."""
    floating = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    device = next((p.device for p in module.parameters()), torch.device("cpu"))

    def tensor(leaf: Any) -> torch.Tensor:
        values = torch.as_tensor(np.array(leaf))
        if values.is_floating_point():
            return values.to(device, floating)
        return values.to(device, values.dtype if values.dtype in (torch.bool, torch.uint8) else torch.int64)

    def as_numpy(leaf: Any) -> Any:
        return leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else leaf

    checked = check_x(jax.tree.map(as_numpy, example), "example")
    return jax.tree.map(tensor, checked)


def _first_row(rows: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[:1], rows)


def _input_paths(rows: Any) -> list[str]:
    """Paths of x's leaves in the order of the exported inputs: JAX sorts a dict's names, PyTorch does not."""
    paths = jax.tree.unflatten(jax.tree.structure(rows), tree.paths(rows))
    return list(_pytree.tree_flatten(arguments(paths))[0])


@contextlib.contextmanager
def _evaluating(module: Module) -> Iterator[None]:
    """In evaluation mode, without PyTorch's fused attention; then as it was, its buffers too."""
    modes = {part: part.training for part in module.modules()}
    before = [(buffer, buffer.clone()) for buffer in module.buffers() if not torch.nn.parameter.is_lazy(buffer)]
    is_fast = torch.backends.mha.get_fastpath_enabled()
    try:
        module.eval()
        torch.backends.mha.set_fastpath_enabled(False)
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(is_fast)
        for part, mode in modes.items():
            part.training = mode
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)


def _check_batch_norms(module: Module) -> None:
    for name, part in module.named_modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.running_mean is None:
            raise NetworkError(
                f"{name or 'the module'} is {type(part).__name__} without running statistics: it uses its batch's own",
                "outputs that are a function of one datum",
                BATCH_NORM,
            )


# ---- export


def _exported(module: Module, row: Any) -> Any:
    args, keywords = arguments(row)
    kept = [op for op in torch.export.default_decompositions() if aten.is_registered(str(op))]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            decompositions = torch.export.default_decompositions()
            for op in kept:
                decompositions.pop(op)
            return torch.export.export(module, args, keywords).run_decompositions(decompositions)
    except Exception as error:
        words = str(error).strip().splitlines() or [""]
        raise NetworkError(
            f"torch.export could not follow {type(module).__name__} ({type(error).__name__}: {words[0]})",
            "a forward pass that takes the same way for every x",
            "look at what torch.export.export(module, (x[:1],)) says, and change that line",
        ) from error


def _graph_of(exported: Any, module: Module, rows: Any) -> tuple[Json, Arrays]:
    """The graph as data, and the weights by PyTorch's names."""
    output = _output(exported, module)
    needed = _behind(output)
    nodes = [_node(node) for node in exported.graph.nodes if node.op == "call_function" and node in needed]
    if missing := unknown_operations(nodes):
        raise _refused(missing, exported)
    signature = exported.graph_signature
    values = dict(module.named_parameters(remove_duplicate=False)) | exported.state_dict | exported.constants
    first_name = {id(p): name for name, p in module.named_parameters()}  # of a weight with several
    parameters, constants, weights = [], [], {}
    inputs = dict(zip(signature.user_inputs, _input_paths(rows)))
    shown = []
    for node in (node for node in exported.graph.nodes if node.op == "placeholder"):
        sort, name = _origin(signature, node.name)
        if node.name in inputs:
            shown.append([node.name, inputs[node.name], *_result(node.meta["val"])])
        elif node not in needed:
            continue
        elif sort == "parameter" and _is_free(module, name):
            name = first_name[id(module.get_parameter(name))]
            weights[name] = as_numpy_array(values[name])
            parameters.append([node.name, name, *_result(node.meta["val"])])
        else:
            constants.append([node.name, *encoded_array(as_numpy_array(values[name]))])
    if not weights:
        raise NetworkError(
            f"{type(module).__name__} has no parameter with requires_grad=True that its outputs depend on",
            "at least one",
            "module.requires_grad_(True) frees them",
        )
    graph = {
        "inputs": shown,
        "parameters": parameters,
        "constants": constants,
        "nodes": nodes,
        "output": output.name,
    }
    return graph, weights


def _behind(output: Any) -> set[Any]:
    """What an output is computed from, and no more: checks of values and writes to buffers are left out."""
    needed, open_ends = set(), [output]
    while open_ends:
        node = open_ends.pop()
        if node not in needed:
            needed.add(node)
            open_ends.extend(node.all_input_nodes)
    return needed


def _origin(signature: Any, name: str) -> tuple[str, str]:
    if name in signature.inputs_to_parameters:
        return "parameter", signature.inputs_to_parameters[name]
    constants = signature.inputs_to_buffers | signature.inputs_to_lifted_tensor_constants
    return "constant", constants.get(name, name)


def _is_free(module: Module, name: str) -> bool:
    weight = module.get_parameter(name)
    return weight.requires_grad and weight.is_floating_point()


def _output(exported: Any, module: Module) -> Any:
    outputs = exported.graph_signature.user_outputs
    result = next(node for node in exported.graph.nodes if node.op == "output").args[0]
    found = [node for node in result if getattr(node, "name", None) in outputs]
    if len(outputs) != 1 or len(found) != 1:
        raise NetworkError(
            f"{type(module).__name__} returns {len(outputs)} values",
            "one tensor of outputs",
            "wrap it in a module whose forward returns the outputs alone",
        )
    shape, _ = _result(found[0].meta["val"])
    if not shape or shape[0] != 1:
        raise NetworkError(
            f"{type(module).__name__} returns {tuple(shape)} for a batch of one",
            "a leading axis of data",
            "squeeze and flatten named axes only: squeeze(1), flatten(1)",
        )
    return found[0]


def _node(node: Any) -> list[Any]:
    name = "getitem" if getattr(node.target, "__name__", "") == "getitem" else str(node.target)
    keywords = {key: _encoded(part) for key, part in node.kwargs.items() if key not in WITHOUT_MEANING}
    return [node.name, name, _encoded(list(node.args)), keywords, _result(node.meta.get("val"))]


def _encoded(argument: Any) -> Any:
    if isinstance(argument, torch.fx.Node):
        return {"value": argument.name}
    if isinstance(argument, list | tuple):
        return [_encoded(part) for part in argument]
    if isinstance(argument, torch.dtype):
        return {"dtype": _name_of(argument)}
    if isinstance(argument, float) and not np.isfinite(argument):
        return {"float": str(argument)}
    if argument is None or isinstance(argument, bool | int | float | str):
        return argument
    return None  # a device, a layout: without meaning in JAX


def _result(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_result(part) for part in value]
    return None if value is None else [list(map(int, value.shape)), _name_of(value.dtype)]


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# ---- what is refused


def _refused(missing: list[str], exported: Any) -> NetworkError:
    places = []
    for name in missing:
        node = next(node for node in exported.graph.nodes if str(node.target) == name)
        places.append(f"{name} ({place_of(node)})")
    bases = {name.split(".")[1] for name in missing if name.startswith("aten.")}
    fix = f"po.bridges.register({missing[0]!r}, function of JAX arrays), or write it by other operations"
    if bases & set(OF_CHANCE):
        fix = "remove what draws random numbers: po.MCDropout and its kin add noise themselves"
    if bases & set(OF_THE_BATCH):
        fix = BATCH_NORM
    return NetworkError(f"the network has {'; '.join(places)}", "operations that Posteria has in its table", fix)


def place_of(node: Any) -> str:
    """Where in the user's source an operation comes from, and in which part of the module."""
    frames = re.findall(r'File "(.+?)", line (\d+), in (\S+)\n\s*(.*)', node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if "/torch/" not in frame[0]] or frames
    parts = [str(path) for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    part = parts[-1].removeprefix("L['self'].") if parts and parts[-1] else "the module itself"
    if not own:
        return f"in {part}"
    file, line, _, code = own[-1]
    return f"in {part}, {file}:{line}: {code.strip()}"


def _left_out(module: Module, graph: Json) -> str:
    named = {name: p for name, p in module.named_parameters()}
    inside = {name for _, name, *_ in graph["parameters"]}
    frozen = [name for name, p in named.items() if not p.requires_grad]
    unused = [name for name in named if name not in inside and name not in frozen]
    words = f"; {len(frozen)} parameters with requires_grad=False stay as they are" if frozen else ""
    return words + (f"; its outputs do not depend on {', '.join(unused)}" if unused else "")
