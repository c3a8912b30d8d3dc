"""The tour: four small problems that show what a posterior is good for, with no data of the user's.

(a) The regression of Blundell et al. 2015, with 100 inputs in [0, 0.5] and predictions on [-0.2, 1.2]: a method should
know less away from the data. (b) The same function seen at both ends: it should know less in between (Foong et al.
2019). (c) Handwritten digits, with scrambled and shifted ones as data from elsewhere. (d) A wave, seen for two periods
and asked for over the three that follow: what goes on there is the prior's to say, and the network's own prior does not
know of waves. A prior in words does, `po.functions.Periodic`, at context points over all five periods (study
`periodic-prior`). It has methods of its own, and is left out where methods are asked for.

The network of (a) and (b) is two layers of ten units with a prior twice as wide as the default: narrow enough to
have several modes, so that members of an ensemble disagree where there are no data.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from posteria import functions, nn
from posteria.comparison.api import Plan, plan
from posteria.comparison.ask import Curve, Fold, Problem, describe
from posteria.comparison.enter.entries import Entry, as_entries, expected_seconds
from posteria.data.preparation import Preparation
from posteria.data.splits import last_rows
from posteria.methods.chains.hmc import HMC
from posteria.methods.chains.nuts import NUTS
from posteria.methods.functions.function_space_vi import FunctionSpaceVI
from posteria.methods.functions.infinite_width import InfiniteWidth
from posteria.models import priors
from posteria.models.likelihoods import Gaussian
from posteria.models.model import Model

NUM_TRAIN, NUM_TEST = 100, 141
NOISE = 0.02
RANGE = (-0.2, 1.2)
SIDE = (0.0, 0.5)  # where (a) has data
CLUSTERS = ((0.0, 0.25), (0.75, 1.0))  # where (b) has data
SEEN, PAST, WAVE_ROWS, WAVE_NOISE = (0.0, 2.0), (2.0, 5.0), 80, 0.1  # (d), in periods
DEVIATION = functions.Matern(length=0.1, amplitude=0.05, order="1/2")  # of the wave from one that repeats: a little
SEED = 0


def tour(methods: Any = None, reference: Any = None, minutes: float | None = 2.0) -> Plan:
    """The problems, ready to run; a reference of its own for each but (d) unless one is given."""
    names = {"extrapolation": "Away from the data", "gap": "Between two clusters"}
    problems = [_regression(name, title, methods, reference) for name, title in names.items()]
    problems.append(_digits(methods, reference))
    if methods is None:
        problems.append(wave(SEED))
    seconds = sum(expected_seconds(problem, entries, None) for problem, entries in problems)
    num_methods = sum(entry.role != "baseline" for entry in problems[0][1])
    text = (
        "A tour: two regressions of one input (100 rows), handwritten digits (1,797 rows, 64 columns, 10 classes)"
        f"{', and a wave that goes on (80 rows)' if methods is None else ''}; "
        f"{num_methods} methods with the reference, about {max(1, round(seconds / 60))} to 4 min"
    )
    return Plan(problems, text, minutes=minutes)


def true_function(x: np.ndarray) -> np.ndarray:
    """Without noise: x + 0.3 sin(2 pi x) + 0.3 sin(4 pi x)."""
    return x + 0.3 * np.sin(2 * np.pi * x) + 0.3 * np.sin(4 * np.pi * x)


def observed(x: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """With noise e ~ N(0, 0.02^2) in the input of the waves and on top: y = f(x + e)."""
    return true_function(x + NOISE * generator.normal(size=x.shape))


def _regression(name: str, title: str, methods: Any, reference: Any) -> tuple[Problem, list[Entry]]:
    generator = np.random.default_rng(SEED)
    parts = CLUSTERS if name == "gap" else (SIDE,)
    x = np.sort(np.concatenate([generator.uniform(*part, NUM_TRAIN // len(parts)) for part in parts]))
    y = observed(x, generator)
    x_test = np.linspace(*RANGE, NUM_TEST)
    y_test = observed(x_test, generator)
    preparation = Preparation.from_arrays(x[:, None], y, "regression")
    inputs = preparation.standardised(x_test[:, None])
    fold = Fold(
        seed=SEED,
        train=(preparation.standardised(x[:, None]), preparation.targets(y)),
        y_train=y,
        x_test=inputs,
        y_test=y_test,
        scale=preparation.y,
        far={"outside": ~np.any([(x_test >= low) & (x_test <= high) for low, high in parts], axis=0)},
        preparation=preparation,
    )
    model = Model(nn.mlp((10, 10)), prior=priors.FanIn(scale=2.0))
    entries = as_entries(methods, False, reference or NUTS(num_draws=120, num_warmup=200))
    facts = describe(name, "regression", (fold,), num_rows_all=NUM_TRAIN + NUM_TEST, columns=1, target="")
    splits = last_rows(NUM_TRAIN + NUM_TEST, NUM_TEST, [SEED])
    return Problem(name, title, model, (fold,), splits, facts, Curve(x_test, inputs, x)), entries


def wave(seed: int) -> tuple[Problem, list[Entry]]:
    """(d): a sine of a phase and noise by the seed, on sine units, under the default prior and a periodic one.

    Test rows are those past the data. Inputs and targets are standardised by the rows seen, as everywhere. The noise is
    known: where it is inferred, a fit that calls the whole wave noise is an optimum too.
    """
    generator = np.random.default_rng(seed)
    phase = generator.uniform(0, 2 * np.pi)
    x, x_past = np.sort(generator.uniform(*SEEN, WAVE_ROWS)), np.linspace(*PAST, 301)[1:]
    y, y_past = (np.sin(2 * np.pi * t + phase) + WAVE_NOISE * generator.normal(size=t.shape) for t in (x, x_past))
    preparation = Preparation.from_arrays(x[:, None], y, "regression")

    def inputs(t: np.ndarray) -> np.ndarray:
        return np.asarray(preparation.standardised(t[:, None]))

    fold = Fold(
        seed=seed,
        train=(inputs(x), preparation.targets(y)),
        y_train=y,
        x_test=inputs(x_past),
        y_test=y_past,
        scale=preparation.y,
        preparation=preparation,
    )
    period = float(np.ptp(inputs(np.array([0.0, 1.0]))))
    deviation = replace(DEVIATION, length=DEVIATION.length * period)
    line = np.linspace(SEEN[0] - 0.25, PAST[1] + 0.25, 110)
    common: dict[str, Any] = {"context": inputs(line), "num_context": 30, "initial_std": 0.02}
    entries = [
        Entry("infinite-width", "InfiniteWidth, default prior", "method", InfiniteWidth()),
        Entry("default-prior", "FunctionSpaceVI, default prior", "method", FunctionSpaceVI(**common)),
        Entry(
            "periodic-prior",
            "FunctionSpaceVI, periodic prior",
            "method",
            FunctionSpaceVI(prior=functions.Periodic(period) + deviation, **common),
        ),
    ]
    scale: Any = preparation.y
    model = Model(nn.mlp((200,), activation="sin"), Gaussian(WAVE_NOISE / float(np.squeeze(scale.std))))
    num_rows = WAVE_ROWS + len(x_past)
    facts = describe("wave", "regression", (fold,), num_rows_all=num_rows, columns=1, target="")
    splits = last_rows(num_rows, len(x_past), [seed])
    return Problem("wave", "A wave that goes on", model, (fold,), splits, facts, Curve(line, inputs(line), x)), entries


def _digits(methods: Any, reference: Any) -> tuple[Problem, list[Entry]]:
    """A hidden layer of 20 units, so that HMC converges in half a minute."""
    made = plan("digits", network="mlp:20", methods=methods, reference=reference or HMC(num_draws=150), baselines=False)
    ((problem, entries),) = made.problems
    return replace(problem, title="Handwritten digits"), entries
