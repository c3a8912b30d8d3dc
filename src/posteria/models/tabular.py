"""The default model of a table: what the estimators, the command line and `compare` start from."""

from typing import Any

from posteria import nn
from posteria.models import likelihoods, priors
from posteria.models.likelihoods import Likelihood
from posteria.models.model import Model
from posteria.models.priors import Prior

WIDE = 2.0  # scale of the prior where targets are classes, or rows are many
MANY_ROWS = 5000  # about twice the weights of mlp:50,50


def model_for(
    kind: str,
    num_outputs: int,
    num_rows: int,
    network: Any = "mlp:50,50",
    *,
    likelihood: Likelihood | None = None,
    prior: Prior | None = None,
    temperature: float = 1.0,
) -> Model:
    """A network (or its spelling) with the likelihood of the targets: noise is inferred, counts are negative binomial,
    classes categorical.

    The prior is scaled by fan-in. For classes it is twice as wide: with 1 the logits are held so small that it is
    unsure of what it gets right (negative log-likelihood of MAP on digits, breast cancer and iris: 0.26, 0.12 and 0.61
    with 1, 0.10, 0.08 and 0.21 with 2). So it is where rows are many (Laplace gains on power and protein, and loses on
    kin8nm); with fewer, a wide prior lets the network fit the noise. `benchmarks/table_prior.py` has these figures.
    """
    if isinstance(network, str):
        network = nn.parse(network, num_outputs * getattr(likelihood, "outputs_per_target", 1))
    if likelihood is None:
        likelihood = default_likelihood(kind, num_outputs)
    if prior is None:
        is_wide = kind == "classes" or num_rows >= MANY_ROWS
        prior = priors.FanIn(scale=WIDE) if is_wide else priors.FanIn()
    return Model(network, likelihood, prior, temperature)


def default_likelihood(kind: str, num_outputs: int = 1) -> Likelihood:
    """Of targets that are "regression", each with its own noise, "counts" or "classes"."""
    if kind == "regression":
        return likelihoods.Gaussian(num_noises=num_outputs)
    found: Any = likelihoods.NegativeBinomial() if kind == "counts" else likelihoods.Categorical()
    likelihood: Likelihood = found
    return likelihood
