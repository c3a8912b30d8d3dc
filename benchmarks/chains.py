"""Four chains on two cores relative to one chain, as host devices and as threads; a process for each.

The ratio of processor times tells work from waiting: 4 is no extra work, which two free cores do in a ratio of 2.
"""

import argparse
import json
import subprocess
import sys
import time

from measure import at_most, interleaved, print_table

TARGETS = {"devices": 2.4, "threads": 2.8}
NUM_CHAINS = 4
REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layout", choices=TARGETS, help="measure this one here, and print JSON")
    layout = parser.parse_args().layout
    if layout is not None:
        print(json.dumps(measure(layout)))
        return
    rows = []
    for layout, target in TARGETS.items():
        command = [sys.executable, __file__, "--layout", layout]
        seconds = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        one, four = seconds["one"], seconds["four"]
        rows.append(
            [
                f"{layout} ({seconds['layout']})",
                one,
                four,
                four / one,
                target,
                at_most(four / one, target),
                seconds["work"],
            ]
        )
    columns = ["", "one chain s", "four chains s", "ratio", "target <=", "verdict", "processor time ratio"]
    print_table("Four chains relative to one: HMC, 506 x 13, 50 hidden units, two cores", columns, rows)


def measure(layout: str) -> dict:
    import posteria as po

    if layout == "devices":
        po.use_cores()
    import boston

    from posteria.engine.layout import choose

    data = boston.data()
    model = po.Model(po.nn.mlp((boston.NUM_HIDDEN,), outputs=1))

    def fit(num_chains: int) -> None:
        method = po.HMC(
            num_chains=num_chains, num_draws=150, num_warmup=0, step_size=1e-3, num_leapfrog=200, jitter=0.0
        )
        po.fit(model, data, method, key=0, progress=False)

    seconds = interleaved({"one": lambda: fit(1), "four": lambda: fit(NUM_CHAINS)}, REPEATS)
    work = {num: _processor_seconds(lambda num=num: fit(num)) for num in (1, NUM_CHAINS)}
    return seconds | {"layout": choose(NUM_CHAINS).name, "work": work[NUM_CHAINS] / work[1]}


def _processor_seconds(run) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


if __name__ == "__main__":
    main()
