"""After `calibrate` every verb is of one distribution, which covers what it promises for any number of rows."""

import itertools

import numpy as np
import pytest
from scipy import integrate

import posteria as po
from posteria.errors import CapabilityError, DataError
from posteria.posteriors.calibrated_predictive import CalibratedCounts, CalibratedNumbers, scaled
from posteria.posteriors.conformal import ScoreDistribution, threshold

SCORES = {
    "normal": lambda random, shape: random.normal(size=shape),
    "heavy": lambda random, shape: random.standard_t(3, size=shape),
    "skewed": lambda random, shape: random.gamma(2.0, size=shape) - 2.0,
}


class Given:
    """A prediction of which the shape is known: centres and half-widths."""

    def __init__(self, centre, below, above, is_count=False):
        self.half_widths = tuple(np.asarray(part, np.float64)[:, None] for part in (centre, below, above))
        self.is_count = is_count
        self.epistemic, self.aleatoric = np.full_like(self.half_widths[0], 0.2), np.full_like(self.half_widths[0], 0.8)

    def __len__(self):
        return len(self.half_widths[0])

    def check_y(self, y):
        return np.asarray(y, np.float64)


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("num", [20, 50, 200, 1000])
def test_it_covers_what_it_promises_on_average_over_calibrations(kind, num):
    random = np.random.default_rng(0)
    for level in (0.5, 0.8, 0.9):
        covered = []
        for _ in range(400):
            low, high = ScoreDistribution.of(SCORES[kind](random, (num, 1))).quantile(
                [(1 - level) / 2, (1 + level) / 2]
            )
            new = SCORES[kind](random, (200, 1))
            covered.append(((low <= new) & (new <= high)).mean())
        # within three standard errors, and what interpolating between two ranks may cost
        assert abs(np.mean(covered) - level) < 3 * np.std(covered) / np.sqrt(400) + 0.5 / num, (level, np.mean(covered))


@pytest.mark.parametrize("num", [50, 200, 1000])
def test_a_few_huge_scores_do_not_widen_the_intervals_of_all_others(num):
    random = np.random.default_rng(0)
    scores = random.normal(size=(num, 1))
    intervals = []
    for size in (10.0, 1e6):
        scores[:: num // 2] = size  # two of them, or three
        intervals.append(ScoreDistribution.of(scores).quantile([0.05, 0.25, 0.75, 0.95]))
    np.testing.assert_allclose(*intervals)


def test_ties_never_cost_coverage_and_have_a_finite_density():
    random = np.random.default_rng(0)
    scores = np.round(random.normal(size=(300, 1)))
    found = ScoreDistribution.of(scores)
    low, high = found.quantile([0.05, 0.95])
    assert ((low <= scores) & (scores <= high)).mean() >= 0.9
    assert np.isfinite(found.log_density(scores)).all()
    assert np.isfinite(ScoreDistribution.of(np.zeros((50, 1))).log_density(np.zeros((3, 1)))).all()


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("num", [20, 1000])
def test_density_moments_and_quantiles_are_of_one_distribution(kind, num):
    found = ScoreDistribution.of(SCORES[kind](np.random.default_rng(1), (num, 1)))
    levels = np.array([1e-4, 0.01, 0.3, 0.5, 0.8, 0.99, 1 - 1e-4])
    np.testing.assert_allclose(found.cdf(found.quantile(levels))[:, 0], levels, rtol=1e-9)
    mass, _ = integrate.quad(
        lambda s: float(np.exp(found.log_density(np.array([[s]]))[0, 0])),
        *found.quantile([0.01, 0.99])[:, 0],
        limit=500,
        points=found.scores[:, 0],
    )
    assert mass == pytest.approx(0.98, abs=1e-5)
    up, up_square, down, down_square = found.partial_moments()
    z = np.linspace(-9, 9, 400_001)
    scores, weights = found.quantile_of_normal(z)[:, 0], np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    for moment, wanted in {
        "up": (up, np.maximum(scores, 0) @ weights),
        "down": (down, np.maximum(-scores, 0) @ weights),
        "square": (up_square + down_square, scores**2 @ weights),
    }.values():
        np.testing.assert_allclose(moment, wanted, rtol=1e-4)


@pytest.fixture(scope="module", params=["numbers", "counts"])
def predictive(request):
    random = np.random.default_rng(0)
    rows, is_count = np.arange(6), request.param == "counts"
    centre, below, above = (
        [0.0, 1.0, 3.0, 5.0, 20.0, 100.0],
        [1.0, 0.5, 2.0, 1.0, 3.0, 10.0],
        [1.0, 2.0, 2.0, 3.0, 6.0, 9.0],
    )
    plain = Given(centre, below, above, is_count)
    return (CalibratedCounts if is_count else CalibratedNumbers)(plain, [(rows, random.normal(size=(400, 1)) + 0.2)])


def test_every_pair_of_verbs_agrees(predictive):
    levels = np.array([0.02, 0.05, 0.25, 0.5, 0.75, 0.95, 0.98])
    quantiles = predictive.quantile(levels)
    shares = np.stack([predictive.cdf(values) for values in quantiles])
    is_count = isinstance(predictive, CalibratedCounts)
    if is_count:
        assert (quantiles == np.round(quantiles)).all() and (quantiles >= 0).all()
        assert (shares >= levels[:, None, None] - 1e-12).all()  # and one less is too few
        one_less = np.stack([predictive.cdf(values - 1) for values in quantiles])
        assert (one_less < levels[:, None, None]).all()
    else:
        np.testing.assert_allclose(shares, np.broadcast_to(levels[:, None, None], shares.shape), atol=1e-6)
    np.testing.assert_array_equal(np.stack(predictive.interval(0.9)), predictive.quantile([0.05, 0.95]))
    np.testing.assert_allclose(predictive.aleatoric + predictive.epistemic, predictive.std**2, rtol=1e-5)
    drawn = predictive.sample(1, 40_000)
    np.testing.assert_allclose(drawn.mean(0), predictive.mean, atol=5 * (predictive.std / 200).max())
    np.testing.assert_allclose(drawn.std(0), predictive.std, rtol=0.05)
    low, high = predictive.interval(0.8)
    assert np.abs(((low <= drawn) & (drawn <= high)).mean(0) - 0.8).max() < (1.0 if is_count else 0.01)
    if is_count:
        every = np.arange(400.0)
        mass = np.stack([np.exp(predictive.log_prob(np.full((6, 1), count))) for count in every])
        np.testing.assert_allclose(mass.sum(0), 1, atol=1e-6)
        np.testing.assert_allclose(every @ mass, predictive.mean[:, 0], rtol=1e-5)
    else:
        step = 1e-4
        places = quantiles[1:-1] + 0.01  # off the knots, where the density jumps
        slopes = [(predictive.cdf(at + step) - predictive.cdf(at - step))[:, 0] / (2 * step) for at in places]
        densities = [np.exp(predictive.log_prob(at)) for at in places]
        np.testing.assert_allclose(densities, slopes, rtol=0.02)


def test_counts_cover_and_stay_whole():
    random = np.random.default_rng(0)
    rates = random.uniform(0.2, 12.0, size=2000)
    y = random.negative_binomial(2.0, 2.0 / (2.0 + rates)).astype(float)  # wider than the Poisson that predicts it
    from posteria.posteriors.calibrated import scores_about

    plain = [Given(part, np.sqrt(part), np.sqrt(part), True) for part in (rates[:1000], rates[1000:])]
    scores = scores_about(plain[0].half_widths, y[:1000], is_count=True)
    calibrated = CalibratedCounts(plain[1], [(np.arange(1000), scores)])
    low, high = calibrated.interval(0.9)
    covered = ((low[:, 0] <= y[1000:]) & (y[1000:] <= high[:, 0])).mean()
    assert 0.9 - 3 * np.sqrt(0.09 * 2 / 1000) < covered < 0.99 and low.min() == 0


@pytest.mark.parametrize(("centre", "width"), [(0.2, 1.0), (5000.0, 1.0), (5000.0, 30.0), (1500.0, 800.0), (1e5, 2e4)])
def test_moments_of_counts_are_those_of_their_probabilities(centre, width):
    """Of large ones too, narrow or cut off at 0."""
    scores = np.random.default_rng(0).normal(size=(200, 1))
    one = CalibratedCounts(Given([centre], [width], [width], True), [(np.arange(1), scores)])
    every = np.arange(2 + one.quantile(1 - 1e-12).max())
    alike = [np.full(len(every), part) for part in (centre, width, width)]
    mass = np.exp(CalibratedCounts(Given(*alike, True), [(np.arange(len(every)), scores)]).log_prob(every))
    mean = every @ mass
    np.testing.assert_allclose(one.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(one.std, np.sqrt((every - mean) ** 2 @ mass), rtol=1e-5)


@pytest.mark.parametrize(("num", "num_classes"), itertools.product([20, 50, 200], [3, 10]))
def test_sets_of_classes_cover_on_average(num, num_classes):
    random = np.random.default_rng(0)
    covered = []
    for _ in range(300):
        true = random.dirichlet(np.ones(num_classes), size=num + 100)
        labels = (true.cumsum(1) < random.uniform(size=(num + 100, 1))).sum(1).clip(max=num_classes - 1)
        scores = 1 - scaled(true, 0.5)[np.arange(num + 100), labels]
        covered.append((scores[num:] <= threshold(scores[:num], 0.9)).mean())
    rank = np.ceil((num + 1) * 0.9) / (num + 1)
    assert abs(np.mean(covered) - rank) < 3.5 * np.std(covered) / np.sqrt(300)


@pytest.fixture(scope="module")
def grouped():
    """Two groups of rows, of which one has errors four times as large, and a fit that does not know."""
    random = np.random.default_rng(0)
    x = random.normal(size=(4100, 1)).astype(np.float32)
    groups = np.where(random.uniform(size=4100) < 0.3, "wild", "calm")
    y = x[:, 0] + np.where(groups == "wild", 2.0, 0.5) * random.normal(size=4100)
    model = po.Model(po.nn.mlp(()), po.likelihoods.Gaussian())
    posterior = po.fit(model, (x[:100], y[:100]), po.MAP(num_epochs=200), progress=False)
    return posterior, x[100:], y[100:], groups[100:]


def test_coverage_holds_within_groups(grouped, tmp_path):
    posterior, x, y, groups = grouped
    calibrated = posterior.calibrate(x[:1000], y[:1000], groups=groups[:1000])
    calibrated.save(tmp_path / "saved")
    for each in (calibrated, po.load(tmp_path / "saved")):
        lower, upper = each.predict(x[1000:], groups=groups[1000:]).interval(0.9)
        is_inside = (lower[:, 0] <= y[1000:]) & (y[1000:] <= upper[:, 0])
        for name in ("wild", "calm"):
            assert abs(is_inside[groups[1000:] == name].mean() - 0.9) < 0.05
    with pytest.raises(DataError, match="groups"):
        calibrated.predict(x[:3])
    few = posterior.calibrate(x[:300], y[:300], groups=["rare"] * 5 + ["usual"] * 295)
    assert "rare" in few.facts["notes"][-1]


def test_an_infinite_variance_is_calibrated_like_any_other():
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 1)).astype(np.float32)
    y = x[:, 0] + 0.3 * random.standard_t(2, size=300)
    model = po.Model(po.nn.mlp(()), po.likelihoods.StudentT(df=1.5))
    posterior = po.fit(model, (x[:100], y[:100]), po.MAP(num_epochs=200), progress=False)
    predictive = posterior.calibrate(x[100:], y[100:]).predict(x[:50])
    for verb in (predictive.mean, predictive.std, predictive.log_prob(y[:50]), np.stack(predictive.interval(0.9))):
        assert np.isfinite(verb).all()
    with pytest.raises(CapabilityError):
        _ = predictive.probs
