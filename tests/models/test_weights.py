"""Rows that count as often as their weight says: one of 2 is the row twice, one of 0 is left out."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteria as po
from posteria import tree
from posteria.curvature.decrement import decrement
from posteria.data.arrays import rows
from posteria.data.batches import batch_of
from posteria.errors import DataError, SettingError, StoreError
from posteria.methods.dropout.fixed_rate import noisy_log_density
from posteria.methods.dropout.variational_dropout import data_term
from posteria.models.target import Target
from posteria.posteriors.conformal import repeated
from posteria.posteriors.masks import selected_units
from posteria.testing import linear_regression

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3)).astype(np.float32)
Y = (X[:, 0] + 0.3 * RNG.normal(size=24)).astype(np.float32)
WEIGHT = np.resize(np.float32([2, 0, 1, 3]), 24)
MODEL = po.Model(po.nn.mlp((5,)))
ROWS = np.repeat(np.arange(24), WEIGHT.astype(int))


def pair(model=MODEL, y=Y):
    """The target of weighted rows, and that of the same rows as often."""
    return Target(model, (X, y, WEIGHT)), Target(model, (X[ROWS], y[ROWS]))


@pytest.mark.parametrize(
    "model",
    [
        MODEL,
        dataclasses.replace(MODEL, temperature=0.5),
        po.Model(po.nn.mlp((5,), outputs=3), po.likelihoods.Categorical()),
        po.Model(po.nn.mlp((5,)), po.likelihoods.Poisson(), po.priors.FanIn(scale=po.infer)),
    ],
    ids=["noise", "tempered", "classes", "scales"],
)
def test_the_density_is_that_of_rows_that_come_as_often(model):
    y = Y if model.likelihood.kind == "regression" else np.resize([0, 2, 1], 24)
    weighted, repeats = pair(model, y)
    params = weighted.sample_prior(jax.random.key(0))
    assert weighted.num_data == 18 and weighted.total_weight == repeats.num_data == 36
    assert float(weighted.log_density(params)) == pytest.approx(float(repeats.log_density(params)), rel=1e-5)
    powers = [target.log_density(params, likelihood_power=0.3) for target in (weighted, repeats)]
    assert float(powers[0]) == pytest.approx(float(powers[1]), rel=1e-5)


def test_batches_are_unbiased_for_the_whole():
    target, _ = pair()
    params = target.sample_prior(jax.random.key(0))
    key = jax.random.key_data(jax.random.key(1))
    batches = (batch_of(target.data, key, step, target.num_data, 6) for step in range(3))
    parts = [target.log_density(params, batch) for batch in batches]
    assert float(np.mean(parts)) == pytest.approx(float(target.log_density(params)), rel=1e-5)


def test_weights_of_1_are_none_and_rows_of_weight_0_may_hold_anything_finite():
    assert len(Target(MODEL, (X, Y, np.ones(24))).data) == 2
    assert len(Target(MODEL, (X, Y, None)).data) == 2
    weight = (np.arange(24) % 2).astype(bool)
    wild = np.where(weight, Y, 1e30)
    kept, part = Target(MODEL, (X, wild, weight)), Target(MODEL, (X[weight], Y[weight]))
    assert kept == part
    for one, other in zip(jax.tree.leaves(kept.data), jax.tree.leaves(part.data)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        (-WEIGHT, "negative"),
        (np.full(24, np.nan), "NaN"),
        (WEIGHT[:5], "one weight for each row"),
        (WEIGHT[:, None], "one weight for each row"),
        (np.zeros(24), "all weights are zero"),
        (["a"] * 24, "a number a row"),
        (2.0, "one weight for each row"),
        (np.full(24, 1e300), "too large"),
        (np.ones(24) * 1j, "a number a row"),
    ],
)
def test_weights_that_mean_nothing_are_refused(weight, said):
    with pytest.raises(DataError, match=said):
        Target(MODEL, (X, Y, weight))


def test_what_weights_that_sum_to_one_mean_is_said():
    target = Target(MODEL, (X, Y, np.full(24, 1 / 24)))
    assert "24 rows add up to 1" in target.caveat
    assert not pair()[0].caveat


@pytest.mark.parametrize("structure", ["full", "kron", "diagonal", "lowrank"])
def test_at_given_weights_laplace_has_the_curvature_noise_and_evidence_of_repeated_rows(structure):
    weighted, _ = pair()
    start = weighted.init(jax.random.key(0))["network"]
    found = [
        po.fit(MODEL, data, po.Laplace(structure), start=start, progress=False)
        for data in ((X, Y, WEIGHT), (X[ROWS], Y[ROWS]))
    ]
    one, other = found
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-4)  # the noise's among them
    covariances = [np.asarray(posterior.precision.covariance()) for posterior in found]
    np.testing.assert_allclose(covariances[0], covariances[1], atol=1e-3 * np.abs(covariances[1]).max())
    assert one.log_evidence() == pytest.approx(other.log_evidence(), abs=0.01)


def test_so_is_how_far_from_a_mode_weights_are():
    weighted, repeats = pair()
    params = weighted.init(jax.random.key(3))
    assert decrement(weighted, params).nats == pytest.approx(decrement(repeats, params).nats, rel=1e-3)


def test_dropout_sees_the_weights():
    weighted, repeats = pair()
    params = weighted.init(jax.random.key(0))
    selected, _ = selected_units(weighted, None)
    none = {path: jnp.asarray(0.0) for path in selected}
    values = [
        float(noisy_log_density(target, "gaussian", jax.random.key(1), params, target.data, selected, none))
        for target in (weighted, repeats)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    outputs = [
        float(data_term(t, params, t.data, set(), lambda x, t=t: t.model.outputs(params["network"], x)))
        for t in (weighted, repeats)
    ]
    assert outputs[0] == pytest.approx(outputs[1], rel=1e-5)


def test_expectation_propagation_is_exact_for_known_noise_and_refuses_what_it_cannot():
    known = linear_regression(copies=2, weighted=True)
    posterior = po.fit(known.model, known.data, po.ExpectationPropagation(num_passes=3), progress=False)
    np.testing.assert_allclose(posterior.mean, known.mean, atol=1e-4)
    np.testing.assert_allclose(posterior.spread.covariance(), known.covariance, atol=1e-5)
    whole = np.resize(np.float32([2, 0, 1]), 30)
    x, y = linear_regression().data
    often = np.repeat(np.arange(30), whole.astype(int))
    evidences = [
        po.fit(known.model, data, po.ExpectationPropagation(num_passes=3), progress=False).log_evidence()
        for data in ((x, y, whole), (x[often], y[often]))
    ]
    assert evidences[0] == pytest.approx(evidences[1], abs=1e-3)
    for model in (MODEL, po.Model(known.model.network, po.likelihoods.Gaussian(), known.model.prior)):
        with pytest.raises(SettingError, match="weights of rows"):
            po.fit(model, (X, Y, WEIGHT), po.ExpectationPropagation(), progress=False)


def test_batches_of_weighted_rows_heat_no_more_than_the_stated_excess():
    """A row's gradient has its weight, and the noise of a batch its square."""
    known, scale = linear_regression(num_data=200, weighted=True), 8.0
    x, y, weight = known.data
    design = np.concatenate([np.ones((200, 1)), x], axis=1)
    precision = (design.T * weight * scale) @ design / 0.25 + np.eye(4) / 0.49
    method = po.SGLD(num_chains=4, num_draws=1500, num_warmup=500, thinning=10, batch_size=20)
    posterior = po.fit(known.model, (x, y, weight * scale), method, progress=False)
    draws = np.asarray(posterior.stored.flat, np.float64).reshape(-1, 4)
    root = np.linalg.cholesky(precision)
    variances = np.var((draws - draws.mean(0)) @ root, axis=0)
    assert variances.max() < 1.5 * 1.1 and variances.min() > 0.85


def test_scores_of_weighted_rows_are_those_of_repeated_rows():
    scores = RNG.normal(size=(7, 2))
    weight = np.array([2.0, 0.0, 1.0, 3.0, 1.0, 0.0, 4.0])
    found = repeated(scores, weight)
    np.testing.assert_array_equal(found, np.sort(np.repeat(scores, weight.astype(int), axis=0), axis=0))
    assert len(repeated(scores, np.full(7, 0.01))) == 7
    assert len(repeated(scores, np.full(7, 1e9))) == 100_000


def test_folds_weigh_the_rows_that_were_left_out():
    """Half of the rows have ten times the noise, and count little: widths are those of the other half."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, (400, 1)).astype(np.float32)
    is_noisy = rng.uniform(size=400) < 0.5
    y = (x[:, 0] + np.where(is_noisy, 1.0, 0.1) * rng.normal(size=400)).astype(np.float32)
    method = po.Folds(po.MAP(num_epochs=100, learning_rate=0.03, batch_size=64), learns_widths=False)
    model, widths, coverages = po.Model(linear_regression().model.network), {}, {}
    for name, weight in {"all": None, "few": np.where(is_noisy, 0.01, 1.0)}.items():
        posterior = po.fit(model, (x, y, weight), method, progress=False)
        lower, upper = posterior.predict(x[~is_noisy]).interval(0.9)
        widths[name] = float(np.mean(upper - lower))
        coverages[name] = float(np.mean((lower[:, 0] < y[~is_noisy]) & (y[~is_noisy] < upper[:, 0])))
        assert abs(posterior.coverage[0.9]["after"] - 0.9) < 0.06
    assert widths["few"] < 0.45 < 1.5 < widths["all"]
    assert abs(coverages["few"] - 0.9) < 0.06 < coverages["all"] - 0.9


def test_a_run_goes_on_only_with_its_weights(tmp_path):
    method = po.HMC(num_chains=1, num_draws=2, num_warmup=5, num_leapfrog=2)
    data = X, Y, WEIGHT
    posterior = po.fit(MODEL, data, method, out=tmp_path / "run", progress=False)
    again = po.resume(tmp_path / "run", data=data, progress=False)
    np.testing.assert_array_equal(posterior.stored.flat, again.stored.flat)
    for other in ((X, Y), (X, Y, WEIGHT + 1), (X, Y, WEIGHT[::-1])):
        with pytest.raises(StoreError, match="data"):
            po.resume(tmp_path / "run", data=other, progress=False)


def test_comparisons_refuse_weights():
    with pytest.raises(DataError, match="weights"):
        po.compare(MODEL, (X, Y, WEIGHT), methods=[po.MAP()], progress=False)


def test_rows_can_be_chosen_with_their_weights():
    target, _ = pair()
    some = rows(target.data, np.arange(4))
    assert [len(leaf) for leaf in jax.tree.leaves(some)] == [4, 4, 4]
    assert tree.size(target.structs) == tree.size(Target(MODEL, some).structs)
