"""The laws that methods, likelihoods and priors are held to, for tests of your own:

from posteria.testing import ExactLaws, LikelihoodLaws, PriorLaws

class TestMine(ExactLaws):
    method = Mine(num_draws=1000)
"""

from posteria.testing.laws import AsymptoticLaws, ExactLaws, FamilyOptimumLaws, MethodLaws, PointLaws, ProcedureLaws
from posteria.testing.likelihood_laws import LikelihoodLaws
from posteria.testing.prior_laws import PriorLaws
from posteria.testing.targets import KnownPosterior, correlated_gaussian, linear_regression

__all__ = [
    "AsymptoticLaws",
    "ExactLaws",
    "FamilyOptimumLaws",
    "KnownPosterior",
    "LikelihoodLaws",
    "MethodLaws",
    "PointLaws",
    "PriorLaws",
    "ProcedureLaws",
    "correlated_gaussian",
    "linear_regression",
]
