"""Priors that infer scales, with everything else: methods, stores, resuming, export, more rows, refusals."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteria as po
from posteria import tree
from posteria.engine import loop
from posteria.errors import SettingError
from posteria.methods.points.cross_check import cross_checked
from posteria.models.priors import FromPosterior
from posteria.posteriors.scale_summary import in_words

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)).astype(np.float32)
Y = (np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=40)).astype(np.float32)
PRIOR = po.priors.InputScales(po.priors.FanIn(scale=po.infer))
MODEL = po.Model(po.nn.mlp((4,)), prior=PRIOR)
PATHS = {"layers/0/kernel", "layers/1/kernel"}
QUICK_MAP = po.MAP(num_epochs=100, tune_every=25)
METHODS = {
    "nuts": po.NUTS(num_chains=2, num_draws=10, num_warmup=20, start="prior"),
    "mclmc": po.MCLMC(num_chains=2, num_draws=5, num_warmup=60, start="init"),
    "sgld": po.SGLD(num_chains=2, num_draws=5, num_warmup=20, thinning=2, start="init"),
    "tempering": po.ParallelTempering(num_chains=1, num_draws=5, num_warmup=10, num_replicas=3, start="prior"),
    "slice": po.EllipticalSlice(num_chains=2, num_draws=5, num_warmup=10, start="prior"),
    "mean-field": po.MeanField(num_epochs=50),
    "full": po.MeanField(num_epochs=50, family="full"),
    "newton": po.VariationalOnlineNewton(num_epochs=50),
    "map": QUICK_MAP,
    "ensemble": po.Ensemble(QUICK_MAP, 2),
    "laplace": po.Laplace(map=QUICK_MAP),
    "kron": po.Laplace(map=QUICK_MAP, structure="kron"),
    "swag": po.SWAG(map=QUICK_MAP, num_snapshots=4, rank=3),
    "multiswag": po.Ensemble(po.SWAG(map=QUICK_MAP, num_snapshots=4, rank=3), 2),
    "geometric": po.FastGeometricEnsemble(map=QUICK_MAP, num_snapshots=2),
    "svgd": po.SVGD(size=4, num_epochs=20),
    "subspace": po.Subspace(
        po.EllipticalSlice(num_chains=2, num_draws=5, num_warmup=5),
        rank=2,
        swag=po.SWAG(map=QUICK_MAP, num_snapshots=4, rank=3),
    ),
}
FITTED: dict = {}


def fitted(name):
    if name not in FITTED:
        FITTED[name] = po.fit(MODEL, (X, Y), METHODS[name], key=1, progress=False)
    return FITTED[name]


@pytest.mark.parametrize("name", METHODS)
def test_weights_come_in_the_networks_tree_and_scales_in_the_facts(name, tmp_path):
    posterior = fitted(name)
    draws = posterior.sample(0, 3)
    structs = po.Target(MODEL, (X, Y)).structs["network"]
    assert jax.tree.structure(draws) == jax.tree.structure(structs)
    scales = posterior.facts["prior_scales"]
    assert set(scales) == PATHS and all(0 < own["mean"] < 100 for own in scales.values())
    assert len(scales["layers/0/kernel"]["inputs"]["mean"]) == 3
    words = in_words(scales)
    assert words in str(posterior.model) and posterior.model == MODEL and "learnt" not in str(MODEL)
    # save and load
    posterior.save(tmp_path / "saved")
    loaded = po.load(tmp_path / "saved")
    assert loaded.model.prior == PRIOR and loaded.facts["prior_scales"] == scales
    assert loaded.model.learnt == words
    np.testing.assert_array_equal(loaded.predict(X).mean, posterior.predict(X).mean)
    jax.tree.map(np.testing.assert_array_equal, loaded.sample(0, 3), draws)
    all_parts = posterior.sample_params(jax.random.key(0), 3)
    assert jax.tree.structure(all_parts) == jax.tree.structure(po.Target(MODEL, (X, Y)).structs)


@pytest.mark.parametrize("name", ["nuts", "mean-field", "laplace", "map"])
def test_an_export_predicts_the_same(name, tmp_path):
    posterior = fitted(name).thin(5)
    posterior.export(tmp_path / "out")
    np.save(tmp_path / "x.npy", X)
    code = "import numpy, predict; print(predict.load('.')(numpy.load('../x.npy'), level=0.8)['mean'].tolist())"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "out", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), np.asarray(posterior.predict(X).mean), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "call"), [("nuts", 2), ("map", 3), ("map", 5), ("laplace", 2), ("mean-field", 1)])
def test_resuming_is_bit_identical(name, call, tmp_path, monkeypatch):
    """Stopped in warm-up, in a round that sets scales, or in the climb after them."""
    check, calls = loop.Run._check_finite, []

    def stop(self, *args):
        check(self, *args)
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop.Run, "_check_finite", stop)
        with pytest.raises(KeyboardInterrupt):
            po.fit(MODEL, (X, Y), METHODS[name], key=1, progress=False, out=tmp_path / "run")
    resumed = po.resume(tmp_path / "run", (X, Y), progress=False)
    jax.tree.map(np.testing.assert_array_equal, resumed.sample(0, 2), fitted(name).sample(0, 2))
    assert resumed.facts["prior_scales"] == fitted(name).facts["prior_scales"]


# ---- where samplers start


def test_map_starts_are_modes_at_scale_one_and_not_where_scales_fall_to_zero():
    from posteria.engine.loop import Run
    from posteria.methods.starts import find_starts
    from posteria.models.target import log_densities

    target = po.Target(MODEL, (X, Y))
    starts = find_starts(jax.random.key(0), target, "map", 2, Run(None, False))
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(starts["prior"]))
    given_one = po.Target(po.Model(po.nn.mlp((4,)), prior=po.priors.FanIn()), (X, Y))
    plain = find_starts(jax.random.key(0), given_one, "map", 2, Run(None, False))
    both = [log_densities(given_one, {name: part[name] for name in plain}) for part in (starts, plain)]
    np.testing.assert_allclose(*both, atol=0.05)  # the same mode, as far as rounding lets Adam find it


def test_a_fitted_posterior_is_a_start():
    posterior = po.fit(MODEL, (X, Y), METHODS["nuts"], start=fitted("mean-field"), progress=False)
    assert np.isfinite(posterior.stored.flat).all()


# ---- scales that are held


@pytest.mark.parametrize("name", ["swag", "geometric", "subspace"])
def test_along_a_trajectory_scales_stay_where_the_evidence_set_them(name):
    prior = fitted(name).sample_params(jax.random.key(0), 4)["prior"]
    assert all(np.ptp(np.asarray(leaf), axis=0).max() < 1e-6 for leaf in jax.tree.leaves(prior))
    assert any(np.abs(np.asarray(leaf)).max() > 0.01 for leaf in jax.tree.leaves(prior))


def test_early_stopping_and_weight_decay_leave_scales_alone():
    import optax

    method = po.MAP(num_epochs=60, tune_every=30, validation=0.2, optimizer=optax.adamw(0.01, weight_decay=0.5))
    posterior = po.fit(MODEL, (X, Y), method, progress=False)
    again = po.fit(MODEL, (X, Y), po.MAP(num_epochs=60, tune_every=30), progress=False)
    for one in (posterior, again):
        assert all(0.05 < own["mean"] < 20 for own in one.facts["prior_scales"].values())


def test_a_trained_network_has_its_scales_set_at_its_weights():
    weights = fitted("nuts").sample(0, 1)
    start = tree.index(weights, 0)
    posterior = po.fit(MODEL, (X, Y), po.Laplace(), start=start, progress=False)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), posterior.mean_params, start)
    assert any(abs(own["mean"] - 1) > 0.01 for own in posterior.facts["prior_scales"].values())


# ---- where weights outnumber rows

WIDE = po.Model(po.nn.mlp((16,)), prior=po.priors.FanIn(scale=po.infer, bias_std=po.infer))


def shifted(params, log_factor):
    """Variances of noise and prior, times the exponential."""
    prior = jax.tree.map(lambda log: log + 0.5 * log_factor, params["prior"])
    return params | {
        "likelihood": {"log_precision": params["likelihood"]["log_precision"] - log_factor},
        "prior": prior,
    }


def test_held_out_rows_set_the_variances_however_large_they_were():
    target, run = po.Target(WIDE, (X, Y)), loop.Run(None, False)
    first = target.init(jax.random.key(0))
    first["likelihood"] = {"log_precision": jnp.asarray(3.0)}
    found = [
        cross_checked(po.MAP(num_epochs=200), jax.random.key(1), target, shifted(first, log_factor), run)
        for log_factor in (0.0, 3.0)
    ]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=0.05), *found)
    moved = float(first["likelihood"]["log_precision"] - found[0]["likelihood"]["log_precision"])
    assert abs(moved) > 0.1 and any("held-out" in note for note in run.notes)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found[0], shifted(first, moved))


def test_with_more_rows_than_weights_the_evidence_is_left_as_it_is():
    target, run = po.Target(MODEL, (X, Y)), loop.Run(None, False)
    params = target.init(jax.random.key(0))
    assert cross_checked(po.MAP(), jax.random.key(1), target, params, run) is params and not run.notes


def test_laplace_says_that_it_was_checked():
    posterior = po.fit(WIDE, (X, Y), po.Laplace(map=QUICK_MAP), progress=False)
    assert any("held-out" in note for note in posterior.facts["notes"])


# ---- more rows


def test_more_rows_go_on_learning_the_scales():
    first = fitted("mean-field")
    prior = FromPosterior(first)
    target = po.Target(po.Model(po.nn.mlp((4,)), prior=prior), (X, Y))
    assert set(target.structs["prior"]) == PATHS
    draw = target.sample_prior(jax.random.key(0))
    relative = target.relative(draw)
    q = (tree.ravel(relative) - first.mean) / first.spread.std
    wanted = (-0.5 * q**2 - jnp.log(first.spread.std) - 0.5 * jnp.log(2 * jnp.pi)).sum()
    assert float(target.relative_log_prior(relative)) == pytest.approx(float(wanted), rel=1e-4)
    second = po.fit(target.model, (X[:20], Y[:20]), po.MeanField(num_epochs=50), progress=False)
    assert second.kind == "relative gaussian" and set(second.facts["prior_scales"]) == PATHS


def test_an_estimator_is_updated_with_more_rows():
    estimator = po.Regressor(method=po.MeanField(num_epochs=30), network="mlp:4", prior=po.priors.FanIn(scale=po.infer))
    estimator.fit(X[:20], Y[:20]).partial_fit(X[20:], Y[20:])
    assert estimator.predict(X).shape == (40,)
    assert estimator.posterior_.model.prior == po.priors.FanIn(scale=po.infer)
    assert "scales learnt: layers/0/kernel" in str(estimator)


# ---- fixed beside inferred, and narrow leaves


def test_by_path_mixes_what_is_inferred_with_what_is_given():
    prior = po.priors.ByPath({"layers/0/*": po.priors.FanIn(scale=po.infer)}, default=po.priors.Normal(0.5))
    model = po.Model(po.nn.mlp((4,)), prior=prior)
    for name in ("nuts", "laplace"):
        posterior = po.fit(model, (X, Y), METHODS[name], progress=False)
        assert set(posterior.facts["prior_scales"]) == {"layers/0/kernel"}


def test_sixteen_bit_leaves_are_sampled():
    network = po.Network(
        lambda key, x: {"w": jnp.zeros((3, 1), jnp.bfloat16), "b": jnp.zeros(1)},
        lambda p, x: x @ p["w"].astype(jnp.float32) + p["b"],
    )
    for method in (METHODS["nuts"], QUICK_MAP):
        posterior = po.fit(po.Model(network, prior=po.priors.Normal(po.infer)), (X, Y), method, progress=False)
        assert posterior.sample(0, 2)["w"].dtype == jnp.bfloat16 and np.isfinite(posterior.predict(X).mean).all()


@pytest.mark.parametrize(
    ("temperature", "names"),
    [(0.2, ["map"]), pytest.param(3.0, ["nuts", "mean-field", "map"], marks=pytest.mark.slow)],
    ids=["cold", "warm"],
)
def test_temperatures(temperature, names):
    model = po.Model(po.nn.mlp((4,)), prior=PRIOR, temperature=temperature)
    for name in names:
        assert np.isfinite(po.fit(model, (X, Y), METHODS[name], progress=False).predict(X).mean).all()


# ---- what cannot, says why


@pytest.mark.parametrize(
    ("method", "why"),
    [
        (po.MCDropout(), "dropout"),
        (po.GaussianDropout(), "dropout"),
        (po.ConcreteDropout(), "dropout"),
        (po.VariationalDropout(), "dropout"),
        (po.SparseVariationalDropout(), "dropout"),
        (po.ExpectationPropagation(), "Gamma"),
        (po.MeanField(family="rank-one"), "rank-one"),
        (po.MAP(tune="layers"), "tune"),
    ],
    ids=lambda part: type(part).__name__ if not isinstance(part, str) else "",
)
def test_methods_that_cannot_infer_scales_say_so(method, why):
    with pytest.raises(SettingError, match=why):
        po.fit(MODEL, (X, Y), method, progress=False)


def test_a_prior_that_is_not_normal_has_no_evidence_to_set_its_scale_by():
    model = po.Model(po.nn.mlp((4,)), prior=po.priors.StudentT(scale=po.infer))
    with pytest.raises(SettingError, match="Normal"):
        po.fit(model, (X, Y), QUICK_MAP, progress=False)


def test_weights_relative_to_scales_are_not_pruned():
    with pytest.raises(SettingError, match="scales"):
        fitted("mean-field").prune(fraction=0.5)
