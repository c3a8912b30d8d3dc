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
    from posteria.methods.ensembles.together import gain_of_all

    random = np.random.default_rng(0)
    y = random.normal(size=(200_000, 1))
    centre = random.normal(size=(2, 200_000, 1))
    gain = gain_of_all([centre, np.ones_like(centre), np.ones_like(centre)], y, 10)
    np.testing.assert_allclose(gain, np.sqrt(1.1 / 1.5), rtol=0.03)


def test_errors_that_are_all_disagreement_and_widths_that_know_it_shrink_once():
    """Where y is 0 and a member's centre is noise, widths of |centre| are right at any number of members."""
    from types import SimpleNamespace

    from posteria.methods.ensembles.together import gain_of_all, widths_of_all

    def centres(random, *repeats):
        return random.normal(size=(*repeats, 20_000, 1))

    random = np.random.default_rng(0)
    shape, widths = centres(random, 2), SimpleNamespace(log_widths=lambda x, centre: np.log(np.abs(centre)))
    gain = gain_of_all([shape, np.ones_like(shape), np.ones_like(shape)], np.zeros(20_000), 4)
    widened = widths_of_all(widths, None, shape, 4, None)
    truth = np.sqrt(1 / 4) / np.sqrt(1 / 2)  # of the average of four, in those of the average of two
    np.testing.assert_allclose([gain[0], widened[0]], [truth, truth], rtol=0.05)


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


def patients(num, each, seed=0):
    """Rows of patients, whose three numbers tell them apart, and tell nothing else."""
    random = np.random.default_rng(seed)
    patient = np.repeat(np.arange(num), each)
    x = np.concatenate([random.normal(size=(num, 3))[patient], random.normal(size=(len(patient), 1))], axis=1)
    y = random.normal(size=num)[patient] + x[:, 3] + 0.3 * random.normal(size=len(patient))
    return x.astype(np.float32), y.astype(np.float32), patient


def test_groups_are_left_out_whole_and_in_even_parts():
    patient = np.random.default_rng(0).integers(0, 40, 300)
    folds = folds_of(po.Folds(num_folds=4, num_repeats=2, groups=tuple(patient.tolist())), 300)
    assert len(folds) == 8
    for repeat in (folds[:4], folds[4:]):
        np.testing.assert_array_equal(np.sort(np.concatenate(repeat)), np.arange(300))
        assert sum(len(set(patient[fold])) for fold in repeat) == len(set(patient))
        assert max(map(len, repeat)) - min(map(len, repeat)) < 30
    assert not np.array_equal(folds[0], folds[4])


def test_widths_by_groups_are_those_of_new_groups():
    """Of rows left out one by one, whose patients were known, 90 % intervals held fewer than 60 % of new patients."""
    x, y, patient = patients(40, 12)
    new_x, new_y, _ = patients(400, 1, seed=1)
    held = {}
    for name, groups in {"rows": None, "patients": patient}.items():
        model = po.Regressor().fit(x, y, groups=groups)
        lower, upper = model.interval(new_x, 0.9)
        held[name] = np.mean((lower <= new_y) & (new_y <= upper))
    assert held["rows"] < 0.7 and 0.82 < held["patients"] < 0.97


def test_groups_that_cannot_be_left_out_are_refused():
    x, y, patient = patients(6, 5)
    with pytest.raises(DataError, match="5 groups for 30 rows"):
        po.fit(LINEAR, (x, y), po.Folds(groups=(1, 2, 3, 4, 5)), progress=False)
    with pytest.raises(DataError, match="6 groups for 7 folds"):
        po.fit(LINEAR, (x, y), po.Folds(num_folds=7, groups=tuple(patient.tolist())), progress=False)
    with pytest.raises(SettingError, match="groups with Laplace; wanted folds"):
        po.Regressor(method="laplace").fit(x, y, groups=patient)
    with pytest.raises(DataError, match="missing"):
        po.Regressor().fit(x, y, groups=np.where(patient == 3, np.nan, patient))
    with pytest.raises(DataError, match="1 groups for 2 folds"):
        po.Regressor().fit(x, y, groups=np.zeros(30))
    weight = np.arange(30) % 3  # rows that weigh nothing are left out, with their groups
    weighed = po.Regressor(method=po.Folds(po.MAP(num_epochs=5))).fit(x, y, sample_weight=weight, groups=patient)
    assert weighed.posterior_.facts["method"]["settings"]["groups"] == patient[weight > 0].tolist()
