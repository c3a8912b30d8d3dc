"""Cost of one leapfrog: `po.HMC` through the whole of `po.fit`, a bare `lax.scan`, and NumPyro's HMC.

506 x 13 regression, 50 hidden units, noise inferred, one chain, the same step size and number of leapfrogs for all.
A call that was made before (so that compiled code can be used again) is timed at two lengths. "a call" is the longer
one divided by its leapfrogs; "steady" is the difference, in which nothing is left of what a call costs whatever its
length. NumPyro is there with a model in its own primitives, and with the function by hand that the bare scan has; each
with its progress bar (ours is on too), and without, where every `mcmc.run` compiles again: that is in its call, and not
in its steady cost.
"""

import itertools
from functools import partial
from importlib.util import find_spec

import boston
import jax
import jax.numpy as jnp
from measure import at_least, at_most, interleaved, print_table

import posteria as po

STEP_SIZE = 1e-3
NUM_LEAPFROG = 200
SHORT, LONG = 50, 200  # draws
REPEATS = 5


def main() -> None:
    data = boston.data()
    makers = {"bare lax.scan": bare_scan, "posteria HMC": posteria_fit}
    if find_spec("numpyro"):
        for density, has_bar in itertools.product(("model", "function"), (True, False)):
            name = f"NumPyro, a {density}" + ("" if has_bar else ", no bar")
            makers[name] = partial(numpyro_run, density=density, progress_bar=has_bar)
    else:
        print("NumPyro is not installed here: its row needs the bench environment\n")
    cases = {(name, num): make(data, num) for name, make in makers.items() for num in (SHORT, LONG)}
    seconds = interleaved(cases, REPEATS)
    call = {name: 1e6 * seconds[name, LONG] / (LONG * NUM_LEAPFROG) for name in makers}
    steady = {
        name: 1e6 * (seconds[name, LONG] - seconds[name, SHORT]) / ((LONG - SHORT) * NUM_LEAPFROG) for name in makers
    }

    ours, scan = call["posteria HMC"], call["bare lax.scan"]
    rows = [
        [name, call[name], call[name] / scan, steady[name], steady[name] / steady["bare lax.scan"]] for name in makers
    ]
    title = f"A leapfrog in us, 506 x 13, 50 hidden units, one chain, {LONG} draws of {NUM_LEAPFROG} leapfrogs"
    print_table(title, ["", "a call", "to scan", "steady", "to scan"], rows)
    verdicts = [["posteria to scan, a call", ours / scan, "<= 1.25", at_most(ours / scan, 1.25)]]
    for peer in list(makers)[2:]:
        for kind, costs in {"a call": call, "steady": steady}.items():
            ratio = costs[peer] / costs["posteria HMC"]
            verdicts.append([f"{peer} to posteria, {kind}", ratio, ">= 2.5", at_least(ratio, 2.5)])
    print_table("Targets", ["", "ratio", "target", "verdict"], verdicts)


def bare_scan(data, num_draws):
    """`num_draws` trajectories on the tree of weights: nothing but gradients and updates."""
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
        for _ in range(num_draws):
            position, momentum = run(position, momentum, data)
        jax.block_until_ready(position)

    return trajectories


def posteria_fit(data, num_draws):
    model = po.Model(po.nn.mlp((boston.NUM_HIDDEN,), outputs=1))
    method = po.HMC(
        num_chains=1,
        num_draws=num_draws,
        num_warmup=0,
        step_size=STEP_SIZE,
        num_leapfrog=NUM_LEAPFROG,
        jitter=0.0,
        start="prior",
    )

    def fit():
        posterior = po.fit(model, data, method, key=0, progress=True)
        gradients = posterior.facts["gradients"]
        if gradients != num_draws * NUM_LEAPFROG:
            raise AssertionError(f"{gradients} gradients were taken, not {num_draws * NUM_LEAPFROG}")

    return fit


def numpyro_run(data, num_draws, density, progress_bar=True):
    """`density`: "model" for NumPyro's own primitives, "function" for the density by hand that the bare scan has."""
    from numpyro.infer import HMC, MCMC

    data, start = jax.tree.map(jnp.asarray, data), boston.start()
    if density == "model":
        what, arguments = {"model": numpyro_model}, data
        start["precision"] = start.pop("log_precision")  # NumPyro starts in unconstrained coordinates
    else:
        what, arguments = {"potential_fn": lambda params: -boston.log_density(params, data)}, ()
    kernel = HMC(
        **what,
        step_size=STEP_SIZE,
        trajectory_length=None,
        num_steps=NUM_LEAPFROG,
        adapt_step_size=False,
        adapt_mass_matrix=False,
    )
    mcmc = MCMC(kernel, num_warmup=0, num_samples=num_draws, num_chains=1, progress_bar=progress_bar)

    def run():
        mcmc.run(jax.random.key(0), *arguments, init_params=start, extra_fields=("num_steps",))
        jax.block_until_ready(mcmc.get_samples())
        taken = int(mcmc.get_extra_fields()["num_steps"].sum())
        if taken != num_draws * NUM_LEAPFROG:
            raise AssertionError(f"NumPyro took {taken} leapfrogs, not {num_draws * NUM_LEAPFROG}")

    return run


def numpyro_model(x, y):
    """The same density, as a user of NumPyro writes it."""
    import numpyro
    from numpyro import distributions

    shapes = {name: leaf.shape for name, leaf in boston.start().items()}
    weights = {
        name: numpyro.sample(name, distributions.Normal(0, std).expand(shapes[name]).to_event(len(shapes[name])))
        for name, std in boston.prior_stds().items()
    }
    precision = numpyro.sample("precision", distributions.Gamma(boston.NOISE_SHAPE, boston.NOISE_RATE))
    hidden = jax.nn.relu(x @ weights["w1"] + weights["b1"])
    mean = hidden @ weights["w2"] + weights["b2"]
    numpyro.sample("y", distributions.Normal(mean, precision**-0.5).to_event(1), obs=y)


if __name__ == "__main__":
    main()
