"""Scores under shift are those of the shifted rows, kept with the row, and what is said of them follows from them."""

import json

import numpy as np
import pytest

import posteria as po
from comparison import small
from posteria.comparison.judge import robustness
from posteria.comparison.tell.sentences import shift_words
from posteria.errors import StoreError
from posteria.shift import SEVERITIES, attack, shift_table

METHODS = {"map": po.MAP(num_epochs=200), "laplace": po.Laplace(map=po.MAP(num_epochs=200))}
ASKED = {"methods": METHODS, "reference": None, "seeds": 1, "shift": ["noise", "tilt"], "attack": [0.1, 0.3]}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shift") / "out"
    return folder, small.compare(folder, **ASKED)


def test_scores_are_those_of_the_shifted_rows(found):
    _, comparison = found
    problem, _ = comparison.problems[0]
    (fold,) = problem.folds
    told = comparison.results["problems"][0]["shift"]
    for name in METHODS:
        (posterior,) = comparison.posteriors[problem.name][name]
        for condition in ("noise", "tilt"):
            values = told["found"][name][condition]
            for place, severity in enumerate((0, *SEVERITIES)):
                x, rows = shift_table(fold.x_test, condition, severity) if severity else (fold.x_test, slice(None))
                predictive, y = posterior.predict(x, min(posterior.num_draws, 100)), fold.y_test[rows]
                lower, upper = (np.asarray(bound)[:, 0] for bound in predictive.interval(0.9))
                truth = {
                    "nll": -np.mean(predictive.log_prob(y)),
                    "rmse": np.sqrt(np.mean((np.asarray(predictive.mean)[:, 0] - np.ravel(y)) ** 2)),
                    "coverage_90": np.mean((lower <= np.ravel(y)) & (np.ravel(y) <= upper)),
                }
                for key, value in truth.items():
                    assert values[key]["value"][place] == pytest.approx(value, rel=1e-4), (name, condition, severity)


def test_an_attack_is_on_the_method_and_its_transfer_on_one_network_for_all(found):
    _, comparison = found
    problem, _ = comparison.problems[0]
    (fold,) = problem.folds
    told = comparison.results["problems"][0]["shift"]["found"]
    for name in METHODS:
        (posterior,) = comparison.posteriors[problem.name][name]
        for condition, attacked in (("attack", posterior), ("transfer", fold.memory["attacker"])):
            x = attack(attacked, fold.x_test, fold.y_test, 0.3)
            assert np.abs(x - fold.x_test).max() == pytest.approx(0.3, rel=1e-5)
            loss = -np.mean(posterior.predict(x, min(posterior.num_draws, 100)).log_prob(fold.y_test))
            values = told[name][condition]["nll"]["value"]
            assert values[-1] == pytest.approx(loss, rel=1e-4)
            assert values[0] < values[1] < values[2]


def test_it_is_part_of_a_rows_record_and_is_not_found_again(found, monkeypatch):
    folder, comparison = found
    before = comparison.results["problems"][0]["shift"]
    written = json.loads((folder / "results.json").read_text())["problems"][0]["shift"]
    assert written == before

    def never(*_):
        raise AssertionError("scored again")

    monkeypatch.setattr(robustness, "_scored", never)
    again = small.compare(folder, **ASKED).results["problems"][0]["shift"]
    assert again == before


def test_a_folder_of_other_shifts_is_refused(found):
    folder, _ = found
    with pytest.raises(StoreError, match="other settings"):
        small.compare(folder, **(ASKED | {"shift": ["drift"]}))


def test_what_is_said_follows_from_what_is_written(found):
    _, comparison = found
    problem = comparison.results["problems"][0]
    shift = problem["shift"]
    assert shift_words({name: problem[name] for name in ("rows", "data", "shift", "reference")}) == shift["texts"]
    told = " ".join(shift["texts"])
    name = problem["answers"]["use"]["row"]
    label = next(row["label"] for row in problem["rows"] if row["name"] == name)
    values = shift["found"][name]["noise"]["coverage_90"]["value"]
    assert label in told and f"noise {100 * values[-1]:.0f}" in told
    for condition, leaders in shift["leaders"].items():
        losses = {row: each[condition]["nll"]["value"][-1] for row, each in shift["found"].items() if condition in each}
        assert leaders[0] == min(losses, key=losses.get)


def test_one_that_promises_too_much_is_told_and_one_that_does_not_is_not():
    def problem(held):
        values = {"value": [0.9, held], "se": [0.02, 0.02]}
        plain = {"value": [1.0, 2.0], "se": [None, None]}
        row = {"name": "m", "label": "M", "role": "method", "fidelity": "point", "status": "done"}
        row |= {"scores": {"seconds": {"value": 1.0}}, "promise": None}
        row["versus_best"] = {"nll": {"difference": 0.0, "indistinguishable": True}}
        found = {"m": {"noise": {"rmse": plain, "nll": plain, "coverage_90": values}}}
        shift = {"rows": 100, "found": found, "leaders": {"noise": ["m"]}, "left_out": {"unseen": "no categories"}}
        return {"rows": [row], "data": {"kind": "regression"}, "shift": shift}

    assert "promises more than it holds under noise" in " ".join(shift_words(problem(0.7)))
    assert "holds what it promises" in " ".join(shift_words(problem(0.87)))
    assert "Not tried: unseen (no categories)." in shift_words(problem(0.87))
    assert shift_words({"rows": [], "shift": None}) == []


@pytest.mark.parametrize("has_converged", [True, False])
def test_a_reference_stands_for_the_exact_answer_only_where_it_has_converged(has_converged):
    plain = {"value": [1.0, 2.0], "se": [0.1, 0.1]}
    scores = {"noise": {"rmse": plain, "nll": plain, "coverage_90": {"value": [0.9, 0.6], "se": [0.02, 0.02]}}}
    rows = [
        {"name": name, "label": name, "role": role, "fidelity": "exact", "status": "done", "promise": None}
        | {
            "scores": {"seconds": {"value": 1.0}},
            "versus_best": {"nll": {"difference": 0.0, "indistinguishable": True}},
        }
        for name, role in (("m", "method"), ("truth", "reference"))
    ]
    shift = {"rows": 9, "found": {"m": scores, "truth": scores}, "leaders": {}, "left_out": {}}
    problem = {"rows": rows, "data": {"kind": "regression"}, "shift": shift, "reference": {"converged": has_converged}}
    assert ("stands for the exact answer" in " ".join(shift_words(problem))) == has_converged


def test_classes_and_images(tmp_path):
    """Corrupted images, accuracy and calibration of classes; a row that cannot be attacked says so."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = (0.5 + 0.3 * (2 * y[:, None, None, None] - 1) * np.eye(8)[None, :, :, None]).astype(np.float32)
    x = np.clip(x + 0.05 * rng.normal(size=x.shape), 0, 1).astype(np.float32)
    network = po.Network(
        lambda key, x: {"w": np.zeros((64, 2), np.float32)}, lambda params, x: x.reshape(len(x), -1) @ params["w"]
    )
    model = po.Model(network, likelihood=po.likelihoods.Categorical())
    comparison = po.compare(
        model, (x, y), {"map": po.MAP(num_epochs=100)}, reference=None, baselines=True, shift="contrast", attack=0.2
    )
    shift = comparison.results["problems"][0]["shift"]
    values = shift["found"]["map"]["contrast"]
    assert len(values["accuracy"]["value"]) == 6 and values["nll"]["value"][-1] > values["nll"]["value"][0]
    assert shift["conditions"][-1]["unit"] == "of the range of a pixel"
    assert all("attack" not in shift["found"].get(name, {}) for name in ("linear", "boosting"))
    assert "sure" in " ".join(shift["texts"])


def test_images_of_bytes_are_corrupted_and_pixels_are_named_only_where_x_is_in_their_range():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (40, 8, 8)).astype(np.uint8), np.arange(40) % 2
    network = po.Network(
        lambda key, x: {"w": np.zeros((64, 2), np.float32)},
        lambda params, x: (x.reshape(len(x), -1) / np.float32(255)) @ params["w"],
    )
    model = po.Model(network, likelihood=po.likelihoods.Categorical())
    asked = {"reference": None, "baselines": False, "shift": "contrast", "attack": 0.2}

    def shift(x):
        found = po.compare(model, (x, y), {"map": po.MAP(num_epochs=5)}, **asked)
        return found.results["problems"][0]["shift"]

    of_bytes = shift(x)
    assert list(of_bytes["found"]["map"]) == ["contrast"] and "whole numbers" in of_bytes["left_out"]["transfer"]
    assert shift(x.astype(np.float32))["conditions"][-1]["unit"] == "in the units of x"
