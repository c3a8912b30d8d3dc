"""A fit that is cut off in the middle of any stage, without a last word, ends bit-identical when it is resumed.

As by SIGKILL: what stands on disk is the last checkpoint, and nothing is written on the way out. Real kills of whole
processes are in `test_resume.py`.
"""

import jax
import numpy as np
import pytest

import posteria as po
from posteria import tree
from posteria.engine import checkpoint, chunks, loop

FEW = {"num_draws": 6, "num_warmup": 8, "start": "prior"}
BATCHES = FEW | {"num_chains": 2, "thinning": 3, "batch_size": 10}
SHORT = po.MAP(num_epochs=5)
SNAPSHOTS = po.SWAG(SHORT, num_snapshots=5, rank=3, batch_size=20)
METHODS = {
    "sghmc": po.SGHMC(**BATCHES, schedule="cyclical", preconditioner="rmsprop", variance_reduction="svrg"),
    "swag": SNAPSHOTS,
}
FURTHER = {
    "sgld": po.SGLD(**BATCHES | {"start": "map"}, schedule="polynomial", variance_reduction="control-variate"),
    "sgnht": po.SGNHT(**BATCHES),
    "sms-ubu": po.SMSUBU(**BATCHES),
    "mclmc": po.MCLMC(**FEW | {"num_warmup": 30}, num_chains=2, thinning=2),
    "adjusted-mclmc": po.AdjustedMCLMC(**FEW | {"num_warmup": 30}, num_chains=2, thinning=2),
    "parallel-tempering": po.ParallelTempering(**FEW, num_replicas=3, max_leapfrog=5),
    "svgd": po.SVGD(size=4, num_epochs=10, batch_size=20),
    "multiswag": po.Ensemble(SNAPSHOTS, 2),
    "fast-geometric-ensemble": po.FastGeometricEnsemble(SHORT, num_snapshots=4, epochs_per_snapshot=2, batch_size=20),
    "anchored-ensemble": po.AnchoredEnsemble(3, po.MAP(num_epochs=5)),
    "epinet": po.Epinet(SHORT, num_epochs=6, batch_size=20),
    "flow": po.MeanField(family="flow", num_epochs=6, batch_size=20),
    "multiplicative": po.MeanField(family="multiplicative", num_epochs=6, batch_size=20),
    "normal-mixture": po.MeanField(family="mixture", num_components=2, num_epochs=6, batch_size=20),
    "elliptical-slice": po.EllipticalSlice(**FEW),
    "subspace": po.Subspace(po.EllipticalSlice(num_draws=6, num_warmup=8), rank=2, swag=SNAPSHOTS),
    "subspace-curve": po.Subspace(po.NUTS(num_draws=6, num_warmup=8), "curve", swag=SNAPSHOTS),
}


class CutOff(BaseException):
    """Not an Exception, and not the interrupt on which a fit writes a last checkpoint."""


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)).astype(np.float32)
    return po.Model(po.nn.mlp((3,))), (x, x[:, 0] + 0.1 * rng.normal(size=40))


@pytest.mark.parametrize("name", [*METHODS, *(pytest.param(name, marks=pytest.mark.slow) for name in FURTHER)])
def test_a_fit_cut_off_in_each_of_its_stages_ends_bit_identical(name, problem, tmp_path, monkeypatch):
    model, data = problem
    method = (METHODS | FURTHER)[name]
    monkeypatch.setattr(chunks, "CHUNK_SECONDS", 0.0)  # a chunk is one row
    monkeypatch.setattr(checkpoint, "CHECKPOINT_SECONDS", -1.0)  # after each
    monkeypatch.setattr(checkpoint, "CHECKPOINT_SHARE", np.inf)
    check = loop.Run._check_finite
    seen: dict[str, int] = {}  # rows begun of each stage
    cut_in: set[str] = set()

    def count(self, info, *rest):
        check(self, info, *rest)
        stage = self._name()
        seen[stage] = seen.get(stage, 0) + 1
        if folder is not None and stage not in cut_in and seen[stage] > 1:  # amid it: one row is on disk, one is lost
            cut_in.add(stage)
            raise CutOff

    monkeypatch.setattr(loop.Run, "_check_finite", count)
    folder = None
    whole = po.fit(model, data, method, key=2, progress=False)
    stages = {stage for stage, rows in seen.items() if rows > 1}
    seen.clear()
    folder = tmp_path / "run"
    while True:
        try:
            resumed = po.fit(model, data, method, key=2, out=folder, if_exists="resume", progress=False)
            break
        except CutOff:
            seen.clear()
    assert cut_in == stages
    for mine, theirs in zip(numbers(whole), numbers(resumed), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert whole.facts["gradients"] == resumed.facts["gradients"]


def numbers(posterior) -> list[np.ndarray]:
    """All that its draws are made of."""
    if hasattr(posterior, "members"):
        return [array for member in posterior.members for array in numbers(member)]
    if not hasattr(posterior, "sample"):  # of functions
        return list(posterior.state()[1].values())
    drawn = [np.asarray(jax.vmap(tree.ravel)(posterior.sample(0, 5)))]
    if hasattr(posterior, "stored"):
        drawn += [posterior.stored.flat, *posterior.stored.info.values()]
    return drawn
