"""A law that nothing fails is no law: each of these likelihoods and priors has one defect, and a law that finds it."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posteria.data import arrays
from posteria.models import densities
from posteria.models.likelihoods import Gaussian, Poisson
from posteria.models.priors import Laplace, Normal
from posteria.testing import LikelihoodLaws, PriorLaws


@dataclass(frozen=True)
class Unnormalised(Gaussian):
    def log_prob(self, own, outputs, y):
        return super().log_prob(own, outputs, y) + 0.01


@dataclass(frozen=True)
class WrongDraws(Gaussian):
    def sample(self, key, own, outputs):
        return outputs + 1.1 * self.noise_std(own) * jax.random.normal(key, outputs.shape)


@dataclass(frozen=True)
class SameDrawForAll(Gaussian):
    def sample(self, key, own, outputs):
        return outputs[:, :1] * jnp.ones_like(outputs) + self.noise_std(own) * jax.random.normal(key, ())


@dataclass(frozen=True)
class WrongVariance(Gaussian):
    def moments(self, own, outputs):
        return outputs, self.noise_std(own) * jnp.ones_like(outputs)


@dataclass(frozen=True)
class ShiftedCdf(Poisson):
    def cdf(self, own, outputs, y):
        return super().cdf(own, outputs, y - 1)


@dataclass(frozen=True)
class HalfTheHessian(Poisson):
    def output_hessian(self, own, outputs, y=None):
        return 0.5 * super().output_hessian(own, outputs, y)


@dataclass(frozen=True)
class UntemperedUpdate(Gaussian):
    def moment_update(self, precision, mean, variance, y, power=1.0):
        return super().moment_update(precision, mean, variance, y)


@dataclass(frozen=True)
class PriorWithoutJacobian(Gaussian):
    def log_prior(self, own):
        return super().log_prior(own) - own["log_precision"]


@dataclass(frozen=True)
class ForgivingCheck(Gaussian):
    def check(self, y, num_outputs):
        return np.nan_to_num(np.asarray(y, np.float32).reshape(-1, 1))


@dataclass(frozen=True)
class Overflowing(Gaussian):
    def log_prob(self, own, outputs, y):
        return super().log_prob(own, outputs, y) + 0.0 * jnp.exp(outputs).sum(-1)


@dataclass(frozen=True)
class Broadcasting(Gaussian):
    def log_prob(self, own, outputs, y):
        return super().log_prob(own, outputs, jnp.reshape(y, outputs.shape))


@dataclass(frozen=True)
class InTheWholeBatch(Gaussian):
    def log_prob(self, own, outputs, y):
        return super().log_prob(own, outputs, y) + 0.01 * outputs.mean()


BROKEN_LIKELIHOODS = [
    (Unnormalised(0.3), "test_the_density_is_normalised"),
    (WrongDraws(0.3), "test_draws_follow_the_density"),
    (SameDrawForAll(0.3), "test_several_targets_are_summed"),
    (WrongVariance(0.3), "test_the_moments_are_those_of_the_density"),
    (ShiftedCdf(), "test_the_distribution_function_or_the_class_probabilities_are_those_of_the_density"),
    (HalfTheHessian(), "test_the_output_hessian_is_that_of_the_density"),
    (UntemperedUpdate(0.3), "test_the_moment_update_is_the_integral_over_gaussian_outputs"),
    (PriorWithoutJacobian(), "test_the_prior_of_its_own_parameter_is_normalised_and_drawn_from"),
    (ForgivingCheck(0.3), "test_bad_y_is_refused_by_name"),
    (Overflowing(0.3), "test_extreme_outputs_have_finite_densities_and_gradients"),
    (Broadcasting(0.3), "test_nothing_broadcasts_silently"),
    (InTheWholeBatch(0.3), "test_a_row_knows_of_no_other_and_vmap_over_draws_is_a_loop"),
]


@pytest.mark.parametrize("broken, law", BROKEN_LIKELIHOODS, ids=lambda part: type(part).__name__)
def test_a_likelihood_with_a_defect_breaks_its_law(broken, law):
    laws = type("Laws", (LikelihoodLaws,), {"likelihood": broken})
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(laws(), law)()


@dataclass(frozen=True)
class UnnormalisedPrior(Normal):
    def log_prob(self, value, leaf):
        return super().log_prob(value, leaf) + 0.01 * value.size


@dataclass(frozen=True)
class WrongPriorDraws(Normal):
    def sample(self, key, leaf):
        return 1.1 * super().sample(key, leaf)


@dataclass(frozen=True)
class OneDrawForAllEntries(Normal):
    def sample(self, key, leaf):
        return jnp.broadcast_to(super().sample(key, leaf._replace(shape=())), leaf.shape)


@dataclass(frozen=True)
class WrongUnit(Laplace):
    def unit(self, leaf):
        return self.scale


@dataclass(frozen=True)
class NotNormal(Laplace):
    def normal(self, leaf):
        return 0.0, self.unit(leaf)


@dataclass(frozen=True)
class PushedAside(Laplace):
    def log_prob(self, value, leaf):
        return (-jnp.abs(value) / self.scale - np.log(2 * self.scale)).sum()


@dataclass(frozen=True)
class MeanOfEntries(Normal):
    def log_prob(self, value, leaf):
        return super().log_prob(value, leaf) / value.size


BROKEN_PRIORS = [
    (UnnormalisedPrior(0.3), "test_the_density_is_normalised_or_owns_up_to_being_improper"),
    (WrongPriorDraws(0.3), "test_draws_follow_the_density"),
    (OneDrawForAllEntries(0.3), "test_draws_follow_the_density"),
    (WrongUnit(0.3), "test_the_unit_is_the_standard_deviation_where_there_is_one"),
    (NotNormal(0.3), "test_where_it_says_that_it_is_normal_it_is"),
    (PushedAside(0.3), "test_the_slope_at_the_middle_of_a_symmetric_density_is_zero"),
    (MeanOfEntries(0.3), "test_entries_are_summed"),
]


@pytest.mark.parametrize("broken, law", BROKEN_PRIORS, ids=lambda part: type(part).__name__)
def test_a_prior_with_a_defect_breaks_its_law(broken, law):
    laws = type("Laws", (PriorLaws,), {"prior": broken})
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(laws(), law)()


class Exponential:
    """y ~ Exponential(mean exp(output)), of somebody else's package: no inheritance, no cdf, no Hessian."""

    kind = "regression"

    def __eq__(self, other):
        return type(other) is Exponential

    def __hash__(self):
        return hash(Exponential)

    def init(self, key):
        return {}

    def log_prior(self, own):
        return 0.0

    def check(self, y, num_outputs):
        return arrays.real_targets(y, num_outputs)

    def log_prob(self, own, outputs, y):
        arrays.same_shape(y, outputs.shape)
        outputs, y = densities.widen(outputs), densities.widen(y)
        return (-outputs - y * jnp.exp(-outputs)).sum(-1)

    def sample(self, key, own, outputs):
        return jnp.exp(outputs) * jax.random.exponential(key, outputs.shape)

    def moments(self, own, outputs):
        return jnp.exp(outputs), jnp.exp(2 * outputs)


class TestALikelihoodOfSomebodyElse(LikelihoodLaws):
    likelihood = Exponential()
    support = (0.0, float("inf"))
    largest_output = 40.0


class Uniform:
    """On (-1, 1), of somebody else's package."""

    is_proper = True

    def log_prob(self, value, leaf):
        return jnp.where(jnp.abs(densities.widen(value)) < 1, -np.log(2), -jnp.inf).sum()

    def sample(self, key, leaf):
        return jax.random.uniform(key, leaf.shape, minval=-1, maxval=1).astype(leaf.dtype)

    def unit(self, leaf):
        return float(1 / np.sqrt(3))


class TestAPriorOfSomebodyElse(PriorLaws):
    prior = Uniform()
    support = (-1.0, 1.0)
