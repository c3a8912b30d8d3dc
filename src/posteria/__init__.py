"""Bayesian deep learning for any JAX network: every inference method behind one call, graded against HMC."""

from importlib import import_module
from typing import Any

from posteria.methods.shelf import SHELF

__version__ = "0.1.0"

# Names are imported when they are first used: `import posteria` costs next to nothing. What a type checker and an
# editor see is `__init__.pyi`, which `make surface` writes from this table.
_HOMES = {home.partition(":")[2]: home for home in SHELF.values()} | {
    "Baseline": "posteria.methods.registry:Baseline",
    "Classifier": "posteria.estimators:Classifier",
    "Kernel": "posteria.engine.loop:Kernel",
    "Machine": "posteria.planning:Machine",
    "Method": "posteria.methods.registry:Method",
    "Model": "posteria.models.model:Model",
    "Network": "posteria.networks:Network",
    "Posterior": "posteria.posteriors.base:Posterior",
    "Predictive": "posteria.posteriors.predictive:Predictive",
    "Regressor": "posteria.estimators:Regressor",
    "Run": "posteria.engine.loop:Run",
    "Target": "posteria.models.target:Target",
    "adapters": "posteria.trace.adapters:adapters",
    "bridges": "posteria.bridges",
    "clear": "posteria.compiled:clear",
    "compare": "posteria.comparison.api:compare",
    "connect": "posteria.landscape.connect:connect",
    "data": "posteria.data",
    "diagnostics": "posteria.diagnostics",
    "distributed": "posteria.engine.distributed:distributed",
    "errors": "posteria.errors",
    "fit": "posteria.runs:fit",
    "functions": "posteria.functions",
    "grade": "posteria.comparison.api:grade",
    "infer": "posteria.settings:infer",
    "likelihoods": "posteria.models.likelihoods",
    "load": "posteria.posteriors.saving:load",
    "log_evidence": "posteria.evidence:log_evidence",
    "logs": "posteria.logs",
    "mesh": "posteria.engine.mesh:mesh",
    "methods": "posteria.methods",
    "metrics": "posteria.metrics",
    "mlflow": "posteria.mlflow",
    "network": "posteria.networks:network",
    "nn": "posteria.nn",
    "plan": "posteria.planning:plan",
    "plots": "posteria.plots",
    "priors": "posteria.models.priors",
    "publish": "posteria.posteriors.publish:publish",
    "register": "posteria.methods.registry:register",
    "resume": "posteria.runs:resume",
    "sample": "posteria.runs:sample",
    "shift": "posteria.shift",
    "surface": "posteria.landscape.surface:surface",
    "use_cores": "posteria.engine.layout:use_cores",
}
__all__ = sorted(_HOMES)


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
