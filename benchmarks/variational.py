"""A step of 784-1200-1200-10, batch 128, Adam: variational methods beside plain training, and bayesian-torch.

All of ours through the whole of `po.fit`. Plain training is `po.MAP`: the same loop, batches and optimiser.
"""

import math
from dataclasses import replace

import numpy as np
from lenet5 import num_cores
from measure import at_least, at_most, interleaved, print_table

import posteria as po

SIZES = (784, 1200, 1200, 10)
BATCH_SIZE = 128
NUM_STEPS = 40
LEARNING_RATE = 1e-3
REPEATS = 3
MOST_PLAIN_STEPS = 3.0
LEAST_TIMES_PEER = 2.5
JUDGED = ("MeanField(local)", "SparseVariationalDropout")

ALIKE = {"batch_size": BATCH_SIZE, "learning_rate": LEARNING_RATE}
METHODS = {
    "plain training": po.MAP(**ALIKE),
    "MeanField(local)": po.MeanField(**ALIKE),
    "SparseVariationalDropout": po.SparseVariationalDropout(**ALIKE),
    "MeanField(flipout)": po.MeanField(**ALIKE, estimator="flipout"),
    "MeanField(weights)": po.MeanField(**ALIKE, estimator="weights"),
    "VariationalOnlineNewton": po.VariationalOnlineNewton(batch_size=BATCH_SIZE),
}


def main() -> None:
    data = images(BATCH_SIZE * NUM_STEPS)
    network = po.nn.mlp(SIZES[1:-1], outputs=SIZES[-1])
    cases = {
        (name, epochs): fit_of(network, data, replace(method, num_epochs=epochs))
        for name, method in METHODS.items()
        for epochs in (1, 2)
    }
    try:
        cases["bayesian-torch", 1] = torch_run(data)
    except ImportError:
        print("bayesian-torch is not installed here: its row needs the bench environment\n")
    seconds = interleaved(cases, REPEATS)
    # what a second epoch adds: without a fit's beginning and end (the estimate of the ELBO), which training has not
    millis = {name: 1e3 * (seconds[name, 2] - seconds[name, 1]) / NUM_STEPS for name in METHODS}
    peer = 1e3 * seconds.get(("bayesian-torch", 1), math.nan) / NUM_STEPS
    rows = []
    for name, value in millis.items():
        ratio, times = value / millis["plain training"], peer / value
        verdicts = ["", ""]
        if name in JUDGED:
            verdicts = [at_most(ratio, MOST_PLAIN_STEPS), at_least(times, LEAST_TIMES_PEER)]
        rows.append([name, value, ratio, verdicts[0], times, verdicts[1]])
    rows.append(["bayesian-torch", peer, peer / millis["plain training"], "", 1.0, ""])
    columns = ["", "ms a step", "plain steps", f"<= {MOST_PLAIN_STEPS}", "times peer", f">= {LEAST_TIMES_PEER}"]
    print_table(f"{'-'.join(map(str, SIZES))}, batch {BATCH_SIZE}, {num_cores()} cores", columns, rows)


def images(num: int) -> tuple[np.ndarray, np.ndarray]:
    """In the shape of MNIST; their contents do not matter for speed."""
    generator = np.random.default_rng(0)
    return generator.random((num, SIZES[0]), np.float32), generator.integers(0, SIZES[-1], num).astype(np.int32)


def fit_of(network, data, method):
    prior = po.priors.LogUniform() if isinstance(method, po.SparseVariationalDropout) else po.priors.FanIn()
    model = po.Model(network, po.likelihoods.Categorical(), prior)
    return lambda: po.fit(model, data, method, key=0, progress=False)


def torch_run(data):
    """Reparameterised layers, as bayesian-torch's own converter makes them of a plain network."""
    import torch
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss
    from torch import nn

    torch.set_num_threads(num_cores())
    x, y = torch.from_numpy(data[0]), torch.from_numpy(data[1]).long()
    layers = [nn.Linear(SIZES[0], SIZES[1]), nn.ReLU(), nn.Linear(SIZES[1], SIZES[2]), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(SIZES[2], SIZES[3]))
    settings = {"prior_mu": 0.0, "prior_sigma": 1.0, "posterior_mu_init": 0.0, "posterior_rho_init": -3.0}
    dnn_to_bnn(network, settings | {"type": "Reparameterization", "moped_enable": False, "moped_delta": 0.5})
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    loss_function = nn.CrossEntropyLoss()

    def epoch():
        for rows in torch.randperm(len(x)).split(BATCH_SIZE):
            optimizer.zero_grad()
            loss = loss_function(network(x[rows]), y[rows]) + get_kl_loss(network) / len(x)
            loss.backward()
            optimizer.step()
        if not math.isfinite(loss.item()):
            raise AssertionError("bayesian-torch's loss is not finite")

    return epoch


if __name__ == "__main__":
    main()
