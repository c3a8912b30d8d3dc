"""Every likelihood is held to the laws of likelihoods, and SciPy's distributions to check them."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import posteria as po
from posteria.models.likelihoods import MEMBERS
from posteria.testing import LikelihoodLaws

OWN = {"log_precision": jnp.float32(0.7)}
STD = float(np.exp(-0.35))  # of OWN


class TestGaussian(LikelihoodLaws):
    likelihood = po.likelihoods.Gaussian(shape=2.0, rate=0.5)
    own = OWN

    def reference(self, outputs):
        return stats.norm(outputs, STD)


class TestGaussianOfGivenNoise(LikelihoodLaws):
    likelihood = po.likelihoods.Gaussian(noise=0.3)

    def reference(self, outputs):
        return stats.norm(outputs, 0.3)


class TestHeteroscedasticGaussian(LikelihoodLaws):
    likelihood = po.likelihoods.HeteroscedasticGaussian(floor=0.1)

    def reference(self, outputs):
        return stats.norm(outputs[:, :1], np.log1p(np.exp(outputs[:, 1:])) + 0.1)


class TestStudentT(LikelihoodLaws):
    likelihood = po.likelihoods.StudentT(shape=2.0, rate=0.5)
    own = OWN

    def reference(self, outputs):
        return stats.t(4.0, outputs, STD)


class TestStudentTOfGivenScale(LikelihoodLaws):
    likelihood = po.likelihoods.StudentT(df=2.5, scale=0.3)

    def reference(self, outputs):
        return stats.t(2.5, outputs, 0.3)


class TestStudentTWithoutVariance(LikelihoodLaws):
    likelihood = po.likelihoods.StudentT(df=1.5, scale=0.3)


class TestBernoulli(LikelihoodLaws):
    likelihood = po.likelihoods.Bernoulli()

    def reference(self, outputs):
        return stats.bernoulli(special.expit(outputs[:, 0]))


class TestCategorical(LikelihoodLaws):
    likelihood = po.likelihoods.Categorical()
    num_outputs = 4


class TestPoisson(LikelihoodLaws):
    likelihood = po.likelihoods.Poisson()
    largest_output = 80.0  # beyond 88 the rate itself is infinite in float32

    def reference(self, outputs):
        return stats.poisson(np.exp(outputs))


@pytest.mark.parametrize("name", MEMBERS)
def test_every_likelihood_has_a_law_class(name):
    held = {type(laws.likelihood) for laws in LikelihoodLaws.__subclasses__()}
    assert MEMBERS[name] in held, f"{name} has no law class in tests/laws/test_likelihoods.py"
