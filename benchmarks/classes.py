"""Whether default probabilities of classes are as good as those of usual methods, and calibrated.

Six tables, five seeds, each another split of 75 % and 25 %. `po.Classifier()` beside logistic regression and boosting
whose temperature is set by out-of-fold predictions. Wanted: a log-likelihood of at least both on five of six tables,
and an expected calibration error (of bins of equal mass, over the rows of all seeds together) of at most 0.04.

So few rows have an error though the probabilities be perfect: "floor" is its mean, and the 95 % quantile in brackets,
where labels are drawn from the prediction itself, one for each row of the table (seeds share rows).

    python benchmarks/classes.py --qualities fast balanced
    python benchmarks/classes.py --choosing      # the tables on which the presets were chosen, one seed
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import classes_tables
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import posteria as po
from posteria.posteriors.calibrated import best_temperature
from posteria.posteriors.calibrated_predictive import scaled

MOST_ERROR = 0.04
NUM_DRAWS = 400  # of labels, for the floor


def numbers(train, test):
    """Frames as others want them: categories as 0/1 columns, medians for what is missing."""
    both = pd.get_dummies(pd.concat([train, test]), dtype=float)
    both = both.fillna(both.iloc[: len(train)].median()).to_numpy(float)
    return both[: len(train)], both[len(train) :]


def logistic(x, y, x_test):
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(x, y)
    return model.predict_proba(x_test)


def boosting(x, y, x_test):
    model = HistGradientBoostingClassifier(random_state=0)
    temperature = best_temperature(cross_val_predict(model, x, y, cv=5, method="predict_proba"), y)
    return scaled(model.fit(x, y).predict_proba(x_test), temperature)


RIVALS = {"logistic": logistic, "boosting": boosting}


def run(name, seed, wanted):
    frame, labels = classes_tables.load(name)
    y = np.unique(labels, return_inverse=True)[1]
    share = 0.25 if name in classes_tables.REPORTED else 0.4
    train, test = train_test_split(np.arange(len(y)), test_size=share, random_state=seed, stratify=y)
    frames = frame.iloc[train], frame.iloc[test]
    x, x_test = numbers(*frames)
    for method in wanted:
        began = time.perf_counter()
        if method in RIVALS:
            probs = RIVALS[method](x, y[train], x_test)
        else:
            probs = po.Classifier(quality=method, random_state=seed).fit(frames[0], y[train]).predict_proba(frames[1])
        probs = np.maximum(np.asarray(probs, np.float64), 1e-12)
        yield {
            "table": name,
            "seed": seed,
            "method": method,
            "seconds": time.perf_counter() - began,
            "probs": probs.tolist(),
            "y": y[test].tolist(),
            "rows": test.tolist(),
        }


def floor(probs, rows):
    """Mean and 95 % quantile of the calibration error of perfect probabilities: labels are drawn from them."""
    random = np.random.default_rng(0)
    places, position = np.unique(rows, return_inverse=True)
    of_row = np.zeros((len(places), probs.shape[1]))
    np.add.at(of_row, position, probs)  # a row's label is one, whichever seed predicts it
    cumulative = np.cumsum(of_row / of_row.sum(1, keepdims=True), axis=1)
    errors = []
    for _ in range(NUM_DRAWS):
        labels = (random.uniform(size=(len(places), 1)) > cumulative[:, :-1]).sum(1)
        errors.append(po.metrics.ece(probs, labels[position], mode="mass"))
    return np.mean(errors), np.quantile(errors, 0.95)


def tell(records):
    methods = list(dict.fromkeys(record["method"] for record in records))
    print(f"{'log-likelihood, ECE':22}" + "".join(f"{method:>18}" for method in methods) + f"{'floor of ECE':>18}")
    scores = {}
    for name in dict.fromkeys(record["table"] for record in records):
        line = f"  {name:20}"
        for method in methods:
            own = [record for record in records if (record["table"], record["method"]) == (name, method)]
            probs, y, rows = (np.concatenate([record[part] for record in own]) for part in ("probs", "y", "rows"))
            log_likelihood = np.log(probs[np.arange(len(y)), y]).mean()
            error = po.metrics.ece(probs, y, mode="mass")
            scores[name, method] = log_likelihood, error
            line += f"{log_likelihood:>10.4f}{error:>8.3f}"
        print(line + "{:>9.3f} ({:.3f})".format(*floor(probs, rows)))  # of the last method
    tables = list(dict.fromkeys(name for name, _ in scores))
    wanted = -(-5 * len(tables) // 6)
    for quality in [method for method in methods if method not in RIVALS]:
        rivals = [max(scores[name, rival][0] for rival in RIVALS) for name in tables]
        num = sum(scores[name, quality][0] >= best for name, best in zip(tables, rivals))
        worst = max(scores[name, quality][1] for name in tables)
        mean = np.mean([scores[name, quality][0] for name in tables])
        seconds = np.median([record["seconds"] for record in records if record["method"] == quality])
        print(f"{quality}: at least both on {num} of {len(tables)}: {'met' if num >= wanted else 'MISSED'}")
        print(
            f"{quality}: largest ECE {worst:.3f}: {'met' if worst <= MOST_ERROR else 'MISSED'}; "
            f"log-likelihood over tables {mean:.4f}; median {seconds:.1f} s"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--choosing", action="store_true", help="the tables that presets were chosen on")
    parser.add_argument("--tables", nargs="+", default=None)
    parser.add_argument("--seeds", nargs="+", type=int, default=None)
    parser.add_argument("--qualities", nargs="*", default=["fast"])
    parser.add_argument("--records", type=Path, default=None)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    tables = arguments.tables or (classes_tables.CHOOSING if arguments.choosing else classes_tables.REPORTED)
    seeds = arguments.seeds or (range(1) if arguments.choosing else range(5))
    path, records = arguments.records, []
    if path is not None and path.exists():
        records = [json.loads(line) for line in path.read_text().splitlines()]
    done = {(record["table"], record["seed"], record["method"]) for record in records}
    for name in tables:
        for seed in seeds:
            wanted = [each for each in (*RIVALS, *arguments.qualities) if (name, seed, each) not in done]
            for record in run(name, seed, wanted) if wanted else ():
                records.append(record)
                if path is not None:
                    with path.open("a") as file:
                        file.write(json.dumps(record) + "\n")
    tell([record for record in records if record["table"] in tables])


if __name__ == "__main__":
    main()
