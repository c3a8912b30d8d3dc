"""Beside the laws of likelihoods (tests/laws): closed forms, float32 at its edges, and y on its way in."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import integrate, special, stats

from posteria.errors import DataError, NetworkError, SettingError, StoreError
from posteria.models import likelihoods as lik
from posteria.settings import infer

EPS = float(np.finfo(np.float32).eps)


def outputs_of(num_outputs, batch=5):
    return jax.random.normal(jax.random.key(1), (batch, num_outputs))


def test_categorical_is_log_softmax_at_the_label():
    outputs = outputs_of(4)
    probs = special.softmax(np.asarray(outputs, np.float64), axis=1)
    y = jnp.array([0, 3, 1, 2, 0])
    likelihood = lik.Categorical()
    np.testing.assert_allclose(likelihood.log_prob({}, outputs, y), np.log(probs[np.arange(5), y]), rtol=20 * EPS)
    np.testing.assert_allclose(likelihood.probs({}, outputs), probs, rtol=20 * EPS)
    np.testing.assert_allclose(likelihood.moments({}, outputs)[0], probs, rtol=20 * EPS)
    np.testing.assert_allclose(likelihood.moments({}, outputs)[1], probs * (1 - probs), rtol=20 * EPS)


def test_bernoulli_is_the_categorical_of_two_classes():
    logit = outputs_of(1)
    both = jnp.concatenate([jnp.zeros_like(logit), logit], axis=1)
    np.testing.assert_allclose(lik.Bernoulli().probs({}, logit), lik.Categorical().probs({}, both), rtol=20 * EPS)
    y = jnp.array([0, 1, 1, 0, 1])
    np.testing.assert_allclose(
        lik.Bernoulli().log_prob({}, logit, y), lik.Categorical().log_prob({}, both, y), rtol=20 * EPS
    )


# ---- inferred noise


@pytest.mark.parametrize("likelihood", [lik.Gaussian(shape=2.0, rate=0.5), lik.StudentT(shape=2.0, rate=0.5)])
def test_prior_of_the_log_precision_is_normalised_and_gamma(likelihood):
    grid = np.linspace(-20, 8, 20_001)
    log_density = jax.vmap(lambda l: likelihood.log_prior({"log_precision": l}))(jnp.asarray(grid, jnp.float32))
    assert np.trapezoid(np.exp(np.asarray(log_density, np.float64)), grid) == pytest.approx(1, abs=1e-5)
    truth = stats.gamma(2.0, scale=1 / 0.5).logpdf(np.exp(grid)) + grid  # Jacobian of exp
    np.testing.assert_allclose(log_density, truth, rtol=20 * EPS, atol=20 * EPS)


def test_inferred_noise_has_its_closed_form_posterior():
    likelihood = lik.Gaussian()
    rng = np.random.default_rng(0)
    y, outputs = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    grid = np.linspace(-4, 3, 7001)

    def log_joint(log_precision):
        own = {"log_precision": log_precision}
        return likelihood.log_prior(own) + likelihood.log_prob(own, jnp.asarray(outputs), jnp.asarray(y)).sum()

    log_density = np.asarray(jax.vmap(log_joint)(jnp.asarray(grid, jnp.float32)), np.float64)
    density = np.exp(log_density - log_density.max())
    density /= np.trapezoid(density, grid)
    cdf = integrate.cumulative_trapezoid(density, grid, initial=0)
    posterior = stats.gamma(1.0 + 80 / 2, scale=1 / (0.01 + 0.5 * ((y - outputs) ** 2).sum()))
    # float32 keeps a log density of about 200 to 2e-5
    assert np.abs(cdf - posterior.cdf(np.exp(grid))).max() < 1e-4
    assert np.trapezoid(density * np.exp(grid), grid) == pytest.approx(posterior.mean(), rel=1e-4)
    assert likelihood.noise_std({"log_precision": jnp.log(4.0)}) == pytest.approx(0.5)


# ---- float32 at its edges


@pytest.mark.parametrize("df", [0.5, 1.0, 4.0, 30.0, 149.0, 151.0, 1e4, 1e8])
def test_student_t_cdf_in_float32(df):
    t = np.concatenate([-np.geomspace(1e-6, 1e6, 60)[::-1], [0], np.geomspace(1e-6, 1e6, 60)]).astype(np.float32)
    got = jax.jit(lik.StudentT(df=df, scale=1.0).cdf)({}, np.zeros((121, 1), np.float32), t[:, None])[:, 0]
    np.testing.assert_allclose(got, stats.t(df).cdf(t.astype(np.float64)), atol=2e-5)


def test_poisson_cdf_in_float32():
    log_rate = np.log([1e-3, 1.0, 20.0, 148.0, 152.0, 1e4, 1e6]).astype(np.float32)
    rate = np.exp(log_rate.astype(np.float64))
    counts = np.maximum(0, np.floor(rate + np.sqrt(rate) * np.linspace(-8, 8, 41)[:, None]))
    y = np.concatenate([-np.ones((1, 7)), counts, counts + 0.5]).astype(np.float32)  # also off the support
    got = jax.jit(lik.Poisson().cdf)({}, np.broadcast_to(log_rate, y.shape), y)
    # 5e-5 for series and expansion; the rounding of exp(log_rate), a few eps, moves the cdf by sqrt(rate) times that
    assert (np.abs(got - stats.poisson(rate).cdf(y)) < 5e-5 + 4 * EPS * np.sqrt(rate)).all()


def test_poisson_density_of_large_counts_keeps_its_digits():
    count = np.array([0, 1, 9, 10, 1e3, 1e6])[:, None, None]
    root = np.sqrt(np.maximum(count, 1))
    log_rate = (2 * np.log(root) + np.array([-2, -1, 0, 1, 2])[:, None] / root).astype(np.float32)
    got = jax.jit(lik.Poisson().log_prob)({}, log_rate, np.broadcast_to(count, log_rate.shape).astype(np.float32))
    truth = stats.poisson(np.exp(log_rate.astype(np.float64))).logpmf(count)[..., 0]
    # an error of eps * log_rate in the excess, times the slope count * (exp(excess) - 1) = 2 sqrt(count) at most
    slack = (EPS * np.log(count + 2) * 3 * np.sqrt(count))[..., 0]
    np.testing.assert_array_less(np.abs(got - truth), 20 * EPS * (1 + np.abs(truth)) + slack)


def test_student_t_without_moments_says_so():
    outputs = jnp.ones((1, 1))
    mean, variance = lik.StudentT(df=1.5, scale=1.0).moments({}, outputs)
    assert mean == 1 and np.isinf(variance)
    assert np.isnan(lik.StudentT(df=1.0, scale=1.0).moments({}, outputs)).all()


# ---- y on its way in


def test_regression_targets_become_a_column_of_floats():
    for y in ([1, 2, 3], np.arange(3), pd.Series([1.0, 2, 3]), np.array([1, 2.5, 3], object), [True, False, True]):
        checked = lik.Gaussian().check(y, 1)
        assert checked.shape == (3, 1) and np.issubdtype(checked.dtype, np.floating)
        np.testing.assert_array_equal(checked[:, 0], np.asarray(y, float))
    assert lik.Gaussian().check(np.zeros((3, 2), np.float16), 2).dtype == np.float16
    assert lik.Gaussian().check(jnp.zeros((3, 2), jnp.bfloat16), 2).dtype == jnp.bfloat16
    assert lik.HeteroscedasticGaussian().check(pd.DataFrame({"a": [1.0], "b": [2.0]}), 4).shape == (1, 2)
    assert lik.Poisson().check([0, 3], 1).dtype == np.float32


def test_labels_become_int32():
    for y in ([0, 1, 1], [0.0, 1.0, 1.0], [False, True, True], np.array([0, 1, 1], object), np.uint8([[0], [1], [1]])):
        for likelihood, num_outputs in ((lik.Categorical(), 2), (lik.Bernoulli(), 1)):
            checked = likelihood.check(y, num_outputs)
            assert checked.dtype == np.int32
            np.testing.assert_array_equal(checked, [0, 1, 1])
    np.testing.assert_array_equal(lik.Categorical().check(pd.Series([2, 0], dtype="category"), 3), [2, 0])


BAD_Y = {
    "nan": (lik.Gaussian(), [0, np.nan, 1, np.inf], 1, r"rows 1, 3"),
    "many nan": (lik.StudentT(), np.full(9, np.nan), 1, r"rows 0, 1, 2, 3, 4 and 4 more"),
    "missing": (lik.Gaussian(), pd.Series([1, None, 2], dtype="Int64"), 1, r"row 1"),
    "none": (lik.Gaussian(), [1.0, None], 1, r"row 1"),
    "nan label": (lik.Categorical(), [0, np.nan], 2, r"row 1"),
    "empty": (lik.Gaussian(), [], 1, "empty"),
    "scalar": (lik.Gaussian(), 3.0, 1, "single value"),
    "three axes": (lik.Gaussian(), np.zeros((2, 3, 4)), 1, r"\(2, 3, 4\)"),
    "ragged": (lik.Gaussian(), [[1], [1, 2]], 1, "different lengths"),
    "strings": (lik.Gaussian(), ["1.5", "2"], 1, "strings"),
    "string labels": (lik.Categorical(), pd.Series(["cat", "dog"]), 2, "encode"),
    "string objects": (lik.Categorical(), np.array(["cat", 1], object), 2, "strings"),
    "dates": (lik.Gaussian(), np.array(["2020-01-01"], "datetime64[D]"), 1, "datetime64"),
    "complex": (lik.Gaussian(), [1j], 1, "complex"),
    "objects": (lik.Gaussian(), np.array([{}, {}]), 1, "dict"),
    "one hot": (lik.Categorical(), np.eye(3), 3, "argmax"),
    "fractions": (lik.Categorical(), [0, 0.5], 2, "whole numbers"),
    "too large": (lik.Categorical(), [0, 1, 3], 3, "from 0 to 2"),
    "negative": (lik.Categorical(), [-1, 1], 2, r"row 0"),
    "overflowing": (lik.Categorical(), [0, 2**40], 3, "from 0 to 2"),
    "one and two": (lik.Bernoulli(), [1, 2], 1, "0 .. 1"),
    "negative counts": (lik.Poisson(), [1, -2], 1, "negative"),
    "fractional counts": (lik.Poisson(), [1, 2.5], 1, "whole numbers"),
}


@pytest.mark.parametrize("likelihood, y, num_outputs, message", BAD_Y.values(), ids=BAD_Y.keys())
def test_bad_y_is_refused_with_a_way_out(likelihood, y, num_outputs, message):
    with pytest.raises(DataError, match=message) as caught:
        likelihood.check(y, num_outputs)
    assert caught.value.wanted and caught.value.fix


# ---- settings


@pytest.mark.parametrize("bad", [0, -1.0, np.nan, np.inf, True, "infer", None])
def test_settings_out_of_range_are_refused(bad):
    for make in (
        lambda: lik.Gaussian(noise=bad),
        lambda: lik.Gaussian(shape=bad),
        lambda: lik.Gaussian(rate=bad),
        lambda: lik.HeteroscedasticGaussian(floor=bad),
        lambda: lik.StudentT(df=bad),
        lambda: lik.StudentT(scale=bad),
    ):
        with pytest.raises(SettingError, match="positive"):
            make()


def test_json_of_inferred_noise_and_numpy_scalars():
    assert lik.to_json(lik.Gaussian())["settings"]["noise"] == "infer"
    assert lik.from_json(lik.to_json(lik.Gaussian())).noise is infer
    assert json.dumps(lik.to_json(lik.Gaussian(noise=np.float32(0.5))))
    assert repr(infer) == "infer"


@pytest.mark.parametrize("stored", [{}, {"name": "Cauchy", "settings": {}}, {"name": "Gaussian", "settings": {"a": 1}}])
def test_damaged_json_is_refused(stored):
    with pytest.raises(StoreError):
        lik.from_json(stored)


class Exponential:
    """A user's own: y ~ Exponential(mean exp(output))."""

    kind = "regression"

    def init(self, key):
        return {}

    def log_prior(self, own):
        return 0.0

    def check(self, y, num_outputs):
        return np.asarray(y)

    def log_prob(self, own, outputs, y):
        return (-outputs - y * jnp.exp(-outputs)).sum(-1)

    def sample(self, key, own, outputs):
        return jnp.exp(outputs) * jax.random.exponential(key, outputs.shape)

    def moments(self, own, outputs):
        return jnp.exp(outputs), jnp.exp(2 * outputs)


def test_a_class_of_the_users_own_meets_the_contract_and_is_not_written_down():
    assert isinstance(Exponential(), lik.Likelihood)
    assert lik.to_json(Exponential()) is None

    class Gaussian(lik.Gaussian):
        pass

    assert lik.to_json(Gaussian()) is None


def test_several_noises_are_those_of_targets_alone():
    several, one = (lik.Gaussian(shape=2.0, rate=0.5, num_noises=num) for num in (2, 1))
    own = {"log_precision": jnp.float32([1.0, -2.0])}
    alone = [{"log_precision": value} for value in own["log_precision"]]
    outputs, y = np.random.default_rng(0).normal(size=(2, 7, 2)).astype(np.float32)

    def joined(of_one, axis=-1):
        return np.concatenate([of_one(each, outputs[:, [i]], y[:, [i]]) for i, each in enumerate(alone)], axis)

    np.testing.assert_allclose(several.log_prior(own), sum(one.log_prior(each) for each in alone), rtol=1e-6)
    terms = joined(lambda own, outputs, y: one.log_prob(own, outputs, y)[:, None]).sum(1)
    np.testing.assert_allclose(several.log_prob(own, outputs, y), terms, rtol=1e-5)
    np.testing.assert_allclose(several.cdf(own, outputs, y), joined(one.cdf), rtol=1e-5)
    np.testing.assert_allclose(several.quantile(own, outputs, 0.2), joined(lambda o, f, y: one.quantile(o, f, 0.2)))
    np.testing.assert_allclose(several.moments(own, outputs)[1], joined(lambda o, f, y: one.moments(o, f)[1]))
    hessians = several.output_hessian(own, outputs)
    np.testing.assert_allclose(hessians[0], np.diag(np.exp(own["log_precision"])), rtol=1e-6)
    drawn = several.sample_own(jax.random.key(0))["log_precision"]
    assert drawn.shape == (2,) and drawn[0] != drawn[1]
    with pytest.raises(NetworkError, match="num_noises"):
        several.check(np.zeros((4, 3)), 3)
    with pytest.raises(SettingError, match="num_noises"):
        lik.Gaussian(0.3, num_noises=2)
