"""Whether counts deserve a likelihood of their own: the fast recipe with three likelihoods on simulated counts.

Held-out negative log-likelihood of the count itself (of a normal, the mass between half numbers), error, and how often
90 % intervals hold. `posteria.models.model.default_likelihood` follows from it. `MOST_COUNTED`, a mean of
50, does not: nothing above a mean of about 30 is measured here, nor any real table. With `--qualities` presets of the
default likelihood stand side by side instead.
"""

import argparse
import warnings

import numpy as np
from measure import print_table

ROWS, TESTED = 1000, 250
LEVEL = 0.9


def simulated(name: str, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = random.normal(size=(ROWS, 4))
    f = 0.5 * x[:, 0] + 0.5 * np.sin(2 * x[:, 1])
    if name == "poisson":
        return x, random.poisson(np.exp(0.3 + f))
    if name == "spread":
        return x, random.poisson(np.exp(1 + f) * random.gamma(1.5, 1 / 1.5, ROWS))
    if name == "wide":  # a mean of about 30
        return x, random.poisson(np.exp(3.3 + f) * random.gamma(4, 1 / 4, ROWS))
    if name == "zeros":
        return x, random.poisson(np.exp(1.2 + f)) * (random.uniform(size=ROWS) < 0.7)
    return x, random.binomial(8, 1 / (1 + np.exp(-1.5 * f)))  # "narrow": less spread than Poisson's


NAMES = ("poisson", "spread", "wide", "zeros", "narrow")


def main() -> None:
    import posteria as po

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--qualities", nargs="+", default=[])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    likelihoods = (po.likelihoods.Gaussian(), po.likelihoods.Poisson(), po.likelihoods.NegativeBinomial())
    cases = [(po.likelihoods.NegativeBinomial(), quality) for quality in arguments.qualities]
    cases = cases or [(likelihood, "fast") for likelihood in likelihoods]
    found = []
    for name in arguments.tables:
        x, counts = simulated(name, np.random.default_rng(0))
        x_test, y, row = x[:TESTED], counts[:TESTED].astype(float), [name]
        for likelihood, quality in cases:
            model = po.Regressor(likelihood=likelihood, quality=quality)
            model.fit(x[TESTED:], counts[TESTED:].astype(float))
            predictive, (lower, upper) = model._predict(x_test), model.interval(x_test, LEVEL)
            if likelihood.kind == "counts":
                log_mass = predictive.log_prob(y)
            else:
                log_mass = np.log(np.maximum((predictive.cdf(y + 0.5) - predictive.cdf(y - 0.5))[:, 0], 1e-6))
                lower, upper = np.ceil(lower - 0.5), np.floor(upper + 0.5)
            error = np.sqrt(((model.predict(x_test) - y) ** 2).mean())
            row += [f"{-log_mass.mean():.3f}", f"{error:.2f}", f"{((lower <= y) & (y <= upper)).mean():.0%}"]
        found.append(row)
    names = arguments.qualities or ("normal", "Poisson", "negative binomial")
    columns = ["counts", *(f"{name} {what}" for name in names for what in ("NLL", "RMSE", "held"))]
    print_table(f"{ROWS - TESTED} rows to fit, {TESTED} to test on", columns, found)


if __name__ == "__main__":
    main()
