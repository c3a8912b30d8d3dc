"""What `honesty.py` stands beside, on one split: run in an environment of its own (`honesty_peers.txt`).

    python honesty_peers.py SPLIT.npz ANSWER.npz PEER SEED

A peer answers with its mean, its quantiles at the levels asked for, and the log density at y_new. The first three are
mixtures of normals, and so is what is scored:

- catboost: RMSEWithUncertainty, ten virtual ensembles, each a mean and a variance; stopped early on 20 % of the rows
  (without `posterior_sampling`, with which it was no better);
- ngboost: one normal; stopped early on 20 % of the rows;
- bde: a normal for each draw, eight members, two hidden layers of 50 (`bde_peer.py` has the same settings);
- boosting: HistGradientBoostingRegressor, CV+ of Barber et al. 2021 over five folds. Quantiles are those of every
  out-of-fold residual added to its fold's prediction; the density, which CV+ has none of, is that of Student's t fitted
  to the residuals, around the same five predictions.
"""

import os
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import numpy as np
from scipy import stats
from scipy.optimize import minimize
from scipy.special import logsumexp

VALIDATION = 0.2
FOLDS = 5
VIRTUAL_ENSEMBLES = 10
BISECTIONS = 50
DRAWS = 200  # of bde's, spread evenly, that are scored
BDE = {
    "n_members": 8,
    "hidden_layers": [50, 50],
    "epochs": 1000,
    "patience": 50,
    "lr": 3e-3,
    "warmup_steps": 500,
    "n_samples": 100,
    "n_thinning": 10,
}

Answer = tuple[np.ndarray, np.ndarray, np.ndarray]  # mean (n,), quantiles (level, n), log density (n,)


def main() -> None:
    _, file, answer, peer, seed = sys.argv
    part = np.load(file)
    began = time.perf_counter()
    mean, quantiles, log_prob = PEERS[peer](part, int(seed))
    seconds = time.perf_counter() - began
    np.savez(answer, mean=mean, quantiles=quantiles, log_prob=log_prob, seconds=seconds)


def catboost(part, seed: int) -> Answer:
    from catboost import CatBoostRegressor

    held, rest = held_out(len(part["y"]), seed)
    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty",
        early_stopping_rounds=50,
        random_seed=seed,
        verbose=False,
        allow_writing_files=False,
        thread_count=2,
    )
    model.fit(part["x"][rest], part["y"][rest], eval_set=(part["x"][held], part["y"][held]))
    ensembles = model.virtual_ensembles_predict(
        part["x_new"], prediction_type="VirtEnsembles", virtual_ensembles_count=VIRTUAL_ENSEMBLES
    )  # (n, ensemble, mean and variance)
    return mixture(ensembles[:, :, 0].T, np.sqrt(ensembles[:, :, 1]).T, part)


def ngboost(part, seed: int) -> Answer:
    from ngboost import NGBRegressor

    held, rest = held_out(len(part["y"]), seed)
    model = NGBRegressor(n_estimators=2000, random_state=seed, verbose=False)
    model.fit(part["x"][rest], part["y"][rest], X_val=part["x"][held], Y_val=part["y"][held], early_stopping_rounds=50)
    params = model.pred_dist(part["x_new"], max_iter=model.best_val_loss_itr).params
    return mixture(params["loc"][None], params["scale"][None], part)


def bde(part, seed: int) -> Answer:
    from bde import BdeRegressor

    centre, scale = part["x"].mean(0), part["x"].std(0)
    x, x_new = (((part[name] - centre) / scale).astype(np.float32) for name in ("x", "x_new"))
    y_mean, y_std = part["y"].mean(), part["y"].std()
    model = BdeRegressor(seed=seed, **BDE).fit(x, ((part["y"] - y_mean) / y_std).astype(np.float32))
    raw = np.asarray(model.predict(x_new, raw=True), np.float64)  # (member, draw, n, 2)
    raw = raw.reshape(-1, *raw.shape[-2:])
    raw = raw[np.linspace(0, len(raw) - 1, min(DRAWS, len(raw))).round().astype(int)]
    std = np.logaddexp(raw[..., 1], 0.0) + 1e-6  # as bde's own predictions have it
    return mixture(y_mean + y_std * raw[..., 0], y_std * std, part)


def boosting(part, seed: int) -> Answer:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import KFold

    x, y, x_new = part["x"], part["y"], part["x_new"]
    residuals, at_new = np.empty(len(y)), np.empty((len(y), len(x_new)))
    predictions = []
    for rest, held in KFold(FOLDS, shuffle=True, random_state=seed).split(x):
        model = HistGradientBoostingRegressor(random_state=seed).fit(x[rest], y[rest])
        residuals[held] = y[held] - model.predict(x[held])
        predictions.append(model.predict(x_new))
        at_new[held] = predictions[-1]
    quantiles = np.quantile(at_new + residuals[:, None], part["levels"], axis=0)
    df, width = student_t(residuals)
    log_prob = stats.t.logpdf((part["y_new"] - np.stack(predictions)) / width, df) - np.log(width)
    return np.mean(predictions, axis=0), quantiles, logsumexp(log_prob, axis=0) - np.log(FOLDS)


def student_t(residuals: np.ndarray) -> tuple[float, float]:
    """Degrees of freedom (above 2) and scale of greatest likelihood."""
    size = residuals.std() + 1e-12

    def negative_log_likelihood(at: np.ndarray) -> float:
        df, width = 2 + np.exp(at[0]), np.exp(at[1])
        return float(-np.mean(stats.t.logpdf(residuals / size / width, df) - np.log(width)))

    best = minimize(negative_log_likelihood, np.zeros(2), method="Nelder-Mead")
    return 2 + np.exp(best.x[0]), size * np.exp(best.x[1])


def mixture(means: np.ndarray, stds: np.ndarray, part) -> Answer:
    """Of normals with equal weights: (component, n)."""
    log_prob = stats.norm.logpdf(part["y_new"], means, stds)
    quantiles = [mixture_quantile(level, means, stds) for level in part["levels"]]
    return means.mean(0), np.stack(quantiles), logsumexp(log_prob, axis=0) - np.log(len(means))


def mixture_quantile(level: float, means: np.ndarray, stds: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr, ndtri

    ends = means + stds * ndtri(level)
    lower, upper = ends.min(0), ends.max(0)  # the mixture's lies between its components'
    for _ in range(BISECTIONS if len(means) > 1 else 0):
        middle = (lower + upper) / 2
        is_below = ndtr((middle - means) / stds).mean(0) < level
        lower, upper = np.where(is_below, middle, lower), np.where(is_below, upper, middle)
    return (lower + upper) / 2


def held_out(num_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(seed).permutation(num_rows)
    return np.split(order, [max(1, int(VALIDATION * num_rows))])


PEERS = {"catboost": catboost, "ngboost": ngboost, "boosting": boosting, "bde": bde}

if __name__ == "__main__":
    main()
