"""HMC on UCI tables beside the published HMC: one hidden layer of 50, both outputs of a heteroscedastic Gaussian.

The verdict is on the scores alone: whether the chains have converged stands beside it, as the share of test points
with R-hat below 1.05.

Published: Izmailov et al. 2021, mean and standard deviation over 20 splits, read off a figure. Here: the first standard
splits.
"""

import argparse
import math

import numpy as np
from measure import print_table, with_convergence
from tables import load_split, log_likelihood, rmse

import posteria as po

PUBLISHED = {  # (RMSE, its sd), (mean test log-likelihood, its sd); no sd was readable for energy's RMSE
    "concrete": ((4.48, 0.5), (-2.67, 0.1)),
    "yacht": ((0.66, 0.27), (0.55, 0.2)),
    "energy": ((0.37, None), (-1.05, 1.9)),
}
PRIORS = {"fan-in": po.priors.FanIn(), "normal": po.priors.Normal(math.sqrt(1 / 10))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=PUBLISHED, default=[*PUBLISHED])
    parser.add_argument("--priors", nargs="+", choices=PRIORS, default=["fan-in"], help="normal has variance 1/10")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--max-seconds", type=float, default=120.0, help="of a fit; there is one a split")
    parser.add_argument("--max-leapfrog", type=int, default=po.HMC().max_leapfrog)
    parser.add_argument("--warmup", type=int, default=po.HMC().num_warmup)
    parser.add_argument("--acceptance", type=float, default=po.HMC().target_acceptance, help="that warm-up aims at")
    arguments = parser.parse_args()
    po.use_cores()
    method = po.HMC(
        max_leapfrog=arguments.max_leapfrog, num_warmup=arguments.warmup, target_acceptance=arguments.acceptance
    )
    rows = []
    for name in arguments.sets:
        for prior in arguments.priors:
            scores = [score(name, number, prior, method, arguments.max_seconds) for number in range(arguments.splits)]
            rows += [[f"{name}, {prior}, split {number + 1}", *each, ""] for number, each in enumerate(scores)]
            shares = [float(each[4].rstrip("%")) / 100 for each in scores]
            rows.append(summary(name, prior, np.array([each[:2] for each in scores]), shares))
        (error, error_sd), (density, density_sd) = PUBLISHED[name]
        rows.append([f"{name}, published", f"{error} ± {error_sd or '?'}", f"{density} ± {density_sd}", *[""] * 5])
    columns = ["", "RMSE", "log-lik.", "s", "draws", "R-hat < 1.05", "accepted", "verdict"]
    print_table("HMC, 50 hidden units, heteroscedastic Gaussian, in the data's own units", columns, rows)


def score(name: str, number: int, prior: str, method: po.HMC, max_seconds: float) -> list:
    split = load_split(name, number)
    model = po.Model(po.nn.mlp((50,), outputs=2), po.likelihoods.HeteroscedasticGaussian(), PRIORS[prior])
    posterior = po.fit(model, split.train, method, key=number, max_seconds=max_seconds)
    predictive = posterior.predict(split.test[0])
    diagnosis = posterior.diagnose(split.test[0])
    return [
        rmse(predictive, split),
        log_likelihood(predictive, split),
        f"{posterior.facts['seconds']:.0f}",
        posterior.num_draws,
        f"{diagnosis.share_converged:.0%}",
        f"{diagnosis.acceptance:.2f}",
    ]


def summary(name: str, prior: str, scores: np.ndarray, shares: list[float]) -> list:
    """Means over splits; met where both are within a published standard deviation of the published mean, or better."""
    error, density = scores.mean(0)
    (wanted_error, error_sd), (wanted_density, density_sd) = PUBLISHED[name]
    is_met = error <= wanted_error + (error_sd or 0.0) and density >= wanted_density - density_sd
    verdict = with_convergence("met" if is_met else "MISSED", shares)
    return [f"{name}, {prior}, mean", error, density, "", "", "", "", verdict]


if __name__ == "__main__":
    main()
