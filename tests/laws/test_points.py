"""MAP is the mode; an ensemble is an equal mixture of its members."""

import jax
import numpy as np
import optax
import pytest

import posteria as po
from posteria.posteriors.mixture import MixturePosterior
from posteria.testing import PointLaws, ProcedureLaws, linear_regression
from posteria.testing.statistics import LEAST_P_VALUE, moments_p_value


class TestMAP(PointLaws):
    method = po.MAP(num_epochs=2000)
    cheap = po.MAP(num_epochs=50)


class TestFolds(ProcedureLaws):
    method = po.Folds(po.MAP(num_epochs=30), num_folds=3, learns_widths=False)


class TestEnsemble(ProcedureLaws):
    method = po.Ensemble(po.MAP(num_epochs=50), 3)

    def test_an_ensemble_of_exact_members_is_exact(self):
        known = linear_regression()
        member = po.NUTS(num_chains=1, num_draws=800, num_warmup=200)
        posterior = po.fit(known.model, known.data, po.Ensemble(member, 3), progress=False)
        assert isinstance(posterior, MixturePosterior)
        chains = np.concatenate([m.stored.flat for m in posterior.members])
        assert moments_p_value(chains, known.mean, known.covariance) > LEAST_P_VALUE

    def test_its_predictive_is_the_average_of_its_members(self):
        known = linear_regression()
        x, y = known.data
        member = po.NUTS(num_chains=1, num_draws=50, num_warmup=50)
        posterior = po.fit(known.model, known.data, po.Ensemble(member, 3), progress=False)
        log_probs = [m.predict(x).log_prob(y) for m in posterior.members]
        np.testing.assert_allclose(
            posterior.predict(x).log_prob(y), np.logaddexp.reduce(log_probs, axis=0) - np.log(3), rtol=1e-4
        )

    def test_members_of_a_network_start_from_different_weights(self):
        x = np.linspace(-1, 1, 20, dtype=np.float32)[:, None]
        model = po.Model(po.nn.mlp((8,)))
        posterior = po.fit(model, (x, np.sin(3 * x)), self.method, progress=False)
        flat = posterior.stored.flat[:, 0]
        assert len(np.unique(flat.round(3), axis=0)) == 3


def test_early_stopping_keeps_the_best_held_out_weights_and_stops():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 5)).astype(np.float32)
    y = x[:, 0] + rng.normal(size=60)
    model = po.Model(po.nn.mlp((50,)), po.likelihoods.Gaussian(0.1), po.priors.Normal(10.0))
    late = po.fit(model, (x, y), po.MAP(num_epochs=3000), progress=False)
    early = po.fit(model, (x, y), po.MAP(num_epochs=3000, validation=0.2, patience=20), progress=False)
    assert early.facts["gradients"] < late.facts["gradients"] / 2
    x_new = rng.normal(size=(500, 5)).astype(np.float32)
    y_new = x_new[:, 0] + rng.normal(size=500)
    error = [po.metrics.rmse(p.predict(x_new).mean[:, 0], y_new) for p in (early, late)]
    assert error[0] < error[1]


def test_mini_batches_and_a_users_optimiser_reach_the_same_mode():
    known = linear_regression(num_data=64)
    schedule = optax.cosine_decay_schedule(0.02, 64 // 16 * 1500)
    method = po.MAP(num_epochs=1500, batch_size=16, optimizer=optax.adam(schedule))
    posterior = po.fit(known.model, known.data, method, progress=False)
    std = np.sqrt(np.diag(known.covariance))
    assert (np.abs(posterior.stored.flat[0, 0] - known.mean) < 0.1 * std).all()


def test_a_batch_larger_than_the_data_is_clipped():
    known = linear_regression()
    small = po.fit(known.model, known.data, po.MAP(num_epochs=20, batch_size=10_000), progress=False)
    full = po.fit(known.model, known.data, po.MAP(num_epochs=20), progress=False)
    np.testing.assert_array_equal(small.stored.flat, full.stored.flat)


@pytest.mark.parametrize("size", [1, 3])
def test_a_trained_network_starts_from_its_weights_or_from_the_prior_and_says_so(size):
    from flax import nnx

    trained = nnx.Linear(3, 1, rngs=nnx.Rngs(0))
    known = linear_regression()
    model = po.Model(po.network(trained))
    posterior = po.fit(
        model, known.data, po.Ensemble(po.MAP(num_epochs=1, learning_rate=1e-9, polish=False), size), progress=False
    )
    kernels = np.asarray(jax.tree.leaves(posterior.params)[1])[:, 0]
    if size == 1:
        np.testing.assert_allclose(kernels[0], trained.kernel.get_value(), atol=1e-6)
    else:
        assert len(np.unique(kernels.round(4), axis=0)) == 3
        assert any("drawn from the prior" in note for note in posterior.facts["notes"])
