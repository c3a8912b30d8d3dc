"""Memory after many fits of fresh networks, and after `po.clear()`: compiled code goes with its network.

python benchmarks/compiled_memory.py --fits 200
"""

import argparse
import gc

import jax
import jax.numpy as jnp
import numpy as np

import posteria as po

GROWS_AT_MOST, LEFT_AT_MOST = 60.0, 20.0  # MB: after all fits; after clear
X = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
Y = X[:, 0]


def megabytes() -> float:
    """Of memory that is resident now (Linux)."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def fit(width: int) -> None:
    """Of a network that nobody has seen before, and that nobody keeps."""

    def init(key, x):
        return {"w": jax.random.normal(key, (4, width)), "v": jax.random.normal(key, (width, 1))}

    network = po.Network(init, lambda params, x: jnp.tanh(x @ params["w"]) @ params["v"])
    posterior = po.fit(po.Model(network), (X, Y), po.MAP(num_epochs=10), progress=False)
    assert np.isfinite(posterior.predict(X).mean).all()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=200)
    count = parser.parse_args().fits
    before = megabytes()
    fit(20)
    start = megabytes()
    print(f"{count} fits of fresh networks, each of another width; MB beyond {start:.0f} after the first fit")
    for number in range(1, count + 1):
        fit(20 + number)
        if number % max(1, count // 10) == 0:
            print(f"  after {number:4d} fits {megabytes() - start:6.1f}", flush=True)
    grown = megabytes() - start
    po.clear()
    left = megabytes() - start
    print(f"grown by {grown:.1f} MB: {'met' if grown < GROWS_AT_MOST else 'MISSED'} ({GROWS_AT_MOST:.0f})")
    print(
        f"after po.clear() {left:.1f} MB: {'met' if left < LEFT_AT_MOST else 'MISSED'} ({LEFT_AT_MOST:.0f});", end=" "
    )
    print(f"before the first fit it was {before - start:.1f}")


if __name__ == "__main__":
    main()
