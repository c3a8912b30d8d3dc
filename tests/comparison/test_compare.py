"""Comparisons from start to end: what is written is what the posteriors say, killed or not; failures are rows."""

import copy
import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import posteria as po
from comparison import small
from posteria.comparison.judge import grades
from posteria.comparison.run import runner
from posteria.comparison.tell import results
from posteria.errors import DataError, SettingError, StoreError
from posteria.posteriors import store

TIMES = ("seconds", "compile_seconds", "ms_row")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished comparison, and its folder."""
    folder = tmp_path_factory.mktemp("comparison") / "out"
    return small.compare(folder), folder


def row_of(found: dict, name: str) -> dict:
    return next(row for row in found["problems"][0]["rows"] if row["name"] == name)


def without_times(found: dict) -> dict:
    """Results but for what a clock said."""
    found = copy.deepcopy(found)
    found.pop("created")
    for problem in found["problems"]:
        # whom to use is the cheapest of several, by the clock
        problem["answers"] = {key: answer["row"] for key, answer in problem["answers"].items() if key != "use"}
        problem.pop("next")
        for row in problem["rows"]:
            row["scores"] = {key: score for key, score in row["scores"].items() if key not in TIMES}
    return found


def test_what_is_written_is_recomputed_from_the_saved_posteriors(done):
    _, folder = done
    found = results.read(folder)
    (problem,) = found["problems"]
    assert found["status"] == "complete" and problem["reference"]["converged"]
    _, (x, y) = small.problem()
    for row in problem["rows"]:
        assert row["status"] == "done" and len(row["runs"]) == 2
        for seed, run in enumerate(row["runs"]):
            _, test = po.data.train_test(len(x), seed, 0.2)
            predictive = po.load(folder / run).predict(x[test])
            y_test = y[test][:, None]
            lower, upper = predictive.interval(0.9)
            again = {
                "rmse": po.metrics.rmse(predictive.mean, y_test),
                "nll": po.metrics.negative_log_likelihood(predictive.log_prob(y_test)),
                "coverage_90": po.metrics.coverage(lower, upper, y_test),
                "width_90": po.metrics.width(lower, upper),
            }
            for key, value in again.items():
                # intervals are read off a grid of the distribution function, good to 1 % of a std
                tolerance = 0.02 if key == "width_90" else 1e-5  # float32
                assert row["scores"][key]["by_seed"][seed] == pytest.approx(value, rel=tolerance, abs=tolerance)
            levels = po.metrics.quantile_levels(100)
            truth = po.load(folder / row_of(found, "hmc-reference")["runs"][seed]).predict(x[test])
            distance = po.metrics.wasserstein(predictive.quantile(levels), truth.quantile(levels)).mean()
            if row["role"] == "method":
                grid_error = 0.01 * float(predictive.std.mean())
                assert row["scores"]["w1"]["by_seed"][seed] == pytest.approx(distance, abs=grid_error)


def test_the_scores_of_single_rows_are_kept_for_comparing_row_by_row(done):
    comparison, folder = done
    for (problem, row, seed), record in comparison.records.items():
        kept = store.read_arrays(folder / "rows" / problem / f"{row}-{seed}.npz")
        assert kept["row_scores"].shape == (16,)
        assert -kept["row_scores"].mean() == pytest.approx(record.scores["nll"], rel=1e-6)


def test_the_csv_and_the_latex_table_have_the_same_numbers(done):
    _, folder = done
    found = results.read(folder)
    lines = {line["name"]: line for line in csv.DictReader((folder / "results.csv").open())}
    for row in found["problems"][0]["rows"]:
        assert float(lines[row["name"]]["nll"]) == row["scores"]["nll"]["value"]
        assert float(lines[row["name"]]["nll_se"]) == row["scores"]["nll"]["se"]
        assert f"{row['scores']['rmse']['value']:.3f}" in (folder / "results.tex").read_text()


def test_means_standard_errors_and_paired_differences_are_those_of_the_rows_on_disk(done):
    comparison, folder = done
    (problem,) = comparison.results["problems"]
    tests = [po.data.train_test(80, seed, 0.2)[1] for seed in range(2)]

    def error(by_split: np.ndarray) -> float:
        """By rows, which both splits may test on, and by splits."""
        mean = by_split.mean()
        sums = {}
        for rows, values in zip(tests, by_split):
            for row, value in zip(rows, values):
                sums[row] = sums.get(row, 0.0) + (value - mean) / 32
        by_rows = sum(value**2 for value in sums.values()) * len(sums) / (len(sums) - 1)
        within = np.mean([values.var(ddof=1) / 16 for values in by_split])  # of a split's mean, by its own rows
        by_rows_alone = max(0.0, within - by_rows)  # what these put into the variance between two splits
        return np.sqrt(by_rows + max(0.0, by_split.mean(1).var(ddof=1) / 2 - by_rows_alone))

    kept = {
        row["name"]: -np.array(
            [store.read_arrays(folder / f"rows/data/{row['name']}-{seed}.npz")["row_scores"] for seed in range(2)]
        )
        for row in problem["rows"]
    }
    first = min(kept, key=lambda name: kept[name].mean())
    for row in problem["rows"]:
        values = kept[row["name"]]
        assert row["scores"]["nll"]["value"] == pytest.approx(values.mean())
        assert row["scores"]["nll"]["se"] == pytest.approx(error(values))
        versus = row["versus_best"]["nll"]
        assert versus["difference"] == pytest.approx((values - kept[first]).mean())
        assert versus["se"] == pytest.approx(error(values - kept[first]))
        assert versus["indistinguishable"] == (versus["p"] > 0.05)


def test_scores_of_single_rows_have_the_score_as_their_mean(done):
    comparison, _ = done
    for record in comparison.records.values():
        for key in ("rmse", "crps"):
            assert record.arrays[f"row_{key}"].mean() == pytest.approx(record.scores[key], rel=1e-6)
        assert record.arrays["row_held"].mean() == pytest.approx(record.scores["coverage_90"])


def test_without_a_folder_the_numbers_are_the_same(done):
    kept, _ = done
    again = small.compare(None, seeds=1)
    for row in again.results["problems"][0]["rows"]:
        for key, score in row["scores"].items():
            if key not in TIMES:
                assert score["value"] == row_of(kept.results, row["name"])["scores"][key]["by_seed"][0], key
        assert row["runs"] == []
    assert len(again.posteriors["data"]["map"]) == 1
    assert "Best on held-out data" in repr(again) and again.table() in repr(again)
    assert "<table>" in again._repr_html_()


def test_the_pictures_hold_what_results_says_they_do(done):
    _, folder = done
    chains = results.read_picture(folder, "data", "hmc-reference")
    _, (_, y) = small.problem()
    _, test = po.data.train_test(len(y), 0, 0.2)
    np.testing.assert_allclose(chains["y"], y[test], rtol=1e-6)
    assert chains["lower"].shape == chains["upper"].shape == (4, 16)
    assert ((chains["pit"] >= 0) & (chains["pit"] <= 1)).all()
    assert chains["trace"].shape == (2, 200)
    nll = row_of(results.read(folder), "hmc-reference")["scores"]["nll"]["by_seed"][0]
    assert chains["by_draws"][:, -1] == pytest.approx([400, nll], rel=1e-5)
    assert results.read_picture(folder, "data", "nothing") is None


def start_process(folder: Path) -> subprocess.Popen:
    script = Path(small.__file__)
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONPATH": os.pathsep.join([str(script.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    return subprocess.Popen([sys.executable, str(script), str(folder)], env=os.environ | cache, stderr=subprocess.PIPE)


def test_a_comparison_killed_in_the_middle_goes_on_and_ends_the_same(tmp_path, done):
    whole, _ = done
    folder = tmp_path / "out"
    for wanted in ("rows/data/map-0.json", "runs/data/hmc-reference-0/stages/draws/state.npz"):
        process = start_process(folder)
        while not (folder / wanted).exists() and process.poll() is None:
            time.sleep(0.005)
        assert process.poll() is None, process.communicate()[1].decode()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert results.read(folder)["status"] == "running"
    finished = {path: path.stat().st_mtime_ns for path in (folder / "rows").rglob("*.json")}
    manifests = {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("*-[01]/manifest.json")}
    assert len(finished) >= 4
    continued = small.compare(folder)
    for path, written in finished.items():
        assert path.stat().st_mtime_ns == written, f"{path} was graded again"
        run = folder / "runs" / path.relative_to(folder / "rows").with_suffix("") / "manifest.json"
        assert run.stat().st_mtime_ns == manifests[run], f"{run} was fitted again"
    mine, theirs = without_times(continued.results), without_times(whole.results)
    assert json.loads(json.dumps(mine)) == json.loads(json.dumps(theirs))
    assert without_times(results.read(folder)) == mine


def test_a_folder_of_another_comparison_is_refused(done, tmp_path):
    _, folder = done
    before = (folder / results.FILE).read_bytes()
    with pytest.raises(StoreError, match="other settings"):
        small.compare(folder, methods={"map": po.MAP(num_epochs=50)})
    assert (folder / results.FILE).read_bytes() == before
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(StoreError, match="not empty"):
        small.compare(tmp_path)
    assert (tmp_path / "letter.txt").exists()


@dataclass(frozen=True)
class Broken:
    """Fails, for a test."""

    fidelity: ClassVar[str] = "procedure"

    def fit(self, key, target, start, run):
        raise RuntimeError("it broke\nin two lines")


@dataclass(frozen=True)
class OtherModel:
    """The mode under a prior of its own, for a test."""

    fidelity: ClassVar[str] = "point"
    model_differs: ClassVar[str] = "a prior of its own"

    def fit(self, key, target, start, run):
        return po.MAP(num_epochs=100).fit(key, target, start, run)


def test_a_failure_is_a_row_with_its_reason_and_another_model_is_labelled():
    found = small.compare(None, methods=[Broken(), OtherModel()], reference=None, seeds=1).results
    broken, other = row_of(found, "broken"), row_of(found, "other-model")
    assert (broken["status"], broken["reason"]) == ("failed", "it broke")
    assert broken["scores"]["nll"]["value"] is None
    assert other["labels"] == ["another model: a prior of its own"]
    assert other["status"] == "done" and other["about"] == "The mode under a prior of its own, for a test."
    (problem,) = found["problems"]
    assert problem["answers"]["closest"]["row"] is None
    assert all(column["group"] != "truth" for column in problem["columns"])


def test_a_reference_that_has_not_converged_judges_no_one():
    stuck = po.HMC(num_chains=2, num_draws=8, num_warmup=0, num_leapfrog=1, step_size=1e-4, start="prior")
    found = small.compare(None, reference=stuck, seeds=1, methods={"map": small.METHODS["map"]}).results
    (problem,) = found["problems"]
    assert not problem["reference"]["converged"]
    distance = row_of(found, "map")["scores"]["w1"]
    assert distance["value"] is None and distance["text"] == "not judged"
    assert problem["answers"]["closest"]["rows"] == []
    assert "not judged" in problem["answers"]["closest"]["text"]


def test_a_reference_made_elsewhere_is_read_from_a_file(done, tmp_path):
    comparison, _ = done
    truth = comparison.posteriors["data"]["hmc-reference"][0]
    _, (x, _) = small.problem()
    _, test = po.data.train_test(len(x), 0, 0.2)
    quantiles = truth.predict(x[test]).quantile(po.metrics.quantile_levels(100))[..., 0]
    np.savez(tmp_path / "truth.npz", quantiles=quantiles)
    again = small.compare(None, reference=str(tmp_path / "truth.npz"), seeds=1, methods={"map": small.METHODS["map"]})
    mine = row_of(again.results, "map")["scores"]["w1"]["value"]
    theirs = row_of(comparison.results, "map")["scores"]["w1"]["by_seed"][0]
    assert mine == pytest.approx(theirs, rel=0.02)
    np.savez(tmp_path / "wrong.npz", probs=np.ones((3, 2)))
    with pytest.raises(DataError, match="probs"):  # before anything is fitted
        small.compare(None, reference=tmp_path / "wrong.npz", seeds=1)
    with pytest.raises(DataError, match="one split"):
        small.compare(None, reference=tmp_path / "truth.npz", seeds=2)
    with pytest.raises(DataError, match="no file"):
        small.compare(None, reference=tmp_path / "none.npz")


def test_grade_grades_what_is_fitted(done):
    comparison, _ = done
    fitted = {name: posteriors[0] for name, posteriors in comparison.posteriors["data"].items()}
    _, (x, y) = small.problem()
    _, test = po.data.train_test(len(x), 0, 0.2)
    graded = po.grade(fitted, reference="hmc-reference", data=(x[test], y[test]))
    for name in fitted:
        for key in ("rmse", "nll", "w1", "gradients"):
            mine = row_of(graded.results, name)["scores"][key]["value"]
            assert mine == row_of(comparison.results, name)["scores"][key]["by_seed"][0], (name, key)
    with pytest.raises(SettingError, match="nobody"):
        po.grade(fitted, reference="nobody", data=(x, y))


def test_the_ceiling_is_how_chains_agree_with_each_other(done):
    """Chains of independent draws of one Gaussian: their distance falls as theory says, and a stray chain raises it."""
    comparison, _ = done
    posterior = comparison.posteriors["data"]["hmc-reference"][0]
    problem, _ = comparison.problems[0]
    fold = problem.folds[0]
    one, other = (fold.predict(chain, fold.x_test) for chain in grades.chains(posterior))
    levels = po.metrics.quantile_levels(100)
    expected = po.metrics.wasserstein(one.quantile(levels), other.quantile(levels)).mean()
    ceiling = grades.ceiling(posterior, fold, "regression")["w1"]
    assert ceiling == pytest.approx(expected, abs=0.01 * float(one.std.mean()))
    assert row_of(comparison.results, "hmc-reference")["scores"]["w1"]["by_seed"][0] == pytest.approx(ceiling)


def test_a_folder_has_one_writer_and_one_comparison(tmp_path):
    with store.locked(tmp_path / "a"), pytest.raises(StoreError, match="another process"):
        small.compare(tmp_path / "a")
    store.write_json(tmp_path / "b" / "results.json", {"problems": [{"name": "boston"}]})
    with pytest.raises(StoreError, match="holds a comparison on boston"):
        small.compare(tmp_path / "b")


@pytest.mark.slow
def test_a_reference_that_the_clock_ended_is_fitted_anew_with_more_minutes(tmp_path, monkeypatch):
    settings = {"seeds": 1, "methods": {"map": small.METHODS["map"]}}
    with monkeypatch.context() as patch:
        patch.setattr(runner, "_seconds_left", lambda *_: 1e-3)
        short = small.compare(tmp_path / "a", minutes=1e-4, **settings)
    assert row_of(short.results, "hmc-reference")["status"] == "cut short"
    same = small.compare(tmp_path / "a", minutes=1e-4, **settings)
    assert not same.posteriors["data"]  # nothing is fitted again
    longer = small.compare(tmp_path / "a", minutes=10.0, **settings)
    assert row_of(longer.results, "hmc-reference")["status"] == "done"
    assert list(longer.posteriors["data"]) == ["hmc-reference"]
    whole = small.compare(None, minutes=10.0, **settings)
    for key in ("nll", "w1"):
        mine, theirs = (row_of(each.results, "map")["scores"][key]["value"] for each in (longer, whole))
        assert mine == theirs, key
