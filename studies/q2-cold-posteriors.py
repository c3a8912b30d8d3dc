"""Question 2: do we need cold posteriors? Accuracy, log-likelihood and calibration over the temperature.

Wenzel et al. 2020 needed T << 1; Izmailov et al. 2021, with HMC and without augmentation, did not. Kapoor et al. 2022:
cooling says that labels are clear, which a noisy-Dirichlet likelihood says at T = 1. Three priors (scaled by fan-in,
its double, the paper's N(0, 1/5)), two likelihoods (Categorical, `po.likelihoods.NoisyDirichlet`), images as they are
and shifted by up to a pixel. That is sampled twice: by SGHMC, whose batches are shifted at random (`augment=`), and by
HMC on all nine shifts of each image, each of weight 1/9, the density that such batches are of: what the two disagree
on is the sampler's. The noisy Dirichlet's concentration is chosen under each prior by HMC at T = 1, as a user
would: by the log-likelihood of rows that are neither in the training set nor in the test. Every series is judged by
itself: how far is T = 1 behind its best temperature? Errors are of test points and chains. Where cold is better by more
than chance the words are those that `po.grade` says. Reviews are not augmented. Each fit's tables say how far it has
converged: the share of test functions with R-hat under 1.05, and of SGHMC how hot its draws are by the virial identity,
a dimension and in the stiffest direction; 1 is right, more is too hot, less has not spread yet. "Sharpened": the
average's probabilities to a power that the validation rows ask for, which tells a cold posterior that knows more from
one that is only surer of itself.
Wanted: with the noisy Dirichlet, T = 1 within a standard error of the best.

    make study NAME=q2-cold-posteriors                MNIST at 14 x 14, five temperatures
    make study NAME=q2-cold-posteriors SCALE=full     MNIST, IMDB and CIFAR-10, six temperatures: hours; it goes on
"""

from argparse import Namespace
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from _questions import Problem, answer, axes, fit, hmc, methods, percent, save, sweep, table
from _scores import Score, best_power, difference, points_lost, score

import posteria as po
from posteria.comparison.tell.sentences import temperature_words

TEMPERATURES = {"small": (0.03, 0.3, 1.0, 3.0, 10.0), "full": (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)}
PRIORS = {"fan-in": po.priors.FanIn(), "2 x fan-in": po.priors.FanIn(2.0), "N(0, 1/5)": po.priors.Normal(0.2**0.5)}
LIKELIHOODS = ("categorical", "noisy Dirichlet")
CONCENTRATIONS = (0.0001, 0.001, 0.01, 0.1, 1.0)  # of the noisy Dirichlet; its default is 0.01
# accuracy, log-likelihood and ECE on IMDB over temperatures, off the paper's figure: best at 1 in the first two
PUBLISHED = {0.03: (0.772, -0.47), 0.1: (0.797, -0.425), 0.3: (0.83, -0.378), 1.0: (0.865, -0.315)}
PUBLISHED |= {3.0: (0.83, -0.42), 10.0: (0.672, -0.66)}
SAMPLERS = ("HMC", "HMC, augmented", "SGHMC, augmented")
NUM_CHAINS = 3
SHIFTS = 3  # places of an image, down and across
LENGTH = {"small": {"num_draws": 20, "num_warmup": 20}, "full": {}}


class Series(NamedTuple):
    prior: str
    likelihood: str
    sampler: str

    def __str__(self) -> str:
        return f"{self.sampler}, {self.likelihood}, {self.prior}"


class Found(NamedTuple):
    held_out: Score
    sharpened: Score  # of the average, by the power that the validation rows ask for
    power: float
    validation: float  # mean log-likelihood of the validation rows
    fitted: float  # mean log-likelihood of the training rows
    converged: float  # share of test functions
    heat: str


class Sampler(NamedTuple):
    method: Any
    train: tuple[np.ndarray, ...]
    more: dict[str, Any]


def shift(image: jax.Array, side: int, down: Any, right: Any) -> jax.Array:
    """Moved by at most a pixel in each direction; what comes in is dark."""
    padded = jnp.pad(image.reshape(side, side, -1), ((1, 1), (1, 1), (0, 0)))
    return jax.lax.dynamic_slice(padded, (down, right, 0), (side, side, padded.shape[-1])).reshape(image.shape)


def shifted(side: int) -> Any:
    """Each image of a batch by itself, at random."""

    def augment(key: jax.Array, batch: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        x, *rest = batch
        places = jax.random.randint(key, (len(x), 2), 0, SHIFTS)
        return jax.vmap(lambda image, place: shift(image, side, *place))(x, places), *rest

    return augment


def all_shifts(x: np.ndarray, y: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every shift of every image, with weights that add up to one row an image."""
    places = [(down, right) for down in range(SHIFTS) for right in range(SHIFTS)]
    moved = [jax.vmap(partial(shift, side=side, down=down, right=right))(jnp.asarray(x)) for down, right in places]
    weight = np.full(len(places) * len(y), 1 / len(places), np.float32)
    return np.concatenate(moved), np.tile(y, len(places)), weight


def ask(asked: Problem, arguments: Namespace) -> dict[Series, dict[float, Found]]:
    print(f"\n{asked.name}: {asked.about}", flush=True)
    exact = sweep(asked, arguments.scale)
    exact = exact or hmc(asked, arguments.scale, num_chains=NUM_CHAINS, **LENGTH[arguments.scale])
    samplers = {"HMC": Sampler(exact, asked.train, {})}
    if asked.test_images is not None:
        side = asked.test_images.shape[1]
        sghmc = replace(methods(asked, arguments.scale)["sghmc"], num_chains=exact.num_chains)
        samplers["HMC, augmented"] = Sampler(exact, all_shifts(*asked.train, side), {})
        samplers["SGHMC, augmented"] = Sampler(sghmc, asked.train, {"augment": shifted(side)})
    found: dict[Series, dict[float, Found]] = {}
    for prior in arguments.priors or PRIORS:
        for likelihood in arguments.likelihoods or LIKELIHOODS:
            observed, said = po.likelihoods.Categorical(), likelihood
            if likelihood == "noisy Dirichlet":
                concentration = chosen(asked, prior, exact, arguments)
                observed, said = po.likelihoods.NoisyDirichlet(concentration), f"{likelihood} {concentration:g}"
            start = modes(asked, prior, said, observed, exact.num_chains, arguments)
            for sampler in arguments.samplers or samplers:
                method, train, more = samplers[sampler]
                series = Series(prior, likelihood, sampler)
                found[series] = {}
                for temperature in TEMPERATURES[arguments.scale]:
                    model = asked.model(PRIORS[prior], observed, temperature)
                    at = folder(f"{series._replace(likelihood=said)}-{temperature}")
                    rows = asked._replace(train=train)
                    fitted = fit(rows, at, method, arguments.out, arguments.seed, model, start=start, **more)
                    found[series][temperature] = judged(fitted, asked)
                report(asked, series, found[series])
    summary(asked, found)
    paper = " ".join(f"{at:g}: {accuracy:.1%}, {nats}" for at, (accuracy, nats) in PUBLISHED.items())
    print(f"the paper's HMC on IMDB, by T: {paper} (off its figure)", flush=True)
    return found


def judged(fitted: po.Posterior, asked: Problem) -> Found:
    inside = float(np.mean(fitted.predict(asked.train[0]).log_prob(asked.train[1])))
    said = fitted.diagnose(asked.test[0])
    heats = [said.heats[name] for name in ("virial", "stiff_virial") if name in said.heats]
    heat = ", ".join(f"{mean:.2f} ± {error:.2f}" for mean, error in heats)
    power, aside = best_power(fitted, *asked.validation), score(fitted, *asked.validation).log_likelihoods.mean()
    scores = score(fitted, *asked.test), score(fitted, *asked.test, power)
    return Found(*scores, power, aside, inside, said.share_converged, heat)


def folder(words: str) -> str:
    return str(Path("q2") / words.replace("/", "-").replace(", ", "-"))


def modes(asked: Problem, prior: str, said: str, likelihood: Any, number: int, arguments: Namespace) -> Any:
    """Where the chains of every temperature start: modes are the same at all."""
    method = po.Ensemble(methods(asked, arguments.scale)["map"], number)
    model = asked.model(PRIORS[prior], likelihood)
    fitted = fit(asked, folder(f"modes-{prior}-{said}"), method, arguments.out, arguments.seed, model)
    return fitted.sample(0, number)


def chosen(asked: Problem, prior: str, method: po.HMC, arguments: Namespace) -> float:
    """The noisy Dirichlet's concentration whose HMC at T = 1 predicts the validation images best."""
    scores = {}
    for concentration in CONCENTRATIONS:
        likelihood, said = po.likelihoods.NoisyDirichlet(concentration), f"noisy Dirichlet {concentration:g}"
        start = modes(asked, prior, said, likelihood, method.num_chains, arguments)
        at = folder(f"{Series(prior, said, 'HMC')}-1.0")  # which is the temperature's own fit too
        model = asked.model(PRIORS[prior], likelihood)
        fitted = fit(asked, at, method, arguments.out, arguments.seed, model, start=start)
        x, y = asked.validation
        scores[concentration] = float(np.mean(fitted.predict(x).log_prob(y)))
    best = max(scores, key=lambda each: scores[each])
    words = ", ".join(f"{each:g}: {nats:.3f}" for each, nats in scores.items())
    of = f"{asked.name}, {prior}: log-likelihood of {len(y)} validation rows by concentration"
    print(f"{of} {words}; chosen: {best:g}", flush=True)
    return best


def behind(scores: dict[float, Score]) -> tuple[float, float, float]:
    """The best temperature by log-likelihood, how far T = 1 is behind it, and the standard error of that."""
    best = max(scores, key=lambda temperature: scores[temperature].log_likelihoods.mean())
    return best, *difference(scores[best], scores[1.0])


def scores_of(rows: dict[float, Found]) -> dict[float, Score]:
    return {temperature: row.held_out for temperature, row in rows.items()}


def report(asked: Problem, series: Series, rows: dict[float, Found]) -> None:
    best = rows[behind(scores_of(rows))[0]].held_out
    lines = []
    for temperature, row in rows.items():
        held_out, nats = row.held_out, row.held_out.log_likelihoods.mean()
        lines.append([f"{temperature:g}", percent(held_out.is_right.mean()), f"{nats:.3f}", f"{held_out.ece:.3f}"])
        lines[-1] += [pm(*difference(best, held_out)), f"{row.fitted:.3f}"]
        lines[-1] += [f"{row.sharpened.log_likelihoods.mean():.3f}", f"{row.power:.2f}"]
        lines[-1] += [percent(row.converged), row.heat]
    columns = ["T", "accuracy", "log-likelihood", "ECE", "behind the best, nats", "log-likelihood of fitted rows"]
    columns += ["sharpened", "by the power", "R-hat under 1.05", "heat: a dimension, stiffest"]
    table(f"q2-{asked.name}-{series}", str(series), columns, lines)
    held_out = {temperature: each.log_likelihoods for temperature, each in scores_of(rows).items()}
    print(
        temperature_words(held_out, "classes", {temperature: row.fitted for temperature, row in rows.items()}),
        flush=True,
    )


def summary(asked: Problem, found: dict[Series, dict[float, Found]]) -> None:
    lines, is_met, is_met_sharpened = [], [], []
    for series, rows in found.items():
        best, *by = behind(scores_of(rows))
        _, *by_sharpened = behind({temperature: row.sharpened for temperature, row in rows.items()})
        points, points_error = points_lost(list(scores_of(rows).values()), rows[1.0].held_out)
        warm = rows[1.0].held_out
        lines.append([series.sampler, series.likelihood, series.prior, percent(warm.is_right.mean())])
        lines[-1] += [f"{warm.log_likelihoods.mean():.3f}", f"{best:g}", pm(*by)]
        lines[-1] += [f"{points:.1f} ± {points_error:.1f}", pm(*by_sharpened)]
        if series.likelihood == "noisy Dirichlet":
            is_met.append(by[0] <= by[1])
            is_met_sharpened.append(by_sharpened[0] <= by_sharpened[1])
    columns = ["sampler", "likelihood", "prior", "accuracy", "log-likelihood", "best T", "behind, nats"]
    columns += ["behind, points", "behind, nats, all sharpened"]
    caption = f"scores at T = 1, and how far it is behind the best temperature; {asked.about}"
    table(f"q2-{asked.name}", caption, columns, lines)
    temperatures = list(next(iter(found.values())))
    columns = ["sampler", "likelihood", "prior", *(f"T = {temperature:g}" for temperature in temperatures)]
    said = [
        [series.sampler, series.likelihood, series.prior, *(brief(rows[temperature]) for temperature in temperatures)]
        for series, rows in found.items()
    ]
    table(f"q2-{asked.name}-all", "accuracy and log-likelihood by temperature", columns, said)
    for series, rows in found.items():
        plain = found.get(series._replace(likelihood="categorical"))
        if series.likelihood == "noisy Dirichlet" and plain is not None:
            best = behind(scores_of(plain))[0]
            ahead = pm(*difference(rows[1.0].held_out, plain[best].held_out))
            words = f"{asked.name}, {series.sampler}, {series.prior}: noisy Dirichlet at T = 1 above categorical"
            print(f"{words} at its best T, {best:g}, by {ahead} nats")
    for sampler in dict.fromkeys(series.sampler for series in found):
        of_sampler = [series for series in found if series.sampler == sampler]
        first = max(of_sampler, key=lambda series: found[series][1.0].validation)
        best, *by = behind(scores_of(found[first]))
        words = f"{asked.name}, {sampler}: chosen: {first.likelihood}, {first.prior}, by the log-likelihood of"
        where = f"its best T is {best:g}, {pm(*by)} nats above T = 1" if best != 1.0 else "T = 1 is its best"
        print(f"{words} validation rows at T = 1 ({found[first][1.0].validation:.3f}); {where}")
    if not is_met:
        return
    print(f"{asked.name}: noisy Dirichlet, T = 1 within a standard error of the best (log-likelihood): ", end="")
    print(counted(is_met))
    print(f"{asked.name}: the same, of averages that are sharpened on validation rows: {counted(is_met_sharpened)}")


def pm(value: float, error: float) -> str:
    return f"{value:.3f} ± {error:.3f}"


def counted(is_met: list[bool]) -> str:
    return f"{sum(is_met)} of {len(is_met)} series: {'met' if all(is_met) else 'MISSED'}"


def brief(row: Found) -> str:
    return f"{percent(row.held_out.is_right.mean())}, {row.held_out.log_likelihoods.mean():.3f}"


def draw(path: Path, everything: dict[str, dict[Series, dict[float, Found]]]) -> None:
    problem_name, found = next(iter(everything.items()))
    priors = list(dict.fromkeys(series.prior for series in found))
    figure, grid, theme = axes(len(priors), 2)
    for column, prior in enumerate(priors):
        for row, title in enumerate(("accuracy", "log-likelihood")):
            axis = grid[row, column]
            of_prior = [(series, rows) for series, rows in found.items() if series.prior == prior]
            for (series, rows), style in zip(of_prior, theme.METHODS):
                scores = [each.held_out for each in rows.values()]
                values = [(one.is_right if row == 0 else one.log_likelihoods).mean() for one in scores]
                label = f"{series.sampler}, {series.likelihood}"
                axis.semilogx(list(rows), values, color=style.colour, marker=style.marker, ls=style.dash, label=label)
            axis.axvline(1.0, color=theme.RULE, zorder=0)
            axis.set_title(f"{title}, prior {prior}, {problem_name}", fontsize=10)
            axis.set_xlabel("temperature")
    grid[0, 0].legend(frameon=False, fontsize=8)
    save(figure, path)


def main() -> None:
    only = {"priors": PRIORS, "likelihoods": LIKELIHOODS, "samplers": SAMPLERS}
    answer(__doc__, ask, draw, only=only)


if __name__ == "__main__":
    main()
