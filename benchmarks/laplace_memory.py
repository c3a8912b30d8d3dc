"""Laplace's approximation after training on a network of 10 million weights: `subset="last"`, `structure="diagonal"`.

A 784-2800-2800 network in NNX, 10,000 inputs: classes, and regression whose noise is inferred. Each in a process of its
own; memory is the peak of the whole process (ru_maxrss), the imports, the network and the data among it; time is the
first call's, compiling included.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

from measure import at_most, print_table

LIMIT = 4.0  # GiB
NUM_DATA, NUM_PREDICTED, NUM_INPUTS, NUM_UNITS = 10_000, 500, 784, 2800
CASES = {"10 classes": 10, "regression": 1}  # outputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, help="measure this one here, and print JSON")
    case = parser.parse_args().case
    if case is not None:
        print(json.dumps(measure(CASES[case])))
        return
    rows = []
    for name in CASES:
        command = [sys.executable, __file__, "--case", name]
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        seconds = [f"{found[what]:.1f}" for what in ("fit", "predict")]
        rows.append([name, f"{found['weights']:,}", found["before"], found["peak"], LIMIT])
        rows[-1] += [at_most(found["peak"], LIMIT), *seconds]
    columns = ["", "weights", "GiB before", "GiB at the peak", "target <=", "verdict", "fit, s", "predict, s"]
    title = f'Laplace(structure="diagonal", subset="last"): {NUM_DATA:,} data, {NUM_PREDICTED} predictions, linearised'
    print_table(title, columns, rows)


def measure(num_outputs: int) -> dict:
    import numpy as np
    from flax import nnx

    import posteria as po

    generator = np.random.default_rng(0)
    x = generator.standard_normal((NUM_DATA, NUM_INPUTS), np.float32)
    rngs = nnx.Rngs(0)
    trained = nnx.Sequential(
        nnx.Linear(NUM_INPUTS, NUM_UNITS, rngs=rngs),
        nnx.relu,
        nnx.Linear(NUM_UNITS, NUM_UNITS, rngs=rngs),
        nnx.relu,
        nnx.Linear(NUM_UNITS, num_outputs, rngs=rngs),
    )
    is_classes = num_outputs > 1
    y = generator.integers(0, num_outputs, NUM_DATA) if is_classes else generator.standard_normal(NUM_DATA)
    likelihood = po.likelihoods.Categorical() if is_classes else po.likelihoods.Gaussian()
    before, began = peak(), time.perf_counter()

    model = po.Model(po.network(trained), likelihood)
    posterior = po.fit(model, (x, y), po.Laplace("diagonal", subset="last"), progress=False)
    fitted = time.perf_counter()
    predictive = posterior.predict(x[:NUM_PREDICTED])
    result = predictive.probs if is_classes else predictive.std
    predicted = time.perf_counter()
    if len(result) != NUM_PREDICTED or not np.isfinite(result).all():
        raise AssertionError(f"predictions of shape {result.shape}, or values that are not finite")
    return {
        "weights": int(posterior.mean.size),
        "before": before,
        "peak": peak(),
        "fit": fitted - began,
        "predict": predicted - fitted,
    }


def peak() -> float:
    """GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main()
