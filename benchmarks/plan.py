"""What the talks' experiment would take: HMC on ResNet-20-FRN over CIFAR-10, on 1, 8 and 512 devices.

    python benchmarks/plan.py > docs/results/plan.txt

Izmailov et al. 2021, What Are Bayesian Neural Network Posteriors Really Like?, with the hyper-parameters of its table
3. Multiplications and additions are counted by the compiler in a gradient by 32 rows. Rates are the makers' peaks (of a
TPU v3 a core, in bfloat16), of which 30 % are assumed to be reached; a gradient is summed over devices once a step.
"""

from dataclasses import replace

import numpy as np

import posteria as po
from posteria.planning import MACHINES

ROWS, LEAPFROGS, BURN_IN, SAMPLES, CHAINS = 40_960, 70_248, 50, 240, 3
EPOCHS_REPORTED = 5e7  # of the paper's table 3, for CIFAR-10
DEVICES_REPORTED = 512  # TPU v3
DEVICES = (1, 8, 512)


def main():
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
    main()
