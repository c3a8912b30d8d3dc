"""PyTorch networks in JAX: outputs, Laplace beside laplace-torch 0.3, and the cost of a step beside the same in NNX.

Outputs: the twenty networks of tests/bridges/torch_networks.py, on rows that conversion did not see, in float32.

Laplace, in float64, on five of them, at the same weights, data and prior: the last layer (full matrix) and all layers
(Kronecker factors), by the covariance of the linearised outputs and the evidence. laplace-torch has no Kronecker
factors for norms, which are frozen in both by `requires_grad_(False)`, and its block of a bias that is shared by
positions is another (see laplace_torch.py): the convolutions of VGG are without biases here.

Speed: a step of `po.MAP` on a batch of 32 images, of a ResNet-18 that came from PyTorch and of the same one in NNX.

Needs the bench environment with torch==2.13.0 and laplace-torch==0.3.
"""

import sys
import warnings

import jax
import numpy as np
import torch
from flax import nnx
from laplace import Laplace
from laplace.curvature import CurvlinopsGGN
from measure import ROOT, at_most, interleaved, print_table
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import posteria as po

sys.path.insert(0, str(ROOT / "tests"))
from bridges import torch_networks

PRIOR_STD = 0.7
TOLERANCE = 1e-4
FIVE = ("tabular_resnet", "layer_norm", "vgg", "densenet", "resnet18")
ROWS, TEST_ROWS = 24, 3
STEP_LIMIT = 1.5  # of NNX's seconds
BATCH, EPOCHS, IMAGES = 32, 3, 96


def main() -> None:
    warnings.simplefilter("ignore")
    rows = [outputs_of(name) for name in torch_networks.examples(rows=1)]
    columns = ["", "operations", "difference", "target", "verdict"]
    print_table("Outputs, largest difference relative to the largest output", columns, rows)
    jax.config.update("jax_enable_x64", True)
    rows = [row for name in FIVE for row in laplace_of(name)]
    print_table(
        "Laplace, largest difference relative to the largest entry", ["", "difference", "target", "verdict"], rows
    )
    jax.config.update("jax_enable_x64", False)
    speed()


# ---- outputs


def outputs_of(name: str) -> list:
    torch.manual_seed(0)
    make, x = torch_networks.examples()[name]
    module = torch_networks.settled(make, as_tuple(x))
    _, other = torch_networks.examples(rows=16)[name]
    try:
        network = po.network(module, example=x)
    except po.errors.NetworkError as error:
        return [name, "", f"refused: {error.got}", "", ""]
    ours = jax.jit(network.apply)(network.init(jax.random.key(0)), jax.tree.map(lambda leaf: leaf.numpy(), other))
    with torch.no_grad():
        difference = relative(ours, module.eval()(*as_tuple(other)).numpy())
    return [name, len(network.spec["graph"]["nodes"]), difference, f"<= {TOLERANCE}", at_most(difference, TOLERANCE)]


def as_tuple(x) -> tuple:
    return x if isinstance(x, tuple) else (x,)


def relative(ours, theirs) -> float:
    return float(np.abs(np.asarray(ours) - theirs).max() / np.abs(theirs).max())


# ---- Laplace


def laplace_of(name: str) -> list[list]:
    torch.manual_seed(0)
    make, x = torch_networks.examples(rows=ROWS + TEST_ROWS)[name]
    module = without_what_is_shared(torch_networks.settled(make, as_tuple(x)).double().eval())
    x = x.double()
    classes = module(x[:1]).shape[1]
    y = torch.randint(0, max(classes, 2), (ROWS,)) if classes > 1 else torch.randn(ROWS, 1).double()
    likelihood = po.likelihoods.Categorical() if classes > 1 else po.likelihoods.Gaussian(noise=1.0)
    network = po.network(module, example=x[:4].numpy())
    model = po.Model(network, likelihood, po.priors.Normal(PRIOR_STD))
    rows = []
    for subset, structure, theirs in (("last", "full", "last_layer"), ("all", "kron", "all")):
        data = (x[:ROWS].numpy(), y.numpy())
        ours = po.fit(model, data, po.Laplace(structure, subset=subset), progress=False)
        peer = Laplace(
            module,
            "classification" if classes > 1 else "regression",
            subset_of_weights=theirs,
            hessian_structure=structure,
            prior_precision=PRIOR_STD**-2,
            backend=CurvlinopsGGN,
        )
        peer.fit(DataLoader(TensorDataset(x[:ROWS], y), batch_size=ROWS))
        _, variance = peer._glm_predictive_distribution(x[ROWS:])
        differences = {
            "outputs' covariance": relative(ours.function_moments(x[ROWS:].numpy())[1], variance.detach().numpy()),
            "evidence": relative(ours.log_evidence(), float(peer.log_marginal_likelihood().detach())),
        }
        rows += [
            [f"{name}, {subset}, {structure}: {what}", value, f"<= {TOLERANCE}", at_most(value, TOLERANCE)]
            for what, value in differences.items()
        ]
    return rows


def without_what_is_shared(module: nn.Module) -> nn.Module:
    """Norms frozen, convolutions without biases."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.LayerNorm | nn.RMSNorm):
            part.requires_grad_(False)
        elif isinstance(part, nn.Conv2d) and part.bias is not None:
            part.bias = None
    return module


# ---- speed


class Block(nnx.Module):
    def __init__(self, inputs, outputs, stride, rngs):
        self.conv1 = nnx.Conv(inputs, outputs, (3, 3), strides=stride, padding=1, use_bias=False, rngs=rngs)
        self.bn1 = nnx.BatchNorm(outputs, use_running_average=True, rngs=rngs)
        self.conv2 = nnx.Conv(outputs, outputs, (3, 3), padding=1, use_bias=False, rngs=rngs)
        self.bn2 = nnx.BatchNorm(outputs, use_running_average=True, rngs=rngs)
        self.downsample = nnx.data(None)
        if stride != 1 or inputs != outputs:
            self.downsample = nnx.Sequential(
                nnx.Conv(inputs, outputs, (1, 1), strides=stride, padding=0, use_bias=False, rngs=rngs),
                nnx.BatchNorm(outputs, use_running_average=True, rngs=rngs),
            )

    def __call__(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(jax.nn.relu(self.bn1(self.conv1(x)))))
        return jax.nn.relu(out + identity)


class ResNet18(nnx.Module):
    """The one of torch_networks, channels last."""

    def __init__(self, rngs, width=8, classes=10):
        self.conv1 = nnx.Conv(3, width, (7, 7), strides=2, padding=3, use_bias=False, rngs=rngs)
        self.bn1 = nnx.BatchNorm(width, use_running_average=True, rngs=rngs)
        sizes = [width, width, 2 * width, 4 * width, 8 * width]
        self.blocks = nnx.List(
            Block(sizes[i] if j == 0 else sizes[i + 1], sizes[i + 1], 2 if i and j == 0 else 1, rngs)
            for i in range(4)
            for j in range(2)
        )
        self.fc = nnx.Linear(sizes[-1], classes, rngs=rngs)

    def __call__(self, x):
        x = jax.nn.relu(self.bn1(self.conv1(x)))
        x = nnx.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean((1, 2)))


def speed() -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(IMAGES, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, IMAGES)
    module = torch_networks.settled(torch_networks.ResNet18, (torch.tensor(x),))
    networks = {
        "from PyTorch": (po.network(module, example=x[:4]), x),
        "NNX": (po.network(ResNet18(nnx.Rngs(0))), x.transpose(0, 2, 3, 1)),
    }
    sizes = {
        name: sum(leaf.size for leaf in jax.tree.leaves(network.init(jax.random.key(0))))
        for name, (network, _) in networks.items()
    }
    assert len(set(sizes.values())) == 1, sizes
    method = po.MAP(num_epochs=EPOCHS, batch_size=BATCH)

    def fit(name: str) -> None:
        network, inputs = networks[name]
        po.fit(po.Model(network, po.likelihoods.Categorical()), (inputs, y), method, progress=False)

    seconds = interleaved({name: lambda name=name: fit(name) for name in networks}, repeats=5)
    steps = EPOCHS * IMAGES // BATCH
    rows = [[name, 1e3 * each / steps] for name, each in seconds.items()]
    print_table(f"ResNet-18, {sizes['NNX']:,} weights, a step of MAP on {BATCH} images of 32 x 32", ["", "ms"], rows)
    ratio = seconds["from PyTorch"] / seconds["NNX"]
    print_table(
        "Target",
        ["", "ratio", "target", "verdict"],
        [["a step of MAP", ratio, f"<= {STEP_LIMIT}", at_most(ratio, STEP_LIMIT)]],
    )


if __name__ == "__main__":
    main()
