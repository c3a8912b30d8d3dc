"""`posteria methods` and `posteria data`: what there is."""

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posteria.cli.app import Json, app
from posteria.cli.printing import print_json, print_table

if TYPE_CHECKING:
    from posteria.data.sets import Listing


@app.command()
def methods(as_json: Json = False) -> None:
    """List the inference methods: when to use each, its fidelity (what the laws hold it to), and its paper."""
    from posteria.methods import registry

    found = [_about(name, registry.get(name)) for name in registry.names()]
    if as_json:
        print_json(found)
    else:
        print_table(("method", "fidelity", "use it for", "paper"), [tuple(each.values())[:4] for each in found])


@app.command()
def data(
    name: Annotated[str | None, typer.Argument(help="Show this data set.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """List the data sets, where each comes from, and whether it is present; with NAME, show one."""
    from posteria.data import load, names

    if name is None:
        listings = [
            {"name": each.name, "kind": each.kind, "from": each.source, "present": _presence(each)} for each in names()
        ]
        if as_json:
            print_json(listings)
        else:
            print_table(("name", "kind", "from", "present"), [tuple(each.values()) for each in listings])
        return
    dataset = load(name)
    about = {"x": f"{dataset.x.shape} {dataset.x.dtype}", "y": f"{dataset.y.shape} {dataset.y.dtype}"}
    about |= {"kind": dataset.kind, "about": dataset.description}
    if dataset.feature_names:
        about["features"] = ", ".join(dataset.feature_names)
    if dataset.class_names:
        about["classes"] = ", ".join(dataset.class_names)
    if as_json:
        print_json({"name": dataset.name} | about)
    else:
        print_table((dataset.name, ""), list(about.items()))


def _about(name: str, method: Any) -> dict[str, Any]:
    return {
        "name": name,
        "fidelity": method.fidelity,
        "about": (inspect.getdoc(method) or "").partition("\n")[0],
        "paper": getattr(method, "paper", ""),
        "settings": {
            field: str(parameter.default)
            for field, parameter in inspect.signature(method).parameters.items()
            if parameter.default is not inspect.Parameter.empty
        },
    }


def _presence(listing: "Listing") -> str:
    if listing.present:
        return "yes"
    return f"{' and '.join(listing.parts)} only" if listing.parts else "no"
