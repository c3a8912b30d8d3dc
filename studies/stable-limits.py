"""What wide networks become under heavy-tailed priors: stable processes, which are not Gaussian.

With weights of finite variance, scaled by 1/sqrt(width), the sum over hidden units tends to a Gaussian (Neal 1996,
section 2.1). With Student-t weights of df = alpha < 2 degrees of freedom the variance is infinite, the scale that keeps
the sum finite is width^(-1/alpha), and its limit is a stable distribution of index alpha: single hidden units go on
standing out, however many there are (Neal 1996, section 2.2; Der & Lee 2005; Peluchetti, Favaro & Fortini 2020).

For each prior and width: the kurtosis-free measures of an output's tails, P(|f| > 5 and 20 medians of |f|), Hill's
estimate of their index, and the share of an output's sum of squares that its largest hidden unit has.

    make study NAME=stable-limits               2,000 draws: half a minute
    make study NAME=stable-limits SCALE=full    20,000 draws: some minutes
"""

import numpy as np
from _study import begin, row

WIDTHS = (10, 100, 1000)
PRIORS = {"Normal": None, "Student-t 3": 3.0, "Student-t 1.5": 1.5, "Cauchy": 1.0}
DRAWS = {"small": 2000, "full": 20_000}
X = np.array([0.7, -0.4, 1.0])  # the last one is the bias


def outputs(rng: np.random.Generator, df: float | None, width: int, num: int) -> tuple[np.ndarray, np.ndarray]:
    """One-hidden-layer tanh networks at one input, and the share of the largest unit in the sum of squares."""
    index = 2.0 if df is None or df > 2 else df
    values, shares = np.empty(num), np.empty(num)
    for i in range(num):
        draw = rng.normal if df is None else lambda size: rng.standard_t(df, size)
        hidden = np.tanh(draw(size=(width, 3)) @ X)
        terms = draw(size=width) * hidden * width ** (-1 / index)
        values[i] = terms.sum()
        shares[i] = (terms**2).max() / (terms**2).sum()
    return values, shares


def hill(values: np.ndarray) -> float:
    """Of the upper 2 % of |f|: the index of a tail P(|f| > t) ~ t^-index."""
    largest = np.sort(np.abs(values))[-max(20, len(values) // 50) :]
    return float(1 / np.mean(np.log(largest[1:] / largest[0])))


def main() -> None:
    args = begin(__doc__)
    print("a Gaussian has P(|f| > 5 medians) = 0.0007, P(> 20) = 0, and no index; its largest unit's share goes to 0")
    widths = (16, 8, 17, 12, 10, 18)
    row(["prior", "width", "P(> 5 medians)", "P(> 20)", "index", "largest unit, %"], widths)
    for name, df in PRIORS.items():
        for width in WIDTHS:
            rng = np.random.default_rng(args.seed)
            values, shares = outputs(rng, df, width, DRAWS[args.scale])
            size = np.abs(values) / np.median(np.abs(values))
            cells = [np.mean(size > 5), np.mean(size > 20), hill(values), 100 * np.median(shares)]
            row([name, width, *map(float, cells)], widths)


if __name__ == "__main__":
    main()
