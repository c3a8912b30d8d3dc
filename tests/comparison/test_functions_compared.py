"""Methods of functions, and flexible families, in a comparison and its page: each is fitted, scored and shown."""

import numpy as np
import pytest

import posteria as po
from posteria import report
from posteria.comparison.tell import results

SHORT = po.MAP(num_epochs=100, polish=False)
NUMBERS = {
    "infinite-width": po.InfiniteWidth(),
    "deep-kernel": po.DeepKernel(num_epochs=30),
    "function-space-vi": po.FunctionSpaceVI(num_epochs=100),
    "anchored-ensemble": po.AnchoredEnsemble(3, SHORT),
    "epinet": po.Epinet(SHORT, num_epochs=50),
    "flow": po.MeanField(family="flow", num_epochs=30),
    "multiplicative": po.MeanField(family="multiplicative", num_epochs=100),
    "normal-mixture": po.MeanField(family="mixture", num_components=2, num_epochs=50),
}
CLASSES = {
    "infinite-width": po.InfiniteWidth(classes="regression"),
    "latent": po.InfiniteWidth(classes="latent", sampler=po.EllipticalSlice(num_draws=30, num_warmup=30)),
    "deep-kernel": po.DeepKernel(num_epochs=30, num_inducing=20),
    "prior-network": po.PriorNetwork(num_epochs=50),
    "multiplicative": po.MeanField(family="multiplicative", num_epochs=50),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_each_is_in_the_comparison_and_on_its_page(kind, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2)).astype(np.float32)
    y = (np.sin(x[:, 0]) + 0.2 * rng.normal(size=80)).astype(np.float32)
    model, methods = po.Model(po.nn.mlp((6,))), NUMBERS
    if kind == "classes":
        model, methods, y = po.Model(po.nn.mlp((6,), outputs=2), po.likelihoods.Categorical()), CLASSES, (y > 0) * 1
    po.compare(model, (x, y), methods, reference=None, seeds=1, baselines=False, out=tmp_path / "out")
    (problem,) = results.read(tmp_path / "out")["problems"]
    told = {row["name"]: row for row in problem["rows"]}
    assert set(told) >= set(methods)
    for name in methods:
        assert told[name]["status"] == "done", (name, told[name])
        assert np.isfinite(told[name]["scores"]["nll"]["value"]), name
    page = report.write(tmp_path / "out").read_text()
    assert all(name in page for name in methods)
