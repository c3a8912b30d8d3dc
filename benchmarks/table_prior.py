"""How wide a table's default prior should be: held-out negative log-likelihood and error (RMSE in standard deviations
of y) by its scale.
"""

import numpy as np
from measure import print_table, use_shared_data

SETS = ("digits", "breast-cancer", "iris", "diabetes", "wine", "power", "kin8nm", "protein")
SCALES = (1.0, 2.0, 3.0)
METHODS = ("map", "laplace")
MOST_ROWS = 10_000


def main() -> None:
    import posteria as po
    from posteria.data import Preparation
    from posteria.models.model import model_for

    use_shared_data()
    rows = []
    for name in SETS:
        data = po.data.load(name)
        x, y = data.x.reshape(len(data.y), -1).astype(float), data.y
        order = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
        train, test = np.split(order, [int(0.7 * len(order))])
        preparation = Preparation.from_arrays(x[train], y[train], data.kind)
        x = preparation.inputs(x)
        y = y if preparation.y is None else preparation.y.apply(y).astype(np.float32)
        for scale in SCALES:
            prior = po.priors.FanIn(scale=scale)
            model = model_for(data.kind, preparation.num_outputs, len(train), prior=prior)
            row = [f"{name} ({len(train)} rows), scale {scale:g}"]
            for method in METHODS:
                predictive = po.fit(model, (x[train], y[train]), method, progress=False).predict(x[test])
                row += [f"{-predictive.log_prob(y[test]).mean():.3f}", error(predictive, y[test])]
            rows.append(row)
    columns = ["", *(f"{method} {what}" for method in METHODS for what in ("NLL", "error"))]
    print_table("Prior FanIn(scale) of mlp (50, 50), 70 % of the rows to fit", columns, rows)


def error(predictive, y: np.ndarray) -> str:
    if y.dtype.kind == "f":
        return f"{np.sqrt(np.mean((np.asarray(predictive.mean).reshape(y.shape) - y) ** 2)):.3f}"
    return f"{np.mean(predictive.probs.argmax(1) != y):.1%}"


if __name__ == "__main__":
    main()
