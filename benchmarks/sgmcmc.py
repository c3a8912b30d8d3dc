"""The price of a step of SGHMC: beside a plain Adam step, and beside posteriors (PyTorch).

All noise is drawn in the step. Batches are drawn in the step as well, for SGHMC and for Adam alike; posteriors is given
its batch.
"""

import argparse
import warnings
from collections.abc import Callable

import jax
import numpy as np
from measure import at_least, at_most, interleaved, print_table

import posteria as po
from posteria import tree
from posteria.data.batches import batch_indices, take
from posteria.methods.stochastic.sampler import warmup_kernel
from posteria.models.coordinates import coordinates

BATCH = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    against_adam(arguments.steps, arguments.repeats)
    against_posteriors(arguments.steps, arguments.repeats)


def against_adam(num_steps: int, repeats: int) -> None:
    target = digits()
    seconds = interleaved({"Adam": adam(target, num_steps), "SGHMC": sghmc(target, num_steps)}, repeats)
    ratio = seconds["SGHMC"] / seconds["Adam"]
    rows = [
        ["Adam", 1e6 * seconds["Adam"] / num_steps, 1.0, "", ""],
        ["SGHMC", 1e6 * seconds["SGHMC"] / num_steps, ratio, 2.3, at_most(ratio, 2.3)],
    ]
    print_table(f"784-300-100-10, batch {BATCH}", ["", "us a step", "ratio", "target <=", "verdict"], rows)


def against_posteriors(num_steps: int, repeats: int) -> None:
    target = table()
    cases = {"posteria": sghmc(target, num_steps)}
    try:
        cases["posteriors"] = peer(target, num_steps)
    except ImportError:
        print("posteriors is not installed: left out")
        return
    seconds = interleaved(cases, repeats)
    ratio = seconds["posteriors"] / seconds["posteria"]
    rows = [
        ["posteriors", 1e6 * seconds["posteriors"] / num_steps, 1.0, "", ""],
        ["posteria", 1e6 * seconds["posteria"] / num_steps, ratio, 5.0, at_least(ratio, 5.0)],
    ]
    print_table(f"SGHMC, 13-50-50-1, batch {BATCH}", ["", "us a step", "rate, ratio", "target >=", "verdict"], rows)


def digits() -> po.Target:
    """Of the size of MNIST, made up: only the size matters here."""
    rng = np.random.default_rng(0)
    x = rng.random((10_000, 784), np.float32)
    model = po.Model(po.nn.mlp((300, 100), outputs=10), po.likelihoods.Categorical())
    return po.Target(model, (x, np.arange(10_000) % 10))


def table() -> po.Target:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1000, 13)).astype(np.float32)
    return po.Target(po.Model(po.nn.mlp((50, 50)), po.likelihoods.Gaussian(0.3)), (x, np.sin(x[:, 0])))


def sghmc(target: po.Target, num_steps: int) -> Callable[[], object]:
    method = po.SGHMC(step_size=1e-4, batch_size=BATCH)
    bare = target.without_data()
    kernel = warmup_kernel(bare, method.transformation(), method.kernel_settings(BATCH))
    position = coordinates(bare).to_units(target.init(jax.random.key(0)))
    state = kernel.init(jax.random.key(1), position, target.data)

    @jax.jit
    def run(state, data):
        key = jax.random.key(2)
        return jax.lax.fori_loop(
            0, num_steps, lambda i, s: kernel.step(jax.random.fold_in(key, i), s, data)[0], state
        ).position

    return lambda: run(state, target.data).block_until_ready()


def adam(target: po.Target, num_steps: int) -> Callable[[], object]:
    import optax

    bare = target.without_data()
    optimizer = optax.adam(1e-3)
    params = target.init(jax.random.key(0))

    def loss(params, batch):
        return -bare.log_density(params, batch) / bare.num_data

    @jax.jit
    def run(params, data):
        key = jax.random.key(2)

        def step(i, carry):
            params, state = carry
            batch = take(data, batch_indices(key, i, bare.num_data, BATCH))
            updates, state = optimizer.update(jax.grad(loss)(params, batch), state, params)
            return optax.apply_updates(params, updates), state

        return tree.ravel(jax.lax.fori_loop(0, num_steps, step, (params, optimizer.init(params)))[0])

    return lambda: run(params, target.data).block_until_ready()


def peer(target: po.Target, num_steps: int) -> Callable[[], object]:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import posteriors

    network = torch.nn.Sequential(
        torch.nn.Linear(13, 50), torch.nn.ReLU(), torch.nn.Linear(50, 50), torch.nn.ReLU(), torch.nn.Linear(50, 1)
    )
    params = {name: value.detach() for name, value in network.named_parameters()}
    x, y = (torch.from_numpy(np.array(part[:BATCH])) for part in target.data)
    num_data = target.num_data

    def log_posterior(params, batch):
        x, y = batch
        outputs = torch.func.functional_call(network, params, (x,))
        log_likelihood = -0.5 * (((y.reshape(-1) - outputs[:, 0]) / 0.3) ** 2).mean() * num_data
        return log_likelihood - 0.5 * sum((value**2).sum() for value in params.values()), torch.tensor(())

    transform = posteriors.sgmcmc.sghmc.build(log_posterior, lr=1e-4, alpha=10.0)

    def run():
        state = transform.init(params)
        for _ in range(num_steps):
            state, _ = transform.update(state, (x, y))
        return state

    return run


if __name__ == "__main__":
    main()
