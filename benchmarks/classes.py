"""Whether default probabilities of classes are as good as those of usual methods, and calibrated.

Six tables, five seeds, each another split of 75 % and 25 %. `po.Classifier()` beside logistic regression and boosting
whose temperature is set by out-of-fold predictions. Wanted: a log-likelihood of at least both on five of six tables,
and an expected calibration error (of bins of equal mass, over the rows of all seeds together) of at most 0.04.

    python benchmarks/classes.py --qualities fast balanced
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from measure import use_shared_data
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import posteria as po
from posteria.posteriors.calibrated import best_temperature
from posteria.posteriors.calibrated_predictive import scaled

TABLES = ("digits", "breast cancer", "iris", "wine", "titanic", "penguins")
MOST_ERROR = 0.04


def table(name):
    """(frame, labels)."""
    loaders = {"digits": "digits", "breast cancer": "breast_cancer", "iris": "iris", "wine": "wine"}
    if name in loaders:
        data = getattr(datasets, f"load_{loaders[name]}")(as_frame=True)
        return data.data, data.target.to_numpy()
    use_shared_data()
    frame = pd.read_csv(Path(os.environ["POSTERIA_DATA"]) / "tables" / f"{name}.csv")
    target = {"titanic": "survived", "penguins": "species"}[name]
    frame = frame[frame[target].notna()]
    leak = ["alive"] if name == "titanic" else []  # says the same as the target
    return frame.drop(columns=[target, *leak]), frame[target].to_numpy()


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


def run(name, seed, qualities):
    frame, labels = table(name)
    y = np.unique(labels, return_inverse=True)[1]
    train, test = train_test_split(np.arange(len(y)), test_size=0.25, random_state=seed, stratify=y)
    frames = frame.iloc[train], frame.iloc[test]
    x, x_test = numbers(*frames)
    methods = {"logistic": lambda: logistic(x, y[train], x_test), "boosting": lambda: boosting(x, y[train], x_test)}
    for quality in qualities:
        model = po.Classifier(quality=quality, random_state=seed)
        methods[quality] = lambda model=model: model.fit(frames[0], y[train]).predict_proba(frames[1])
    for method, probabilities in methods.items():
        began = time.perf_counter()
        probs = np.maximum(np.asarray(probabilities(), np.float64), 1e-12)
        yield {
            "table": name,
            "seed": seed,
            "method": method,
            "seconds": time.perf_counter() - began,
            "probs": probs.tolist(),
            "y": y[test].tolist(),
        }


def tell(records):
    methods = list(dict.fromkeys(record["method"] for record in records))
    print(f"{'log-likelihood, ECE':22}" + "".join(f"{method:>18}" for method in methods))
    scores = {}
    for name in dict.fromkeys(record["table"] for record in records):
        line = f"  {name:20}"
        for method in methods:
            own = [record for record in records if (record["table"], record["method"]) == (name, method)]
            probs = np.concatenate([record["probs"] for record in own])
            y = np.concatenate([record["y"] for record in own])
            log_likelihood = np.log(probs[np.arange(len(y)), y]).mean()
            error = po.metrics.ece(probs, y, mode="mass")
            scores[name, method] = log_likelihood, error
            line += f"{log_likelihood:>10.3f}{error:>8.3f}"
        print(line)
    tables = list(dict.fromkeys(name for name, _ in scores))
    for quality in [method for method in methods if method not in ("logistic", "boosting")]:
        rivals = [max(scores[name, rival][0] for rival in ("logistic", "boosting")) for name in tables]
        num = sum(scores[name, quality][0] >= best for name, best in zip(tables, rivals))
        worst = max(scores[name, quality][1] for name in tables)
        seconds = np.median([record["seconds"] for record in records if record["method"] == quality])
        print(f"{quality}: at least both on {num} of {len(tables)}: {'met' if num >= 5 else 'MISSED'}")
        print(
            f"{quality}: largest ECE {worst:.3f}: {'met' if worst <= MOST_ERROR else 'MISSED'}; median {seconds:.1f} s"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--seeds", nargs="+", type=int, default=range(5))
    parser.add_argument("--qualities", nargs="*", default=["fast"])
    parser.add_argument("--records", type=Path, default=None)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    path, records = arguments.records, []
    if path is not None and path.exists():
        records = [json.loads(line) for line in path.read_text().splitlines()]
    done = {(record["table"], record["seed"], record["method"]) for record in records}
    for name in arguments.tables:
        for seed in arguments.seeds:
            wanted = [q for q in arguments.qualities if (name, seed, q) not in done]
            if not wanted and (name, seed, "logistic") in done:
                continue
            for record in run(name, seed, wanted):
                if (name, seed, record["method"]) not in done:
                    records.append(record)
                    if path is not None:
                        with path.open("a") as file:
                            file.write(json.dumps(record) + "\n")
    tell(records)


if __name__ == "__main__":
    main()
