"""The joint log-loss that a comparison prints is that of brute force, over groups of neighbouring test rows."""

import jax
import numpy as np
import pytest

import posteria as po
from comparison import small
from posteria.comparison.judge.grades import joint_loss, log_probs_by_draw, picture_of
from posteria.metrics import neighbours


def test_it_is_that_of_brute_force():
    comparison = small.compare(
        None,
        methods={"map": po.MAP(num_epochs=200), "ensemble": po.Ensemble(po.MAP(num_epochs=50), 3)},
        reference=None,
        seeds=1,
        baselines=True,
    )
    problem, _ = comparison.problems[0]
    (fold,) = problem.folds
    found = comparison.results["problems"][0]
    scores = {row["name"]: row["scores"]["joint"]["value"] for row in found["rows"]}
    groups = neighbours(fold.x_test, 10)
    for name in ("map", "ensemble"):
        (posterior,) = comparison.posteriors[problem.name][name]
        params = posterior.sample_params(jax.random.key(0), posterior.num_draws)
        total = []
        for group in groups:
            densities = []
            for draw in range(posterior.num_draws):
                one = {
                    part: {key: np.asarray(leaf)[draw] for key, leaf in flat(tree).items()}
                    for part, tree in params.items()
                }
                densities.append(np.prod([density(posterior, one, fold.x_test[i], fold.y_test[i]) for i in group]))
            total.append(-np.log(np.mean(densities)) / len(group))
        assert scores[name] == pytest.approx(np.mean(total), rel=1e-4)
    marginal = comparison.records[problem.name, "linear", 0].arrays["row_scores"]
    assert scores["linear"] == pytest.approx(-np.mean(marginal[groups]), rel=1e-6)  # it knows of no two rows together
    assert any(column["key"] == "joint" for column in found["columns"])
    assert "joint NLL" in comparison.table()


def flat(tree) -> dict:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def density(posterior, params: dict, x: np.ndarray, y: float) -> float:
    """Of a linear model with a Gaussian noise, written out."""
    leaves = list(params["network"].values())
    weight = next(leaf for leaf in leaves if leaf.ndim == 2)
    bias = next(leaf for leaf in leaves if leaf.ndim == 1)
    noise = float(
        posterior.model.likelihood.noise_std({k.strip("[]'"): v for k, v in params["likelihood"].items()}).ravel()[0]
    )
    mean = float((x @ weight + bias)[0])
    return float(np.exp(-0.5 * ((float(np.ravel(y)[0]) - mean) / noise) ** 2) / (noise * np.sqrt(2 * np.pi)))


def test_the_unit_of_the_target_is_counted():
    """In units a hundredth as large the density is, and so its logarithm moves by log(100)."""
    comparison = small.compare(None, methods={"map": po.MAP(num_epochs=50)}, reference=None, seeds=1)
    problem, _ = comparison.problems[0]
    (fold,) = problem.folds
    log_probs = log_probs_by_draw(comparison.posteriors[problem.name]["map"][0], fold)
    moved = joint_loss(log_probs - np.log(100.0), fold)["joint"] - joint_loss(log_probs, fold)["joint"]
    assert moved == pytest.approx(np.log(100.0))


def test_on_a_log_scale_the_density_is_that_of_the_target_itself():
    random = np.random.default_rng(3)
    x = random.normal(size=(60, 2)).astype(np.float32)
    y = np.exp(3.0 + x[:, 0] + 0.3 * random.normal(size=60))
    scale = po.data.Standardiser.of_logs(y)
    model = po.Model(po.nn.mlp((), outputs=1))
    posterior = po.fit(model, (x, scale.apply(y).astype(np.float32)), po.MAP(num_epochs=50), key=0)
    row = po.grade({"map": posterior}, data=(x, y), scale=scale).results["problems"][0]["rows"][0]["scores"]
    # of a single draw rows are independent: together they score as they do alone
    assert row["joint"]["value"] == pytest.approx(row["nll"]["value"], abs=0.2)


def test_a_calibrated_prediction_is_not_pictured_by_its_draws():
    """Its NLL is not theirs: the line would end elsewhere than the table."""
    x, y = (part[:60] for part in small.problem()[1])
    plain = po.fit(po.Model(po.nn.mlp(())), (x[:30], y[:30]), po.Ensemble(po.MAP(num_epochs=20), 3), key=0)
    log_probs = np.zeros((3, 5))
    assert "by_draws" in picture_of(plain, None, None, log_probs)
    assert "by_draws" not in picture_of(plain.calibrate(x[30:], y[30:]), None, None, log_probs)
