"""Every prior is held to the laws of priors, and SciPy's distributions to check them."""

import math
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import posteria as po
from posteria.models.priors import Leaf
from posteria.testing import PriorLaws


class TestNormal(PriorLaws):
    prior = po.priors.Normal(std=0.3)

    def reference(self, leaf):
        return stats.norm(scale=0.3)


class TestFanIn(PriorLaws):
    prior = po.priors.FanIn(scale=2.0, bias_std=0.7)

    def reference(self, leaf):
        return stats.norm(scale=0.7 if leaf.fan_in is None else 2.0 / math.sqrt(leaf.fan_in))


class TestLaplace(PriorLaws):
    prior = po.priors.Laplace(scale=0.3)

    def reference(self, leaf):
        return stats.laplace(scale=0.3)


class TestStudentT(PriorLaws):
    prior = po.priors.StudentT(df=3.0, scale=0.3)

    def reference(self, leaf):
        return stats.t(3.0, scale=0.3)


class TestCauchy(PriorLaws):
    prior = po.priors.StudentT(df=1.0, scale=0.3)

    def reference(self, leaf):
        return stats.cauchy(scale=0.3)

    def test_without_a_standard_deviation_the_unit_is_the_scale(self):
        assert self.prior.unit(self.leaves[0]) == 0.3


class TestLogistic(PriorLaws):
    prior = po.priors.Logistic(scale=0.3)

    def reference(self, leaf):
        return stats.logistic(scale=0.3)


class TwoNormals:
    """SciPy's, mixed."""

    def logpdf(self, value):
        return np.logaddexp(
            math.log(0.3) + stats.norm(scale=0.8).logpdf(value), math.log(0.7) + stats.norm(scale=0.05).logpdf(value)
        )


class TestScaleMixture(PriorLaws):
    prior = po.priors.ScaleMixture(std_wide=0.8, std_narrow=0.05, weight=0.3)

    def reference(self, leaf):
        return TwoNormals()


class TestHorseshoeLike(PriorLaws):
    prior = po.priors.HorseshoeLike(scale=0.3)

    def test_its_density_far_from_the_pole_is_the_papers(self):
        value = np.array([1e-20, 1e-3, -0.1, 0.5, -2.0, 1e4])
        got = [float(self.prior.log_prob(jnp.asarray([entry], jnp.float32), self.leaves[0])) for entry in value]
        np.testing.assert_allclose(got, np.log(np.log1p((0.3 / value) ** 2) / (2 * np.pi * 0.3)), rtol=1e-5)

    def test_without_a_standard_deviation_the_unit_is_the_scale(self):
        assert self.prior.unit(self.leaves[0]) == 0.3


class TestLogUniform(PriorLaws):
    prior = po.priors.LogUniform()


class TestByPath(PriorLaws):
    prior = po.priors.ByPath({"*/kernel": po.priors.Laplace(0.3)}, default=po.priors.Normal(2.0))

    def reference(self, leaf):
        return stats.laplace(scale=0.3) if leaf.path.endswith("kernel") else stats.norm(scale=2.0)


FITTED = SimpleNamespace(  # what is asked of a Gaussian posterior of one bias and one weight
    kind="gaussian",
    mean=np.array([0.3, -1.0]),
    spread=SimpleNamespace(kind="diagonal", variances=np.array([0.04, 0.25])),
    target=SimpleNamespace(
        scales=(), structs={"network": {"bias": jnp.zeros(1), "kernel": jnp.zeros((1, 1))}, "likelihood": {}}
    ),
)


class TestInputScales(PriorLaws):
    """Relative to the inputs' scales, weights have the inner prior; tests/models has the scales' own laws."""

    prior = po.priors.InputScales(po.priors.Normal(0.7))
    leaves = tuple(leaf._replace(input_axis=0 if leaf.fan_in else None) for leaf in PriorLaws.leaves)

    def reference(self, leaf):
        return stats.norm(scale=0.7)


class TestFromPosterior(PriorLaws):
    prior = po.priors.FromPosterior(FITTED)
    leaves = (Leaf("kernel", (1, 1), jnp.dtype("float32"), 1), Leaf("bias", (1,), jnp.dtype("float32"), None))

    def reference(self, leaf):
        return stats.norm(-1.0, 0.5) if leaf.path == "kernel" else stats.norm(0.3, 0.2)


# These laws ask for entries of a leaf one by one; a prior that correlates them is held to SciPy's density elsewhere.
ELSEWHERE = {po.priors.EmpiricalCovariance: "tests/models/test_empirical_covariance.py"}

PRIORS = [item for item in vars(po.priors).values() if isinstance(item, type) and hasattr(item, "log_prob")]


@pytest.mark.parametrize("prior", [each for each in PRIORS if each not in (po.priors.Prior, *ELSEWHERE)])
def test_every_prior_has_a_law_class(prior):
    held = {type(laws.prior) for laws in PriorLaws.__subclasses__()}
    assert prior in held, f"{prior.__name__} has no law class in tests/laws/test_priors.py"
