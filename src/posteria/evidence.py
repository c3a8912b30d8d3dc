"""The evidence log p(y | x, model): what a model says of the data before it has seen them.

By Laplace's approximation around the mode: fast, and as good as the posterior is Gaussian (MacKay 1992). By tempered
sequential Monte Carlo: the yardstick for small networks.
"""

from typing import Any, NamedTuple

import jax

from posteria.data.arrays import Data
from posteria.errors import DataError, SettingError
from posteria.methods.chains.tempered_smc import TemperedSMC
from posteria.models.model import Model
from posteria.models.target import Target
from posteria.random import as_key
from posteria.runs import fit


class Evidence(NamedTuple):
    """`standard_error` is that of sampling; None where nothing was sampled."""

    value: float
    standard_error: float | None


def log_evidence(model: Model, data: Data, method: Any = "laplace", key: int | jax.Array = 0) -> Evidence:
    """log p(y | x) of `data = (x, y)`, by "laplace" or "smc", or by an object that has an evidence: a `Laplace`, an
    `ExpectationPropagation`, or the settings of a `TemperedSMC`."""
    target = Target(model, data)
    if target.data is None:
        raise DataError("there is no y", "data to explain", "pass data=(x, y)")
    if target.temperature != 1.0:
        raise SettingError(
            f"the evidence at temperature {target.temperature}", "temperature 1", "give the model temperature 1"
        )
    target.check_proper()
    if method == "smc":
        method = TemperedSMC()
    if isinstance(method, TemperedSMC):
        return Evidence(*method.log_evidence(as_key(key), target))
    if method != "laplace" and not callable(getattr(method, "fit", None)):
        raise SettingError(f"method is {method!r}", '"laplace", "smc", a Laplace or a TemperedSMC', 'take "laplace"')
    posterior: Any = fit(model, data, method, key=key, progress=False)
    if not hasattr(posterior, "log_evidence"):
        raise SettingError(f"{type(method).__name__} has no evidence", "a method that has one", 'take "laplace"')
    return Evidence(float(posterior.log_evidence()), None)
