"""How wide the default prior of a classifier should be: held-out negative log-likelihood and error by its scale."""

import numpy as np
from measure import print_table

SETS = ("digits", "breast-cancer", "iris")
SCALES = (1.0, 2.0, 3.0, 5.0)
METHODS = ("map", "laplace")


def main() -> None:
    import posteria as po
    from posteria.data import Preparation

    rows = []
    for name in SETS:
        data = po.data.load(name)
        x, y = data.x.reshape(len(data.y), -1).astype(float), data.y
        order = np.random.default_rng(0).permutation(len(y))
        train, test = np.split(order, [int(0.7 * len(y))])
        preparation = Preparation.from_arrays(x[train], y[train], "classes")
        x = preparation.inputs(x)
        for scale in SCALES:
            network = po.nn.mlp((50, 50), outputs=preparation.num_outputs)
            model = po.Model(network, po.likelihoods.Categorical(), po.priors.FanIn(scale=scale))
            row = [f"{name}, scale {scale:g}"]
            for method in METHODS:
                predictive = po.fit(model, (x[train], y[train]), method, progress=False).predict(x[test])
                error = np.mean(predictive.probs.argmax(1) != y[test])
                row += [f"{-predictive.log_prob(y[test]).mean():.3f}", f"{error:.1%}"]
            rows.append(row)
    columns = ["", *(f"{method} {what}" for method in METHODS for what in ("NLL", "error"))]
    print_table("Prior FanIn(scale) of mlp (50, 50), 70 % of the rows to fit", columns, rows)


if __name__ == "__main__":
    main()
