"""The estimators with no setting changed, beside scikit-learn's gradient boosting, five random splits each.

70 % of the rows to fit, 15 % to calibrate, 15 % to test. Wanted: RMSE (or error) within 15 % of boosting's, 90 %
intervals that cover 85 to 95 % before `calibrate` and 88 to 92 % after. Both are means over the splits; boosting is
fitted to the same 70 %. With `--bde PYTHON` (of an environment that has sklearn-contrib-bde) bde stands beside them, on
the first split.
"""

import argparse
import json
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from measure import print_table, use_shared_data

REGRESSION = ("diabetes", "concrete", "wine", "power", "kin8nm", "protein")
CLASSES = ("breast-cancer", "digits")
ROWS = {"protein": 5000}
LEVEL = 0.9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=[*REGRESSION, *CLASSES])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--method", default="laplace")
    parser.add_argument("--bde", metavar="PYTHON", default=None)
    arguments = parser.parse_args()
    use_shared_data()
    warnings.simplefilter("ignore")
    rows = [judge(name, arguments.seeds, arguments.method) for name in arguments.sets]
    columns = ["", "rows", "seconds", "RMSE or error", "boosting's", "ratio", "90 % covers", "calibrated", "verdict"]
    print_table(f"Defaults ({arguments.method}), {arguments.seeds} splits", columns, rows)
    if arguments.bde:
        peers = [beside_bde(name, arguments.method, arguments.bde) for name in arguments.sets]
        columns = ["", "RMSE or error", "bde's", "boosting's", "90 % covers", "bde's", "seconds", "bde's"]
        print_table("Beside bde, the first split", columns, peers)


def table(name: str) -> tuple[np.ndarray, np.ndarray, str]:
    from posteria.data import load

    data = load(name)
    keep = np.random.default_rng(0).permutation(len(data.y))[: ROWS.get(name)]
    return data.x[keep].reshape(len(keep), -1), data.y[keep], data.kind


def judge(name: str, num_seeds: int, method: str) -> list:
    x, y, kind = table(name)
    one = regression if kind == "regression" else classes
    results = np.array([one(x, y, seed, method) for seed in range(num_seeds)])  # (seed, figure)
    ours, boosting, before, after, seconds = results.mean(0)
    is_met = ours <= 1.15 * boosting
    shown = ["", ""]
    if kind == "regression":
        is_met &= 0.85 <= before <= 0.95 and 0.88 <= after <= 0.92
        shown = [f"{before:.1%}", f"{after:.1%}"]
    verdict = "met" if is_met else "MISSED"
    return [name, len(y), f"{seconds:.0f}", float(ours), float(boosting), f"{ours / boosting:.2f}", *shown, verdict]


def beside_bde(name: str, method: str, python: str) -> list:
    x, y, kind = table(name)
    ours = (regression if kind == "regression" else classes)(x, y, 0, method)
    fitted, _, new = parts(len(y), 0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "split.npz"
        np.savez(file, x=x[fitted], y=y[fitted], x_new=x[new], y_new=y[new])
        command = [python, str(Path(__file__).parent / "bde_peer.py"), str(file), kind, "0"]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    bde = json.loads(answer.splitlines()[-1])
    error, boosting, before, _, seconds = map(float, ours)
    shown = [f"{share:.1%}" if share == share else "" for share in (before, bde["covered"])]
    return [name, error, bde["error"], boosting, *shown, f"{seconds:.0f}", f"{bde['seconds']:.0f}"]


def regression(x: np.ndarray, y: np.ndarray, seed: int, method: str) -> tuple:
    from sklearn.ensemble import HistGradientBoostingRegressor

    import posteria as po

    fitted, held, new = parts(len(y), seed)
    began = time.perf_counter()
    model = po.Regressor(method, random_state=seed).fit(x[fitted], y[fitted])
    seconds = time.perf_counter() - began
    rmse = np.sqrt(np.mean((model.predict(x[new]) - y[new]) ** 2))
    before = covered(model, x[new], y[new])
    after = covered(model.calibrate(x[held], y[held]), x[new], y[new])
    boosted = HistGradientBoostingRegressor(random_state=seed).fit(x[fitted], y[fitted])
    return rmse, np.sqrt(np.mean((boosted.predict(x[new]) - y[new]) ** 2)), before, after, seconds


def classes(x: np.ndarray, y: np.ndarray, seed: int, method: str) -> tuple:
    from sklearn.ensemble import HistGradientBoostingClassifier

    import posteria as po

    fitted, _, new = parts(len(y), seed)
    began = time.perf_counter()
    model = po.Classifier(method, random_state=seed).fit(x[fitted], y[fitted])
    seconds = time.perf_counter() - began
    boosted = HistGradientBoostingClassifier(random_state=seed).fit(x[fitted], y[fitted])
    errors = (1 - each.score(x[new], y[new]) for each in (model, boosted))
    return *errors, np.nan, np.nan, seconds


def parts(num_rows: int, seed: int) -> tuple[np.ndarray, ...]:
    order = np.random.default_rng(seed).permutation(num_rows)
    return tuple(np.split(order, [int(0.7 * num_rows), int(0.85 * num_rows)]))


def covered(model, x: np.ndarray, y: np.ndarray) -> float:
    lower, upper = model.interval(x, LEVEL)
    return float(np.mean((lower <= y) & (y <= upper)))


if __name__ == "__main__":
    main()
