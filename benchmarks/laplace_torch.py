"""`po.Laplace` beside laplace-torch 0.3 (curvlinops backend): the same numbers, and how much sooner.

Agreement, in float64, on the same weights, data and prior: precision matrices (diagonal, Kronecker, full), evidence
and covariance of the linearised outputs, on an MLP and a small convolution network. Speed, in float32: a Kronecker fit
of a 784-300-100-10 network on 10,000 images, and linearised predictions, a row's cost (laplace-torch forms every
Jacobian, so that it is timed on fewer rows: its cost is linear in them).

Needs the bench environment with torch==2.13.0 and laplace-torch==0.3, and no torchvision (the wheel that comes with it
is for another build of torch; nothing here imports it).
"""

import os
import resource

import jax
import jax.numpy as jnp
import numpy as np
import torch
from laplace import Laplace
from laplace.curvature import CurvlinopsGGN
from measure import at_least, at_most, interleaved, print_table, use_shared_data
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import posteria as po

PRIOR_STD = 0.7
TOLERANCE = 1e-4
NUM_IMAGES = int(os.environ.get("NUM_IMAGES", 10_000))
NUM_PREDICTED, NUM_PREDICTED_TORCH = 500, int(os.environ.get("NUM_PREDICTED_TORCH", 20))
TORCH_BATCH = 1000


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    torch.set_default_dtype(torch.float64)
    rows = [row for name in ("mlp", "conv") for row in agreement(name)]
    print_table("Largest difference, relative to the largest entry", ["", "difference", "target", "verdict"], rows)
    jax.config.update("jax_enable_x64", False)
    torch.set_default_dtype(torch.float32)
    speed()


# ---- agreement


def agreement(name: str) -> list[list]:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    if name == "mlp":
        module, x = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)), rng.normal(size=(40, 5))
    else:
        convolution = nn.Conv2d(1, 2, 3, stride=2, padding=1, bias=False)  # a shared bias is not compared
        module = nn.Sequential(convolution, nn.Tanh(), nn.Flatten(), nn.Linear(18, 3))
        x = rng.normal(size=(40, 1, 6, 6))
    y = rng.integers(0, 3, len(x))
    start = {f"{i}": jnp.asarray(p.detach().numpy()) for i, p in enumerate(module.parameters())}
    network = po.Network(lambda key, x: start, mlp_apply if name == "mlp" else conv_apply)
    model = po.Model(network, po.likelihoods.Categorical(), po.priors.Normal(PRIOR_STD))
    rows = []
    for structure, theirs in {"diagonal": "diag", "kron": "kron", "full": "full"}.items():
        ours = po.fit(model, (x, y), po.Laplace(structure), start=start, progress=False)
        peer = fit_torch(module, x, y, theirs, len(x))
        precision = peer.posterior_precision
        precision = (precision.to_matrix() if structure == "kron" else precision).detach().numpy()
        covariance = np.diag(1 / precision) if structure == "diagonal" else np.linalg.inv(precision)
        _, peer_variance = peer._glm_predictive_distribution(torch.as_tensor(x))
        differences = {
            "covariance": relative(ours.spread.covariance(), covariance),
            "evidence": relative(ours.log_evidence(), float(peer.log_marginal_likelihood())),
            "outputs' covariance": relative(ours.function_moments(x)[1], peer_variance.detach().numpy()),
        }
        rows += [
            [f"{name}, {structure}: {what}", value, f"<= {TOLERANCE}", at_most(value, TOLERANCE)]
            for what, value in differences.items()
        ]
    return rows


def mlp_apply(params, x):
    return jnp.tanh(x @ params["0"].T + params["1"]) @ params["2"].T + params["3"]


def conv_apply(params, x):
    y = jax.lax.conv_general_dilated(
        x, params["0"], (2, 2), [(1, 1), (1, 1)], dimension_numbers=("NCHW", "OIHW", "NCHW")
    )
    return jnp.tanh(y).reshape(len(x), -1) @ params["1"].T + params["2"]


def fit_torch(module, x, y, structure: str, batch_size: int):
    loader = DataLoader(TensorDataset(torch.as_tensor(x), torch.as_tensor(y)), batch_size=batch_size)
    peer = Laplace(
        module,
        "classification",
        subset_of_weights="all",
        hessian_structure=structure,
        prior_precision=PRIOR_STD**-2,
        backend=CurvlinopsGGN,
    )
    peer.fit(loader)
    return peer


def relative(ours, theirs) -> float:
    return float(np.abs(np.asarray(ours) - theirs).max() / np.abs(theirs).max())


# ---- speed


def speed() -> None:
    x, y = images()
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10))
    start = {f"{i}": jnp.asarray(p.detach().numpy()) for i, p in enumerate(module.parameters())}
    model = po.Model(
        po.Network(lambda key, x: start, deep_apply), po.likelihoods.Categorical(), po.priors.Normal(PRIOR_STD)
    )
    made = {}

    def fit_ours():
        made["ours"] = po.fit(model, (x, y), po.Laplace("kron"), start=start, progress=False)

    def fit_theirs():
        made["theirs"] = fit_torch(module, x, y, "kron", TORCH_BATCH)

    before = peak()
    fit_ours()
    made["ours"].function_moments(x[:NUM_PREDICTED])
    after_ours = peak()
    fits = interleaved({"posteria": fit_ours, "laplace-torch": fit_theirs}, repeats=3)
    few = torch.as_tensor(x[:NUM_PREDICTED_TORCH])
    predictions = interleaved(
        {
            "posteria": lambda: made["ours"].function_moments(x[:NUM_PREDICTED]),
            "laplace-torch": lambda: made["theirs"]._glm_predictive_distribution(few),
        },
        repeats=2,
    )
    after_all = peak()
    a_row = {
        "posteria": predictions["posteria"] / NUM_PREDICTED,
        "laplace-torch": predictions["laplace-torch"] / NUM_PREDICTED_TORCH,
    }
    rows = [[name, fits[name], 1e3 * a_row[name]] for name in fits]
    print_table(f"784-300-100-10, {NUM_IMAGES:,} images", ["", "fit, s", "a prediction, ms"], rows)
    fit_ratio = fits["laplace-torch"] / fits["posteria"]
    predict_ratio = a_row["laplace-torch"] / a_row["posteria"]
    print_table(
        "Targets, laplace-torch to posteria",
        ["", "ratio", "target", "verdict"],
        [
            ["KFAC fit", fit_ratio, ">= 1", at_least(fit_ratio, 1.0)],
            ["linearised prediction", predict_ratio, ">= 20", at_least(predict_ratio, 20.0)],
        ],
    )
    print(f"peak memory: {after_ours - before:,.0f} MB more for posteria, then {after_all - after_ours:,.0f} MB more")


def deep_apply(params, x):
    x = jax.nn.relu(x @ params["0"].T + params["1"])
    x = jax.nn.relu(x @ params["2"].T + params["3"])
    return x @ params["4"].T + params["5"]


def images():
    use_shared_data()
    data = po.data.load("mnist", "train")
    return data.x[:NUM_IMAGES].reshape(NUM_IMAGES, -1), data.y[:NUM_IMAGES].astype(np.int64)


def peak() -> float:
    """Megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
