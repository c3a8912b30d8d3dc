"""Prior networks end at the Dirichlet that their loss asks for, whatever the number of rows: that is the critique."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import posteria as po
from posteria.errors import SettingError
from posteria.posteriors import dirichlet
from posteria.testing import ProcedureLaws, linear_regression

RNG = np.random.default_rng(0)
# one logit a class, the same for all x: a table of labels
CONSTANT = po.Network(lambda key, x: {"logits": jnp.zeros(3)}, lambda p, x: jnp.zeros((len(x), 1)) + p["logits"])
WIDE = po.priors.Normal(1e3)


def labels(num, counts=(0.2, 0.3, 0.5)):
    return np.zeros((num, 1), np.float32), np.repeat(np.arange(3), (np.array(counts) * num).astype(int))


def concentrations(posterior):
    return np.exp(posterior.stored.params["network"]["logits"][0, 0])


class TestPriorNetwork(ProcedureLaws):
    method = po.PriorNetwork(num_epochs=100)
    takes = "classes"


@pytest.mark.parametrize("num", [20, 20_000])
def test_its_uncertainty_does_not_vanish_with_more_data(num):
    """The best concentrations are 1 + concentration * frequencies: of twenty rows as of twenty thousand."""
    method = po.PriorNetwork(concentration=10.0, num_epochs=1500, learning_rate=0.03)
    posterior = po.fit(po.Model(CONSTANT, po.likelihoods.Categorical(), WIDE), labels(num), method, progress=False)
    np.testing.assert_allclose(concentrations(posterior), [3.0, 4.0, 6.0], rtol=0.01)
    parts = posterior.predict(np.zeros((1, 1), np.float32)).uncertainty()
    assert parts["distributional"][0] > 0.05  # where a posterior's would be of the order of 1 / rows


def test_where_a_posteriors_does():
    model = po.Model(CONSTANT, po.likelihoods.Categorical(), po.priors.Normal(2.0))
    found = []
    for num in (20, 2000):
        posterior = po.fit(model, labels(num), po.Laplace(map=po.MAP(num_epochs=200)), progress=False)
        found.append(posterior.predict(np.zeros((1, 1), np.float32)).mutual_information[0])
    assert found[1] < 0.05 * found[0]


def test_the_forward_loss_ends_where_its_divergence_is_least():
    method = po.PriorNetwork(loss="forward", concentration=10.0, num_epochs=1500, learning_rate=0.03)
    posterior = po.fit(po.Model(CONSTANT, po.likelihoods.Categorical(), WIDE), labels(100), method, progress=False)
    wanted = [np.ones(3) + 10.0 * np.eye(3)[label] for label in range(3)]

    def loss(log_a):
        terms = [dirichlet.divergence(jnp.asarray(w), jnp.exp(log_a)) for w in wanted]
        return sum(share * term for share, term in zip((0.2, 0.3, 0.5), terms))

    slope = jax.grad(loss)(jnp.log(jnp.asarray(concentrations(posterior))))
    assert np.abs(slope).max() < 1e-3


def test_entropies_and_divergences_are_the_dirichlets():
    log_a = jnp.asarray(np.log([0.7, 2.0, 5.0]))
    draws = stats.dirichlet(np.exp(log_a)).rvs(200_000, random_state=0)
    found = float(dirichlet.expected_entropy(log_a))
    entropies = -special.xlogy(draws, draws).sum(1)
    assert abs(found - entropies.mean()) < 4 * entropies.std() / np.sqrt(len(draws)) + 1e-4
    other = np.array([1.0, 3.0, 1.5])
    ratios = stats.dirichlet(np.exp(log_a)).logpdf(draws.T) - stats.dirichlet(other).logpdf(draws.T)
    found = float(dirichlet.divergence(jnp.exp(log_a), jnp.asarray(other)))
    assert abs(found - ratios.mean()) < 4 * ratios.std() / np.sqrt(len(draws)) + 1e-4
    assert abs(float(dirichlet.divergence(jnp.exp(log_a), jnp.exp(log_a)))) < 1e-5


X = RNG.normal(size=(60, 2)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int32)
MODEL = po.Model(po.nn.mlp((8,), outputs=2), po.likelihoods.Categorical())


@pytest.fixture(scope="module")
def ensemble():
    away = RNG.normal((0.0, 8.0), size=(60, 2)).astype(np.float32)
    method = po.Ensemble(po.PriorNetwork(num_epochs=300, learning_rate=0.03, outside=away), 3)
    return away, po.fit(MODEL, (X, Y), method, progress=False)


def test_rows_from_elsewhere_are_told_apart_and_the_entropy_is_split_in_three(ensemble, tmp_path):
    away, posterior = ensemble
    here, there = posterior.predict(X), posterior.predict(away)
    for predictive in (here, there):
        parts = predictive.uncertainty()
        assert set(parts) == {"data", "distributional", "model"} and all((part >= 0).all() for part in parts.values())
        np.testing.assert_allclose(sum(parts.values()), predictive.entropy, atol=1e-4)
    assert po.metrics.auroc(*(each.uncertainty()["distributional"] for each in (here, there))) > 0.95
    assert np.median(there.concentration) < 4.0 < np.median(here.concentration)  # of a flat one: 2
    assert po.metrics.accuracy(here.probs, Y) > 0.9
    draws = np.asarray(posterior.distributions(0, away, 600))
    np.testing.assert_allclose(draws.mean(0), there.probs, atol=0.1)
    posterior.save(tmp_path / "saved")
    again = po.load(tmp_path / "saved").predict(away)
    np.testing.assert_array_equal(again.uncertainty()["distributional"], there.uncertainty()["distributional"])


def test_of_other_posteriors_the_split_has_no_distributional_part(ensemble):
    posterior = po.fit(MODEL, (X, Y), po.Ensemble(po.MAP(num_epochs=20, polish=False), 2), progress=False)
    parts = posterior.predict(X).uncertainty()
    assert (parts["distributional"] == 0).all()
    np.testing.assert_allclose(parts["data"] + parts["model"], posterior.predict(X).entropy, atol=1e-5)


def test_what_it_cannot_say_is_said():
    posterior = po.fit(MODEL, (X, Y), po.PriorNetwork(num_epochs=3), progress=False)
    assert any("nothing teaches it" in note for note in posterior.facts["notes"])
    assert any("no likelihood" in note for note in posterior.facts["notes"])
    known = linear_regression()
    with pytest.raises(SettingError, match="classes"):
        po.fit(known.model, known.data, po.PriorNetwork(), progress=False)
    with pytest.raises(SettingError, match="outside has rows"):
        po.fit(MODEL, (X, Y), po.PriorNetwork(outside=np.zeros((3, 5), np.float32)), progress=False)
