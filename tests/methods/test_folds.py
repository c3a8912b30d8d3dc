"""Folds: no member sees the rows that it is judged by, and what those rows show is what is predicted."""

import jax
import numpy as np
import pytest

import posteria as po
from posteria.errors import DataError, SettingError
from posteria.methods.points.fold_climb import FIRST_MOMENT

LINEAR = po.Model(po.nn.mlp(()), po.likelihoods.Gaussian())
QUICK = po.Folds(po.MAP(num_epochs=40, learning_rate=0.02), num_folds=4, learns_widths=False)


def table(num_rows, seed=0, noise=0.5):
    random = np.random.default_rng(seed)
    x = random.normal(size=(num_rows, 3)).astype(np.float32)
    y = x @ np.array([1.0, -1.0, 0.5]) + noise * random.normal(size=num_rows)
    return x, y.astype(np.float32)


@pytest.fixture(scope="module")
def fitted():
    data = table(300)
    return data, po.fit(LINEAR, data, QUICK, progress=False)


def folds_of(method, num_rows):
    """As `Folds.fit` divides them for key 0."""
    key_split, *_ = jax.random.split(jax.random.key(0), 3)
    return method.divided(key_split, num_rows)


def test_no_member_sees_the_rows_that_it_left_out():
    """Other values of y in one fold move every member but that fold's."""
    method = po.Folds(
        po.MAP(num_epochs=FIRST_MOMENT), num_folds=4, learns_widths=False
    )  # one moment: nothing to choose
    x, y = table(80)
    other = y.copy()
    other[folds_of(method, 80)[2]] += 5.0
    weights = [
        [member.stored.flat[..., 1:] for member in po.fit(LINEAR, (x, each), method, progress=False).inner.members]
        for each in (y, other)
    ]
    is_same = [np.array_equal(before, after) for before, after in zip(*weights)]
    assert is_same == [False, False, True, False]


def test_the_noise_is_that_of_the_rows_left_out(fitted):
    (x, y), posterior = fitted
    errors = np.empty(300)
    for member, fold in zip(posterior.inner.members, folds_of(QUICK, 300)):
        errors[fold] = y[fold] - np.asarray(member.functions(0, x[fold], 1))[0, :, 0]
    for member in posterior.inner.members:
        np.testing.assert_allclose(member.predict(x[:2]).std, np.sqrt(np.mean(errors**2)), rtol=1e-3)


def test_intervals_cover_new_rows(fitted):
    _, posterior = fitted
    x, y = table(4000, seed=1)
    lower, upper = posterior.predict(x).interval(0.9)
    covered = ((lower[:, 0] <= y) & (y <= upper[:, 0])).mean()
    assert abs(covered - 0.9) < 4 * np.sqrt(0.09 * (1 / 300 + 1 / 4000))
    assert abs(posterior.coverage[0.9]["after"] - 0.9) < 0.06


@pytest.fixture(scope="module")
def widened():
    """Errors whose size grows with x1; and a fit where it does not."""
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, size=(600, 2)).astype(np.float32)
    method = po.Folds(po.MAP(num_epochs=400, learning_rate=0.02), num_folds=4, num_repeats=2)
    errors = random.normal(size=600)
    return [po.fit(LINEAR, (x, x[:, 0] + std * errors), method, progress=False) for std in (np.exp(1.5 * x[:, 1]), 1.0)]


def test_widths_are_learnt_where_they_differ_and_not_where_they_do_not(widened):
    found, alike = widened
    low, high = np.array([[0, -0.9]], np.float32), np.array([[0, 0.9]], np.float32)
    ratio = float(found.predict(high).std[0, 0] / found.predict(low).std[0, 0])
    assert 0.5 < ratio / np.exp(1.5 * 1.8) < 2.0
    assert alike.inner.widths is None and any("same for all rows" in note for note in alike.facts["notes"])


def test_all_members_together_are_credited_with_what_they_gain():
    """Errors of m members: e + v / m. Ten of variance 1 about errors of 1 have 1.1, two of them 1.5."""
    from posteria.methods.ensembles.folds import _gain_of_all

    random = np.random.default_rng(0)
    y = random.normal(size=(200_000, 1))
    centre = random.normal(size=(2, 200_000, 1))
    gain = _gain_of_all([centre, np.ones_like(centre), np.ones_like(centre)], y, 10)
    np.testing.assert_allclose(gain, np.sqrt(1.1 / 1.5), rtol=0.03)


def test_it_saves_exports_and_thins_as_it_is(widened, tmp_path):
    posterior, _ = widened
    x = np.random.default_rng(1).uniform(-1, 1, size=(7, 2)).astype(np.float32)
    predictive = posterior.predict(x)
    posterior.save(tmp_path / "saved")
    loaded = po.load(tmp_path / "saved").predict(x)
    for verb in ("mean", "std", "epistemic"):
        np.testing.assert_array_equal(getattr(loaded, verb), getattr(predictive, verb))
    np.testing.assert_array_equal(loaded.interval(0.9), predictive.interval(0.9))
    posterior.export(tmp_path / "artifact")
    import importlib.util

    spec = importlib.util.spec_from_file_location("predict", tmp_path / "artifact" / "predict.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    exported = module.load(tmp_path / "artifact")(x, level=0.8)
    lower, upper = predictive.interval(0.8)
    for name, wanted in {"mean": predictive.mean, "std": predictive.std, "lower": lower, "upper": upper}.items():
        np.testing.assert_allclose(exported[name], wanted, rtol=2e-4, atol=2e-4)
    np.testing.assert_array_equal(posterior.thin(50).predict(x).mean, predictive.mean)
    with pytest.raises(SettingError, match="members"):
        posterior.thin(2)


def test_any_method_may_be_folded_and_classes_are_calibrated():
    data = po.data.load("iris")
    x = ((data.x - data.x.mean(0)) / data.x.std(0)).astype(np.float32)
    model = po.Model(po.nn.mlp((), outputs=3), po.likelihoods.Categorical())
    posterior = po.fit(model, (x, data.y), po.Folds(po.Laplace(map=po.MAP(num_epochs=200)), 3), progress=False)
    predictive = posterior.predict(x)
    assert posterior.inner.kind == "folds" and len(posterior.inner.members) == 3
    assert (predictive.probs.argmax(1) == data.y).mean() > 0.93
    np.testing.assert_allclose(predictive.aleatoric + predictive.epistemic, predictive.entropy, atol=1e-6)


def test_what_cannot_be_folded_is_refused():
    x, y = table(5)
    with pytest.raises(DataError, match="5 rows for 4 folds"):
        po.fit(LINEAR, (x, y), QUICK, progress=False)
    with pytest.raises(SettingError, match="at least 2"):
        po.Folds(num_folds=1)
    with pytest.raises(SettingError, match="validation or tune"):
        po.Folds(po.MAP(validation=0.1))
    with pytest.raises(DataError, match="no data"):
        po.fit(LINEAR, (table(9)[0], None), QUICK, progress=False)
