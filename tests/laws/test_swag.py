"""SWAG is the Gaussian of its snapshots, and FGE's members are its snapshots; both along the SGD they say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteria as po
from posteria import tree
from posteria.curvature.stiffness import energy, largest_curvature
from posteria.data.batches import batch_indices
from posteria.errors import SettingError
from posteria.methods import registry
from posteria.methods.ensembles import trajectory
from posteria.posteriors.gaussian import GaussianPosterior
from posteria.posteriors.mixture import MixturePosterior
from posteria.testing import ProcedureLaws, linear_regression

KNOWN = linear_regression()
START = {"bias": np.full(1, 0.2, np.float32), "weight": np.full((3, 1), 0.4, np.float32)}
SHORT = po.MAP(num_epochs=50)


class TestSWAG(ProcedureLaws):
    method = po.SWAG(SHORT, num_snapshots=6, rank=3, batch_size=10)


@pytest.mark.slow
class TestFastGeometricEnsemble(ProcedureLaws):
    method = po.FastGeometricEnsemble(SHORT, num_snapshots=3, epochs_per_snapshot=2, batch_size=10)


def descend(key: int, num_snapshots: int, every: int, learning_rate: float, momentum: float, batch_size: int, share):
    """Flat weights after each `every` steps of SGD with momentum from START, by the closed form of the gradient."""
    x, y = (np.asarray(part, np.float64) for part in KNOWN.data)
    design = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    batch_key = jax.random.split(jax.random.split(jax.random.key(key), 4)[3], 1)[0]
    flat, velocity = np.array([0.2, 0.4, 0.4, 0.4]), np.zeros(4)
    snapshots = []
    for step in range(num_snapshots * every):
        rows = np.asarray(batch_indices(batch_key, step, len(x), batch_size))
        residual = design[rows] @ flat - y.reshape(-1)[rows]
        gradient = design[rows].T @ residual / 0.5**2 / batch_size + flat / 0.7**2 / len(x)
        velocity = momentum * velocity + gradient
        flat = flat - learning_rate * share(step) * velocity
        if (step + 1) % every == 0:
            snapshots.append(flat)
    return np.stack(snapshots)


def test_swags_moments_are_those_of_its_snapshots_by_the_published_recursions():
    rank, num_snapshots = 4, 9
    method = po.SWAG(None, num_snapshots, rank, batch_size=10, learning_rate=0.02, momentum=0.5)
    posterior = po.fit(KNOWN.model, KNOWN.data, method, key=3, start=START, progress=False)
    snapshots = descend(3, num_snapshots, 3, 0.02, 0.5, 10, lambda step: 1.0)
    first, second, deviations = np.zeros(4), np.zeros(4), []
    for n, weights in enumerate(snapshots):  # algorithm 1 of Maddox et al. 2019
        first, second = (n * first + weights) / (n + 1), (n * second + weights**2) / (n + 1)
        deviations = [*deviations, weights - first][-rank:]
    columns = np.stack(deviations, axis=1)
    covariance = np.diag(second - first**2) / 2 + columns @ columns.T / (2 * (rank - 1))
    np.testing.assert_allclose(posterior.mean, first, rtol=1e-4)
    np.testing.assert_allclose(posterior.spread.covariance(), covariance, rtol=1e-3, atol=1e-4 * covariance.max())
    np.testing.assert_allclose(tree.ravel(posterior.mean_params), snapshots.mean(0), rtol=1e-4)  # SWA


def test_fges_members_are_the_weights_where_the_step_is_smallest():
    method = po.FastGeometricEnsemble(None, num_snapshots=4, epochs_per_snapshot=2, batch_size=10, learning_rate=0.03)
    posterior = po.fit(KNOWN.model, KNOWN.data, method, key=5, start=START, progress=False)

    def triangle(step: int) -> float:
        return np.interp((step + 1) % 6, [0, 3, 6], [0.01, 1.0, 0.01])

    snapshots = descend(5, 4, 6, 0.03, 0.9, 10, triangle)
    np.testing.assert_allclose(posterior.stored.flat[0], snapshots, rtol=1e-3, atol=1e-4)


def test_a_cycle_ends_at_its_lowest_step_and_tops_in_the_middle():
    shares = np.asarray(trajectory.cyclical_share(10)(jnp.arange(20)))
    np.testing.assert_allclose(shares[[9, 19]], 0.01, atol=1e-6)
    np.testing.assert_allclose(shares[[4, 14]], 1.0)
    assert (shares >= 0.01 - 1e-6).all()


def test_the_suggested_step_follows_the_largest_curvature():
    target = po.Target(KNOWN.model, KNOWN.data)
    start = tree.index(target.as_starts(START, 1), 0)
    largest = np.linalg.eigvalsh(np.linalg.inv(KNOWN.covariance)).max() / len(KNOWN.data[0])
    found = largest_curvature(energy, target, start, target.data, jax.random.key(0))
    np.testing.assert_allclose(found, largest, rtol=1e-3)
    np.testing.assert_allclose(
        trajectory.suggested_step(target, start, "constant", jax.random.key(0)), 0.2 / largest, rtol=1e-3
    )


def test_multiswag_is_an_equal_mixture_of_gaussians_around_different_modes():
    assert registry.as_method("multiswag") == po.Ensemble(po.SWAG(), 5)
    x = np.linspace(-1, 1, 24, dtype=np.float32)[:, None]
    method = po.Ensemble(po.SWAG(po.MAP(num_epochs=30), num_snapshots=4, rank=2, batch_size=8), 2)
    posterior = po.fit(po.Model(po.nn.mlp((5,))), (x, np.sin(3 * x)), method, progress=False)
    assert isinstance(posterior, MixturePosterior)
    first, second = posterior.members
    assert isinstance(first, GaussianPosterior) and first.spread.factor.shape[1] == 2
    distance = np.linalg.norm(np.asarray(first.mean - second.mean))
    assert distance > float(jnp.sqrt(first.spread.variances.sum()))  # further apart than one is wide


@pytest.mark.parametrize(
    "make",
    [
        lambda: po.SWAG(rank=1),
        lambda: po.SWAG(num_snapshots=10, rank=11),
        lambda: po.SWAG(schedule="cosine"),
        lambda: po.SWAG(learning_rate=-1.0),
        lambda: po.SWAG(momentum=1.0),
        lambda: po.SWAG(map=po.HMC()),
        lambda: po.FastGeometricEnsemble(num_snapshots=0),
    ],
)
def test_settings_out_of_range_are_refused(make):
    with pytest.raises(SettingError):
        make()


@pytest.mark.parametrize("batch_size, is_said", [(32, True), (None, True), (8, False)])
def test_without_noise_in_its_batches_it_says_what_its_spread_lacks(batch_size, is_said):
    known = linear_regression(num_data=25)
    method = po.SWAG(po.MAP(num_epochs=2000), num_snapshots=20, rank=5, batch_size=batch_size)
    posterior = po.fit(known.model, known.data, method, progress=False)
    assert any("noise of batches" in note for note in posterior.facts["notes"]) == is_said
    assert (posterior.spread.variances.max() < 1e-2 * np.diag(known.covariance).min()) == is_said


@pytest.mark.parametrize(("learning_rate", "is_told"), [(1e-3, False), (0.3, True)])
def test_a_descent_that_leaves_the_mode_is_told(learning_rate, is_told):
    """A noise that is inferred becomes less, the curvature of the weights more, and a large step is unstable."""
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 3)).astype(np.float32)
    y = (x[:, 0] + 2 * x[:, 1] + 0.1 * random.normal(size=40)).astype(np.float32)
    model = po.Model(po.nn.mlp(()), po.likelihoods.Gaussian())
    method = po.SWAG(po.MAP(num_epochs=300), batch_size=10, learning_rate=learning_rate)
    notes = po.fit(model, (x, y), method, key=0, progress=False).facts.get("notes", [])
    assert any(note.startswith("descent did not stay near a mode") for note in notes) == is_told, notes
