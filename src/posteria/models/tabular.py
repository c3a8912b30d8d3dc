"""The default model of a table: what the estimators, the command line and `compare` start from."""

from typing import Any

from posteria import nn
from posteria.models import likelihoods, priors
from posteria.models.model import Model


def model_for(
    kind: str,
    num_outputs: int,
    network: Any = "mlp:50,50",
    *,
    likelihood: Any = None,
    prior: Any = None,
    temperature: float = 1.0,
) -> Model:
    """A network (or its spelling) with the likelihood of the targets: noise is inferred, classes are categorical."""
    if isinstance(network, str):
        network = nn.parse(network, num_outputs)
    if likelihood is None:
        likelihood = likelihoods.Gaussian() if kind == "regression" else likelihoods.Categorical()
    return Model(network, likelihood, priors.FanIn() if prior is None else prior, temperature)
