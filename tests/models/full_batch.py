"""A full-batch HMC draw of a narrow ResNet-20, in a process of its own: `full_batch.py NUM_IMAGES OUT whole|blocks`.

Prints the peak of its memory in bytes.
"""

import resource
import sys

import numpy as np

import posteria as po
from posteria.models import sums


def main(num: str, out: str, how: str) -> None:
    images = po.data.load("cifar10", "test")
    x, y = images.x[: int(num)], images.y[: int(num)]
    if how == "whole":
        sums.WHOLE_BYTES = 2**50
        sums.ACCELERATOR_SHARE = 2.0**50
    model = po.Model(po.nn.resnet20_frn(outputs=10, width=4), po.likelihoods.Categorical())
    method = po.HMC(num_chains=1, num_draws=1, num_warmup=0, num_leapfrog=2, step_size=1e-3, start="init")
    posterior = po.fit(model, (x, y), method, key=0, progress=False)
    draw, info = posterior.stored.flat, posterior.stored.info
    np.savez(out, draw=draw, log_density=info["log_density"], acceptance=info["acceptance"])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


if __name__ == "__main__":
    main(*sys.argv[1:])
