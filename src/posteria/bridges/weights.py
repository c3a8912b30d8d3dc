"""Weights from elsewhere into a network: matched by name and shape, with the usual transposes, and told in words."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.bridges import safetensors_file
from posteria.data.arrays import Data
from posteria.errors import NetworkError, SettingError, StoreError
from posteria.modules import as_variables
from posteria.networks import Network, as_batch_of_one, network
from posteria.tree import Arrays, Params

# What frameworks call the same thing; a module's other names are compared as they are.
SAME = {"weight": ("weight", "kernel", "scale", "embedding", "w"), "bias": ("bias", "b")} | {
    "mean": ("running_mean", "mean"),
    "var": ("running_var", "var"),
}
COUNTERS = ("num_batches_tracked",)
FEW = 6  # names in a message

Names = Mapping[str, str | None]  # from a path of the network to a name in the source; None: leave it as it is
Build = Callable[[Params], Network]


def load(obj: object, source: object, names: Names | None = None, example: Data = None) -> Network:
    """The network with weights from a safetensors file or a state dict (names to arrays or tensors); `trained`.

    `obj` is an NNX, Linen or Equinox module, or what else `po.network` takes; a Linen module that is not bound, and a
    ready network, needs an `example` of x. Statistics of norms are loaded too. A weight is matched by its name (its
    last parts, where one side has more of them; "weight" is "kernel" or "scale"), else by its shape where only one
    has it. PyTorch's (out, in, *window) becomes a kernel's (*window, in, out). What matched and what did not is in
    `network.note`; several candidates for one weight are an error, which `names={"head/kernel": "fc.weight"}` settles.

    A dense layer on a flattened image sees channels first in PyTorch and last in Flax: no name tells, so order the
    rows of such a weight yourself.
    """
    arrays = _read(source)
    leaves, build = _opened(obj, example)
    targets = dict(zip(tree.paths(leaves), jax.tree.leaves(leaves)))
    matches = _matched({path: jnp.shape(leaf) for path, leaf in targets.items()}, arrays, names or {})
    filled = [_value(arrays, matches[path], path, leaf) if path in matches else leaf for path, leaf in targets.items()]
    found = build(jax.tree.unflatten(jax.tree.structure(leaves), filled))
    return replace(found, trained=True, note=_words(targets, arrays, matches, source))


# ---- the source


def _read(source: object) -> Arrays:
    if isinstance(source, str | Path):
        path = Path(source)
        if path.suffix in (".pt", ".pth", ".bin", ".pkl", ".ckpt"):
            raise StoreError(
                f"{path} is a pickle, which runs code when it is read",
                "a safetensors file or a state dict",
                "pass torch.load(path, weights_only=True), if you trust it",
            )
        return safetensors_file.read(path)
    if not isinstance(source, Mapping) or not source:
        raise SettingError(
            f"weights from {type(source).__name__}", "a path or a state dict", "pass module.state_dict()"
        )
    return {str(name): _as_array(value) for name, value in source.items()}


def _as_array(value: Any) -> np.ndarray:
    """Of NumPy, JAX or PyTorch, whose bfloat16 NumPy does not know."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    return np.asarray(value)


# ---- the network


def _opened(obj: object, example: Data) -> tuple[Params, Build]:
    """Every floating leaf, statistics too, and the way back to a network."""
    if (found := as_variables(obj, example)) is not None:
        leaves, rebuild = found
        return leaves, lambda filled: network(rebuild(filled))
    made = network(obj)
    x = None if example is None else as_batch_of_one(example)
    try:
        params = made.init(jax.random.key(0), x)
    except Exception as error:
        if example is not None:
            raise
        raise NetworkError(
            "the network's weights depend on x", "an example of it", "po.bridges.load(network, source, example=x[:1])"
        ) from error

    def build(filled: Params) -> Network:
        def init(key: jax.Array, x: Data = None) -> Params:
            del key, x
            return filled

        return replace(made, init=init)

    return params, build


# ---- matching


class Match(NamedTuple):
    name: str
    by: str  # "name", "shape" or "you"


def _matched(targets: dict[str, tuple[int, ...]], arrays: Arrays, names: Names) -> dict[str, Match]:
    matches = _stated(targets, arrays, names)
    free = [path for path in targets if path not in matches and path not in names]
    unused = [name for name in arrays if name not in {match.name for match in matches.values()}]
    unclear: dict[str, list[str]] = {}
    for path in free:
        fitting = [name for name in unused if _fits(name, path, arrays[name].shape, targets[path])]
        scores = {name: _common_end(_parts(name), _parts(path)) for name in fitting}
        best = [name for name, score in scores.items() if score == max(scores.values()) and score > 1]
        if len(best) == 1:
            matches[path] = Match(best[0], "name")
        elif best:
            unclear[path] = best
    _only_once(matches, unclear)
    unused = [name for name in unused if name not in {match.name for match in matches.values()}]
    for path in (path for path in free if path not in matches and path not in unclear):
        fitting = [name for name in unused if _fits(name, path, arrays[name].shape, targets[path])]
        rivals = [other for other in free if other not in matches and _same_kind(other, path, targets)]
        if len(fitting) == 1 and rivals == [path]:
            matches[path] = Match(fitting[0], "shape")
        elif fitting:
            unclear[path] = fitting
    if unclear:
        shown = "; ".join(f"{path} may be {' or '.join(found[:FEW])}" for path, found in list(unclear.items())[:FEW])
        path, found = next(iter(unclear.items()))
        raise NetworkError(
            f"{len(unclear)} weights have no one match: {shown}",
            "one name for each",
            f"names={{{path!r}: {found[0]!r}}}, or None in its place to leave a weight as it is",
        )
    if not any(match for match in matches.values()):
        raise NetworkError(
            f"no weight of the network ({_few(targets)}) matches one of the source ({_few(arrays)})",
            "equal names or shapes",
            'names={"path in the network": "name in the source"}',
        )
    return matches


def _stated(targets: dict[str, tuple[int, ...]], arrays: Arrays, names: Names) -> dict[str, Match]:
    """The user's own matches."""
    for path, name in names.items():
        if path not in targets:
            raise SettingError(f"names has {path!r}", f"paths of the network ({_few(targets)})", "correct it")
        if name is not None and name not in arrays:
            raise SettingError(f"names has {name!r} for {path}", f"names of the source ({_few(arrays)})", "correct it")
        if name is not None and not _fits(name, path, arrays[name].shape, targets[path]):
            raise NetworkError(
                f"{name} has the shape {arrays[name].shape}", f"{targets[path]}, that of {path}", "transpose it"
            )
    return {path: Match(name, "you") for path, name in names.items() if name is not None}


def _only_once(matches: dict[str, Match], unclear: dict[str, list[str]]) -> None:
    """A source's array that is the best for several weights is nobody's: tied weights are stated by the user."""
    for match in list(matches.values()):
        rivals = [other for other, its in matches.items() if its.name == match.name and its.by == "name"]
        if match.by == "name" and len(rivals) > 1:
            unclear |= {other: [match.name] for other in rivals}
    for path in unclear:
        matches.pop(path, None)


def _parts(name: str) -> list[str]:
    """ "layers_0/conv1/kernel" -> ["layers", "0", "conv1", "weight"]."""
    head, _, last = re.sub(r"[/.]", " ", name).strip().rpartition(" ")
    last = next((common for common, words in SAME.items() if last in words), last)
    return [part for part in re.split(r"[ _]", head.lower()) if part] + [last]


def _common_end(ours: list[str], theirs: list[str]) -> float:
    """How many last parts agree; a half more where all do."""
    count = 0
    for mine, other in zip(reversed(ours), reversed(theirs)):
        if mine != other:
            break
        count += 1
    return count + 0.5 * (count == len(ours) == len(theirs))


def _axes(name: str, path: str, rank: int) -> tuple[int, ...]:
    """How the source's axes go into the network's: PyTorch's weight is a kernel with its first two axes last."""
    is_kernel = path.rpartition("/")[2] == "kernel" and re.split(r"[/.]", name)[-1] != "kernel"
    return (*range(2, rank), 1, 0) if is_kernel and rank > 1 else tuple(range(rank))


def _fits(name: str, path: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    moved = tuple(shape[axis] for axis in _axes(name, path, len(shape)))
    return _parts(name)[-1] == _parts(path)[-1] and moved == tuple(wanted)


def _same_kind(path: str, other: str, targets: dict[str, tuple[int, ...]]) -> bool:
    return _parts(path)[-1] == _parts(other)[-1] and targets[path] == targets[other]


def _value(arrays: Arrays, match: Match, path: str, leaf: Any) -> jax.Array:
    array = arrays[match.name]
    if not np.isfinite(np.asarray(array, np.float64)).all():
        raise NetworkError(f"{match.name} has NaN or infinite values", "finite weights", "check where they come from")
    return jnp.asarray(np.transpose(array, _axes(match.name, path, array.ndim)).astype(jnp.result_type(leaf)))


# ---- in words


def _words(targets: Params, arrays: Arrays, matches: dict[str, Match], source: object) -> str:
    used = {match.name for match in matches.values()}
    unused = [name for name in arrays if name not in used and not name.endswith(COUNTERS)]
    left = [path for path in targets if path not in matches]
    by_shape = [f"{path} from {match.name}" for path, match in matches.items() if match.by == "shape"]
    where = f"from {Path(source).name}" if isinstance(source, str | Path) else "from the state dict"
    return f"{len(matches)} of {len(targets)} weights {where}" + "".join(
        f"; {said}: {_few(names)}"
        for said, names in {
            "matched by shape alone": by_shape,
            "left as they were": left,
            "in the source, and not used": unused,
        }.items()
        if names
    )


def _few(names: Any) -> str:
    names = list(names)
    return ", ".join(names[:FEW]) + (f" and {len(names) - FEW} more" if len(names) > FEW else "")
