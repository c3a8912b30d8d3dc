"""A training step of LeNet-5 (batch 128) and of ResNet-20-FRN (width 16, 32 x 32, batch 32), here and in PyTorch.

    python benchmarks/steps.py             # in the bench environment, which has PyTorch; both networks
    python benchmarks/steps.py lenet5

Each is a process of its own with a thread a core, since threads of both in one would wait for each other. They take
turns at blocks of steps (Adam, shuffled batches), in the order A B B A; a ratio is of two neighbouring blocks, and the
median of ratios is judged: a disturbance that lasts is in both, one that does not is in one ratio. Here a block is the
climb of a `po.fit` with `po.MAP`, compiled before; how far from a mode it ended, which the fit measures afterwards by
some gradients of all rows and which PyTorch has no counterpart of, is no part of it. On a busy machine look at the CPU
time (of all threads), of one core: `taskset -c 0 python benchmarks/steps.py`.
"""

import itertools
import os
import statistics
import subprocess
import sys
import time

import numpy as np
from measure import at_most, print_table

CASES = {  # batch, batches an epoch, epochs a block, image, target
    "lenet5": (128, 5, 12, (28, 28, 1), 1.3),
    "resnet20": (32, 3, 8, (32, 32, 3), 1.5),
}
PAIRS = 7
LEARNING_RATE = 1e-3


def main(cases: list[str]) -> None:
    for case in cases or CASES:
        measure(case)


def measure(case: str) -> None:
    batch_size, num_batches, num_epochs, _, target = CASES[case]
    num_steps = num_batches * num_epochs
    workers = {name: started(case, name) for name in ("posteria", "torch")}
    for worker in workers.values():
        block(worker)  # compiles, and touches all memory
    found: dict[str, list[list[float]]] = {name: [] for name in workers}  # by name: pairs of wall and CPU
    for pair in range(PAIRS):
        for name in sorted(workers, reverse=bool(pair % 2)):
            found[name].append([1e3 * seconds / num_steps for seconds in block(workers[name])])
    for worker in workers.values():
        worker.stdin.close()
        worker.wait()
    columns = ["", "ms a step", "least", "ratio to PyTorch", "middle half", "target <=", "verdict"]
    for place, clock in enumerate(("wall", "CPU")):
        ours, theirs = ([pair[place] for pair in found[name]] for name in ("posteria", "torch"))
        ratios = sorted(each / other for each, other in zip(ours, theirs))
        middle, verdict = statistics.median(ratios), ["", ""]
        spread = f"{ratios[PAIRS // 4]:.2f} to {ratios[-1 - PAIRS // 4]:.2f}"
        if clock == "wall":
            verdict = [target, at_most(middle, target)]
        rows = [
            ["PyTorch", statistics.median(theirs), min(theirs), "", "", "", ""],
            ["posteria MAP", statistics.median(ours), min(ours), middle, spread, *verdict],
        ]
        cores = f"{num_cores()} core{'s' * (num_cores() > 1)}"
        print_table(
            f"{case}, batch {batch_size}, {cores}, {clock} time; {PAIRS} pairs of {num_steps} steps", columns, rows
        )


def num_cores() -> int:
    return len(os.sched_getaffinity(0))


def images(number: int, shape: tuple[int, ...] = (28, 28, 1)) -> tuple[np.ndarray, np.ndarray]:
    """Their contents do not matter for speed."""
    generator = np.random.default_rng(0)
    return generator.random((number, *shape), np.float32), generator.integers(0, 10, number).astype(np.int32)


def started(case: str, name: str) -> subprocess.Popen:
    command = [sys.executable, __file__, case, name]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def block(worker: subprocess.Popen) -> list[float]:
    """Seconds that one block took, by its own clock, and of CPU."""
    worker.stdin.write("go\n")
    return [float(word) for word in worker.stdout.readline().split()]


def now() -> np.ndarray:
    return np.array([time.perf_counter(), time.process_time()])


def serve(case: str, name: str) -> None:
    """Runs a block whenever it is told to."""
    batch_size, num_batches, num_epochs, shape, _ = CASES[case]
    x, y = images(batch_size * num_batches, shape)
    run = (posteria_block if name == "posteria" else torch_block)(case, x, y, batch_size, num_epochs)
    for _ in sys.stdin:
        print(*run(), flush=True)


def posteria_block(case, x, y, batch_size, num_epochs):
    import posteria as po

    seconds = []

    class Climb(po.MAP):
        def find(self, *arguments):
            began = now()
            found = super().find(*arguments)
            seconds.append(now() - began)
            return found

    network = po.nn.lenet5(outputs=10) if case == "lenet5" else po.nn.resnet20_frn(outputs=10)
    model = po.Model(network, likelihood=po.likelihoods.Categorical())
    method = Climb(num_epochs=num_epochs, batch_size=batch_size, learning_rate=LEARNING_RATE)

    def block():
        po.fit(model, (x, y), method, key=0, progress=False)
        return seconds[-1]

    return block


def torch_block(case, x, y, batch_size, num_epochs):
    import torch
    from torch import nn

    torch.set_num_threads(num_cores())
    x, y = torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(y).long()
    network = torch_lenet5(nn) if case == "lenet5" else torch_resnet20(torch, nn)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, weight_decay=1 / len(x))
    loss_function = nn.CrossEntropyLoss()

    def block():
        began = now()
        for _ in range(num_epochs):
            for rows in torch.randperm(len(x)).split(batch_size):
                optimizer.zero_grad()
                loss_function(network(x[rows]), y[rows]).backward()
                optimizer.step()
        return now() - began

    return block


def torch_lenet5(nn):
    pool = nn.MaxPool2d(2)
    features = [nn.Conv2d(1, 20, 5), pool, nn.Conv2d(20, 50, 5), pool, nn.Flatten()]
    return nn.Sequential(*features, nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))


def torch_resnet20(torch, nn, width=16):
    """`posteria.nn.images.ResNet20FRN`, in PyTorch."""
    swish = nn.functional.silu

    class Normed(nn.Module):
        def __init__(self, window, inputs, outputs, stride=1):
            super().__init__()
            self.convolution = nn.Conv2d(inputs, outputs, window, stride, padding=window // 2)
            self.gamma = nn.Parameter(torch.ones(outputs, 1, 1))
            self.beta = nn.Parameter(torch.zeros(outputs, 1, 1))
            self.tau = nn.Parameter(torch.zeros(outputs, 1, 1))

        def forward(self, x):
            x = self.convolution(x)
            mean_square = x.square().mean((2, 3), keepdim=True)
            return torch.maximum(self.gamma * x * torch.rsqrt(mean_square + 1e-6) + self.beta, self.tau)

    class Block(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            stride = 1 if inputs == outputs else 2
            self.first = Normed(3, inputs, outputs, stride)
            self.second = Normed(3, outputs, outputs)
            self.shortcut = nn.Identity() if inputs == outputs else Normed(1, inputs, outputs, stride)

        def forward(self, x):
            return swish(self.second(swish(self.first(x))) + self.shortcut(x))

    sizes = [width] * 4 + [2 * width] * 3 + [4 * width] * 3
    blocks = [Block(i, o) for i, o in itertools.pairwise(sizes)]
    tail = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10)]
    return nn.Sequential(Normed(3, 3, width), nn.SiLU(), *blocks, *tail)


if __name__ == "__main__":
    serve(*sys.argv[1:]) if len(sys.argv) == 3 else main(sys.argv[1:])
