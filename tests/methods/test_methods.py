"""Methods by name, methods of others, starts, and settings out of range."""

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import posteria as po
from posteria.errors import SettingError, TooLargeError
from posteria.methods import registry
from posteria.testing import linear_regression

KNOWN = linear_regression()


@dataclass(frozen=True)
class LastStep:
    """MAP under another name."""

    num_epochs: int = 3
    fidelity: ClassVar[str] = "point"

    def fit(self, key: Any, target: Any, start: Any, run: Any) -> Any:
        return po.MAP(num_epochs=self.num_epochs).fit(key, target, start, run)


def test_a_registered_method_is_found_by_name():
    po.register(LastStep)
    assert "last-step" in po.methods()
    posterior = po.fit(KNOWN.model, KNOWN.data, "last-step", progress=False)
    assert posterior.facts["method"] == {"name": "last-step", "settings": {"num_epochs": 3}}


def test_methods_come_from_entry_points(monkeypatch):
    class Point:
        name = "from-elsewhere"

        @staticmethod
        def load():
            return LastStep

    monkeypatch.setattr(registry, "installed", lambda: {Point.name: Point})
    assert "from-elsewhere" in po.methods()
    assert registry.get("from-elsewhere") is LastStep


def test_what_is_not_a_method_is_refused():
    with pytest.raises(SettingError, match="did you mean 'hmc'"):
        po.fit(KNOWN.model, KNOWN.data, "hmcc")
    with pytest.raises(SettingError, match="method"):
        po.register(int)
    with pytest.raises(SettingError, match="method"):
        po.fit(KNOWN.model, KNOWN.data, 3)


def test_names_are_kebab_case():
    names = ["MAP", "HMC", "MetropolisHastings", "MCDropout", "SWAG", "SparseVariationalDropout"]
    kebabs = ["map", "hmc", "metropolis-hastings", "mc-dropout", "swag", "sparse-variational-dropout"]
    assert [registry.kebab(name) for name in names] == kebabs


def test_settings_travel_as_json():
    method = po.Ensemble(po.HMC(num_draws=7, start="map"), 3)
    assert registry.from_json(registry.to_json(method)) == method
    assert registry.to_json(po.HMC(num_draws=np.int64(7)))["settings"]["num_draws"] == 7
    patterns = po.Laplace(subset=["layers/0/*", "layers/1/kernel"])
    assert registry.from_json(json.loads(json.dumps(registry.to_json(patterns)))) == patterns


@pytest.mark.parametrize(
    "make",
    [
        lambda: po.HMC(num_chains=0),
        lambda: po.HMC(num_draws=0),
        lambda: po.HMC(step_size=-1.0),
        lambda: po.HMC(trajectory=1.0, num_leapfrog=3),
        lambda: po.HMC(num_leapfrog=500, max_leapfrog=100),
        lambda: po.HMC(target_acceptance=1.5),
        lambda: po.HMC(jitter=1.0),
        lambda: po.NUTS(thinning=0),
        lambda: po.NUTS(max_doublings=50),
        lambda: po.MAP(num_epochs=0),
        lambda: po.MAP(validation=1.0),
        lambda: po.Ensemble(po.MAP, 5),
        lambda: po.Ensemble(po.MAP(), 0),
        lambda: po.Ensemble(po.MAP(), 2.5),
        lambda: po.MAP(num_epochs=10.5),
        lambda: po.HMC(step_size="a"),
        lambda: po.HMC(trajectory=float("inf")),
        lambda: po.fit(KNOWN.model, KNOWN.data, po.MAP(), key=1.5, progress=False),
        lambda: po.fit(KNOWN.model, KNOWN.data, po.MAP(), start="map", progress=False),
        lambda: po.sample(lambda p: -(p**2), 0.0, po.MAP(), progress=False),
        lambda: po.sample(lambda p: -(p**2), 0.0, po.NUTS(), max_seconds=-1, progress=False),
        lambda: po.fit(KNOWN.model, KNOWN.data, po.HMC(start="nowhere"), progress=False),
        lambda: po.fit(KNOWN.model, KNOWN.data, po.MAP(), if_exists="maybe", progress=False),
        lambda: po.fit(KNOWN.model, KNOWN.data, po.MAP(), max_seconds=0, progress=False),
        lambda: po.fit(KNOWN.model, KNOWN.data, po.MAP(), max_seconds="1", progress=False),
        lambda: po.resume("nowhere", KNOWN.data, max_seconds=float("nan"), progress=False),
        lambda: po.fit(KNOWN.model, KNOWN.data, po.MAP(), key=-1, progress=False),
        lambda: po.fit(KNOWN.model, KNOWN.data, po.MAP(), key=2**32, progress=False),
    ],
)
def test_settings_out_of_range_are_refused(make):
    with pytest.raises(SettingError):
        make()


@pytest.mark.parametrize(
    "make, name",
    [
        (lambda: po.MAP(optimizer=optax.sgd(0.1), learning_rate=0.1), "learning_rate"),
        (lambda: po.MeanField(optimizer=optax.sgd(0.1), learning_rate=0.1), "learning_rate"),
        (lambda: po.MCDropout(optimizer=optax.sgd(0.1), learning_rate=0.1), "learning_rate"),
        (lambda: po.MeanField(rank=3), "rank"),
        (lambda: po.Laplace(rank=3), "rank"),
        (lambda: po.Laplace(num_labels=3), "num_labels"),
        (lambda: po.Subspace(basis="curve", rank=4), "rank"),
        (lambda: po.HMC(step_size=0.1, target_acceptance=0.9), "target_acceptance"),
        (lambda: po.MCLMC(step_size=0.1, energy_variance=1e-3), "energy_variance"),
    ],
)
def test_a_setting_that_another_overrules_is_refused(make, name):
    with pytest.raises(SettingError, match=f"leave {name} out"):
        make()


STUCK = po.HMC(num_chains=2, num_draws=1, num_warmup=0, step_size=1e-7, num_leapfrog=1, start="prior")


def starts_of(**settings) -> np.ndarray:
    """Where chains that do not move are, (chain, size)."""
    return po.fit(KNOWN.model, KNOWN.data, progress=False, **settings).stored.flat[:, 0]


def test_chains_start_where_they_are_told():
    mode = po.fit(KNOWN.model, KNOWN.data, po.MAP(), progress=False)
    given = {"bias": np.ones(1, np.float32), "weight": np.full((3, 1), 2.0, np.float32)}
    several = {"bias": np.array([[1.0], [5.0]]), "weight": np.full((2, 3, 1), 2.0)}
    np.testing.assert_allclose(starts_of(method=STUCK, start=given), [[1, 2, 2, 2]] * 2, atol=1e-4)
    np.testing.assert_allclose(starts_of(method=STUCK, start=several)[:, 0], [1, 5], atol=1e-4)
    from dataclasses import replace

    np.testing.assert_allclose(starts_of(method=replace(STUCK, start=mode)), [mode.stored.flat[0, 0]] * 2, atol=1e-4)
    np.testing.assert_allclose(starts_of(method=replace(STUCK, start="map")), [KNOWN.mean] * 2, atol=0.05)
    np.testing.assert_allclose(starts_of(method=STUCK, start="map"), [KNOWN.mean] * 2, atol=0.05)
    prior = starts_of(method=STUCK)
    assert np.abs(prior[0] - prior[1]).min() > 1e-3


def test_a_sampler_of_any_pytree_keeps_its_tree():
    draws = po.sample(
        lambda p: -0.5 * p["a"] ** 2 - 0.5 * jnp.sum(p["b"][0] ** 2),
        {"a": 0.0, "b": (jnp.zeros((2, 2)),)},
        po.NUTS(num_chains=2, num_draws=5, num_warmup=5),
        progress=False,
    )
    assert draws.params["a"].shape == (2, 5)
    assert draws.params["b"][0].shape == (2, 5, 2, 2)
    with pytest.raises(SettingError, match="floating"):
        po.sample(lambda p: 0.0, {"a": 0}, po.NUTS(), progress=False)


def test_an_ensemble_of_chains_is_diagnosed_as_one():
    method = po.Ensemble(po.HMC(num_chains=2, num_draws=20, num_warmup=20), 2)
    posterior = po.fit(KNOWN.model, KNOWN.data, method, progress=False)
    assert posterior.diagnose(KNOWN.data[0]).num_chains == 4
    assert posterior.to_arviz()["posterior"].sizes["chain"] == 4


def test_more_draws_than_the_machine_holds_are_refused_before_anything_runs(tmp_path):
    many = po.HMC(num_draws=2 * 10**9, num_chains=1000)
    with pytest.raises(TooLargeError, match=r"2,000,000,000,000 draws would take 32 TB"):
        po.fit(KNOWN.model, KNOWN.data, many, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    with pytest.raises(TooLargeError):
        po.sample(lambda p: -(p**2), 0.0, many, progress=False)
    with pytest.raises(TooLargeError, match="network"):
        po.Target(po.Model(po.nn.mlp((10**6, 10**6), 1)), KNOWN.data)


def test_a_sample_that_ends_early_says_so():
    method = po.NUTS(num_draws=10**6, num_warmup=5)
    draws = po.sample(lambda p: -0.5 * p**2, 0.0, method, max_seconds=1.0, progress=False)
    assert any("max_seconds" in note for note in draws.facts["notes"])


@dataclass(frozen=True)
class TooWide(LastStep):
    """Begins at an array that no machine holds."""

    def fit(self, key: Any, target: Any, start: Any, run: Any) -> Any:
        wide = jax.jit(lambda key: jax.random.normal(key, (1, 10**6, 10**6)))(key)
        return run.stage("wide").loop(None, key, wide, target.data, num_steps=1)


def test_arrays_that_memory_cannot_hold_are_refused_by_name_and_the_process_lives():
    """NumPy would end the process where XLA could not allocate what it is handed."""
    with pytest.raises(TooLargeError, match="TooWide needs more memory than there is"):
        po.fit(KNOWN.model, KNOWN.data, TooWide(), progress=False)
