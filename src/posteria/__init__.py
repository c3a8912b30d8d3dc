"""Bayesian deep learning for any JAX network: every inference method behind one call, graded against HMC."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from posteria import data, diagnostics, errors, metrics, nn
    from posteria.inference.ensemble import Ensemble
    from posteria.inference.hmc import HMC
    from posteria.inference.layout import use_cores
    from posteria.inference.loop import Kernel, Run
    from posteria.inference.map import MAP
    from posteria.inference.metropolis import MetropolisHastings
    from posteria.inference.nuts import NUTS
    from posteria.inference.registry import Method, register
    from posteria.inference.registry import names as methods
    from posteria.inference.runs import fit, resume, sample
    from posteria.models import likelihoods, priors
    from posteria.models.model import Model
    from posteria.models.settings import infer
    from posteria.models.target import Target
    from posteria.networks import Network, network
    from posteria.posteriors.base import Posterior
    from posteria.posteriors.predict import Predictive
    from posteria.posteriors.saving import load

# Names are imported when they are first used: `import posteria` costs next to nothing.
_HOMES = {
    "Ensemble": "posteria.inference.ensemble:Ensemble",
    "HMC": "posteria.inference.hmc:HMC",
    "Kernel": "posteria.inference.loop:Kernel",
    "MAP": "posteria.inference.map:MAP",
    "Method": "posteria.inference.registry:Method",
    "MetropolisHastings": "posteria.inference.metropolis:MetropolisHastings",
    "Model": "posteria.models.model:Model",
    "NUTS": "posteria.inference.nuts:NUTS",
    "Network": "posteria.networks:Network",
    "Posterior": "posteria.posteriors.base:Posterior",
    "Predictive": "posteria.posteriors.predict:Predictive",
    "Run": "posteria.inference.loop:Run",
    "Target": "posteria.models.target:Target",
    "data": "posteria.data",
    "diagnostics": "posteria.diagnostics",
    "errors": "posteria.errors",
    "fit": "posteria.inference.runs:fit",
    "infer": "posteria.models.settings:infer",
    "likelihoods": "posteria.models.likelihoods",
    "load": "posteria.posteriors.saving:load",
    "methods": "posteria.inference.registry:names",
    "metrics": "posteria.metrics",
    "network": "posteria.networks:network",
    "nn": "posteria.nn",
    "priors": "posteria.models.priors",
    "register": "posteria.inference.registry:register",
    "resume": "posteria.inference.runs:resume",
    "sample": "posteria.inference.runs:sample",
    "use_cores": "posteria.inference.layout:use_cores",
}

__all__ = [
    "HMC",
    "MAP",
    "NUTS",
    "Ensemble",
    "Kernel",
    "Method",
    "MetropolisHastings",
    "Model",
    "Network",
    "Posterior",
    "Predictive",
    "Run",
    "Target",
    "data",
    "diagnostics",
    "errors",
    "fit",
    "infer",
    "likelihoods",
    "load",
    "methods",
    "metrics",
    "network",
    "nn",
    "priors",
    "register",
    "resume",
    "sample",
    "use_cores",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'posteria' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value = import_module(module)
    value = getattr(value, attribute) if attribute else value
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
