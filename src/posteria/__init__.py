"""Bayesian deep learning for any JAX network: every inference method behind one call, graded against HMC."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from posteria import data, diagnostics, errors, metrics, nn
    from posteria.comparison.api import compare, grade
    from posteria.estimators import Classifier, Regressor
    from posteria.inference.concrete_dropout import ConcreteDropout
    from posteria.inference.connect import connect
    from posteria.inference.dropout import GaussianDropout, MCDropout
    from posteria.inference.elliptical_slice import EllipticalSlice
    from posteria.inference.ensemble import Ensemble
    from posteria.inference.evidence import log_evidence
    from posteria.inference.expectation_propagation import ExpectationPropagation
    from posteria.inference.fast_geometric_ensemble import FastGeometricEnsemble
    from posteria.inference.hmc import HMC
    from posteria.inference.laplace import Laplace
    from posteria.inference.layout import use_cores
    from posteria.inference.loop import Kernel, Run
    from posteria.inference.map import MAP
    from posteria.inference.mclmc import MCLMC, AdjustedMCLMC
    from posteria.inference.mean_field import MeanField
    from posteria.inference.metropolis import MetropolisHastings
    from posteria.inference.nuts import NUTS
    from posteria.inference.registry import Method, register
    from posteria.inference.registry import names as methods
    from posteria.inference.runs import fit, resume, sample
    from posteria.inference.sghmc import SGHMC
    from posteria.inference.sgld import SGLD
    from posteria.inference.sgnht import SGNHT
    from posteria.inference.sparse_variational_dropout import SparseVariationalDropout
    from posteria.inference.subspace import Subspace
    from posteria.inference.surface import surface
    from posteria.inference.svgd import SVGD
    from posteria.inference.swag import SWAG
    from posteria.inference.tempering import ParallelTempering
    from posteria.inference.variational_dropout import VariationalDropout
    from posteria.inference.variational_online_newton import VariationalOnlineNewton
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
    "AdjustedMCLMC": "posteria.inference.mclmc:AdjustedMCLMC",
    "Classifier": "posteria.estimators:Classifier",
    "ConcreteDropout": "posteria.inference.concrete_dropout:ConcreteDropout",
    "EllipticalSlice": "posteria.inference.elliptical_slice:EllipticalSlice",
    "Ensemble": "posteria.inference.ensemble:Ensemble",
    "ExpectationPropagation": "posteria.inference.expectation_propagation:ExpectationPropagation",
    "FastGeometricEnsemble": "posteria.inference.fast_geometric_ensemble:FastGeometricEnsemble",
    "GaussianDropout": "posteria.inference.dropout:GaussianDropout",
    "HMC": "posteria.inference.hmc:HMC",
    "Kernel": "posteria.inference.loop:Kernel",
    "Laplace": "posteria.inference.laplace:Laplace",
    "MAP": "posteria.inference.map:MAP",
    "MCDropout": "posteria.inference.dropout:MCDropout",
    "MCLMC": "posteria.inference.mclmc:MCLMC",
    "MeanField": "posteria.inference.mean_field:MeanField",
    "Method": "posteria.inference.registry:Method",
    "MetropolisHastings": "posteria.inference.metropolis:MetropolisHastings",
    "Model": "posteria.models.model:Model",
    "NUTS": "posteria.inference.nuts:NUTS",
    "Network": "posteria.networks:Network",
    "ParallelTempering": "posteria.inference.tempering:ParallelTempering",
    "Posterior": "posteria.posteriors.base:Posterior",
    "Predictive": "posteria.posteriors.predict:Predictive",
    "Regressor": "posteria.estimators:Regressor",
    "Run": "posteria.inference.loop:Run",
    "SGHMC": "posteria.inference.sghmc:SGHMC",
    "SGLD": "posteria.inference.sgld:SGLD",
    "SGNHT": "posteria.inference.sgnht:SGNHT",
    "SVGD": "posteria.inference.svgd:SVGD",
    "SWAG": "posteria.inference.swag:SWAG",
    "SparseVariationalDropout": "posteria.inference.sparse_variational_dropout:SparseVariationalDropout",
    "Subspace": "posteria.inference.subspace:Subspace",
    "Target": "posteria.models.target:Target",
    "VariationalDropout": "posteria.inference.variational_dropout:VariationalDropout",
    "VariationalOnlineNewton": "posteria.inference.variational_online_newton:VariationalOnlineNewton",
    "compare": "posteria.comparison.api:compare",
    "connect": "posteria.inference.connect:connect",
    "data": "posteria.data",
    "diagnostics": "posteria.diagnostics",
    "errors": "posteria.errors",
    "fit": "posteria.inference.runs:fit",
    "grade": "posteria.comparison.api:grade",
    "infer": "posteria.models.settings:infer",
    "likelihoods": "posteria.models.likelihoods",
    "load": "posteria.posteriors.saving:load",
    "log_evidence": "posteria.inference.evidence:log_evidence",
    "methods": "posteria.inference.registry:names",
    "metrics": "posteria.metrics",
    "network": "posteria.networks:network",
    "nn": "posteria.nn",
    "priors": "posteria.models.priors",
    "register": "posteria.inference.registry:register",
    "resume": "posteria.inference.runs:resume",
    "sample": "posteria.inference.runs:sample",
    "surface": "posteria.inference.surface:surface",
    "use_cores": "posteria.inference.layout:use_cores",
}

__all__ = [
    "HMC",
    "MAP",
    "MCLMC",
    "NUTS",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SVGD",
    "SWAG",
    "AdjustedMCLMC",
    "Classifier",
    "ConcreteDropout",
    "EllipticalSlice",
    "Ensemble",
    "ExpectationPropagation",
    "FastGeometricEnsemble",
    "GaussianDropout",
    "Kernel",
    "Laplace",
    "MCDropout",
    "MeanField",
    "Method",
    "MetropolisHastings",
    "Model",
    "Network",
    "ParallelTempering",
    "Posterior",
    "Predictive",
    "Regressor",
    "Run",
    "SparseVariationalDropout",
    "Subspace",
    "Target",
    "VariationalDropout",
    "VariationalOnlineNewton",
    "compare",
    "connect",
    "data",
    "diagnostics",
    "errors",
    "fit",
    "grade",
    "infer",
    "likelihoods",
    "load",
    "log_evidence",
    "methods",
    "metrics",
    "network",
    "nn",
    "priors",
    "register",
    "resume",
    "sample",
    "surface",
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
