"""Predictions in own units: the change of variables, checked against the standardised prediction."""

import numpy as np
from scipy import integrate

import posteria as po
from posteria.data import Standardiser
from posteria.posteriors.units import in_units
from posteria.testing import targets


def test_every_statistic_follows_the_change_of_variables():
    known = targets.linear_regression()
    posterior = po.fit(known.model, known.data, po.MetropolisHastings(num_draws=50, num_warmup=10), progress=False)
    x, y = known.data[0][:7], known.data[1][:7]
    scale = Standardiser(np.asarray(50.0), np.asarray(4.0))
    plain = posterior.predict(x)
    own = in_units(plain, scale)
    np.testing.assert_allclose(own.mean, 50 + 4 * plain.mean, rtol=1e-6)
    np.testing.assert_allclose(own.std**2, own.aleatoric + own.epistemic, rtol=1e-5)
    lower, upper = own.interval(0.8)
    np.testing.assert_allclose(own.cdf(upper) - own.cdf(lower), 0.8, atol=1e-3)
    np.testing.assert_allclose(own.quantile(0.5), 50 + 4 * plain.quantile(0.5), rtol=1e-6)
    np.testing.assert_allclose(own.cdf(50 + 4 * y), plain.cdf(y), atol=1e-5)
    grid = np.linspace(own.mean[0, 0] - 12 * own.std[0, 0], own.mean[0, 0] + 12 * own.std[0, 0], 4001)
    one = in_units(posterior.predict(np.repeat(x[:1], len(grid), 0)), scale)
    np.testing.assert_allclose(integrate.trapezoid(np.exp(one.log_prob(grid)), grid), 1.0, atol=1e-3)
    samples = own.sample(0, 4000)[:, 0, 0]
    assert abs(samples.mean() - own.mean[0, 0]) < 5 * own.std[0, 0] / np.sqrt(50)


def test_nothing_changes_where_targets_were_not_standardised():
    known = targets.linear_regression()
    predictive = po.fit(known.model, known.data, po.MAP(num_epochs=2), progress=False).predict(known.data[0])
    assert in_units(predictive, None) is predictive
