"""Every likelihood is held to the laws of likelihoods, and SciPy's distributions to check them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import posteria as po
from posteria.models.error_size import ErrorSize
from posteria.models.likelihoods import MEMBERS
from posteria.settings import infer
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


def log_scale(raw, slope, level):
    return level + 4 * np.tanh(slope * raw / 4)


class TestVaryingNoise(LikelihoodLaws):
    likelihood = po.likelihoods.VaryingNoise(slope=0.5)
    own = {"level": jnp.float32(-0.7), "tails": jnp.float32(0.3)}  # noqa: RUF012

    def test_what_it_infers_has_the_prior_that_it_is_drawn_from(self):
        drawn = jax.vmap(self.likelihood.sample_own)(jax.random.split(jax.random.key(0), 4000))
        wanted = sum(stats.norm(drawn[name].mean(), drawn[name].std()).logpdf(self.own[name]) for name in self.own)
        np.testing.assert_allclose(self.likelihood.log_prior(self.own), wanted, atol=0.1)  # 4 errors of such moments


class TestVaryingNoiseOfNormals(LikelihoodLaws):
    likelihood = po.likelihoods.VaryingNoise(slope=1.5, level=0.2, tails=0.0)

    def reference(self, outputs):
        return stats.norm(outputs[:, :1], np.exp(log_scale(outputs[:, 1:], 1.5, 0.2)))

    def test_no_output_is_given_a_certainty_beyond_all_others(self):
        far = jnp.asarray([[0.0, -1e6], [0.0, 1e6]])
        _, variances = self.likelihood.moments({}, far)
        np.testing.assert_allclose(0.5 * np.log(variances[:, 0]), [0.2 - 4, 0.2 + 4], rtol=1e-5)


class TestVaryingNoiseOfStudentsT(LikelihoodLaws):
    likelihood = po.likelihoods.VaryingNoise(level=infer, tails=1 - 1e-7, floor=0.5)
    own = {"level": jnp.float32(-0.7)}  # noqa: RUF012

    def reference(self, outputs):
        scale = np.exp(log_scale(outputs[:, 1:], 0.25, -0.7))
        return stats.t(4.0, outputs[:, :1], np.sqrt(scale**2 + 0.5**2))


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


class TestErrorSize(LikelihoodLaws):
    likelihood = ErrorSize()
    largest_output = 40.0  # beyond which exp(2 outputs) leaves float32

    def reference(self, outputs):
        return stats.t(5.0, 0.0, np.exp(outputs))


class TestAsymmetricLaplace(LikelihoodLaws):
    likelihood = po.likelihoods.AsymmetricLaplace(level=0.2, scale=0.5)

    def kinks(self, outputs):
        return outputs[:, 0]

    def reference(self, outputs):
        kappa = 0.5  # its square is level / (1 - level)
        return stats.laplace_asymmetric(kappa, outputs, kappa * 0.5 / 0.2)

    def test_the_outputs_are_the_quantile(self):
        outputs = jnp.asarray([[-1.0], [0.0], [3.0]])
        np.testing.assert_allclose(self.likelihood.cdf({}, outputs, outputs), 0.2, rtol=1e-6)


class TestLaplace(LikelihoodLaws):
    likelihood = po.likelihoods.AsymmetricLaplace(shape=3.0, rate=2.0)
    own = {"log_inverse_scale": jnp.float32(0.7)}  # noqa: RUF012
    kinks = TestAsymmetricLaplace.kinks

    def reference(self, outputs):
        return stats.laplace(outputs, 2 * np.exp(-0.7))

    def test_the_inferred_scale_has_its_closed_form_posterior(self):
        rng = np.random.default_rng(0)
        y, outputs = rng.normal(size=(2, 40, 1)).astype(np.float32)
        grid = np.linspace(-2, 3, 5001)

        def log_joint(value):
            own = {"log_inverse_scale": value}
            return self.likelihood.log_prior(own) + self.likelihood.log_prob(own, outputs, y).sum()

        log_density = np.asarray(jax.vmap(log_joint)(jnp.asarray(grid, jnp.float32)), np.float64)
        density = np.exp(log_density - log_density.max())
        exact = stats.gamma(3.0 + 40, scale=1 / (2.0 + 0.5 * np.abs(y - outputs).sum()))
        mean = np.sum(density * np.exp(grid)) / density.sum()
        np.testing.assert_allclose(mean, exact.mean(), rtol=1e-4)


class TestBernoulli(LikelihoodLaws):
    likelihood = po.likelihoods.Bernoulli()

    def reference(self, outputs):
        return stats.bernoulli(special.expit(outputs[:, 0]))


class TestCategorical(LikelihoodLaws):
    likelihood = po.likelihoods.Categorical()
    num_outputs = 4


class TestLabelSmoothing(LikelihoodLaws):
    likelihood = po.likelihoods.LabelSmoothing(0.2)
    num_outputs = 4

    def reference(self, outputs):
        return stats.rv_discrete(values=(np.arange(4), 0.8 * special.softmax(outputs[1]) + 0.05))

    def test_it_is_its_reference(self):
        outputs = np.asarray(self._outputs, np.float64)[[1, 1, 1, 1]]
        got = self.likelihood.log_prob({}, jnp.asarray(outputs, jnp.float32), jnp.arange(4))
        np.testing.assert_allclose(got, self.reference(np.asarray(self._outputs)).logpmf(np.arange(4)), rtol=1e-5)


class TestNoisyDirichlet(LikelihoodLaws):
    likelihood = po.likelihoods.NoisyDirichlet(0.05)
    num_outputs = 4
    hessian = "observed"


class TestPoisson(LikelihoodLaws):
    likelihood = po.likelihoods.Poisson()
    largest_output = 80.0  # beyond 88 the rate itself is infinite in float32

    def reference(self, outputs):
        return stats.poisson(np.exp(outputs))


class TestNegativeBinomial(LikelihoodLaws):
    likelihood = po.likelihoods.NegativeBinomial(shape=2.0, rate=0.5)
    own = {"log_concentration": jnp.float32(0.7)}  # noqa: RUF012
    largest_output = 40.0  # beyond 44 the variance is infinite in float32

    def reference(self, outputs):
        size = np.exp(0.7)
        return stats.nbinom(size, size / (size + np.exp(outputs)))


class TestNegativeBinomialNearPoisson(LikelihoodLaws):
    likelihood = po.likelihoods.NegativeBinomial(concentration=1e4)
    largest_output = 40.0

    def reference(self, outputs):
        return stats.nbinom(1e4, 1e4 / (1e4 + np.exp(outputs)))

    @pytest.mark.parametrize("size", [0.3, 3.0, 30.0, 3000.0])
    @pytest.mark.parametrize("mean", [0.1, 3.0, 50.0, 1000.0])
    def test_densities_keep_their_digits(self, size, mean):
        y = np.array([0.0, 1.0, 7.0, 30.0, 300.0, 3000.0])[:, None]
        got = type(self.likelihood)(concentration=size).log_prob({}, jnp.full(y.shape, np.log(mean)), jnp.asarray(y))
        wanted = stats.nbinom(size, size / (size + mean)).logpmf(y[:, 0])
        np.testing.assert_allclose(got, wanted, rtol=3e-6, atol=3e-5)


@pytest.mark.parametrize("name", MEMBERS)
def test_every_likelihood_has_a_law_class(name):
    held = {type(laws.likelihood) for laws in LikelihoodLaws.__subclasses__()}
    assert MEMBERS[name] in held, f"{name} has no law class in tests/laws/test_likelihoods.py"
