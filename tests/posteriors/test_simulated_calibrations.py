"""1,000 simulated calibrations: of each kind of target, on 20, 50 and 200 rows, they cover what they promise, and all
verbs of each are of one distribution.

A fit that is wrong is calibrated again and again, each time on new rows, and tried on others. The promise holds on
average over calibrations: one alone, on n rows, covers a Beta((n + 1) p, (n + 1) (1 - p)) share (Vovk 2012).
"""

import functools
import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr, ndtri

import posteria as po
from posteria.methods.ensembles.folds import OPTIMISM

SIZES = (20, 50, 200)
LEVELS = (0.5, 0.8, 0.9)
NUM = 34  # calibrations of a kind and a size: (7 + 3) x 3 x 34 = 1,020
NUM_NEW = 400  # rows that each is tried on
NUM_PAIRED = 4  # of them, whose verbs are compared
STANDARD_ERRORS = 3.5  # one in 2,000 is farther off by chance; there are some 100 such comparisons
CLOSE = 1e-5

Z = np.linspace(-7.5, 7.5, 60_001)  # a normal variable, whose distribution function gives levels
STEP = 25  # of them, between which a slope is taken
WEIGHT = np.exp(-0.5 * Z**2) / np.sqrt(2 * np.pi) * (Z[1] - Z[0])


# ---- tables, and fits that are wrong about them


def inputs(random, num):
    return random.uniform(-1, 1, size=(num, 2)).astype(np.float32)


def plain(random, num):
    x = inputs(random, num)
    return x, np.sin(2 * x[:, 0]) + 0.3 * random.normal(size=num)


def heteroscedastic(random, num):
    x = inputs(random, num)
    return x, x[:, 0] + np.exp(1.5 * x[:, 1]) * random.standard_t(4, size=num)


def tied(random, num):
    x, y = plain(random, num)
    return x, np.round(2 * y) / 2


def counts(random, num):
    """Wider than a Poisson."""
    x = inputs(random, num)
    rate = np.exp(1 + 1.5 * x[:, 0])
    return x, random.negative_binomial(2.0, 2.0 / (2.0 + rate)).astype(np.float32)


def grouped(random, num):
    """Two groups of equal size, of which the second has errors four times as large."""
    x = inputs(random, num)
    is_wild = np.arange(num) % 2 == 1
    return x, x[:, 0] + np.where(is_wild, 2.0, 0.5) * random.normal(size=num)


def classes(random, num, num_classes):
    x = inputs(random, num)
    angles = 2 * np.pi * np.arange(num_classes) / num_classes
    logits = 4 * x @ np.stack([np.cos(angles), np.sin(angles)])
    return x, (logits + random.gumbel(size=logits.shape)).argmax(1)


TABLES = {
    "plain": plain,
    "heteroscedastic": heteroscedastic,
    "ties": tied,
    "counts": counts,
    "groups": grouped,
    "3 classes": functools.partial(classes, num_classes=3),
    "10 classes": functools.partial(classes, num_classes=10),
}
LIKELIHOODS = {
    "counts": (1, po.likelihoods.Poisson()),
    "3 classes": (3, po.likelihoods.Categorical()),
    "10 classes": (10, po.likelihoods.Categorical()),
}


def model_of(kind, hidden=(), noise=po.infer):
    outputs, likelihood = LIKELIHOODS.get(kind, (1, po.likelihoods.Gaussian(noise=noise)))
    return po.Model(po.nn.mlp(hidden, outputs=outputs), likelihood)


def wrong_fit(kind):
    """Far too sure: of 30 rows; of numbers with a small part of the noise as well."""
    rows = TABLES[kind](np.random.default_rng(9), 30)
    return po.fit(model_of(kind, (8,), noise=0.05), rows, po.MAP(num_epochs=300), progress=False)


# ---- what a calibration promises


def error_of(level, num_rows, num_new=NUM_NEW, num=NUM):
    """Binomial, of calibrations and of the rows that they are tried on."""
    return np.sqrt(level * (1 - level) * (1 / (num_rows + 2) + 1 / num_new) / num)


def is_inside(predictive, y, level):
    if hasattr(predictive, "sets"):
        return predictive.sets(level)[np.arange(len(y)), y.astype(int)]
    lower, upper = predictive.interval(level)
    return (lower[:, 0] <= y) & (y <= upper[:, 0])


def next_rank(level, num_rows):
    return np.ceil((num_rows + 1) * level) / (num_rows + 1)


def check_covers(covered, num_rows, name, highest=next_rank, num_new=NUM_NEW):
    """`covered`: by level, shares of the new rows, one a calibration. On average from the level to the highest share;
    to 1 where whole or tied numbers make an interval hold more than it must."""
    for level, shares in covered.items():
        mean, error = np.mean(shares), error_of(level, num_rows, num_new)
        most = 1.0 if any(kind in name for kind in ("ties", "counts")) else highest(level, num_rows)
        print(f"{name}, {level:.0%}: {mean:.4f} +- {error:.4f}")
        assert level - STANDARD_ERRORS * error < mean < most + STANDARD_ERRORS * error, (name, level, mean)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TABLES)
def test_it_covers_what_it_promises_and_its_verbs_agree(kind):
    """Of groups with fewer than 20 rows each, of which the scores of all are taken, together; else within each."""
    posterior, random = wrong_fit(kind), np.random.default_rng(1)
    for num_rows in SIZES:
        parts = (0, 1) if kind == "groups" and num_rows >= 50 else (None,)
        covered = {part: {level: [] for level in LEVELS} for part in parts}
        for _ in range(NUM):
            x, y = TABLES[kind](random, num_rows + NUM_NEW)
            group = np.arange(len(y)) % 2 if kind == "groups" else None
            held, new = (None if group is None else group[part] for part in np.split(np.arange(len(y)), [num_rows]))
            calibrated = posterior.calibrate(x[:num_rows], y[:num_rows], groups=held)
            x, y = x[num_rows:], y[num_rows:]
            predictive = calibrated.predict(x, groups=new)
            for part, level in itertools.product(parts, LEVELS):
                inside = is_inside(predictive, y, level)
                covered[part][level].append(inside[slice(None) if part is None else new == part].mean())
            few = slice(NUM_PAIRED)
            check_verbs(calibrated.predict(x[few], groups=None if new is None else new[few]), y[few], kind)
        for part in parts:
            share = 1 if part is None else 2
            name = f"{kind}, {num_rows} rows" + ("" if part is None else f", group {part}")
            check_covers(covered[part], num_rows // share, name, num_new=NUM_NEW // share)


def widened_rank(level, num_rows):
    """Of normal errors in folds, whose widths are `OPTIMISM` over the root of the rows wider, and a rank above it."""
    return 2 * ndtr(ndtri((1 + level) / 2) * (1 + OPTIMISM / np.sqrt(num_rows))) - 1 + 1 / (num_rows + 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["heteroscedastic", "counts", "3 classes"])
def test_folds_cover_at_least_what_they_promise_and_their_verbs_agree(kind):
    """Guaranteed, whatever the method, is that intervals of 1 - a from rows left out in turn hold at least 1 - 2 a, up
    to a term in the folds (Barber et al. 2021, theorem 4); wanted is 1 - a, for a method that is no less stable than
    this one."""
    random, method = np.random.default_rng(2), po.MAP(num_epochs=300, learning_rate=0.05)
    for num_rows in SIZES:
        covered = {level: [] for level in LEVELS}
        for _ in range(NUM):
            x, y = TABLES[kind](random, num_rows + NUM_NEW)
            rows, (x, y) = (x[:num_rows], y[:num_rows]), (x[num_rows:], y[num_rows:])
            posterior = po.fit(model_of(kind), rows, method, calibrate="folds", progress=False)
            predictive = posterior.predict(x)
            for level in LEVELS:
                covered[level].append(is_inside(predictive, y, level).mean())
            check_verbs(posterior.predict(x[:NUM_PAIRED]), y[:NUM_PAIRED], kind)
        check_covers(covered, num_rows, f"folds, {kind}, {num_rows} rows", widened_rank)


def test_verbs_agree_in_units_far_from_zero_and_where_errors_are_small():
    """A number of 32 bits has steps of 0.008 there, and of standardised targets of a small part of these widths."""
    random = np.random.default_rng(3)
    x = inputs(random, 100)
    y = 1e5 + x[:, 0] + 1e-3 * random.normal(size=100)
    model = po.Regressor(po.MAP(num_epochs=300), po.nn.mlp(())).fit(x[:50], y[:50]).calibrate(x[50:], y[50:])
    predictive = model._predict(x[:NUM_PAIRED])
    assert predictive.std.max() < 1e-2
    check_numbers(predictive, y[:NUM_PAIRED])


# ---- every verb of one distribution


def check_verbs(predictive, y, kind):
    check = {"counts": check_counts, "3 classes": check_classes, "10 classes": check_classes}.get(kind, check_numbers)
    check(predictive, y)


def close(found, wanted, scale=1.0):
    away = np.abs(np.asarray(found) - wanted) / scale
    assert np.max(away) < CLOSE, np.max(away)


def check_numbers(predictive, y):
    std, levels = predictive.std, ndtr(Z)
    values = predictive.quantile(levels)  # (level, row, 1)
    np.testing.assert_array_equal(np.stack(predictive.interval(0.9)), predictive.quantile([0.05, 0.95]))
    median = values[len(Z) // 2]  # taken away first: a sum of large numbers has lost their last digits
    close(predictive.mean, median + np.tensordot(WEIGHT, values - median, 1), std)
    close(std, np.sqrt(np.tensordot(WEIGHT, (values - predictive.mean) ** 2, 1)), std)
    close(predictive.aleatoric + predictive.epistemic, std**2, std**2)
    close(predictive.quantile(predictive.cdf(y)[0, 0])[0], y[0], std[0])
    for at in range(500, len(Z), 1200):
        close(predictive.cdf(values[at]), levels[at])
        # the density, too, is of y = T(z): log p(y) + log T'(z) = log N(z); but not near a knot, where T has a corner
        before, here, after = values[at - STEP], values[at], values[at + STEP]
        away = predictive.log_prob(here) + np.log((after - before) / (2 * STEP * (Z[1] - Z[0])))[:, 0]
        is_straight = np.abs(after - 2 * here + before)[:, 0] < CLOSE * (after - before)[:, 0]
        close(np.where(is_straight, away - stats.norm.logpdf(Z[at]), 0.0), 0.0)
    draws = predictive.sample(3, 200)
    shares = np.stack([predictive.cdf(each)[:, 0] for each in draws])
    assert stats.kstest(shares.ravel(), "uniform").pvalue > 1e-5


def check_counts(predictive, y):
    every = np.arange(2 + int(predictive.quantile(1 - 1e-10).max()))
    mass = np.exp([predictive.log_prob(np.full(len(y), count)) for count in every])  # (count, row)
    cdf, mean, std = mass.cumsum(0), predictive.mean[:, 0], predictive.std[:, 0]
    close(np.stack([predictive.cdf(np.full(len(y), count))[:, 0] for count in every]), cdf)
    close(cdf[-1], 1.0)
    close(mean, every @ mass, std)
    close(std, np.sqrt(every**2 @ mass - mean**2), std)
    close(predictive.aleatoric + predictive.epistemic, predictive.std**2, predictive.std**2)
    np.testing.assert_array_equal(np.stack(predictive.interval(0.9)), predictive.quantile([0.05, 0.95]))
    for level in (0.013, 0.05, 0.31, 0.5, 0.77, 0.95, 0.987):
        np.testing.assert_array_equal(predictive.quantile(level)[:, 0], (cdf < level).sum(0))
    shares = (predictive.sample(3, 2000)[..., 0] <= every[:, None, None]).mean(1)  # (count, row)
    assert np.abs(shares - cdf).max() < 5 * np.sqrt(0.25 / 2000)


def check_classes(predictive, y):
    probs = predictive.probs
    close(probs.sum(1), 1.0)
    close(predictive.mean, probs)
    close(predictive.std**2, probs * (1 - probs))
    close(np.exp(predictive.log_prob(y)), probs[np.arange(len(y)), y])
    close(predictive.entropy, -(probs * np.log(np.maximum(probs, 1e-300))).sum(1))
    close(predictive.aleatoric + predictive.epistemic, predictive.entropy)
    close(predictive.mutual_information, predictive.epistemic)
    drawn = (predictive.sample(3, 2000)[..., None] == np.arange(probs.shape[1])).mean(0)
    assert (np.abs(drawn - probs) < 5 * np.sqrt(probs * (1 - probs) / 2000) + 1e-3).all()
    for narrow, wide in itertools.pairwise(predictive.sets(level) for level in LEVELS):
        assert (narrow <= wide).all()
        least = np.where(wide, probs, np.inf).min(1)
        assert (wide == (probs >= least[:, None])).all()  # the most probable ones
