"""HMC by all rows of 10,000 images in bounded memory: `python benchmarks/full_gradients.py`.

A ResNet-20-FRN of width 8 on CIFAR-10's first rows (random images where they are not at hand). In one process a draw
of two leapfrog steps by 10,000 images, and the peak of its memory, imports, images and compiling included; in another
the gradient by 500 images in blocks of rows beside that of all at once.
"""

import json
import resource
import subprocess
import sys
import time

import numpy as np
from measure import at_most, use_shared_data

ROWS, FEW = 10_000, 500
MOST_GIB, MOST_OFF = 2.0, 1e-5


def images(count: int) -> tuple[np.ndarray, np.ndarray]:
    import posteria as po
    from posteria.errors import PosteriaError

    use_shared_data()
    try:
        found = po.data.load("cifar10")
    except PosteriaError:
        rng = np.random.default_rng(0)
        return rng.random((count, 32, 32, 3), np.float32), rng.integers(0, 10, count)
    return np.asarray(found.x[:count], np.float32), np.asarray(found.y[:count])


def model():
    import posteria as po

    return po.Model(po.nn.resnet20_frn(outputs=10, width=8), po.likelihoods.Categorical())


def draw() -> None:
    import posteria as po

    method = po.HMC(num_chains=1, num_draws=1, num_warmup=1, num_leapfrog=2, step_size=1e-4, start="init")
    began = time.perf_counter()
    po.fit(model(), images(ROWS), method, progress=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"GiB": peak, "seconds": time.perf_counter() - began}))


def difference() -> None:
    import jax

    import posteria as po
    from posteria import tree
    from posteria.models import sums

    target = po.Target(model(), images(FEW))
    params = target.init(jax.random.key(0))
    found = {}
    for name, few in (("blocks", sums.FEW_ROWS), ("whole", FEW)):
        sums.FEW_ROWS = few  # so many are summed as one
        plan = sums.plan_of(target.without_data(), params, sums.all_rows(target.data))
        value, gradient = jax.jit(jax.value_and_grad(lambda p, d: target.without_data().log_density(p, d)))(
            params, sums.all_rows(target.data)
        )
        found[name] = plan.num_blocks, float(value), np.asarray(tree.ravel(gradient), np.float64)
    (many, value, gradient), (one, other, whole) = found["blocks"], found["whole"]
    assert many > one == 1, "two ways to sum"
    off = max(np.abs(gradient - whole).max() / np.abs(whole).max(), abs(value / other - 1))
    print(json.dumps({"blocks": many, "whole": one, "off": float(off)}))


def main() -> None:
    said = {}
    for word in ("draw", "difference"):
        told = subprocess.run([sys.executable, __file__, word], stdout=subprocess.PIPE, text=True, check=True).stdout
        said |= json.loads(told.splitlines()[-1])
    print(
        f"an HMC draw by {ROWS:,} images: {said['GiB']:.2f} GiB at most: {at_most(said['GiB'], MOST_GIB)} ({MOST_GIB})"
    )
    print(f"by {FEW} images in {said['blocks']} blocks and as {said['whole']}: value and gradient differ by", end=" ")
    print(f"{said['off']:.1e} of the largest: {at_most(said['off'], MOST_OFF)} ({MOST_OFF})")


if __name__ == "__main__":
    {"draw": draw, "difference": difference}[sys.argv[1]]() if sys.argv[1:] else main()
