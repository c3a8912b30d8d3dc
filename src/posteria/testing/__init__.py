"""The laws that methods are held to, for tests of your own method:

from posteria.testing import ExactLaws

class TestMine(ExactLaws):
    method = Mine(num_draws=1000)
"""

from posteria.testing.laws import AsymptoticLaws, ExactLaws, FamilyOptimumLaws, MethodLaws, PointLaws, ProcedureLaws
from posteria.testing.targets import KnownPosterior, correlated_gaussian, linear_regression

__all__ = [
    "AsymptoticLaws",
    "ExactLaws",
    "FamilyOptimumLaws",
    "KnownPosterior",
    "MethodLaws",
    "PointLaws",
    "ProcedureLaws",
    "correlated_gaussian",
    "linear_regression",
]
