"""The networks of the literature, ready: equal settings give the same `Network`, and its `spec` rebuilds it."""

import inspect
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import jax

from posteria import own
from posteria.compiled import Shared
from posteria.data.arrays import Data
from posteria.errors import SettingError
from posteria.networks import Apply, Network, from_graph
from posteria.networks import network as as_network
from posteria.nn import dense
from posteria.settings import LARGEST_INT
from posteria.tree import Json, Params

if TYPE_CHECKING:
    from posteria.nn.blueprint import Build

Activation = Callable[[jax.Array], jax.Array]

__all__ = ["build", "cnn_lstm", "lenet5", "lenet_300_100", "mlp", "parse", "resnet20_frn"]


def mlp(
    hidden: Sequence[int] = (50, 50),
    outputs: int = 1,
    activation: str | Activation = "relu",
    inputs: int | None = None,
    skip: int = 0,
) -> Network:
    """Fully connected layers on the flattened datum; `mlp(())` is a linear model.

    `activation` is "relu", "tanh", "sin", "swish", "unit_swish" (times 1.68, so that it keeps the scale of what comes
    in), or a function (then there is no `spec`). `inputs` is read off x when None. A linear function of the first
    `skip` inputs is added to the outputs.
    """
    if not callable(activation) and activation not in ACTIVATIONS:
        raise SettingError(f"activation is {activation!r}", f"one of {', '.join(ACTIVATIONS)}", "or pass a function")
    hidden = tuple(hidden)
    _check_sizes(hidden=hidden, outputs=outputs, inputs=inputs)
    settings: Json = {"hidden": hidden, "outputs": outputs, "activation": activation, "inputs": inputs}
    if skip:
        _check_sizes(skip=skip)
        if not hidden:
            raise SettingError("skip of a linear model", "hidden layers to skip", "leave skip out")
        settings["skip"] = skip
    return _ready("mlp", **settings)


def lenet_300_100(outputs: int = 10) -> Network:
    """Two hidden layers of 300 and 100 ReLU units on the flattened image. LeCun et al. 1998."""
    _check_sizes(outputs=outputs)
    return _ready("lenet_300_100", outputs=outputs)


def lenet5(outputs: int = 10) -> Network:
    """Caffe's LeNet-5: 5 x 5 convolutions of 20 and 50 channels, each max-pooled by 2, then 500 ReLU units.

    x is (n, height, width, channels), or (n, height, width) with one channel. LeCun et al. 1998; Jia et al. 2014.
    """
    _check_sizes(outputs=outputs)
    return _ready("lenet5", outputs=outputs)


def resnet20_frn(outputs: int = 10, width: int = 16) -> Network:
    """ResNet-20 for CIFAR with filter response normalisation and swish, as HMC was run on it. Izmailov et al. 2021.

    He et al. 2016 (three stages of three blocks, projections where shapes change); Singh & Krishnan 2020. As in the
    code published with the HMC samples, convolutions have biases, and the normalisation keeps its learned threshold.
    """
    _check_sizes(outputs=outputs, width=width)
    return _ready("resnet20_frn", outputs=outputs, width=width)


def cnn_lstm(
    vocabulary: int = 20_000,
    outputs: int = 2,
    embedding: int = 128,
    filters: int = 64,
    kernel: int = 5,
    pool: int = 4,
    cells: int = 128,
) -> Network:
    """Embedding, convolution over time, ReLU, max pooling, LSTM, and a linear read-out of its last state.

    The defaults are the IMDB network of Izmailov et al. 2021. x is integer tokens (n, length), or {"tokens": ...,
    "mask": ...} with a mask that is true at real tokens: the others embed to zero, and the LSTM keeps its state through
    steps that see no real token. A token outside the vocabulary gives NaN.
    """
    settings = {"vocabulary": vocabulary, "outputs": outputs, "embedding": embedding, "filters": filters}
    settings |= {"kernel": kernel, "pool": pool, "cells": cells}
    _check_sizes(**settings)
    return _ready("cnn_lstm", **settings)


def apart(network: Network) -> tuple[Network, Network] | None:
    """What an `mlp` with `skip` is the sum of: the same without it, and a linear model of the first inputs; None of any
    other network."""
    spec = network.spec or {}
    if spec.get("name") != "mlp" or "compute_dtype" in spec or not spec["settings"].get("skip"):
        return None
    settings = spec["settings"]
    layers = build({"name": "mlp", "settings": {key: value for key, value in settings.items() if key != "skip"}})
    return layers, mlp((), outputs=settings["outputs"], inputs=settings["skip"])


ACTIVATIONS = ("relu", "tanh", "sin", "swish", "unit_swish")
CONSTRUCTORS = {function.__name__: function for function in (mlp, lenet_300_100, lenet5, resnet20_frn, cnn_lstm)}
SPELLINGS = {name.replace("_", "-"): name for name in CONSTRUCTORS}  # on the command line
SIZED: dict[str, Callable[[str], Json]] = {  # what may follow a colon
    "mlp": lambda sizes: {"hidden": [int(size) for size in sizes.split(",") if sizes]},
    "resnet20-frn": lambda width: {"width": int(width)},
}
DENSE: dict[str, Json] = {"mlp": {}, "lenet_300_100": {"hidden": (300, 100)}}
MODULES = {  # imported when a network is first used: `import posteria` must not wait for Flax
    "lenet5": ("images", "LeNet5"),
    "resnet20_frn": ("images", "ResNet20FRN"),
    "cnn_lstm": ("text", "CNNLSTM"),
}


def build(spec: Json) -> Network:
    """The network that a `spec` describes."""
    if "compute_dtype" in spec:
        rest = {name: value for name, value in spec.items() if name != "compute_dtype"}
        return as_network(build(rest), compute_dtype=spec["compute_dtype"])
    name, settings = spec.get("name"), spec.get("settings", {})
    if name == "torch":
        return from_graph(spec["graph"])
    if name not in CONSTRUCTORS:
        raise SettingError(f"network {name!r}", f"one of {', '.join(CONSTRUCTORS)}", "pass your own network itself")
    known = inspect.signature(CONSTRUCTORS[name]).parameters
    if unknown := sorted(set(settings) - set(known)):
        raise SettingError(f"{name} with {', '.join(unknown)}", f"only {', '.join(known)}", "check the spec")
    return CONSTRUCTORS[name](**settings)


def parse(text: str, outputs: int) -> Network:
    """A network from its command-line spelling: `mlp`, `mlp:50,50`, `mlp:` (linear), `lenet5`, `resnet20-frn:4` (width)

    `mypkg.nets:build` is your own: a network, or a function of the number of outputs that returns one.
    """
    if is_own(text):
        found = own.imported(text, "network")
        if inspect.isfunction(found) and "outputs" in inspect.signature(found).parameters:
            found = found(outputs=outputs)
        return as_network(found)
    name, colon, sizes = text.partition(":")
    if name not in SPELLINGS or (colon and name not in SIZED):
        raise SettingError(f"network {text!r}", f"one of {', '.join(SPELLINGS)}", "layer sizes follow, as in mlp:50,50")
    settings: Json = {"outputs": outputs}
    if colon:
        try:
            settings |= SIZED[name](sizes)
        except ValueError as error:
            fix = "write mlp:50,50" if name == "mlp" else f"write {name}:4"
            raise SettingError(f"network {text!r}", "layer sizes as whole numbers", fix) from error
    return build({"name": SPELLINGS[name], "settings": settings})


def is_own(text: str) -> bool:
    """Whether a spelling names code of the user's, as `mypkg.nets:build`, and not a network from here."""
    return ":" in text and text.partition(":")[0] not in SPELLINGS


_networks = Shared()  # equal settings are one network, so that compiled code serves all who ask for it


def _ready(name: str, **settings: Any) -> Network:
    return _networks.get((name, *sorted(settings.items())), lambda: _made(name, settings))


def _made(name: str, settings: dict[str, Any]) -> Network:
    if name in DENSE:
        init, apply = dense.mlp(**DENSE[name], **settings)
    else:
        init, apply = _of_modules(*MODULES[name], settings)
    if any(map(callable, settings.values())):
        return Network(init, apply)
    as_json = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
    return Network(init, apply, {"name": name, "settings": as_json})


def _of_modules(file: str, class_name: str, settings: dict[str, Any]) -> tuple[Callable[..., Params], Apply]:
    @cache  # a class and its settings, which go with this network
    def module() -> "Build":
        return partial(getattr(import_module(f"posteria.nn.{file}"), class_name), **settings)

    def init(key: jax.Array, x: Data = None) -> Params:
        from posteria.nn.blueprint import parameters

        return parameters(module(), key, x)

    def apply(params: Params, x: Data) -> jax.Array:
        from posteria.nn.blueprint import evaluate

        return evaluate(module(), params, x)

    return init, apply


def _check_sizes(**sizes: int | tuple[int, ...] | None) -> None:
    for name, value in sizes.items():
        for size in value if isinstance(value, tuple) else (value,):
            if size is not None and (not isinstance(size, int) or not 1 <= size <= LARGEST_INT):
                raise SettingError(f"{name} is {value!r}", "positive whole numbers below 2^31", "mend the sizes")
