"""Rows by name, budgets, tuning."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

import posteria as po
from comparison import small
from posteria.comparison.enter.entries import (
    as_entries,
    default_methods,
    expected_gradients,
    over_budget,
    trials,
    with_budget,
)
from posteria.comparison.run import fitting
from posteria.errors import SettingError
from posteria.methods import registry


@dataclass(frozen=True)
class Dummy:
    """Stands in for a method of another package."""

    learning_rate: float = 0.01
    fidelity: ClassVar[str] = "point"

    def fit(self, key, target, start, run):
        return po.MAP(num_epochs=60, learning_rate=self.learning_rate).fit(key, target, start, run)


def test_methods_come_by_name_by_import_path_and_as_objects():
    entries = as_entries(["map", f"{__name__}:Dummy", po.MAP(num_epochs=3)], True, "hmc")
    assert entries[0].name == "linear" and [entry.name for entry in entries].index("boosting") == 4  # after the methods
    assert entries[-1].name == "hmc-reference" and entries[-1].role == "reference"
    assert {entry.name for entry in entries if entry.role == "method"} == {"map", "dummy", "map-2"}
    assert next(e for e in entries if e.name == "dummy").about == "Stands in for a method of another package."
    with pytest.raises(SettingError, match="nowhere"):
        as_entries(["nowhere:Nothing"], False, None)
    with pytest.raises(SettingError, match="did you mean 'map'"):
        as_entries("mapp", False, None)


def test_the_default_is_six_of_those_that_are_there():
    names = default_methods()
    assert names[:2] == ["map", "ensemble"] and len(names) <= 6
    assert set(names) <= set(registry.names())
    assert default_methods(is_table=True) == [*names, "folds"]  # what `posteria fit` does by default takes part


def test_a_registered_method_takes_part_without_further_ado(monkeypatch):
    monkeypatch.setitem(registry._registered, "dummy", Dummy)
    found = small.compare(None, methods=["dummy"], reference=None, seeds=1).results
    assert [row["name"] for row in found["problems"][0]["rows"]] == ["dummy"]
    assert found["problems"][0]["rows"][0]["status"] == "done"


@pytest.mark.parametrize(
    "method",
    [po.MAP(), po.MAP(batch_size=7), po.Ensemble(po.MAP(num_epochs=50), 4)],
    ids=["full", "batches", "ensemble"],
)
def test_a_budget_is_what_is_spent(method):
    """Up to the rounding of epochs: less than one epoch of each member."""
    model, (x, y) = small.problem()
    budget = 480
    limited = with_budget(method, budget, num_data=len(x))
    assert expected_gradients(limited, len(x)) == pytest.approx(budget, abs=0.05 * budget)
    spent = po.fit(model, (x, y), limited, progress=False).facts["gradients"]
    assert spent == expected_gradients(limited, len(x))


@pytest.mark.parametrize("name", registry.names())
def test_every_method_can_be_given_a_small_budget(name):
    limited = with_budget(registry.as_method(name), 100, num_data=50)
    most = max(100, expected_gradients(registry.as_method(name), 50))
    assert expected_gradients(limited, 50) <= most


def test_replicas_cycles_and_steps_of_several_gradients_are_counted():
    chains = {"num_chains": 2, "num_draws": 10, "num_warmup": 30, "thinning": 2, "start": "init"}
    assert expected_gradients(po.SGLD(**chains), 50) == 100
    assert expected_gradients(po.SGLD(**chains, variance_reduction="svrg"), 50) == 200
    assert expected_gradients(po.MCLMC(**chains), 50) == 200
    assert expected_gradients(po.AdjustedMCLMC(**chains, mean_steps=3.0), 50) == 600
    tempering = [po.ParallelTempering(**chains, num_replicas=num) for num in (2, 6)]
    assert expected_gradients(tempering[1], 50) == 3 * expected_gradients(tempering[0], 50)
    assert expected_gradients(po.SGLD(**chains | {"start": "ascent"}), 50) == 100 + 2 * 300
    assert expected_gradients(po.SGLD(**chains | {"start": po.MAP(num_epochs=7)}), 50) == 100 + 2 * 7
    cycles = po.FastGeometricEnsemble(map=None, num_snapshots=3, epochs_per_snapshot=4, batch_size=10)
    assert expected_gradients(cycles, 50) == 60


def test_a_budget_shortens_chains_and_their_warm_up_alike():
    whole = po.Barker(num_draws=300, num_warmup=150, thinning=1, start="init")
    short = with_budget(whole, expected_gradients(whole, 100) / 3, 100)
    assert (short.num_draws, short.num_warmup) == (100, 50)


def test_nothing_is_guessed_of_a_method_that_does_not_say_what_it_costs():
    assert trials(Dummy()) == [Dummy()] and with_budget(Dummy(), None, 100) == Dummy()
    with pytest.raises(SettingError, match=r"Dummy does not say what it costs.*write def expected_gradients"):
        with_budget(Dummy(), 100, 100)


def test_a_budget_below_the_least_that_a_method_can_do_is_told():
    least = with_budget(po.SVGD(size=50), 20, 100)
    assert expected_gradients(least, 100) == 50
    assert over_budget(least, 20, 100) == ("the least that it can do takes 50 gradients, more than the budget of 20")
    assert over_budget(least, 50, 100) == over_budget(least, None, 100) == ""


def test_trials_are_charged_to_the_method():
    tries = trials(po.Ensemble(po.MAP(), 2))
    assert [each.method.learning_rate for each in tries] == pytest.approx([0.01, 0.01 / 3, 0.03])
    found = small.compare(
        None, methods={"map": po.MAP(num_epochs=60, polish=False)}, reference=None, seeds=1, tune=True
    ).results
    row = found["problems"][0]["rows"][0]
    assert row["scores"]["gradients"]["value"] == 4 * 60  # three trials and the fit
    assert row["settings"]["learning_rate"] in [each.learning_rate for each in trials(po.MAP())]


def test_a_setting_that_fails_in_tuning_is_named_and_not_taken(monkeypatch):
    sound, wild = po.MAP(num_epochs=60), po.MAP(num_epochs=60, learning_rate=1e30)
    monkeypatch.setattr(fitting, "trials", lambda method: [wild, sound])
    found = small.compare(None, methods={"map": sound}, reference=None, seeds=1, tune=True)
    row = found.results["problems"][0]["rows"][0]
    assert row["status"] == "done" and row["settings"]["learning_rate"] == sound.learning_rate
    assert "map: 1 of 2 settings that were tried failed: the log density became" in found.table()


def test_a_setting_without_a_score_is_not_the_best(monkeypatch):
    first, second = po.MAP(num_epochs=60), po.MAP(num_epochs=61)
    monkeypatch.setattr(fitting, "trials", lambda method: [first, second])

    def fit(model, data, method, **settings):
        posterior = po.fit(model, data, method, **settings)
        if method == second and "attach" not in settings:  # in its trial
            posterior.predict = lambda x: SimpleNamespace(log_prob=lambda y: np.full(len(y), np.nan))
        return posterior

    monkeypatch.setattr(fitting, "fit", fit)
    found = small.compare(None, methods={"map": first}, reference=None, seeds=1, tune=True)
    assert found.results["problems"][0]["rows"][0]["settings"]["num_epochs"] == 60
    assert "1 of 2 settings that were tried failed: its NLL is nan" in found.table()
