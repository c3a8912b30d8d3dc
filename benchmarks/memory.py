"""Extra memory and time of predictions: 500 draws, 100,000 inputs, 10 outputs; each in a process of its own."""

import argparse
import json
import subprocess
import sys
import time

from measure import at_most, print_table

NUM_DRAWS, NUM_INPUTS, NUM_OUTPUTS, NUM_FEATURES = 500, 100_000, 10, 8
STATISTICS = ("quantile", "log_prob")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statistic", choices=STATISTICS, help="measure this one here, and print JSON")
    parser.add_argument("--inputs", type=int, default=NUM_INPUTS)
    arguments = parser.parse_args()
    if arguments.statistic is not None:
        print(json.dumps(measure(arguments.statistic, arguments.inputs)))
        return
    rows = []
    for name in STATISTICS:
        command = [sys.executable, __file__, "--statistic", name, "--inputs", str(arguments.inputs)]
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        rows.append([name, found["gib"], 1.0, at_most(found["gib"], 1.0), found["seconds"]])
    title = f"Predictions: {NUM_DRAWS} draws, {arguments.inputs:,} inputs, {NUM_OUTPUTS} outputs, mlp (50, 50)"
    print_table(title, ["", "extra GiB", "target <=", "verdict", "seconds"], rows)


def measure(statistic: str, num_inputs: int) -> dict:
    import numpy as np

    import posteria as po
    from posteria import tree
    from posteria.posteriors.draws import Draws, DrawsPosterior

    generator = np.random.default_rng(0)
    x = generator.standard_normal((num_inputs, NUM_FEATURES), np.float32)
    y = generator.standard_normal((num_inputs, NUM_OUTPUTS), np.float32)
    model = po.Model(po.nn.mlp((50, 50), outputs=NUM_OUTPUTS))
    target = po.Target(model, (x[:2], y[:2]))
    weights = 0.3 * generator.standard_normal((4, NUM_DRAWS // 4, tree.size(target.structs)), np.float32)
    posterior = DrawsPosterior(target, Draws(target.structs, weights, {}))

    before, began = _resident("VmRSS"), time.perf_counter()
    predictive = posterior.predict(x)
    result = predictive.quantile(0.9) if statistic == "quantile" else predictive.log_prob(y)
    seconds = time.perf_counter() - began
    if len(result) != num_inputs or not np.isfinite(result).all():
        raise AssertionError(f"{statistic} gave {result.shape}, or values that are not finite")
    # the peak of the whole process: at least that of the prediction
    return {"gib": (_resident("VmHWM") - before) / 2**30, "seconds": seconds}


def _resident(field: str) -> int:
    """Bytes in memory now (VmRSS), or at most since the process began (VmHWM)."""
    with open("/proc/self/status") as status:
        kilobytes = next(line.split()[1] for line in status if line.startswith(field))
    return 1024 * int(kilobytes)


if __name__ == "__main__":
    main()
