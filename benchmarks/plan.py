"""`po.plan` beside what it plans: six fits on this machine, and the talks' experiment on 1, 8 and 512 devices.

    python benchmarks/plan.py fits [name ...]     # a process each for the plan and for the fit
    python benchmarks/plan.py talks

Fits: three methods of a 784-300-100-10 network and of LeNet-5. Compiled code is not kept on disk meanwhile, so that the
plan and the fit compile all that they need, as they would the first time.

The talks: Izmailov et al. 2021, What Are Bayesian Neural Network Posteriors Really Like?, with the hyper-parameters of
its table 3. Multiplications and additions are counted by the compiler in a gradient by 32 rows. Rates are the makers'
peaks (of a TPU v3 a core, in bfloat16), of which 30 % are assumed to be reached; a gradient is summed over devices once
a step.
"""

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np

import posteria as po
from posteria.planning import MACHINES

ROWS, LEAPFROGS, BURN_IN, SAMPLES, CHAINS = 40_960, 70_248, 50, 240, 3
EPOCHS_REPORTED = 5e7  # of the paper's table 3, for CIFAR-10
DEVICES_REPORTED = 512  # TPU v3
DEVICES = (1, 8, 512)

MOST_OFF = {"seconds": 0.3, "GiB": 0.2}  # wanted

FITS = {
    "mlp map": ("mlp", 10_000, po.MAP(num_epochs=80, batch_size=128)),
    "mlp sghmc": ("mlp", 10_000, po.SGHMC(num_chains=2, num_draws=50, num_warmup=1000, thinning=40, start="prior")),
    "mlp hmc": ("mlp", 2_000, po.HMC(num_chains=2, num_draws=10, num_warmup=10, num_leapfrog=20, start="prior")),
    "lenet5 map": ("lenet5", 2_000, po.MAP(num_epochs=40, batch_size=128)),
    "lenet5 sghmc": ("lenet5", 2_000, po.SGHMC(num_chains=2, num_draws=20, num_warmup=200, thinning=10, start="prior")),
    "lenet5 hmc": ("lenet5", 500, po.HMC(num_chains=1, num_draws=8, num_warmup=8, num_leapfrog=10, start="prior")),
}


def problem(name):
    network, num_rows, method = FITS[name]
    rng = np.random.default_rng(0)
    shape = (28, 28, 1) if network == "lenet5" else (784,)
    net = po.nn.lenet5(outputs=10) if network == "lenet5" else po.nn.mlp((300, 100), outputs=10)
    x, y = rng.random((num_rows, *shape), np.float32), rng.integers(0, 10, num_rows)
    return po.Model(net, likelihood=po.likelihoods.Categorical()), (x, y), method


def planned(name):
    found = po.plan(*problem(name))
    print(found, file=sys.stderr)
    print(json.dumps({"seconds": found.seconds, "GiB": found.peak_bytes / 2**30}))


def fitted(name):
    model, data, method = problem(name)
    began = time.monotonic()
    po.fit(model, data, method, progress=False)
    seconds = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": seconds, "GiB": peak}))


def fits(names):
    env = os.environ | {"POSTERIA_COMPILED": "off"}
    print(f"{'':14} {'planned s':>10} {'took s':>8} {'off':>6}   {'planned GiB':>11} {'peak GiB':>9} {'off':>6}")
    for name in names or FITS:
        told, took = (
            json.loads(subprocess.run([sys.executable, __file__, word, name], env=env, stdout=subprocess.PIPE).stdout)
            for word in ("planned", "fitted")
        )
        off = {unit: told[unit] / took[unit] - 1 for unit in MOST_OFF}
        verdict = "met" if all(abs(off[unit]) <= most for unit, most in MOST_OFF.items()) else "MISSED"
        print(
            f"{name:14} {told['seconds']:10.2f} {took['seconds']:8.2f} {100 * off['seconds']:+5.0f}%   "
            f"{told['GiB']:11.3f} {took['GiB']:9.3f} {100 * off['GiB']:+5.0f}%  {verdict}",
            flush=True,
        )


def talks():
    model = po.Model(
        po.nn.resnet20_frn(outputs=10), likelihood=po.likelihoods.Categorical(), prior=po.priors.Normal(0.2**0.5)
    )
    x, y = np.zeros((32, 32, 32, 3), np.float32), np.arange(32) % 10
    method = po.HMC(
        num_chains=CHAINS, num_draws=SAMPLES, num_warmup=BURN_IN, num_leapfrog=LEAPFROGS, step_size=1e-5, start="prior"
    )
    plan = po.plan(model, (x, y), method, num_data=ROWS, rehearse=False)
    plan = replace(plan, gradients=float(CHAINS * (BURN_IN + SAMPLES) * LEAPFROGS))
    print(plan)
    print(
        f"epochs, of all chains: {plan.gradients:.3g} here, of which {CHAINS * SAMPLES * LEAPFROGS:.3g} are of samples;"
    )
    print(f"the paper reports {EPOCHS_REPORTED:.0e}, on {DEVICES_REPORTED} TPU v3 devices\n")
    for name in ("tpu-v3", "a100", "h100"):
        print(plan.table(replace(MACHINES[name], num_devices=devices) for devices in DEVICES))
        print()
    print(f"one gradient by {ROWS:,} rows: {ROWS * plan.flops_a_row:.3g} operations, {plan.flops_a_row:.3g} a row;")
    print(f"summed over devices: {4 * plan.num_weights / 1e6:.2f} MB of {plan.num_weights:,} weights a leapfrog step")


if __name__ == "__main__":
    what, *names = sys.argv[1:] or ["talks"]
    {"fits": lambda: fits(names), "talks": talks, "planned": lambda: planned(*names), "fitted": lambda: fitted(*names)}[
        what
    ]()
