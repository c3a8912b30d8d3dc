"""A folder of results as a comparison leaves it, made up in a second: a curve with a gap, and ten classes.

Numbers are plausible and consistent: scores are those of the arrays. `finished` rows are done; the rest wait.
"""

from pathlib import Path

import numpy as np
from scipy.stats import norm

from posteria.comparison.judge import grades, verdicts
from posteria.comparison.judge.columns import column as made_column
from posteria.comparison.run import records
from posteria.comparison.tell import results
from posteria.comparison.tell.sentences import shift_words

LABELS = {  # name: (label, role, spread as a share of the right one, growth off the data, seconds)
    "nuts": ("NUTS", "reference", 1.0, 1.0, 310.0),
    "map": ("MAP", "method", 0.62, 0.02, 1.9),
    "laplace": ("Laplace", "method", 0.93, 0.75, 2.6),
    "mean-field": ("Mean-field VI", "method", 0.8, 0.25, 6.1),
    "mc-dropout": ("MC dropout", "method", 0.74, 0.18, 4.4),
    "swag": ("SWAG", "method", 0.78, 0.3, 5.2),
    "sghmc": ("SGHMC", "method", 0.98, 0.85, 22.0),
    "ensemble": ("Ensemble of 5", "method", 0.95, 0.9, 9.3),
    "multiswag": ("MultiSWAG", "method", 0.97, 0.95, 27.0),
    "linear": ("Linear", "baseline", 2.2, 0.1, 0.02),
    "boosting": ("Gradient boosting", "baseline", 0.85, 0.05, 0.6),
}
SEEDS = [0, 1, 2]
CLASSES = 10


def folder(path: Path, finished: int = len(LABELS), failed: str | None = "mean-field", converged: bool = True) -> Path:
    """Write results.json and the arrays under `path`; the first `finished` rows other than `failed` are done."""
    problems = [_problem(path, kind, finished, failed, converged) for kind in ("regression", "classes")]
    content = {
        "posteria": "0.1.0",
        "status": "complete" if finished == len(LABELS) else "running",
        "command": "posteria compare --seeds 3 --out a-comparison",
        "created": "2026-11-15T23:00:00+00:00",
        "versions": {"python": "3.11.7", "jax": "0.10.2", "numpy": "2.3.4"},
        "problems": problems,
    }
    path.mkdir(parents=True, exist_ok=True)
    results.write(path, content)
    return path


def _problem(path: Path, kind: str, finished: int, failed: str | None, converged: bool) -> dict:
    name = {"regression": "gap", "classes": "digits"}[kind]
    columns = _columns(kind)
    rows = []
    for number, (row, (label, role, *_)) in enumerate(LABELS.items()):
        status = (
            "failed"
            if row == failed
            else "done"
            if number < finished
            else "running"
            if number == finished
            else "waiting"
        )
        made = {
            "name": row,
            "label": label,
            "role": role,
            "fidelity": {"reference": "exact", "baseline": ""}.get(role, "procedure"),
            "status": status,
            "reason": "DensityError: the log density is not finite at step 140: lower learning_rate"
            if status == "failed"
            else "",
            "labels": ["another model: dropout rates as prior"] if row == "mc-dropout" else [],
            "about": f"What {label} is for, in one line.",
            "settings": {} if role == "baseline" else {"num_epochs": 100},
            "scores": {},
            "versus_best": {},
            "runs": [],
        }
        if status == "done":
            arrays = (_numbers if kind == "regression" else _classes)(row, number)
            arrays |= _training(row, number, kind) if role == "method" else {}
            records.write_picture(path, name, row, arrays)
            made["scores"] = _scores(kind, row, arrays, columns, converged, number)
        rows.append(made)
    _versus_best(rows, columns)
    is_known = finished > 2
    judged = {
        "row": "multiswag",
        "text": "MultiSWAG's predictions are nearest to NUTS's, at a twelfth of its cost: 27 s.",
    }
    problem = {
        "name": name,
        "title": {"regression": "A curve with a gap", "classes": "Handwritten digits"}[kind],
        "data": {
            "name": name,
            "rows": 400,
            "train_rows": 100,
            "test_rows": 300,
            "columns": 1 if kind == "regression" else 64,
            "categorical": 0,
            "kind": kind,
            "target": "y",
            "class_names": None if kind == "regression" else [str(k) for k in range(CLASSES)],
            "fingerprint": "5be1f9d0c77a4a1e",
            "notes": [],
        },
        "setting": {
            "network": "mlp:50,50",
            "likelihood": "Gaussian, noise inferred" if kind == "regression" else "Categorical",
            "prior": "FanIn()",
            "temperature": 1.0,
            "split": "random",
            "seeds": SEEDS,
            "budget": None,
            "tune": False,
            "reference": "nuts",
            "minutes": 10,
        },
        "columns": columns,
        "rows": rows,
        "reference": {
            "name": "nuts",
            "status": "done",
            "converged": converged,
            "rhat_share": 0.99 if converged else 0.4,
            "rhat_worst": 1.04 if converged else 1.9,
            "weights_rhat_share": 0.31,
            "ceiling": {"w1": 0.021, "tv": 0.012} if converged else {},
            "verdict": "NUTS has converged in function space: 99% of R-hats below 1.05, the worst 1.04."
            if converged
            else "NUTS has not converged in function space (40% of R-hats below 1.05): distances to it are not judged.",
            "by_seed": [],
        },
        "answers": {
            "best": {
                "row": "ensemble",
                "rows": ["ensemble"],
                "text": "The ensemble has the lowest NLL, 0.214 ± 0.011, for 9.3 s.",
            },
            "closest": judged if converged else {"row": None, "text": "Not judged: the reference has not converged."},
        }
        if is_known
        else {},
        "next": {
            "fit": "posteria fit data.csv --target y --method ensemble --network mlp:50,50 --out runs/ensemble",
            "predict": "posteria predict runs/ensemble new.csv --interval 0.9 -o out.csv",
        }
        if is_known
        else {},
        "live": None,
    }
    problem["shift"] = _shift(kind, rows)
    problem["shift"]["texts"] = shift_words(problem)
    return problem


def _shift(kind: str, rows: list[dict]) -> dict:
    """Scores that fall with the severity of noise, and with the size of an attack that baselines cannot have."""
    conditions = [
        {"name": "noise", "about": "numbers are measured less well", "is_attack": False, "levels": [0, 1, 2, 3, 4, 5]},
        {
            "name": "attack",
            "about": "rows are moved against the method",
            "is_attack": True,
            "levels": [0, 0.05, 0.1],
            "unit": "standard deviations of a column",
        },
    ]
    titles = {
        "regression": [("rmse", "RMSE", "lower"), ("nll", "NLL", "lower"), ("coverage_90", "in 90 %", "near")],
        "classes": [("accuracy", "accuracy", "higher"), ("nll", "NLL", "lower"), ("ece", "ECE", "lower")],
    }[kind]
    done = [row for row in rows if row["status"] == "done"]
    found: dict = {}
    for number, row in enumerate(done):
        found[row["name"]] = {}
        for one in conditions:
            if one["is_attack"] and row["role"] == "baseline":
                continue
            level = np.linspace(0, 1, len(one["levels"]))
            falling = {
                "rmse": 0.3 + 0.02 * number + level,
                "nll": 0.2 + (2 + number) * level**2,
                "coverage_90": 0.9 - (0.3 + 0.03 * number) * level,
                "width_90": 1 + level,
                "accuracy": 0.95 - 0.4 * level,
                "ece": 0.02 + 0.2 * level,
                "confidence": 0.93 - 0.1 * level,
            }
            errors = {"nll": 0.05, "coverage_90": 0.02, "accuracy": 0.02}
            found[row["name"]][one["name"]] = {
                key: {"value": values.tolist(), "se": [errors.get(key)] * len(level)} for key, values in falling.items()
            }
    return {
        "rows": 300,
        "draws": 100,
        "scores": [{"key": key, "title": title, "better": better} for key, title, better in titles],
        "conditions": conditions if done else [],
        "left_out": {"unseen": "a table without a column of categories"},
        "found": found,
        "leaders": {one["name"]: [done[0]["name"]] for one in conditions} if done else {},
    }


def _training(row: str, number: int, kind: str) -> dict[str, np.ndarray]:
    """Curves of a fit in two stages, one with rows held out."""
    epoch = np.arange(1, 81 if kind == "regression" else 101)
    rising = -100 * np.exp(-epoch / (10 + number))
    arrays = {
        "learning_epoch": epoch,
        "learning_stage": np.repeat(["climb", "polish"], len(epoch) // 2),
        "learning_objective": rising,
    }
    if row == "laplace":
        arrays |= {"learning_training": rising / 100, "learning_validation": rising / 100 - 0.1 * (epoch / 80)}
    return arrays


def _columns(kind: str) -> list[dict]:
    truth, cost = "truth", "cost"
    after = [
        made_column("gradients", "gradients", cost, "Gradient evaluations of the log density, all seeds.", digits=0),
        made_column("seconds", "time", cost, "Wall-clock seconds of one fit.", unit="s", digits=1),
        made_column("draws", "draws", cost, "Draws kept.", digits=0, better="higher"),
        made_column("ms", "one row", cost, "Milliseconds to predict one row.", unit="ms", digits=2),
    ]
    if kind == "regression":
        quality = [
            made_column("rmse", "RMSE", "quality", "Root mean squared error of the mean, in the units of y."),
            made_column("nll", "NLL", "quality", "Negative log likelihood, nats a row."),
            made_column("cov90", "90% covers", "quality", "Share of truths in 90% intervals.", better="near", goal=0.9),
            made_column("width90", "width", "quality", "Mean width of the 90% intervals.", minor=True),
        ]
        return [
            *quality,
            made_column("w1", "W1", truth, "Wasserstein-1 distance to the reference's predictive."),
            *after,
        ]
    quality = [
        made_column(
            "accuracy", "accuracy", "quality", "Share of rows whose most probable class is right.", better="higher"
        ),
        made_column("nll", "NLL", "quality", "Negative log likelihood, nats a row."),
        made_column("ece", "ECE", "quality", "Expected calibration error."),
        made_column("auroc", "OOD AUROC", "quality", "How well entropy tells foreign rows.", better="higher"),
    ]
    nearness = [
        made_column("agreement", "agreement", truth, "Share of rows with the reference's class.", better="higher"),
        made_column("tv", "total variation", truth, "Mean total variation distance to the reference's probabilities."),
    ]
    return [*quality, *nearness, *after]


def _truth(x: np.ndarray) -> np.ndarray:
    return np.sin(5 * x) + 0.6 * x


def _off_data(x: np.ndarray) -> np.ndarray:
    """0 among the training inputs, growing away from them."""
    return np.maximum(np.maximum(-0.1 - x, 0), np.maximum(np.minimum(x - 0.3, 0.7 - x), np.maximum(x - 1.0, 0)))


def _numbers(row: str, number: int) -> dict[str, np.ndarray]:
    _, role, share, growth, _ = LABELS[row]
    random = np.random.default_rng(number)
    common = np.random.default_rng(99)
    train_x = np.sort(np.concatenate([common.uniform(-0.1, 0.3, 50), common.uniform(0.7, 1.0, 50)]))
    train_y = _truth(train_x) + 0.1 * common.standard_normal(100)
    x = common.uniform(-0.2, 1.2, 300)
    noise = 0.1 + 0.9 * _off_data(x)
    y = _truth(x) + noise * common.standard_normal(300)

    def mean_at(at: np.ndarray) -> np.ndarray:
        if row == "linear":
            return 0.4 * at + 0.3
        return _truth(at) + (1.2 - growth) * 0.5 * _off_data(at) * np.sin(9 * at + number)

    def std_at(at: np.ndarray) -> np.ndarray:
        return share * (0.1 + 0.1 * random.uniform() * 0.2) + growth * 0.9 * _off_data(at)

    grid = np.linspace(-0.2, 1.2, 120)
    mean, std = mean_at(x), std_at(x)
    curve_mean, curve_std = mean_at(grid), std_at(grid)
    phases = random.uniform(0, 6, (20, 1))
    wiggles = np.sin(6 * grid + phases) + np.sin(13 * grid + 2 * phases)
    draws = curve_mean + growth * (0.03 + 0.8 * _off_data(grid)) * wiggles * random.standard_normal((20, 1))
    z = norm.ppf(0.5 + np.array(grades.LEVELS) / 2)[:, None]
    arrays = {
        "y": y,
        "mean": mean,
        "std": std,
        "epistemic": np.maximum(std**2 - 0.01, 0),
        "pit": norm.cdf((y - mean) / std),
        "lower": mean - z * std,
        "upper": mean + z * std,
        "curve_x": grid,
        "curve_mean": curve_mean,
        "curve_std": curve_std,
        "curve_lower": curve_mean - 1.645 * curve_std,
        "curve_upper": curve_mean + 1.645 * curve_std,
        "train_x": train_x,
        "train_y": train_y,
    }
    if growth > 0.03 and role != "baseline":
        arrays["curve_draws"] = draws
    return arrays | _of_draws(row, random, float(-norm.logpdf(y, mean, std).mean()))


def _classes(row: str, number: int) -> dict[str, np.ndarray]:
    _, _, share, growth, _ = LABELS[row]
    random, common = np.random.default_rng(number), np.random.default_rng(98)
    y = common.integers(0, CLASSES, 300)
    sharpness = 1.0 / max(share, 0.4)

    def probs_of(logits: np.ndarray) -> np.ndarray:
        exp = np.exp(logits - logits.max(1, keepdims=True))
        return exp / exp.sum(1, keepdims=True)

    signal = common.normal(4.6, 2.0, 300)[:, None] * np.eye(CLASSES)[y]
    probs = probs_of(
        sharpness * (signal + common.standard_normal((300, CLASSES)) + 0.3 * random.standard_normal((300, CLASSES)))
    )
    out = probs_of(sharpness * (3 - 2 * min(growth, 1)) * common.standard_normal((200, CLASSES)))

    def entropy(p: np.ndarray) -> np.ndarray:
        return -(p * np.log(p + 1e-12)).sum(1)

    arrays = {
        "y": y,
        "probs": probs,
        "entropy": entropy(probs),
        "mutual_information": 0.3 * entropy(probs) * min(growth, 1),
        "entropy_out": entropy(out),
        "out_of_distribution": np.array("scrambled"),
    }
    return arrays | _of_draws(row, random, float(-np.log(probs[np.arange(300), y]).mean()))


def _of_draws(row: str, random: np.random.Generator, nll: float) -> dict[str, np.ndarray]:
    arrays = {}
    if LABELS[row][1] != "baseline" and row != "map":
        most = 5 if row == "ensemble" else 200
        numbers = np.unique(np.geomspace(1, most, 7).astype(int))
        arrays["by_draws"] = np.stack([numbers, nll + 0.25 / numbers])
    if row in ("nuts", "sghmc"):
        arrays["function_rhat"] = 1 + np.abs(random.normal(0, 0.012, 400))
        arrays["weight_rhat"] = 1 + random.exponential(0.18, 700)
        arrays["trace"] = -120 + 6 * random.standard_normal((4, 300)) + np.linspace(0, 2, 4)[:, None]
    return arrays


def _scores(kind: str, row: str, arrays: dict, columns: list[dict], converged: bool, number: int) -> dict:
    _, role, _, growth, seconds = LABELS[row]
    y, random = arrays["y"], np.random.default_rng(50 + number)
    distance = 0.02 + 0.3 * abs(1 - growth) * (2.0 if role == "baseline" else 1.0)
    found = {
        "seconds": seconds,
        "draws": 200.0 if "by_draws" in arrays else 1.0,
        "ms": seconds / 10 + 0.2,
        "gradients": 800 * seconds,
    }
    found |= {"w1": distance, "tv": distance / 2, "agreement": 1 - distance / 4}
    if kind == "regression":
        pit = arrays["pit"]
        found["rmse"] = np.sqrt(np.mean((arrays["mean"] - y) ** 2))
        found["nll"] = -norm.logpdf(y, arrays["mean"], arrays["std"]).mean()
        found["cov90"] = np.mean(np.abs(2 * pit - 1) <= 0.9)
        found["width90"] = np.mean(arrays["upper"][2] - arrays["lower"][2])
    else:
        probs = arrays["probs"]
        found["accuracy"] = np.mean(probs.argmax(1) == y)
        found["nll"] = -np.log(probs[np.arange(len(y)), y]).mean()
        found["ece"] = abs(probs.max(1).mean() - found["accuracy"])
        found["auroc"] = np.mean(arrays["entropy_out"][:, None] > arrays["entropy"])
    made = {}
    for column in columns:
        key, value = column["key"], float(found[column["key"]])
        if column["group"] == "truth" and role == "reference":
            made[key] = {"value": None, "se": None, "by_seed": [], "text": "is the truth"}
        elif column["group"] == "truth" and not converged:
            made[key] = {"value": None, "se": None, "by_seed": [], "text": "not judged"}
        else:
            jitter = [0.0] * 3 if column["digits"] == 0 else list(0.02 * abs(value) * random.standard_normal(3))
            made[key] = verdicts.score([value + one for one in jitter])
    return made


def _versus_best(rows: list[dict], columns: list[dict]) -> None:
    done = [row for row in rows if row["status"] == "done" and row["role"] != "reference"]
    for column in columns:
        key = column["key"]
        if column["group"] == "cost" or column["better"] == "near":
            continue
        sign = -1 if column["better"] == "higher" else 1
        known = [row for row in done if row["scores"][key]["value"] is not None]
        if not known:
            continue
        best = min(sign * row["scores"][key]["value"] for row in known)
        for row in known:
            difference = sign * row["scores"][key]["value"] - best
            error = row["scores"][key]["se"] or 0.0
            row["versus_best"][key] = {
                "difference": difference,
                "se": error,
                "indistinguishable": 0 < difference < 2 * error,
                "splits": len(SEEDS),
            }
