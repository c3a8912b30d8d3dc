"""How near each method comes to HMC: agreement and total variation on test points, beside the paper's order.

Izmailov et al. 2021, table 6: CIFAR-10 with a ResNet-20. Here: one hidden layer of 50 on digits, and on 2,000 MNIST
images averaged down to 14 x 14, pixels standardised, under the paper's prior. The reference must have R-hat under 1.05
on 95 % of test points. Wanted: SGHMC and the ensemble nearer than mean-field, SMS-UBU nearer than SGHMC at no more
gradients, and all nearer than MAP. Mean-field is there twice: at the optimum of its family, and as the paper trains it,
300 epochs of small steps from the mode.

    make study NAME=sgmcmc-vs-hmc               200 digits, one seed: a few minutes
    make study NAME=sgmcmc-vs-hmc SCALE=full    digits and MNIST, three seeds; interrupted, it goes on where it was
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _study import begin

import posteria as po

PUBLISHED = {  # agreement, total variation, on CIFAR-10; HMC itself: 94.0 %, 0.074
    "map": (0.855, 0.190),
    "ensemble": (0.915, 0.115),
    "mean-field": (0.888, 0.136),
    "sgld": (0.915, 0.110),
    "sghmc": (0.920, 0.109),
    "sghmc-clr": (0.927, 0.099),
    "sghmc-clr-prec": (0.910, 0.111),
}
LEAST_CONVERGED, LARGEST_RHAT = 0.95, 1.05

PRIOR = po.priors.Normal(0.2**0.5)


class Settings(NamedTuple):
    sets: tuple[str, ...]
    num_train: int
    num_test: int
    num_seeds: int
    hmc: po.HMC
    sampler: dict[str, int]  # of stochastic-gradient chains
    sms_ubu: po.SMSUBU  # as many gradients or fewer, batches that divide the rows, and draws at the end of a sweep
    mclmc: po.MCLMC
    svgd: po.SVGD


SETTINGS = {
    "small": Settings(
        ("digits",),
        200,
        400,
        1,
        po.HMC(num_chains=4, num_draws=60, num_warmup=40, max_leapfrog=200),
        {"num_draws": 50, "num_warmup": 1000, "thinning": 50},
        po.SMSUBU(num_draws=50, num_warmup=1000, thinning=48, batch_size=100),
        po.MCLMC(num_draws=50, num_warmup=300, thinning=10),
        po.SVGD(size=10, num_epochs=300),
    ),
    "full": Settings(
        ("digits", "mnist-14"),
        2000,
        1000,
        3,
        po.HMC(num_chains=4, num_draws=150, num_warmup=75),
        {"num_draws": 100, "num_warmup": 3000, "thinning": 100},
        po.SMSUBU(num_draws=100, num_warmup=3000, thinning=96, batch_size=125),
        po.MCLMC(num_draws=100, num_warmup=600, thinning=10),
        po.SVGD(size=10, num_epochs=500),
    ),
}


def load(name: str, settings: Settings) -> tuple[tuple, tuple]:
    """Training and test rows, all pixels by one mean and deviation."""
    if name == "digits":
        digits = po.data.load("digits")
        order = np.random.default_rng(0).permutation(len(digits.x))
        num_train = min(settings.num_train, 1000)
        parts = order[:num_train], order[num_train : num_train + settings.num_test]
        (x, y), (x_test, y_test) = ((digits.x[rows].astype(np.float32), digits.y[rows]) for rows in parts)
    else:
        train, test = po.data.load("mnist", "train"), po.data.load("mnist", "test")
        x, y = halved(train.x[: settings.num_train]), train.y[: settings.num_train]
        x_test, y_test = halved(test.x[: settings.num_test]), test.y[: settings.num_test]
    mean, std = x.mean(), x.std()
    return ((x - mean) / std, y), ((x_test - mean) / std, y_test)


def halved(images: np.ndarray) -> np.ndarray:
    """28 x 28 to 14 x 14 by averaging, as vectors of 196."""
    return np.asarray(images, np.float32).reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(len(images), -1)


def methods(settings: Settings) -> dict[str, Any]:
    """By name; the paper's first."""
    sampler = settings.sampler
    clr = po.SGHMC(momentum=0.95, schedule="cyclical", **sampler)
    as_published = po.MeanField(
        num_epochs=300, batch_size=80, learning_rate=1e-4, start="map", initial_std=0.01 / PRIOR.std
    )
    return {
        "map": po.MAP(),
        "ensemble": po.Ensemble(po.MAP(), 5),
        "mean-field": as_published,
        "mean-field-optimum": po.MeanField(),
        "sgld": po.SGLD(**sampler),
        "sghmc": po.SGHMC(**sampler),
        "sghmc-clr": clr,
        "sghmc-clr-prec": replace(clr, preconditioner="rmsprop"),
        "sgnht": po.SGNHT(**sampler),
        "sms-ubu": settings.sms_ubu,
        "swag": po.SWAG(),
        "multiswag": po.Ensemble(po.SWAG(), 5),
        "mc-dropout": po.MCDropout(),
        "laplace": po.Laplace(),
        "mclmc": settings.mclmc,
        "svgd": settings.svgd,
    }


def study(name: str, settings: Settings, out: Path, wanted: list[str] | None) -> dict[str, np.ndarray]:
    """(agreement, total variation, accuracy, log-likelihood) of each method, (seed, 4)."""
    train, test = load(name, settings)
    model = po.Model(po.nn.mlp((50,), outputs=10), po.likelihoods.Categorical(), PRIOR)
    reference = po.fit(model, train, settings.hmc, key=0, out=out / name / "hmc", if_exists="resume", progress=False)
    truth = reference.predict(test[0])
    diagnosis = reference.diagnose(test[0])
    is_met = "met" if diagnosis.share_converged >= LEAST_CONVERGED else "MISSED"
    print(f"{name}: {len(train[1]):,} rows; HMC's R-hat is under {LARGEST_RHAT} for {diagnosis.share_converged:.1%} of")
    print(f"outputs at test points (at least {LEAST_CONVERGED:.0%}: {is_met}), {reference.facts['seconds']:.0f} s")
    half = [halves(reference, part, test[0]) for part in (0, 1)]
    print(
        f"one half of HMC's chains against the other: total variation {po.metrics.total_variation(*half):.3f}",
        flush=True,
    )
    scores = {"hmc": np.array([[1.0, 0.0, *quality(truth, test[1])]])}
    for method_name, method in methods(settings).items():
        if wanted and method_name not in wanted:
            continue
        rows = []
        for seed in range(settings.num_seeds):
            folder = out / name / f"{method_name}-{seed}"
            posterior = po.fit(model, train, method, key=seed + 1, out=folder, if_exists="resume", progress=False)
            predictive = posterior.predict(test[0])
            agreement = float(po.metrics.agreement(predictive.probs, truth.probs))
            distance = float(po.metrics.total_variation(predictive.probs, truth.probs))
            rows.append([agreement, distance, *quality(predictive, test[1])])
        scores[method_name] = np.array(rows)
    return scores


def halves(reference: po.Posterior, part: int, x: np.ndarray) -> np.ndarray:
    """Class probabilities by every second chain."""
    from posteria.posteriors.draws import Draws, DrawsPosterior

    stored = reference.stored
    chains = Draws(stored.structs, stored.flat[part::2], {})
    return np.asarray(DrawsPosterior(reference.target, chains).predict(x).probs)


def quality(predictive: po.Predictive, y: np.ndarray) -> tuple[float, float]:
    return float(po.metrics.accuracy(predictive.probs, y)), float(np.mean(predictive.log_prob(y)))


def report(scores: dict[str, np.ndarray]) -> None:
    """Nearest to HMC first, beside the paper's figures; then the orders that are wanted."""
    print(
        f"\n{'':18s} {'total var.':>16s} {'agreement':>10s} {'accuracy':>9s} {'log-lik.':>9s}   paper: total var., agr."
    )
    for name in sorted(scores, key=lambda name: scores[name][:, 1].mean()):
        agreement, distance, accuracy, log_likelihood = scores[name].mean(0)
        error = _error(scores[name][:, 1])
        paper = "{1:12.3f} {0:10.1%}".format(*PUBLISHED[name]) if name in PUBLISHED else ""
        print(
            f"{name:18s} {distance:8.4f} ± {error:.4f} {agreement:9.1%} {accuracy:9.1%} {log_likelihood:9.3f} {paper}"
        )
    distances = {name: each[:, 1].mean() for name, each in scores.items()}
    order = [name for name in sorted(distances, key=distances.get) if name in PUBLISHED]
    print("order here: ", " < ".join(order))
    print("the paper's:", " < ".join(sorted(order, key=lambda name: PUBLISHED[name][1])))
    for near, far in (
        ("sms-ubu", "sghmc"),
        ("sghmc", "mean-field"),
        ("ensemble", "mean-field"),
        ("sghmc", "mean-field-optimum"),
        ("ensemble", "mean-field-optimum"),
        *((name, "map") for name in distances),
    ):
        if near in distances and far in distances and near not in ("map", "hmc"):
            is_met = "met" if distances[near] < distances[far] else "MISSED"
            gain = distances[far] - distances[near]
            error = np.hypot(*(_error(scores[name][:, 1]) for name in (near, far)))
            said = "" if len(scores[near]) == 1 or abs(gain) > 2 * error else ": seeds do not tell them apart"
            print(f"{near} nearer than {far}: {is_met}, by {gain:.4f} ± {error:.4f}{said}")


def _error(values: np.ndarray) -> float:
    """The standard error of a mean over seeds."""
    return float(values.std() / max(1, len(values) - 1) ** 0.5)


def main() -> None:
    names = {"methods": methods(SETTINGS["full"]), "sets": SETTINGS["full"].sets}
    arguments = begin(__doc__, seed=False, only=names)
    settings = SETTINGS[arguments.scale]
    for name in arguments.sets or settings.sets:
        report(study(name, settings, arguments.out, arguments.methods))


if __name__ == "__main__":
    main()
