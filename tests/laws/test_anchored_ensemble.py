"""Randomised modes are exact draws where the model is linear and Gaussian; elsewhere they do what they say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteria as po
from posteria import tree
from posteria.errors import SettingError
from posteria.methods.ensembles import anchored_ensemble
from posteria.testing import ExactLaws, ProcedureLaws, linear_regression

QUICK = po.MAP(num_epochs=30)
ROUGH = po.MAP(num_epochs=5, polish=False)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2)).astype(np.float32)


class TestAnchoredEnsemble(ProcedureLaws, ExactLaws):
    """Members are independent draws: as one chain they are held to the moments of the posterior, with data and
    without, at any temperature."""

    method = po.AnchoredEnsemble(400, QUICK)
    cheap = po.AnchoredEnsemble(3, QUICK)

    def chains(self, posterior):
        return np.swapaxes(posterior.stored.flat, 0, 1)

    @pytest.mark.slow
    def test_rows_that_come_twice_and_rows_that_count_twice_move_them_as_the_formula_says(self):
        super().test_rows_that_come_twice_and_rows_that_count_twice_move_them_as_the_formula_says()


def test_each_member_is_the_mode_that_its_own_anchor_and_targets_have_in_closed_form():
    known = linear_regression()
    plain = po.Target(known.model, known.data)
    target = anchored_ensemble._anchored(plain)
    keys = jax.random.split(jax.random.key(0), 3), jax.random.split(jax.random.key(1), 3)
    mode = tree.unraveller(plain.structs)(jnp.asarray(known.mean, jnp.float32))
    own, num_kept = anchored_ensemble._drawn(target.without_data())(*keys, mode, plain.data)
    assert num_kept.sum() == 0 and np.abs(np.asarray(own.targets) - known.data[1].reshape(1, -1, 1)).max() > 0.1
    design = np.concatenate([np.ones((30, 1)), known.data[0]], axis=1)
    for i in range(3):
        anchor = np.concatenate([own.shift["bias"][i], own.shift["weight"][i].ravel()])
        wanted = known.covariance @ (design.T @ np.ravel(own.targets[i]) / 0.25 + anchor / 0.49)
        params = tree.unraveller(plain.structs)(jnp.asarray(wanted, jnp.float32))
        member = params | {"anchored": tree.index(own, i)}
        slope = jax.grad(lambda network, member=member: target.log_density(member | {"network": network}))(
            params["network"]
        )
        assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(slope)) < 2e-3  # of curvatures above 100


def test_where_noise_is_inferred_it_is_the_modes_and_members_say_how_far_from_theirs_they_are():
    y = (np.sin(X[:, :1]) + 0.1 * RNG.normal(size=(40, 1))).astype(np.float32)
    model = po.Model(po.nn.mlp((8,), activation="tanh"))
    posterior = po.fit(model, (X, y), po.AnchoredEnsemble(4, po.MAP(num_epochs=300)), progress=False)
    noise = posterior.sample_params(jax.random.key(0), 4)["likelihood"]["log_precision"]
    assert len(np.unique(noise)) == 1
    assert posterior.facts["gain"] < 0.05 and not posterior.facts["notes"]
    rough = po.fit(model, (X, y), po.AnchoredEnsemble(4, ROUGH), progress=False)
    assert rough.facts["gain"] > 0.05 and "not at its mode" in rough.facts["notes"][0]


def test_labels_are_left_as_they_are_and_that_is_said():
    y = (X[:, 0] > 0).astype(np.int32)
    model = po.Model(po.nn.mlp((4,), outputs=2), po.likelihoods.Categorical())
    posterior = po.fit(model, (X, y), po.AnchoredEnsemble(3, ROUGH), progress=False)
    assert any("labels" in note for note in posterior.facts["notes"])
    assert posterior.predict(X).epistemic.max() > 0


def test_a_target_that_the_likelihood_would_not_allow_stays_and_that_is_said():
    class Positive(po.likelihoods.Gaussian):
        def log_prob(self, own, outputs, y):
            return jnp.where((y > 0).all(-1), super().log_prob(own, outputs, y), -jnp.inf)

    y = np.abs(X[:, :1]) + 0.01
    posterior = po.fit(po.Model(po.nn.mlp((4,)), Positive(0.5)), (X, y), po.AnchoredEnsemble(3, ROUGH), progress=False)
    assert any("left without noise" in note for note in posterior.facts["notes"])


def test_mini_batches_see_the_rows_own_targets():
    known = linear_regression()
    climb = po.MAP(num_epochs=400, batch_size=10, learning_rate=0.03, polish=True)
    batches = po.fit(known.model, known.data, po.AnchoredEnsemble(5, climb), progress=False)
    full = po.fit(known.model, known.data, po.AnchoredEnsemble(5, po.MAP(num_epochs=400)), progress=False)
    std = np.sqrt(np.diag(known.covariance))
    np.testing.assert_allclose(batches.stored.flat / std, full.stored.flat / std, atol=0.02)


def test_what_has_no_meaning_is_refused():
    with pytest.raises(SettingError, match="rows out"):
        po.AnchoredEnsemble(map=po.MAP(validation=0.1))
    known = linear_regression()
    correlated = po.fit(known.model, known.data, po.MeanField(num_epochs=50, family="full"), progress=False)
    model = po.Model(known.model.network, po.likelihoods.Gaussian(0.5), po.priors.FromPosterior(correlated))
    with pytest.raises(SettingError, match="correlates"):
        po.fit(model, known.data, po.AnchoredEnsemble(2), progress=False)
    with pytest.raises(SettingError, match="scales"):
        po.fit(po.Model(known.model.network, prior=po.priors.Normal(po.infer)), known.data, po.AnchoredEnsemble(2))
