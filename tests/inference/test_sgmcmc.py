"""Stochastic-gradient samplers, MCLMC, parallel tempering and SVGD: settings, resuming, suggested steps."""

import jax
import numpy as np
import pytest

import posteria as po
from inference.test_resume import interrupted
from posteria.errors import SettingError

SAMPLERS = {
    "sghmc": po.SGHMC(
        num_chains=2,
        num_draws=20,
        num_warmup=20,
        thinning=5,
        batch_size=10,
        schedule="cyclical",
        preconditioner="rmsprop",
        variance_reduction="svrg",
        start="prior",
    ),
    "mclmc": po.MCLMC(num_chains=2, num_draws=20, num_warmup=60, thinning=2, start="prior"),
    "parallel-tempering": po.ParallelTempering(
        num_draws=20, num_warmup=10, num_replicas=3, max_leapfrog=5, start="prior"
    ),
}


@pytest.fixture(scope="module")
def linear():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)).astype(np.float32)
    return po.Model(po.nn.mlp(())), (x, x[:, 0] + 0.1 * rng.normal(size=40))


@pytest.mark.parametrize("name", SAMPLERS)
def test_an_interrupted_fit_ends_bit_identical(tmp_path, linear, monkeypatch, name):
    model, data = linear
    interrupted(model, data, SAMPLERS[name], tmp_path / "run", monkeypatch)
    posterior = po.resume(tmp_path / "run", data, progress=False)
    whole = po.fit(model, data, SAMPLERS[name], progress=False)
    np.testing.assert_array_equal(posterior.stored.flat, whole.stored.flat)
    for field in whole.info:
        np.testing.assert_array_equal(posterior.info[field], whole.info[field])


def test_svgd_cut_short_goes_on_bit_identically(tmp_path, linear):
    model, data = linear
    method = po.SVGD(size=4, num_epochs=30, batch_size=20)
    early = po.fit(model, data, method, out=tmp_path / "run", max_seconds=1e-9, progress=False)
    assert not early.facts["is_whole"]
    posterior = po.resume(tmp_path / "run", data, progress=False)
    whole = po.fit(model, data, method, progress=False)
    np.testing.assert_array_equal(posterior.stored.flat, whole.stored.flat)


@pytest.mark.parametrize("method, power", [(po.SGLD, 1.0), (po.SGHMC, 0.5)])
def test_suggested_steps_follow_temperature_and_shrink_with_batches(linear, method, power):
    model, data = linear
    quick = {"num_chains": 1, "num_draws": 1, "num_warmup": 0, "thinning": 1}
    sizes = {}
    weights = model.network.init(jax.random.key(0), data[0][:1])
    for temperature, batch_size in ((1.0, 40), (0.25, 40), (1.0, 10)):
        tempered = po.Model(model.network, temperature=temperature)
        posterior = po.fit(tempered, data, method(**quick, batch_size=batch_size), start=weights, progress=False)
        sizes[temperature, batch_size] = posterior.info["step_size"][0, 0]
    assert sizes[0.25, 40] == pytest.approx(sizes[1.0, 40] * 0.25**power, rel=0.01)
    assert sizes[1.0, 10] < sizes[1.0, 40]


@pytest.mark.parametrize(
    "settings",
    [
        {"schedule": "cosine"},
        {"preconditioner": "adam"},
        {"variance_reduction": "control variate"},
        {"batch_size": 0},
        {"step_size": -1.0},
        {"preconditioner": "rmsprop", "num_warmup": 0},
        {"momentum": 1.0},
    ],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(SettingError):
        po.SGHMC(**settings)


@pytest.mark.parametrize(
    "method, settings",
    [
        (po.MCLMC, {"energy_variance": 0.0}),
        (po.MCLMC, {"num_warmup": 0}),
        (po.AdjustedMCLMC, {"num_steps": 1.0}),
        (po.ParallelTempering, {"num_replicas": 1}),
        (po.SVGD, {"size": 0}),
        (po.SVGD, {"learning_rate": 0.0}),
        (po.SGNHT, {"momentum": 0.0}),
    ],
)
def test_settings_of_the_others_too(method, settings):
    with pytest.raises(SettingError):
        method(**settings)


def test_thinning_and_batches_count_as_they_say(linear):
    model, data = linear
    method = po.SGLD(num_chains=1, num_draws=7, num_warmup=11, thinning=3, batch_size=10, start="prior")
    posterior = po.fit(model, data, method, progress=False)
    assert posterior.stored.flat.shape[:2] == (1, 7)
    assert posterior.facts["gradients"] == 11 + 7 * 3


def test_a_control_variate_is_not_anchored_at_a_draw_from_the_prior(linear):
    model, data = linear
    with pytest.raises(SettingError, match="anchor"):
        po.fit(model, data, po.SGLD(variance_reduction="control-variate", start="prior"), progress=False)
