"""Held against arviz-stats, the definition written as loops, and processes whose effective sample size is known."""

import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.signal import lfilter
from scipy.stats import norm, rankdata

from posteria import diagnostics
from posteria.diagnostics import autocorrelation, ess_bulk, ess_mean, ess_tail, mcse_mean, mcse_std, rhat
from posteria.errors import DataError, SettingError

STATISTICS = [rhat, ess_bulk, ess_tail, ess_mean, mcse_mean, mcse_std]


def ar1(phi, shape, seed=0):
    """Stationary chains (chain, draw, ...) with unit variance and autocorrelation phi^lag."""
    noise = np.random.default_rng(seed).normal(size=shape) * np.sqrt(1 - phi**2)
    noise[:, 0] /= np.sqrt(1 - phi**2)
    return lfilter([1.0], [1.0, -phi], noise, axis=1)


def with_rejections(x):
    """Repeats each draw a few times, as rejected proposals do."""
    return np.repeat(x, 3, axis=1)[:, : x.shape[1]]


def separated(x):
    x = x.copy()
    x[0] += 5
    return x


CHAINS = {
    "iid": ar1(0.0, (4, 500, 3)),
    "slow": ar1(0.95, (4, 500, 3)),
    "antithetic": ar1(-0.6, (4, 500, 3)),
    "heavy": np.random.default_rng(1).standard_cauchy((4, 500, 3)),
    "odd": ar1(0.5, (4, 501, 3)),
    "five draws": ar1(0.0, (3, 5, 3)),
    "seven draws": ar1(0.0, (2, 7, 3)),
    "eleven draws": ar1(0.3, (2, 11, 3)),
    "four draws": ar1(0.0, (4, 4, 3)),
    "one chain": ar1(0.5, (1, 300, 3)),
    "two chains": ar1(0.5, (2, 101, 3)),
    "separated": separated(ar1(0.0, (4, 200, 3))),
    "rejections": with_rejections(ar1(0.5, (4, 300, 3))),
    "counts": np.random.default_rng(2).poisson(3.0, (4, 200, 3)),
    "far from zero": 1e4 + ar1(0.5, (4, 200, 3)),
    "float32": ar1(0.5, (4, 200, 3)).astype(np.float32),
}


def arviz(x, statistic, **options):
    return getattr(array_stats, statistic)(np.asarray(x, np.float64), chain_axis=0, draw_axis=1, **options)


@pytest.mark.parametrize("name", CHAINS)
def test_agrees_with_arviz(name):
    x = CHAINS[name]
    expected = {
        ess_bulk: arviz(x, "ess", method="bulk"),
        ess_tail: arviz(x, "ess", method="tail", prob=(0.05, 0.95)),
        ess_mean: arviz(x, "ess", method="mean"),
        mcse_mean: arviz(x, "mcse", method="mean"),
    }
    if len(x) > 1:  # arviz has no R-hat of one chain
        expected[rhat] = arviz(x, "rhat")
    for statistic, value in expected.items():
        assert np.isfinite(value).all()
        np.testing.assert_allclose(statistic(x), value, rtol=1e-9, err_msg=statistic.__name__)


def rhat_by_definition(x):
    half = x.shape[1] // 2
    halves = np.concatenate([x[:, :half], x[:, -half:]])

    def from_ranks(values):
        ranks = rankdata(values).reshape(values.shape)
        z = norm.ppf((ranks - 3 / 8) / (values.size + 1 / 4))
        within = np.mean([np.var(chain, ddof=1) for chain in z])
        between = np.var([np.mean(chain) for chain in z], ddof=1)
        return np.sqrt((half - 1) / half + between / within)

    return max(from_ranks(halves), from_ranks(np.abs(halves - np.median(halves))))


@pytest.mark.parametrize("name", ["one chain", "rejections", "counts", "odd"])
def test_rhat_agrees_with_its_definition(name):
    x = CHAINS[name]
    np.testing.assert_allclose(rhat(x), [rhat_by_definition(x[..., i]) for i in range(3)], rtol=1e-12)


@pytest.mark.parametrize("phi", [-0.5, 0.0, 0.5, 0.9])
def test_ess_of_an_autoregression_is_known(phi):
    """N / tau with tau = (1 + phi) / (1 - phi), over 100 independent columns."""
    x = ar1(phi, (4, 1000, 100), seed=3)
    for statistic in (ess_bulk, ess_mean):
        tau = 4000 / statistic(x)
        # the sum stops where a pair of correlations is lost in its noise, 1 / sqrt(N) each
        truncation = 2 / np.sqrt(4000)
        assert abs(tau.mean() - (1 + phi) / (1 - phi)) < 4 * tau.std() / np.sqrt(100) + truncation


@pytest.mark.parametrize("phi", [-0.5, 0.0, 0.7])
def test_mcse_is_the_spread_of_the_estimate_over_repetitions(phi):
    """Also of the standard deviation of antithetic chains, whose mean is known far better than their spread."""
    repetitions = 400
    x = ar1(phi, (4, 500, repetitions), seed=4)
    for mcse, estimate in ((mcse_mean, x.mean((0, 1))), (mcse_std, x.std((0, 1), ddof=1))):
        ratio = np.sqrt((mcse(x) ** 2).mean()) / estimate.std(ddof=1)
        assert abs(ratio - 1) < 4 / np.sqrt(2 * repetitions)  # standard error of a standard deviation


def test_mcse_std_uses_the_ess_of_squares():
    x = CHAINS["slow"]
    squares = (x - x.mean((0, 1))) ** 2
    expected = np.sqrt(squares.var((0, 1)) / arviz(x, "ess", method="sd")) / (2 * x.std((0, 1)))
    np.testing.assert_allclose(mcse_std(x), expected, rtol=1e-9)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_a_constant_has_no_answer(statistic):
    """A peer calls it perfect: its ESS is the number of draws."""
    assert arviz(np.full((4, 100), 0.1), "ess", method="bulk") == 400
    x = np.stack([np.full((4, 100), 0.1), ar1(0.0, (4, 100))], axis=-1)
    assert np.isnan(statistic(x)[0])
    assert np.isfinite(statistic(x)[1])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("statistic", STATISTICS)
def test_a_draw_that_is_not_finite_spoils_its_column_only(statistic, bad):
    x = ar1(0.0, (4, 100, 3))
    expected = statistic(x)
    x[1, 7, 1] = bad
    np.testing.assert_array_equal(statistic(x), [expected[0], np.nan, expected[2]])


@pytest.mark.parametrize("num_draws", [0, 1, 3])
@pytest.mark.parametrize("statistic", STATISTICS)
def test_too_few_draws_have_no_answer(statistic, num_draws):
    result = statistic(np.zeros((4, num_draws, 2)) + np.arange(num_draws)[:, None])
    assert result.shape == (2,) and np.isnan(result).all()


@pytest.mark.parametrize("statistic", [ess_bulk, ess_tail, ess_mean, mcse_mean, mcse_std])
def test_one_stuck_chain_never_looks_good(statistic):
    """Wherever it stuck: near the centre, the published R-hat is good and the ESS stays near the number of draws."""
    x = ar1(0.0, (8, 500, 41))
    x[0] = np.linspace(-2, 2, 41)
    published = np.array([rhat_by_definition(x[..., i]) for i in range(41)])
    assert published.min() < 1.05 and arviz(x, "ess", method="bulk").max() > 3500
    assert (rhat(x) == np.inf).all()
    assert np.isnan(statistic(x)).all()


def test_a_chain_stuck_for_half_of_its_draws_shows():
    x = ar1(0.0, (4, 500, 41))
    x[0, 250:] = np.linspace(-2, 2, 41)
    assert (rhat(x) > 1.005).all() and np.isfinite(rhat(x)).all()


def test_chains_each_stuck_at_its_own_value_never_look_good():
    x = np.broadcast_to(np.arange(4.0)[:, None], (4, 100))
    assert rhat(x) == np.inf and np.isnan(ess_bulk(x))


def test_two_equally_frequent_values_have_an_rhat_and_a_tail():
    """Folding leaves a single value and the upper tail is empty: these say nothing, the rest does."""
    x = np.random.default_rng(5).permuted(np.tile([0.0, 1.0], 200)).reshape(4, 100)
    assert 0.99 < rhat(x) < 1.05
    np.testing.assert_allclose(ess_tail(x), arviz(x, "ess", method="quantile", prob=0.05), rtol=1e-9)


def test_rank_statistics_do_not_see_monotone_maps():
    """Signs and powers of two change no rounding; a cube keeps the ranks, hence the bulk, but not the folded ones."""
    x = CHAINS["slow"]
    np.testing.assert_array_equal(ess_bulk(x**3), ess_bulk(x))
    for statistic in (rhat, ess_bulk, ess_tail, ess_mean):
        np.testing.assert_array_equal(statistic(x * 2.0**-60), statistic(x))
        np.testing.assert_allclose(statistic(-x), statistic(x), rtol=1e-9)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_each_column_is_judged_alone_whatever_the_block(statistic, monkeypatch):
    x = np.round(ar1(0.5, (3, 41, 2, 5)), 1)
    whole = statistic(x)
    assert isinstance(whole, np.ndarray) and whole.shape == (2, 5)
    monkeypatch.setattr(diagnostics.chains, "BLOCK_VALUES", 3 * 41 * 3)
    np.testing.assert_allclose(statistic(x), whole, rtol=1e-12)
    np.testing.assert_allclose([[statistic(x[..., i, j]) for j in range(5)] for i in range(2)], whole, rtol=1e-12)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_shapes_and_kinds_of_arrays(statistic):
    x = ar1(0.0, (2, 50)).astype(np.float32)
    before = x.copy()
    value = statistic(x)
    np.testing.assert_array_equal(x, before)  # the input is left alone
    assert value.shape == ()
    assert statistic(jnp.asarray(x)) == value and isinstance(statistic(jnp.asarray(x)), np.ndarray)
    assert statistic(np.zeros((2, 50, 0))).shape == (0,)
    assert np.isfinite(statistic(jnp.asarray(x, jnp.bfloat16)))
    for shape in ((50,), (0, 50), ()):
        with pytest.raises(DataError, match="chain, draw"):
            statistic(np.ones(shape))


def test_memory_stays_bounded():
    import tracemalloc

    x = np.random.default_rng(6).normal(size=(4, 100, 5000)).astype(np.float32)  # 8 MB
    tracemalloc.start()
    rhat(x), ess_tail(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6


def test_autocorrelation_agrees_with_its_definition():
    x = ar1(0.5, (2, 40, 3))
    centred = x - x.mean(1, keepdims=True)
    expected = [(centred[:, : 40 - lag] * centred[:, lag:]).sum(1) / (centred**2).sum(1) for lag in range(11)]
    result = autocorrelation(x, 10)
    assert result.shape == (2, 11, 3)
    np.testing.assert_allclose(result, np.moveaxis(expected, 0, 1), atol=1e-13)
    np.testing.assert_array_equal(result[:, 0], 1)


def test_autocorrelation_of_a_stuck_chain_is_nan_for_that_chain():
    x = ar1(0.0, (3, 40))
    x[1] = 0.1
    result = autocorrelation(x, 39)
    assert np.isnan(result[1]).all() and np.isfinite(result[[0, 2]]).all()
    with pytest.raises(SettingError, match="max_lag"):
        autocorrelation(x, 40)
