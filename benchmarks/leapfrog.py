"""Cost of one leapfrog: `po.HMC` through the whole of `po.fit`, a bare `lax.scan`, and NumPyro's HMC.

506 x 13 regression, 50 hidden units, noise inferred, one chain, the same step size and number of leapfrogs for all.
Compilation is not counted; everything else that a fit does is.
"""

import boston
import jax
import jax.numpy as jnp
from measure import at_least, at_most, interleaved, print_table

import posteria as po

STEP_SIZE = 1e-3
NUM_LEAPFROG = 200
NUM_DRAWS = 200
REPEATS = 7


def main() -> None:
    data = boston.data()
    cases = {"bare lax.scan": bare_scan(data), "posteria HMC": posteria_fit(data)}
    try:
        cases["NumPyro HMC"] = numpyro_run(data)
    except ImportError:
        print("NumPyro is not installed here: its row needs the bench environment\n")
    seconds = interleaved(cases, REPEATS)
    micros = {name: 1e6 * value / (NUM_DRAWS * NUM_LEAPFROG) for name, value in seconds.items()}

    scan, ours = micros["bare lax.scan"], micros["posteria HMC"]
    rows = [["bare lax.scan", scan, 1.0, "", ""]]
    rows.append(["posteria HMC", ours, ours / scan, "<= 1.25 x scan", at_most(ours / scan, 1.25)])
    if "NumPyro HMC" in micros:
        theirs = micros["NumPyro HMC"]
        target = f"{theirs / ours:.2f} x ours, >= 2.5"
        rows.append(["NumPyro HMC", theirs, theirs / scan, target, at_least(theirs / ours, 2.5)])
    print_table(
        "A leapfrog, 506 x 13, 50 hidden units, one chain", ["", "us", "ratio to scan", "target", "verdict"], rows
    )


def bare_scan(data):
    """`NUM_DRAWS` trajectories on the tree of weights: nothing but gradients and updates."""
    gradient = jax.grad(boston.log_density)

    @jax.jit
    def run(position, momentum, data):
        def leapfrog(state, _):
            position, momentum, force = state
            momentum = jax.tree.map(lambda p, f: p + 0.5 * STEP_SIZE * f, momentum, force)
            position = jax.tree.map(lambda q, p: q + STEP_SIZE * p, position, momentum)
            force = gradient(position, data)
            momentum = jax.tree.map(lambda p, f: p + 0.5 * STEP_SIZE * f, momentum, force)
            return (position, momentum, force), None

        state = (position, momentum, gradient(position, data))
        return jax.lax.scan(leapfrog, state, length=NUM_LEAPFROG)[0][:2]

    data = jax.tree.map(jnp.asarray, data)

    def trajectories():
        position = boston.start()
        momentum = jax.tree.map(jnp.ones_like, position)
        for _ in range(NUM_DRAWS):
            position, momentum = run(position, momentum, data)
        jax.block_until_ready(position)

    return trajectories


def posteria_fit(data):
    model = po.Model(po.nn.mlp((boston.NUM_HIDDEN,), outputs=1))
    method = po.HMC(
        num_chains=1, num_draws=NUM_DRAWS, num_warmup=0, step_size=STEP_SIZE, num_leapfrog=NUM_LEAPFROG, jitter=0.0
    )

    def fit():
        posterior = po.fit(model, data, method, key=0, progress=False)
        gradients = posterior.facts["gradients"]
        if gradients != NUM_DRAWS * NUM_LEAPFROG:
            raise AssertionError(f"{gradients} gradients were taken, not {NUM_DRAWS * NUM_LEAPFROG}")

    return fit


def numpyro_run(data):
    from numpyro.infer import HMC, MCMC

    data = jax.tree.map(jnp.asarray, data)
    kernel = HMC(
        potential_fn=lambda params: -boston.log_density(params, data),
        step_size=STEP_SIZE,
        trajectory_length=None,
        num_steps=NUM_LEAPFROG,
        adapt_step_size=False,
        adapt_mass_matrix=False,
    )
    mcmc = MCMC(kernel, num_warmup=0, num_samples=NUM_DRAWS, num_chains=1, progress_bar=False)
    start = boston.start()

    def run():
        mcmc.run(jax.random.key(0), init_params=start, extra_fields=("num_steps",))
        jax.block_until_ready(mcmc.get_samples())
        taken = int(mcmc.get_extra_fields()["num_steps"].sum())
        if taken != NUM_DRAWS * NUM_LEAPFROG:
            raise AssertionError(f"NumPyro took {taken} leapfrogs, not {NUM_DRAWS * NUM_LEAPFROG}")

    return run


if __name__ == "__main__":
    main()
