"""A method takes the gradients that its settings say, and counts them: 30 rows are 1 batch, 3 of 10 rows or 4 of 8."""

import pytest

import posteria as po
from posteria.methods.chains import warmup
from posteria.testing import linear_regression

CLIMB = po.MAP(num_epochs=50, polish=False)
SNAPSHOTS = po.SWAG(CLIMB, num_snapshots=6, rank=3, batch_size=10)
CHAINS = {"num_chains": 2, "num_draws": 5, "num_warmup": 5, "thinning": 2, "start": "prior"}

COSTS = [
    (CLIMB, 50),
    (po.MAP(num_epochs=50, batch_size=8), 50 * 4),
    (po.Ensemble(CLIMB, 3), 3 * 50),
    (po.Laplace(map=CLIMB), 50),
    (po.MeanField(num_epochs=50), 50),
    (po.MeanField(num_epochs=20, batch_size=8), 20 * 4),
    (po.VariationalOnlineNewton(num_epochs=50), 50),
    (po.SVGD(size=4, num_epochs=20), 4 * 20),
    (po.SVGD(size=4, num_epochs=20, batch_size=10), 4 * 20 * 3),
    (SNAPSHOTS, 50 + 6 * 3),
    (po.SWAG(CLIMB, num_snapshots=6, rank=3, batch_size=None), 50 + 6),
    (po.FastGeometricEnsemble(CLIMB, num_snapshots=4, batch_size=10), 50 + 4 * 4 * 3),
    (po.Subspace(po.Barker(**CHAINS), rank=2, swag=SNAPSHOTS), 50 + 6 * 3 + 2 * (5 + 5 * 2)),
    (po.MCDropout(num_epochs=20), 20),
    (po.ConcreteDropout(num_epochs=20, batch_size=8), 20 * 4),
    (po.HMC(**CHAINS, num_leapfrog=4, jitter=0.0), 2 * (5 + 5 * 2) * 4),
    (po.Barker(**CHAINS), 2 * (5 + 5 * 2)),
    (po.MetropolisHastings(**CHAINS), 2 * (5 + 5 * 2)),  # densities, where there are no gradients
    (po.SGLD(**CHAINS, step_size=1e-4, batch_size=10), 2 * (5 + 5 * 2)),
]


@pytest.mark.parametrize("method, gradients", COSTS, ids=lambda each: type(each).__name__)
def test_a_method_takes_as_many_gradients_as_it_says(method, gradients):
    known = linear_regression()
    assert po.fit(known.model, known.data, method, progress=False).facts["gradients"] == gradients


@pytest.mark.parametrize(
    "wrapped", [lambda climb: climb, lambda climb: po.Laplace("kron", map=climb)], ids=["map", "laplace"]
)
def test_a_polish_is_bounded_by_the_epochs(wrapped):
    """A step takes a gradient, seldom more; here it is there before."""
    known = linear_regression()
    taken = po.fit(known.model, known.data, wrapped(po.MAP(num_epochs=50)), progress=False).facts["gradients"]
    assert 50 < taken < 50 + 2 * 50


def test_more_gradients_than_draws_have_use_for_are_not_spent():
    """They would be steps between two draws, which no `max_seconds` interrupts."""
    known = linear_regression()
    method = po.EllipticalSlice(num_chains=1, num_draws=2, num_warmup=10, start="prior", max_gradients=10**9)
    posterior = po.fit(known.model, known.data, method, progress=False)
    assert posterior.num_draws == 2
    assert posterior.facts["gradients"] < 100 * 2 * warmup.MOST_THINNING
    assert any("was not spent" in note for note in posterior.facts["notes"])
