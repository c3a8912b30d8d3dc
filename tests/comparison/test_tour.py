"""What the tour shows, on the numbers behind its pictures."""

import numpy as np
import pytest

import posteria as po
from posteria.comparison.api import Plan
from posteria.comparison.tour import CLUSTERS, NOISE, SIDE, observed, tour, true_function, wave

REFERENCE = po.NUTS(num_draws=100, num_warmup=150)
LESS = ("map", "ensemble")


def spread(posterior, problem, low: float, high: float) -> float:
    """The mean over [low, high] of the std of the functions, in units of y."""
    curve, fold = problem.curve, problem.folds[0]
    inside = (curve.x >= low) & (curve.x <= high)
    return float(np.sqrt(posterior.predict(curve.inputs).epistemic[inside, 0]).mean() * fold.scale.std)


@pytest.fixture(
    scope="module", params=[pytest.param(i, marks=pytest.mark.slow) for i in (0, 1)], ids=["extrapolation", "gap"]
)
def regression(request):
    made = tour(LESS, REFERENCE, minutes=None)  # however busy the machine is
    made.problems[:] = [made.problems[request.param]]
    return made.run()


def test_spread_grows_where_there_are_no_data_but_for_a_point(regression):
    (problem, _) = regression.problems[0]
    fitted = {name: posteriors[0] for name, posteriors in regression.posteriors[problem.name].items()}
    if problem.name == "gap":
        with_data, without = CLUSTERS, [(CLUSTERS[0][1] + 0.1, CLUSTERS[1][0] - 0.1)]
    else:
        with_data, without = [SIDE], [(0.8, 1.2)]
    for name in ("ensemble", "nuts-reference"):
        inside = max(spread(fitted[name], problem, *part) for part in with_data)
        outside = min(spread(fitted[name], problem, *part) for part in without)
        assert outside > 2 * inside, name
    assert spread(fitted["map"], problem, -0.2, 1.2) == 0.0


def test_the_reference_converges_and_the_ensemble_is_nearer_to_it_than_a_point(regression):
    (problem,) = regression.results["problems"]
    assert problem["reference"]["converged"] and problem["reference"]["rhat_share"] > 0.95
    distance = {row["name"]: row["scores"]["w1"]["value"] for row in problem["rows"]}
    assert distance["nuts-reference"] < distance["ensemble"] < distance["map"]
    assert problem["answers"]["closest"]["row"] == "ensemble"


def test_the_data_are_those_of_the_talk():
    x = np.full(20_000, 0.3)
    y = observed(x, np.random.default_rng(0))
    slope = (true_function(np.array(0.3 + 1e-4)) - true_function(np.array(0.3 - 1e-4))) / 2e-4
    assert y.std() == pytest.approx(abs(slope) * NOISE, rel=0.05)  # the noise moves the input
    made = tour(LESS)
    names = [problem.name for problem, _ in made.problems]
    assert names == ["extrapolation", "gap", "digits"]
    assert all(len(problem.folds[0].y_train) == 100 for problem, _ in made.problems[:2])
    whole = tour().problems
    assert [problem.name for problem, _ in whole] == [*names, "wave"]
    assert all(len(entries) <= 8 for _, entries in whole)


def test_the_wave_is_asked_for_past_its_data():
    problem, entries = wave(3)
    (fold,) = problem.folds
    seen, past = fold.train[0].ravel(), fold.x_test.ravel()
    assert seen.max() < past.min() and len(past) == 300
    kernel = entries[-1].method.prior.left
    assert (past.max() - past.min()) / kernel.period == pytest.approx(3.0, rel=0.01)  # three periods
    other = wave(4)[0].folds[0]
    assert not np.allclose(other.y_test, fold.y_test, atol=0.5)  # another phase


@pytest.mark.slow
def test_a_wave_goes_on_under_a_periodic_prior_and_not_under_the_default():
    problem, entries = wave(0)
    found = Plan([(problem, entries)], "").run().results["problems"][0]
    coverage = {row["name"]: row["scores"]["coverage_90"]["value"] for row in found["rows"]}
    rmse = {row["name"]: row["scores"]["rmse"]["value"] for row in found["rows"]}
    assert 0.8 < coverage["periodic-prior"] < 0.97 and rmse["periodic-prior"] < 0.15  # noise alone is 0.1
    for name in ("infinite-width", "default-prior"):
        assert rmse[name] > 0.25


@pytest.mark.slow
def test_the_whole_tour(tmp_path):
    """All methods there are, with the references it is shown with."""
    found = tour().run(tmp_path / "tour").results
    for problem in found["problems"]:
        if problem["name"] != "wave":
            assert problem["reference"]["rhat_worst"] < 1.05, problem["name"]
        assert {row["status"] for row in problem["rows"]} == {"done"}
