"""Labels that mean nothing: dropout learns them by heart, sparse variational dropout removes every weight.

Zhang et al. 2017 showed that networks with dropout fit random labels; Molchanov, Ashukha and Vetrov 2017, section 5.5:
sparse variational dropout removes all weights instead and predicts a constant. Here: two hidden layers, labels
shuffled, dropout of one half on hidden units; errors are those on the training rows themselves.

    make study NAME=random-labels               scikit-learn's digits, 500 rows; a minute
    make study NAME=random-labels SCALE=full    MNIST, 5,000 rows, LeNet-300-100
"""

from typing import NamedTuple

import numpy as np
from _study import begin, error, images, row

import posteria as po

THRESHOLD = 3.0  # of log alpha
PUBLISHED = "published: dropout fits them; sparse variational dropout removes 100 % and predicts a constant"


class Settings(NamedTuple):
    rows: int
    hidden: tuple[int, ...]
    dropout_epochs: int
    sparse_epochs: int
    batch_size: int


SETTINGS = {"small": Settings(500, (100, 50), 600, 300, 50), "full": Settings(5000, (300, 100), 200, 100, 100)}


def main() -> None:
    arguments = begin(__doc__)
    settings = SETTINGS[arguments.scale]
    (x, y), _ = images(arguments.scale, settings.rows)
    shuffled = np.random.default_rng(arguments.seed).permutation(y)
    network = po.nn.mlp(settings.hidden, outputs=10)
    hidden_layers = ",".join(f"layers/{i + 1}/kernel" for i in range(len(settings.hidden)))
    training = {"batch_size": settings.batch_size, "learning_rate": 2e-3}
    methods = {
        "dropout": po.MCDropout(0.5, where=hidden_layers, num_epochs=settings.dropout_epochs, **training),
        "sparse": po.SparseVariationalDropout(phase_in=0.2, num_epochs=settings.sparse_epochs, **training),
    }
    priors = {"dropout": po.priors.FanIn(10.0), "sparse": po.priors.LogUniform()}
    print(f"{len(y)} rows, hidden layers {settings.hidden}; chance is {100 - 100 * most_frequent(y):.0f} % wrong")
    row(["method", "labels", "error %", "removed %"], widths := [10, 10, 10, 12])
    removed = {}
    for name, method in methods.items():
        model = po.Model(network, po.likelihoods.Categorical(), priors[name])
        for labels, values in {"true": y, "random": shuffled}.items():
            posterior = po.fit(model, (x, values), method, key=arguments.seed, progress=False)
            if name == "sparse":
                posterior = posterior.prune(by="log_alpha", threshold=THRESHOLD)
                removed[labels] = 100 * (1 - 1 / posterior.compression) if np.isfinite(posterior.compression) else 100.0
            share = f"{removed[labels]:.2f}" if name == "sparse" else ""
            row([name, labels, f"{error(posterior, (x, values)):.1f}", share], widths)
    print(PUBLISHED)


def most_frequent(y: np.ndarray) -> float:
    """Its share: what a constant prediction has right."""
    return float(np.bincount(y).max() / len(y))


if __name__ == "__main__":
    main()
