"""Every setting of every method: its name, its kind, what it means, and who has it with which default.

    python tools/fields.py

One thing has one name, and a name is one thing: `tests/methods/test_fields.py` holds the methods to this table.
"""

import dataclasses
import textwrap
from types import NoneType
from typing import Any, Union, get_args, get_type_hints

from posteria.methods import registry
from posteria.methods.chains.tempered_smc import TemperedSMC
from posteria.settings import UNIONS, get_origin, shown, words

WIDTH = 118  # characters of a printed line

MEANINGS = {
    "alpha": "variance of the noise that multiplies an input, whose mean is 1",
    "basis": "where the directions of the subspace come from",
    "batch_size": "rows of a mini-batch; None: all",
    "classes": "how labels are met by a Gaussian process",
    "concentration": "what a label adds to its class's concentration of a Dirichlet",
    "context": "inputs at which functions are compared; None: drawn around the data",
    "curvature": "which matrix stands for the curvature",
    "drop_frozen": "whether chains far below the best one are left out",
    "energy_variance": "squared energy error a step and dimension that tuning aims at",
    "epochs_per_snapshot": "epochs from one snapshot to the next",
    "estimator": "how the likelihood's part of the bound is drawn; None: by the family",
    "family": "the distributions that are fitted",
    "gamma_rate": "rate of the method's own Gamma prior of precisions",
    "gamma_shape": "shape of the method's own Gamma prior of precisions",
    "granularity": "what has a noise of its own",
    "hessian_decay": "share of the averaged Hessian that a step keeps; None: a tenth of the fit is averaged",
    "initial_alpha": "`alpha` at first, of one that is learned",
    "initial_hessian": "of one datum's log likelihood, at first",
    "initial_log_variance": "log variance of a weight, at first",
    "initial_rate": "`rate` at first, of one that is learned",
    "initial_std": "standard deviation of a weight at first, in units of the prior",
    "jitter": "a trajectory is stretched by a factor from 1 ± this; None: 0.5, and 0 of a stated `num_leapfrog`",
    "kernel": "the covariance of functions, or where it comes from",
    "kl_weights": "how the divergence is spread over an epoch's batches",
    "learning_rate": "of the optimiser; None: chosen from the curvature",
    "loss": "what is trained for in place of the likelihood",
    "map": 'the climb to the mode before all else; None: none, "auto": chosen by the data\'s size',
    "max_doublings": "of a trajectory, at most",
    "max_gradients": "gradients of all chains together, at which it aims; None: as many as its draws take",
    "max_leapfrog": "leapfrog steps of a trajectory whose number follows from its length, at most",
    "mean_steps": "steps of a trajectory, on average",
    "method": "the method inside",
    "momentum": "share of the momentum that a step keeps",
    "num_chains": "chains, side by side",
    "num_context": "context points that a step sees",
    "num_components": "Gaussians of a mixture, at most",
    "num_draws": "draws that are kept, a chain",
    "num_epochs": "passes of the optimiser over the data",
    "num_functions": "draws of the network that estimate a kernel",
    "num_hidden": "units of a hidden layer; 0: there is none",
    "num_indices": "numbers of an epistemic index, which names a function",
    "num_inducing": "points that stand for all rows",
    "num_labels": "labels drawn from the model, a datum",
    "num_leapfrog": "leapfrog steps of a trajectory; None: as many as `trajectory` takes",
    "num_moves": "moves of a particle at each power",
    "num_particles": "particles of one run",
    "num_passes": "passes over the data, each of which counts them again: more is not a longer fit but another",
    "num_replicas": "rungs of a ladder from the posterior to the prior",
    "num_runs": "independent runs, for the standard error",
    "num_samples": "draws of the noise, a step",
    "groups": "a number a row: rows of one are left out together",
    "num_folds": "parts of the rows, of which each member leaves one out",
    "num_repeats": "how often the rows are divided into folds anew",
    "learns_widths": "whether the size of the errors may vary with x",
    "num_snapshots": "weights that are kept along the way",
    "num_warmup": "steps of a chain before its first draw, in which it is tuned",
    "optimizer": "an Optax transformation; None: Adam with a cosine decay from `learning_rate`",
    "outside": "rows from elsewhere; None: there are none",
    "patience": "epochs without a better score after which training stops",
    "phase_in": "share of the epochs over which the divergence is phased in",
    "preconditioner": "scales each weight's step; None: none",
    "predictive": "how the average over the weights is taken",
    "prior": "the method's own prior, in place of the model's",
    "rank": "directions that are kept",
    "rate": "probability with which an input is dropped",
    "sampler": "the chains that draw a latent function",
    "schedule": "how the step changes over the run",
    "size": "members that are fitted, side by side",
    "spectral_norm": "of a layer's matrix, at most; None: any",
    "start": "where it begins",
    "step_size": "of a chain, in units of the prior; None: tuned or suggested",
    "structure": "what of the curvature's matrix is kept",
    "subset": "the weights that vary",
    "swag": "makes the snapshots that the subspace is spanned by",
    "target_acceptance": "acceptance that warm-up tunes the step to",
    "target_ess": "share of the particles' effective number that the next power leaves",
    "thinning": "steps of a chain from one draw to the next",
    "trajectory": "length of a trajectory, in units of the prior; None: a quarter period",
    "tune": "what the evidence sets while the mode is found; None: nothing",
    "tune_prior": "what sets the prior's scale at weights that are given; None: nothing",
    "tune_every": "epochs from one such setting to the next",
    "polish": "whether an ascent goes on to a stationary point, on all rows",
    "validation": "share of the rows that are held out to stop by",
    "variance_reduction": "how batches' gradients are steadied; None: not",
    "where": "globs of the leaves that carry noise; None: every weight of a layer",
}

# (method, field) whose kind is not that of the others, and why
EXCEPTIONS = {
    ("InfiniteWidth", "kernel"): "it is read off the network, and only how is asked",
    ("FunctionSpaceVI", "prior"): "a prior over functions, which may be a kernel",
    ("SGHMC", "momentum"): "without momentum it would be SGLD with another step",
    ("SGNHT", "momentum"): "without momentum it would be SGLD with another step",
    ("SMSUBU", "momentum"): "its default depends on how many batches a sweep has",
    ("SWAG", "rank"): "a spread needs two snapshots",
    ("SWAG", "schedule"): "snapshots of a step that fades to nothing would be one",
    (
        "SparseVariationalDropout",
        "estimator",
    ): "its noise is local, or local as the literature has it",
    (
        "Laplace",
        "map",
    ): "its default depends on the data; given weights are its mode as they are: None has no use",
}


def fields() -> list[tuple[type, str, Any, str]]:
    """(class, name, kind, default) of every setting of every method, and of the evidence by sampling."""
    found = []
    for cls in [*map(registry.get, registry.names()), TemperedSMC]:
        kinds = get_type_hints(cls, include_extras=True)
        for field in dataclasses.fields(cls):
            is_given = field.default is not dataclasses.MISSING
            default = field.default if is_given else field.default_factory()  # type: ignore[misc]
            text = f"{type(default).__name__}()" if dataclasses.is_dataclass(default) else shown(default)
            found.append((cls, field.name, kinds[field.name], text))
    return found


def kind_words(kind: Any) -> str:
    """What it holds, None aside: whether None stands for a choice is said by the meaning."""
    if get_origin(kind) in UNIONS:
        kind = Union[tuple(part for part in get_args(kind) if part is not NoneType)]  # noqa: UP007
    return words(kind)


def main() -> None:
    by_name: dict[str, dict[str, list[str]]] = {}
    for cls, name, kind, default in fields():
        by_name.setdefault(name, {}).setdefault(kind_words(kind), []).append(f"{cls.__name__} {default}")
    for name in sorted(by_name):
        print(f"{name}: {MEANINGS.get(name, '?')}")
        for kind, owners in by_name[name].items():
            print(
                textwrap.fill(f"{kind}: {', '.join(owners)}", 118, initial_indent="    ", subsequent_indent="        ")
            )


if __name__ == "__main__":
    main()
