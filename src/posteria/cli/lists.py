"""`posteria methods` and `posteria data`: what there is."""

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posteria.cli.app import Json, app
from posteria.cli.printing import print_entries, print_json, print_table
from posteria.cli.table_options import As, Encoding, Kind, Target, as_pairs

SOME_ROWS = 1000

if TYPE_CHECKING:
    from posteria.data.sets import Listing


@app.command()
def methods(as_json: Json = False) -> None:
    """List the inference methods: when to use each, what it costs, what the laws hold it to, and its source."""
    from posteria.methods import registry

    found = [_about(name, registry.get(name)) for name in registry.names()]
    if as_json:
        print_json(found)
    else:
        print_entries([_entry(each) for each in found])


@app.command()
def data(
    name: Annotated[
        str | None, typer.Argument(help="Show this data set, or how this table is read.", show_default=False)
    ] = None,
    target: Target = None,
    kind: Kind = None,
    as_: As = None,
    encoding: Encoding = None,
    as_json: Json = False,
) -> None:
    """List the data sets, where each comes from, and whether it is present; with NAME, show one.

    With a table's file, show how it is read: each column's taken as, why, and what it becomes.
    """
    from pathlib import Path

    from posteria.data import load, names
    from posteria.data.table_file import is_table

    if name is not None and is_table(Path(name)):
        return _show_plan(name, target, kind, as_, encoding, as_json)
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


def _show_plan(
    name: str, target: str | None, kind: str | None, as_: list[str] | None, encoding: str | None, as_json: bool
) -> None:
    from posteria.data import plan_table, read_frame

    frame = read_frame(name, encoding=encoding)
    plan = plan_table(frame, target, kind, as_pairs(as_))
    if as_json:
        return print_json(plan.to_json())
    typer.echo("\n".join([plan.text(), *(f"note: {note}" for note in frame.attrs["notes"])]))


def _entry(about: dict[str, Any]) -> tuple[str, list[str]]:
    cost, fidelity = about["cost"], about["fidelity"]
    return about["name"], [
        about["about"],
        f"Costs {cost}." if cost else "",
        f"{fidelity}; {about['paper'] or 'no source'}",
    ]


def _about(name: str, method: Any) -> dict[str, Any]:
    return {
        "name": name,
        "fidelity": method.fidelity,
        "about": (inspect.getdoc(method) or "").partition("\n")[0],
        "paper": getattr(method, "paper", ""),
        "cost": _cost(method),
        "settings": {
            field: str(parameter.default)
            for field, parameter in inspect.signature(method).parameters.items()
            if parameter.default is not inspect.Parameter.empty
        },
    }


def _cost(method: Any) -> str:
    """In gradients, of a table of a thousand rows, with its default settings; "" where it does not say."""
    if not hasattr(method, "expected_gradients"):
        return ""
    gradients = method().expected_gradients(SOME_ROWS)
    if not gradients:
        return "no gradients: a closed form"
    rounded = float(f"{gradients:.2g}")
    return f"about {rounded:,.0f} gradients on {SOME_ROWS:,} rows"


def _presence(listing: "Listing") -> str:
    if listing.present:
        return "yes"
    return f"{' and '.join(listing.parts)} only" if listing.parts else "no"
