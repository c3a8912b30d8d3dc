"""The folder of a fit, as the commands that go on with one read it; what it cannot carry is the user's own word."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posteria.cli.printing import say
from posteria.errors import StoreError

if TYPE_CHECKING:
    from posteria import tree
    from posteria.data.preparation import Preparation
    from posteria.networks import Network
    from posteria.posteriors.base import Posterior

OwnNetwork = Annotated[
    str | None,
    typer.Option("--network", help="Your own network again, as mypkg.nets:build, if it was one.", show_default=False),
]
OwnMethods = Annotated[
    list[str] | None,
    typer.Option(
        "--method", help="Your own method again, as mypkg:Mine, if it was one; may be given again.", show_default=False
    ),
]


def preparation_of(attached: "tree.Json", folder: Path) -> "Preparation":
    """How the table of a fit was prepared."""
    from posteria import disk
    from posteria.data.preparation import Preparation

    if "preparation" not in attached:
        raise StoreError(
            f"{folder} does not say how its table was prepared", "a folder that `posteria fit` wrote", "use po.load"
        )
    with disk.refuse_damage(folder):
        return Preparation.from_json(attached["preparation"])


def load_posterior(folder: Path, network: str | None, methods: list[str] | None) -> "tuple[Posterior, Preparation]":
    """The posterior of a fit and how its table was prepared; `network` and `methods` are the user's own words."""
    from posteria.posteriors import publishing, saving, store

    manifest = publishing.read(folder)[0] if publishing.is_published(folder) else store.read_manifest(folder)
    preparation = preparation_of(manifest.get("attached", {}), folder)
    own_network = own_parts(manifest, preparation, network, methods)
    if not store.is_verified(manifest):
        say(store.UNVERIFIED)
    return saving.load(folder, network=own_network), preparation


def own_parts(
    manifest: "tree.Json", preparation: "Preparation", network: str | None, methods: list[str] | None
) -> "Network | None":
    """The user's own network, if the fit is of one; their own methods become known by being named.

    What the manifest says of either is only told, never imported: whoever wrote it may be anybody.
    """
    from posteria import nn
    from posteria.methods import registry
    from posteria.models import likelihoods

    for method in methods or ():
        registry.get(method)
    if network is not None:
        known = manifest["model"]["likelihood"]
        each = getattr(likelihoods.from_json(known), "outputs_per_target", 1) if known else 1
        return nn.parse(network, preparation.num_outputs * each)
    if manifest["model"]["network"] is None:
        named = manifest.get("attached", {}).get("source", {}).get("network", "mypkg.nets:build")
        raise StoreError(
            f"the network of this fit is someone's own, named {named!r}",
            "that network, from you: a file's word imports nothing",
            f"if you know and trust it, add --network {shlex.quote(str(named))}",
        )
    return None


def own_again(network: str | None, methods: list[str] | None = None) -> str:
    """The options by which the user names their own parts again; nothing for those that are known here."""
    from posteria import nn

    words = [f" --network {shlex.quote(network)}"] if network is not None and nn.is_own(network) else []
    return "".join(words + [f" --method {shlex.quote(method)}" for method in methods or () if ":" in method])


def in_words(posterior: "Posterior", level: float = 0.9) -> str:
    """What the rows that it was calibrated on show of its coverage; empty where it was not, or they are too few."""
    from posteria.posteriors.base import Calibrated

    if not isinstance(posterior, Calibrated) or level not in posterior.coverage:
        return ""
    shares = posterior.coverage[level]
    what = "sets of classes" if hasattr(posterior.model.likelihood, "probs") else "intervals"
    return (
        f"of {len(posterior.scores):,} rows that were not fitted to, {level:.0%} {what} hold {shares['after']:.0%} "
        f"({shares['before']:.0%} before calibration)"
    )
