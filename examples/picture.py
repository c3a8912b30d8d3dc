"""Draw docs/picture.png: MAP, an ensemble and HMC on points with a gap. Run by `make picture`."""

import sys

import numpy as np

import posteria as po

METHODS = {"MAP": po.MAP(), "Ensemble of 10": po.Ensemble(po.MAP(), 10), "HMC": po.HMC()}


def points_with_a_gap() -> tuple[np.ndarray, np.ndarray]:
    """A noisy wave seen on [-2, -0.7] and [0.7, 2]."""
    generator = np.random.default_rng(1)
    x = np.concatenate([generator.uniform(-2.0, -0.7, 30), generator.uniform(0.7, 2.0, 30)])[:, None]
    return x, np.sin(2.0 * x[:, 0]) + 0.1 * generator.normal(size=len(x))


def main(path: str) -> None:
    po.use_cores()
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    data = points_with_a_gap()
    grid = np.linspace(-3.0, 3.0, 200)[:, None]
    model = po.Model(po.nn.mlp((50, 50), outputs=1, activation="tanh"), prior=po.priors.FanIn(scale=2.0))
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.6), sharex=True, sharey=True, layout="constrained")
    for axes, (name, method) in zip(panels, METHODS.items()):
        posterior = po.fit(model, data, method, key=0)
        po.plots.bands(grid, posterior.predict(grid), data, ax=axes)
        axes.set_title(name, fontsize=13)
        axes.set_xlabel("x")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("y")
    panels[0].set_ylim(-3, 3)
    panels[0].legend(loc="upper left", fontsize=8, frameon=False, ncols=2)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main(sys.argv[1])
