"""Memory after many fits of fresh networks, and after `po.clear()`: compiled code goes with its network.

python benchmarks/compiled_memory.py --fits 200 --method map
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
METHODS = {
    "map": po.MAP(num_epochs=10),
    "hmc": po.HMC(num_chains=2, num_warmup=10, num_draws=10, num_leapfrog=4),
    "sgld": po.SGLD(num_chains=2, num_draws=10, thinning=1),
}


def megabytes() -> float:
    """Of memory that is resident now (Linux)."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def fresh(width: int) -> po.Model:
    """Of a network that nobody has seen before."""

    def init(key, x):
        return {"w": jax.random.normal(key, (4, width)), "v": jax.random.normal(key, (width, 1))}

    return po.Model(po.Network(init, lambda params, x: jnp.tanh(x @ params["w"]) @ params["v"]))


def fit(model: po.Model, method: po.Method) -> None:
    posterior = po.fit(model, (X, Y), method, progress=False)
    assert np.isfinite(posterior.predict(X).mean).all()


def count_compiled() -> list[str]:
    """A list that grows by one whenever XLA compiles."""
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(event) if event.endswith("backend_compile_duration") else None
    )
    return compiled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=200)
    parser.add_argument("--method", choices=METHODS, default="map")
    asked = parser.parse_args()
    count, method, compiled = asked.fits, METHODS[asked.method], count_compiled()
    before = megabytes()
    fit(model := fresh(20), method)
    first = len(compiled)
    fit(model, method)
    again = len(compiled) - first
    verdict = "MISSED" if again else "met"
    print(f"{asked.method}: the first fit compiles {first} times, a second of the same model {again}: {verdict}")
    del model
    start = megabytes()
    print(f"{count} fits of fresh networks, each of another width; MB beyond {start:.0f} after the first fit")
    for number in range(1, count + 1):
        fit(fresh(20 + number), method)
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
