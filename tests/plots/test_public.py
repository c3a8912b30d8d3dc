"""The pictures of `po.plots`: on the axes that are given, else on the current ones, and of what they say."""

import matplotlib
import numpy as np
import pytest

matplotlib.use("agg")
from matplotlib import pyplot as plt

import posteria as po
from posteria.errors import PosteriaError


@pytest.fixture(scope="module")
def fitted():
    random = np.random.default_rng(0)
    x = np.sort(random.normal(size=(60, 1)), axis=0).astype(np.float32)
    y = (x[:, 0] + 0.1 * random.normal(size=60)).astype(np.float32)
    method = po.MetropolisHastings(num_chains=2, num_draws=30, num_warmup=30)
    return po.fit(po.Model(po.nn.mlp((3,), outputs=1)), (x, y), method, key=0), x, y


def drawn(fitted, name, **settings):
    posterior, x, y = fitted
    predictive = posterior.predict(x)
    arguments = {
        "bands": (x, predictive, (x, y)),
        "reliability": (predictive, y),
        "quantiles_of_truth": (predictive, y),
        "predicted": (predictive, y),
        "functions": (x, posterior.functions(0, x, 20)),
        "rhat": (posterior.diagnose(x),),
        "traces": (posterior,),
        "plane": (
            po.surface(po.Target(posterior.model, (x, y)), np.random.default_rng(0).normal(size=(3, 11)), num=4),
        ),
    }[name]
    return getattr(po.plots, name)(*arguments, **settings)


@pytest.mark.parametrize("name", sorted({*po.plots.__all__} - {"before_and_after"}))  # which makes a figure
def test_a_picture_is_drawn_on_the_axes_given_else_on_the_current_ones(fitted, name):
    figure, (left, right) = plt.subplots(1, 2)
    plt.sca(right)
    assert drawn(fitted, name, ax=left) is left
    assert left.has_data() and not right.has_data()
    assert drawn(fitted, name) is right and right.has_data()
    plt.close(figure)


def test_the_points_of_predicted_are_the_predictions_and_misses_are_crosses(fitted):
    posterior, x, y = fitted
    axes = drawn(fitted, "predicted", level=0.5, ax=plt.figure().add_subplot())
    lower, upper = posterior.predict(x).interval(0.5)
    missed = (y < lower[:, 0]) | (y > upper[:, 0])
    _, inside, outside = axes.lines
    assert len(inside.get_xdata()) == (~missed).sum() and len(outside.get_xdata()) == missed.sum() > 0
    np.testing.assert_allclose(outside.get_ydata(), y[missed], rtol=1e-6)


def test_what_has_no_chains_or_no_numbers_is_refused(fitted):
    _, x, y = fitted
    point = po.fit(po.Model(po.nn.mlp((3,), outputs=1)), (x, y), po.MAP(num_epochs=5), key=0)
    with pytest.raises(PosteriaError, match="chains"):
        po.plots.rhat(point.diagnose(x))
    with pytest.raises(PosteriaError, match="one of"):
        po.plots.traces(fitted[0], of="nonsense")
    with pytest.raises(PosteriaError, match="2 targets"):
        po.plots.quantiles_of_truth(point.predict(x), np.stack([y, y], 1))
