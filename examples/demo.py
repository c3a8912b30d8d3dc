"""MAP, an ensemble and HMC on two data sets that come with scikit-learn, compared. Run by `make demo`.

HMC is the reference: the distance of a method's predictive distribution to HMC's says how far it is from the
posterior. A second HMC from another seed shows how much of that distance is Monte Carlo noise.
"""

from collections.abc import Callable

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

import posteria as po
from posteria.data import Dataset, Standardiser, load, train_test

LEVEL = 0.9
TEST_SHARE = 0.2
REFERENCE = "HMC"
RUNS = {
    "MAP": (po.MAP(), 0),
    "Ensemble (5)": (po.Ensemble(po.MAP(), 5), 0),
    REFERENCE: (po.HMC(num_draws=250, num_warmup=250), 0),
    "HMC, seed 1": (po.HMC(num_draws=250, num_warmup=250), 1),
}
NOTES = f"""\
NLL: nats a test row. in {LEVEL:.0%}, width: share of test rows inside the {LEVEL:.0%} interval, and its mean width.
W1: Wasserstein-1 distance to HMC's predictive, in units of y. agreement, TV: share of equal labels and total variation.
seconds include compiling; gradients are over all training rows, summed over chains or members."""


def regression(dataset: Dataset, console: Console) -> None:
    """Scores in the data's own units; x and y are standardised by the training rows."""
    train, test = train_test(len(dataset.x), key=0, test=TEST_SHARE)
    scale_x, scale_y = Standardiser.fit(dataset.x[train]), Standardiser.fit(dataset.y[train])
    x, y = scale_x.apply(dataset.x), scale_y.apply(dataset.y)
    posteriors = fit_all(po.Model(po.nn.mlp((50,), outputs=1)), (x[train], y[train]), console)
    y_test = dataset.y[test]
    levels = po.metrics.quantile_levels(100)

    predictives = {name: posterior.predict(x[test]) for name, posterior in posteriors.items()}
    quantiles = {name: scale_y.invert(p.quantile(levels)[..., 0]) for name, p in predictives.items()}

    def scores(name: str) -> list[str]:
        predictive = predictives[name]
        lower, upper = (scale_y.invert(bound[:, 0]) for bound in predictive.interval(LEVEL))
        # the density of y in its own units is that of the standardised y divided by the std
        log_prob = predictive.log_prob(y[test]) - np.log(scale_y.std)
        return [
            f"{po.metrics.rmse(scale_y.invert(predictive.mean[:, 0]), y_test):.1f}",
            f"{po.metrics.negative_log_likelihood(log_prob):.3f}",
            f"{po.metrics.coverage(lower, upper, y_test):.0%}",
            f"{po.metrics.width(lower, upper):.0f}",
            f"{po.metrics.wasserstein(quantiles[name], quantiles[REFERENCE]).mean():.2f}",
        ]

    columns = ["RMSE", "NLL", f"in {LEVEL:.0%}", "width", "W1 to HMC"]
    show(console, dataset, (len(train), len(test)), columns, posteriors, scores)
    console.print(f"HMC: {posteriors[REFERENCE].diagnose(x[test]).verdict}\n", highlight=False)


def classification(dataset: Dataset, console: Console) -> None:
    train, test = train_test(len(dataset.x), key=0, test=TEST_SHARE)
    x = Standardiser.fit(dataset.x[train]).apply(dataset.x)
    y = dataset.y
    model = po.Model(po.nn.mlp((50,), outputs=len(dataset.class_names)), po.likelihoods.Categorical())
    posteriors = fit_all(model, (x[train], y[train]), console)
    predictives = {name: posterior.predict(x[test]) for name, posterior in posteriors.items()}
    reference = predictives[REFERENCE].probs

    def scores(name: str) -> list[str]:
        probs = predictives[name].probs
        return [
            f"{po.metrics.accuracy(probs, y[test]):.1%}",
            f"{po.metrics.negative_log_likelihood(predictives[name].log_prob(y[test])):.3f}",
            f"{po.metrics.ece(probs, y[test]):.3f}",
            f"{po.metrics.agreement(probs, reference):.1%}",
            f"{po.metrics.total_variation(probs, reference):.4f}",
        ]

    columns = ["accuracy", "NLL", "ECE", "agreement", "TV to HMC"]
    show(console, dataset, (len(train), len(test)), columns, posteriors, scores)
    console.print(f"HMC: {posteriors[REFERENCE].diagnose(x[test]).verdict}\n", highlight=False)


def fit_all(model: po.Model, data: tuple, console: Console) -> dict[str, po.Posterior]:
    posteriors = {}
    for name, (method, key) in RUNS.items():
        with console.status(f"fitting {name}"):
            posteriors[name] = po.fit(model, data, method, key=key, progress=False)
    return posteriors


def show(
    console: Console,
    dataset: Dataset,
    num_rows: tuple[int, int],
    columns: list[str],
    posteriors: dict[str, po.Posterior],
    scores: Callable[[str], list[str]],
) -> None:
    num_train, num_test = num_rows
    title = f"{dataset.name}: trained on {num_train} rows, tested on {num_test}"
    table = Table(
        title=title, padding=(0, 1, 0, 0), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("method", no_wrap=True)
    for column in [*columns, "seconds", "gradients"]:
        table.add_column(column, justify="right")
    for name, posterior in posteriors.items():
        cost = [f"{posterior.facts['seconds']:.1f}", f"{posterior.facts['gradients']:,}"]
        table.add_row(name, *scores(name), *cost)
    console.print(table)


def main() -> None:
    po.use_cores()
    console = Console()
    regression(load("diabetes"), console)
    classification(load("breast-cancer"), console)
    console.print(NOTES, highlight=False)


if __name__ == "__main__":
    main()
