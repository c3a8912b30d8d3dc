"""`po.Laplace` beside laplace-torch 0.3 (curvlinops backend): the same numbers, and how much sooner.

Agreement, in float64, on the same weights, data and prior: covariance matrices (diagonal, Kronecker, full), evidence
and covariance of the linearised outputs, on an MLP and a small convolution network. A convolution's bias is shared by
all positions: its Kronecker block is the Gauss-Newton matrix' own here, and a sum over positions, as if they were
independent data, in laplace-torch. So that block is compared with the one of laplace-torch's full matrix, and what
mixes blocks (evidence, outputs) with Kronecker factors of a convolution without bias.

Speed, in float32: a Kronecker fit of a 784-300-100-10 network on 10,000 images, and linearised predictions, a row's
cost (laplace-torch forms every Jacobian, so that it is timed on fewer rows: its cost is linear in them). Memory: what
the peak of a process that does both once adds to that of one that has only loaded all it needs.

Needs the bench environment with torch==2.13.0 and laplace-torch==0.3, and no torchvision (the wheel that comes with it
is for another build of torch; nothing here imports it).
"""

import os
import subprocess
import sys
from pathlib import Path

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
NUM_ROWS = {"posteria": 500, "laplace-torch": int(os.environ.get("NUM_PREDICTED_TORCH", 20))}
TARGETS = {"KFAC fit": 1.0, "linearised prediction": 20.0, "memory": 1.0}
TORCH_BATCH = 1000


def main() -> None:
    if sys.argv[1:2] == ["--peak"]:
        print_peak(sys.argv[2])
        return
    jax.config.update("jax_enable_x64", True)
    torch.set_default_dtype(torch.float64)
    rows = [row for name in ("mlp", "conv", "conv without bias") for row in agreement(name)]
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
        convolution = nn.Conv2d(1, 2, 3, stride=2, padding=1, bias=name == "conv")
        module = nn.Sequential(convolution, nn.Tanh(), nn.Flatten(), nn.Linear(18, 3))
        x = rng.normal(size=(40, 1, 6, 6))
    y = rng.integers(0, 3, len(x))
    start = {f"{i}": jnp.asarray(p.detach().numpy()) for i, p in enumerate(module.parameters())}
    apply = {"mlp": mlp_apply, "conv": conv_apply, "conv without bias": conv_apply_without_bias}[name]
    model = po.Model(po.Network(lambda key, x: start, apply), po.likelihoods.Categorical(), po.priors.Normal(PRIOR_STD))
    rows, full = [], None
    for structure, theirs in {"full": "full", "diagonal": "diag", "kron": "kron"}.items():
        ours = po.fit(model, (x, y), po.Laplace(structure), start=start, progress=False)
        peer = fit_torch(module, x, y, theirs, len(x))
        precision = peer.posterior_precision
        precision = (precision.to_matrix() if structure == "kron" else precision).detach().numpy()
        precision = np.diag(precision) if structure == "diagonal" else precision
        full = precision if structure == "full" else full
        _, peer_variance = peer._glm_predictive_distribution(torch.as_tensor(x))
        covariance = ours.spread.covariance()
        differences = {
            "covariance": relative(covariance, np.linalg.inv(precision)),
            "evidence": relative(ours.log_evidence(), float(peer.log_marginal_likelihood())),
            "outputs' covariance": relative(ours.function_moments(x)[1], peer_variance.detach().numpy()),
        }
        if name == "conv" and structure == "kron":
            bias = np.arange(start["0"].size, start["0"].size + start["1"].size)
            others, block = np.delete(np.arange(len(full)), bias), np.ix_(bias, bias)
            differences = {
                "covariance but the bias": relative(
                    np.asarray(covariance)[np.ix_(others, others)], np.linalg.inv(precision)[np.ix_(others, others)]
                ),
                "the bias, to the full matrix": relative(np.asarray(covariance)[block], np.linalg.inv(full[block])),
            }
        if name != "conv without bias" or structure == "kron":
            rows += [
                [f"{name}, {structure}: {what}", value, f"<= {TOLERANCE}", at_most(value, TOLERANCE)]
                for what, value in differences.items()
            ]
    return rows


def mlp_apply(params, x):
    return jnp.tanh(x @ params["0"].T + params["1"]) @ params["2"].T + params["3"]


def conv_apply(params, x):
    y = convolved(x, params["0"]) + params["1"][:, None, None]
    return jnp.tanh(y).reshape(len(x), -1) @ params["2"].T + params["3"]


def conv_apply_without_bias(params, x):
    return jnp.tanh(convolved(x, params["0"])).reshape(len(x), -1) @ params["1"].T + params["2"]


def convolved(x, kernel):
    return jax.lax.conv_general_dilated(x, kernel, (2, 2), [(1, 1), (1, 1)], dimension_numbers=("NCHW", "OIHW", "NCHW"))


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


def libraries() -> dict:
    """For each a fit of the same network, and linearised predictions of a number of rows."""
    x, y = images()
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10))
    start = {f"{i}": jnp.asarray(p.detach().numpy()) for i, p in enumerate(module.parameters())}
    model = po.Model(
        po.Network(lambda key, x: start, deep_apply), po.likelihoods.Categorical(), po.priors.Normal(PRIOR_STD)
    )
    return {
        "posteria": (
            lambda: po.fit(model, (x, y), po.Laplace("kron"), start=start, progress=False),
            lambda fitted, num: fitted.function_moments(x[:num]),
        ),
        "laplace-torch": (
            lambda: fit_torch(module, x, y, "kron", TORCH_BATCH),
            lambda fitted, num: fitted._glm_predictive_distribution(torch.as_tensor(x[:num])),
        ),
    }


def speed() -> None:
    made = {}
    cases = libraries()

    def fit(name: str) -> None:
        made[name] = cases[name][0]()

    fits = interleaved({name: lambda name=name: fit(name) for name in cases}, repeats=3)
    a_row = interleaved(
        {name: lambda name=name: cases[name][1](made[name], NUM_ROWS[name]) for name in cases}, repeats=3
    )
    a_row = {name: seconds / NUM_ROWS[name] for name, seconds in a_row.items()}
    peaks = {name: peak_of(name) for name in cases}
    rows = [[name, fits[name], 1e3 * a_row[name], NUM_ROWS[name], f"{peaks[name]:.0f}"] for name in cases]
    columns = ["", "fit, s", "a prediction, ms", "rows predicted", "memory added, MB"]
    print_table(f"784-300-100-10, {NUM_IMAGES:,} images", columns, rows)
    ratios = {what: by["laplace-torch"] / by["posteria"] for what, by in zip(TARGETS, (fits, a_row, peaks))}
    verdicts = {what: at_least(ratios[what], target) for what, target in TARGETS.items()}
    verdicts["linearised prediction"] += f", by the row: {NUM_ROWS['posteria']} at once to {NUM_ROWS['laplace-torch']}"
    print_table(
        "Targets, laplace-torch to posteria",
        ["", "ratio", "target", "verdict"],
        [[what, ratios[what], f">= {target:g}", verdicts[what]] for what, target in TARGETS.items()],
    )


def peak_of(name: str) -> float:
    """Megabytes that a fit and predictions add, in a process of their own."""
    found = subprocess.run([sys.executable, __file__, "--peak", name], stdout=subprocess.PIPE, check=True, text=True)
    return float(found.stdout.split()[-1])


def print_peak(name: str) -> None:
    fit, predict = libraries()[name]
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: reading the data is none of it
    before = kilobytes("VmRSS")
    predict(fit(), NUM_ROWS[name])
    print((kilobytes("VmHWM") - before) / 1024)


def kilobytes(field: str) -> int:
    """Resident now (VmRSS), or at most since the peak began anew (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def deep_apply(params, x):
    x = jax.nn.relu(x @ params["0"].T + params["1"])
    x = jax.nn.relu(x @ params["2"].T + params["3"])
    return x @ params["4"].T + params["5"]


def images():
    use_shared_data()
    data = po.data.load("mnist", "train")
    return data.x[:NUM_IMAGES].reshape(NUM_IMAGES, -1), data.y[:NUM_IMAGES].astype(np.int64)


if __name__ == "__main__":
    main()
