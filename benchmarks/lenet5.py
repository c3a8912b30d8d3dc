"""A training step of LeNet-5 (20-50-500), batch 128, Adam: `po.MAP` through the whole of `po.fit`, and PyTorch."""

import math
import os

import numpy as np
from measure import at_most, interleaved, print_table

import posteria as po

BATCH_SIZE = 128
NUM_STEPS = 50
LEARNING_RATE = 1e-3
REPEATS = 5


def main() -> None:
    data = images(BATCH_SIZE * NUM_STEPS)
    cases = {"posteria MAP": posteria_fit(data)}
    try:
        cases["PyTorch"] = torch_run(data)
    except ImportError:
        print("PyTorch is not installed here: its row needs the bench environment\n")
    seconds = interleaved(cases, REPEATS)
    millis = {name: 1e3 * value / NUM_STEPS for name, value in seconds.items()}
    ours = millis["posteria MAP"]
    rows = [["posteria MAP", ours, "", "", ""]]
    if "PyTorch" in millis:
        ratio = ours / millis["PyTorch"]
        rows = [["PyTorch", millis["PyTorch"], 1.0, "", ""], ["posteria MAP", ours, ratio, 1.3, at_most(ratio, 1.3)]]
    columns = ["", "ms a step", "ratio to PyTorch", "target <=", "verdict"]
    print_table(f"LeNet-5 training step, batch {BATCH_SIZE}, {num_cores()} cores", columns, rows)


def images(num: int) -> tuple[np.ndarray, np.ndarray]:
    """In the shape of MNIST; their contents do not matter for speed."""
    generator = np.random.default_rng(0)
    return generator.random((num, 28, 28, 1), np.float32), generator.integers(0, 10, num).astype(np.int32)


def num_cores() -> int:
    return len(os.sched_getaffinity(0))


def posteria_fit(data):
    model = po.Model(po.nn.lenet5(outputs=10), likelihood=po.likelihoods.Categorical())
    method = po.MAP(num_epochs=1, batch_size=BATCH_SIZE, learning_rate=LEARNING_RATE)
    return lambda: po.fit(model, data, method, key=0, progress=False)


def torch_run(data):
    """One epoch of shuffled batches, weight decay for the prior."""
    import torch
    from torch import nn

    torch.set_num_threads(num_cores())
    x, y = torch.from_numpy(data[0]).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(data[1]).long()
    pool = nn.MaxPool2d(2)
    features = [nn.Conv2d(1, 20, 5), pool, nn.Conv2d(20, 50, 5), pool, nn.Flatten()]
    network = nn.Sequential(*features, nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, weight_decay=1 / len(x))
    loss_function = nn.CrossEntropyLoss()

    def epoch():
        for rows in torch.randperm(len(x)).split(BATCH_SIZE):
            optimizer.zero_grad()
            loss = loss_function(network(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
        if not math.isfinite(loss.item()):
            raise AssertionError("PyTorch's loss is not finite")

    return epoch


if __name__ == "__main__":
    main()
