"""Where a step of LeNet-5 (20-50-500, batch 128, Adam) goes, operation by operation, here and in PyTorch.

    python benchmarks/convolutions.py                        # in the bench environment, which has PyTorch
    python benchmarks/convolutions.py profile resnet20       # of the whole gradient as it is compiled, by kind

Ours are timed one by one, each compiled by itself, with the data as the first axis: so a user's own convolutions are
computed, and so were those of ready networks before `Maps`. Their sum is not the step, in which neighbours are fused;
the whole gradient is of the ready network as it is. PyTorch's are its profiler's own times of one thread's timeline.
`profile` takes the least time of each operation over many gradients, as XLA's profiler has them: on a busy machine too.
"""

import collections
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from steps import CASES, images, num_cores, torch_lenet5, torch_resnet20

import posteria as po
from posteria.nn import convolution as convolutions

REPEATS = 30
BATCH_SIZE = CASES["lenet5"][0]


def operations():
    """name -> (function, arguments): forward, then backward, as the network computes them."""
    generator = np.random.default_rng(0)

    def normal(*shape):
        return jnp.asarray(generator.normal(size=shape).astype(np.float32))

    found = {}
    for layer, (inputs, kernel) in enumerate((((28, 28, 1), (5, 5, 1, 20)), ((12, 12, 20), (5, 5, 20, 50))), 1):
        x, k = normal(BATCH_SIZE, *inputs), normal(*kernel)
        height, width = inputs[0] - 4, inputs[1] - 4
        num_patches, length, outputs = BATCH_SIZE * height * width, 25 * inputs[2], kernel[3]
        p, y = normal(num_patches, length), normal(num_patches, outputs)
        maps, bias = normal(BATCH_SIZE, height, width, outputs), normal(outputs)
        pooled = normal(BATCH_SIZE, height // 2, width // 2, outputs)

        def patches(x):
            slices = convolutions.window_slices(x, (5, 5), (1, 1), ((0, 0), (0, 0)), (1, 1))
            return jnp.concatenate(slices, axis=-1)

        def pool(maps, bias):
            return convolutions.max_pool(maps + bias, (2, 2))

        def back(f):
            return lambda arguments, out: jax.vjp(f, *arguments)[1](out)

        found |= {
            f"patches {layer}": (patches, (x,)),
            f"matmul {layer}": (lambda p, k: p @ k, (p, k.reshape(-1, outputs))),
            f"bias and pooling {layer}": (pool, (maps, bias)),
            f"bias and pooling {layer}, backward": (back(pool), ((maps, bias), pooled)),
            f"kernel {layer}, backward": (lambda p, y: p.T @ y, (p, y)),
        }
        if layer == 2:
            found |= {
                "patches' values 2, backward": (lambda y, k: y @ k.T, (y, k.reshape(-1, outputs))),
                "patches 2, backward": (back(patches), ((x,), patches(x))),
            }
    x, w, v = normal(BATCH_SIZE, 800), normal(800, 500), normal(500, 10)

    def dense(x, w, v):
        return jax.nn.relu(x @ w) @ v

    found |= {
        "dense layers": (dense, (x, w, v)),
        "dense layers, both ways": (back(dense), ((x, w, v), normal(BATCH_SIZE, 10))),
    }
    return found


def milliseconds(function, arguments):
    compiled = jax.jit(function)
    jax.block_until_ready(compiled(*arguments))
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        taken.append(time.perf_counter() - began)
    return 1e3 * min(taken)


def gradients(case, number):
    """`number` gradients of the whole network, in a loop as a fit has it, and what it takes."""
    batch_size, _, _, shape, _ = CASES[case]
    network = po.nn.lenet5(outputs=10) if case == "lenet5" else po.nn.resnet20_frn(outputs=10)
    target = po.Target(po.Model(network, likelihood=po.likelihoods.Categorical()), images(batch_size, shape))
    bare, params = target.without_data(), target.init(jax.random.key(0))

    def steps(params, batch):
        slope = jax.grad(bare.log_density)
        return jax.lax.fori_loop(
            0, number, lambda i, w: jax.tree.map(lambda a, b: a + 1e-9 * b, w, slope(w, batch)), params
        )

    return steps, (params, target.data)


KINDS = {  # by the name that XLA gives an operation, the first that matches
    "matrix products": r"ynn|dot|onednn",
    "patches: slices, pads, copies": r"concatenate|slice|pad|copy|transpose",
    "sums over positions or data": r"reduce",
    "one by one: norms, activations, sums": r".",
}


def profile(case, number=12):
    """The least ms of each operation in a gradient, summed by kind, forward and backward."""
    steps, arguments = gradients(case, number)
    compiled = jax.jit(steps).lower(*arguments).compile()
    jax.block_until_ready(compiled(*arguments))
    came_from = dict(re.findall(r"^\s*(?:ROOT )?%?([\w.\-]+) = .*op_name=\"([^\"]*)\"", compiled.as_text(), re.M))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(compiled(*arguments))
        (file,) = Path(folder).rglob("*.xplane.pb")
        data = jax.profiler.ProfileData.from_file(str(file))
    taken = collections.defaultdict(list)
    for event in (event for plane in data.planes for line in plane.lines for event in line.events):
        name = dict(event.stats).get("hlo_op")
        if name is not None and not name.startswith("while"):
            taken[name].append(event.duration_ns / 1e6)
    least = {name: min(times) for name, times in taken.items() if len(times) >= number}
    sums, counts = collections.Counter(), collections.Counter()
    for name, millis in least.items():
        kind = next(kind for kind, pattern in KINDS.items() if re.search(pattern, name))
        way = "backward" if "transpose(" in came_from.get(name, "") else "forward"
        sums[kind, way] += millis
        counts[kind, way] += 1
    print(f"{case}, batch {CASES[case][0]}, {num_cores()} cores: ms of a gradient by kind, the least of {number}\n")
    for (kind, way), millis in sums.most_common():
        print(f"  {kind + ', ' + way:52} {millis:7.2f}  in {counts[kind, way]}")
    print(f"  {'together':52} {sum(sums.values()):7.2f}\n\nthe longest:")
    for name in sorted(least, key=least.get, reverse=True)[:12]:
        print(f"  {name:40} {least[name]:7.2f}  {came_from.get(name, '')[-70:]}")


def main():
    print(f"LeNet-5, batch {BATCH_SIZE}, {num_cores()} cores\n\nPosteria, ms:")
    for name, (function, arguments) in operations().items():
        print(f"  {name:36} {milliseconds(function, arguments):7.2f}", flush=True)
    print(f"  {'the whole gradient, in a loop':36} {milliseconds(*gradients('lenet5', 10)) / 10:7.2f}")
    subprocess.run(
        [sys.executable, __file__, "torch"]
    )  # a process of its own: threads of both would wait for each other


def torch_profile(case="lenet5", num_steps=20):
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile

    torch.set_num_threads(num_cores())
    x, y = images(CASES[case][0], CASES[case][3])
    x, y = torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(y).long()
    network = torch_lenet5(nn) if case == "lenet5" else torch_resnet20(torch, nn)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    loss = nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        loss(network(x), y).backward()
        optimizer.step()

    for _ in range(5):
        step()
    taken = []
    for _ in range(num_steps):
        began = time.perf_counter()
        step()
        taken.append(time.perf_counter() - began)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        for _ in range(num_steps):
            step()
    print(f"\nPyTorch, ms: {1e3 * min(taken):.2f} a step; its operations' own times:")
    events = [event for event in seen.key_averages(group_by_input_shape=True) if event.self_cpu_time_total]
    for event in sorted(events, key=lambda event: -event.self_cpu_time_total)[:14]:
        shapes = " ".join(str(shape) for shape in event.input_shapes[:2])
        print(f"  {event.key:44} {event.self_cpu_time_total / 1e3 / num_steps:7.2f}  {shapes}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["profile"]:
        profile(sys.argv[2])
    elif sys.argv[1:2] == ["torch"]:
        torch_profile(*sys.argv[2:])
    else:
        main()
