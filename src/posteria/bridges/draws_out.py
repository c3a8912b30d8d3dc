"""Draws of weights as state dicts of the PyTorch module that the network was made from."""

from typing import Any

import jax
import numpy as np

from posteria.bridges.graph import flat
from posteria.errors import CapabilityError, NetworkError, SettingError
from posteria.modules import is_of_torch
from posteria.random import as_key


def to_torch(posterior: Any, module: Any, num_draws: int, key: int | jax.Array = 0) -> list[dict[str, Any]]:
    """`num_draws` state dicts, each for `module.load_state_dict`; buffers and what does not vary are the module's own.

    for state in po.bridges.to_torch(posterior, module, 10):
        module.load_state_dict(state)
    """
    if not is_of_torch(module):
        raise SettingError(
            f"module is {type(module).__name__}", "the PyTorch module", "pass the one that was converted"
        )
    if not hasattr(posterior, "sample"):
        raise CapabilityError(
            f"a {type(posterior).__name__} is a posterior of functions", "one of weights", "take another method"
        )
    import torch

    own = module.state_dict(keep_vars=True)
    first = {id(parameter): name for name, parameter in module.named_parameters()}
    draws = {name: np.asarray(leaf) for name, leaf in flat(posterior.sample(as_key(key), num_draws)).items()}
    _check(draws, {name: tuple(value.shape) for name, value in own.items()})

    def tensor(name: str, value: Any, draw: int) -> Any:
        """A weight with several names is drawn once."""
        drawn = draws.get(first.get(id(value), name))
        if drawn is None:
            return value.detach().clone()
        return torch.as_tensor(np.array(drawn[draw], np.float64)).to(value.device, value.dtype)

    return [{name: tensor(name, value, draw) for name, value in own.items()} for draw in range(num_draws)]


def _check(draws: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]]) -> None:
    for name, drawn in draws.items():
        if shapes.get(name) != drawn.shape[1:]:
            raise NetworkError(
                f"the posterior has {name} of shape {drawn.shape[1:]}, the module {shapes.get(name, 'no such name')}",
                "the module that the network was made from",
                "pass that module",
            )
