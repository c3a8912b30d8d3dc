"""`posteria plan`: what a fit will take, before it runs."""

from typing import Annotated, Any

import typer

from posteria.cli.app import Json, app
from posteria.cli.fits import chosen_for, named_method
from posteria.cli.printing import print_json
from posteria.cli.table_options import As, Encoding, Ignore, Kind, Target, as_pairs
from posteria.errors import SettingError


@app.command()
def plan(
    data: Annotated[str, typer.Argument(help="A file (with --target), an .npz with x and y, or a data set's name.")],
    target: Target = None,
    method: Annotated[
        str | None,
        typer.Option(help="See `posteria methods`.  [default: that of --quality]", show_default=False),
    ] = None,
    quality: Annotated[str, typer.Option(help="fast, balanced or best, as `posteria fit` has it.")] = "fast",
    network: Annotated[
        str | None,
        typer.Option(
            help="mlp:50,50, lenet5, ..., or mypkg.nets:build of your own.  [default: that of --quality, or mlp:50,50]",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the method, as num_draws=200.", show_default=False)
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(
            help="Another machine: tpu-v3, a100, h100, or mine:flops=1e13,memory=4e10,bandwidth=1e11; with how many"
            " devices: a100*8. May be given again.",
            show_default=False,
        ),
    ] = None,
    kind: Kind = None,
    ignore: Ignore = None,
    as_: As = None,
    encoding: Encoding = None,
    rehearse: Annotated[bool, typer.Option(help="Time a few steps here; only count otherwise.")] = True,
    as_json: Json = False,
) -> None:
    """Plan a fit: its memory and time on this machine, from a few timed steps, and on others, by counting.

    Of the same defaults as `posteria fit`.
    """
    from posteria.data.origin import read_origin
    from posteria.engine.layout import use_cores
    from posteria.planning import plan as planned

    machines = [machine(word) for word in on or ()]
    source = read_origin(data, target, kind, ignore or (), as_pairs(as_), encoding)
    named = named_method(method, settings)
    use_cores()
    _, data_of_fit, model, wanted, _ = chosen_for(source, named, quality, network, target_scale="linear")
    found = planned(model, data_of_fit, wanted, rehearse=rehearse)
    if as_json:
        elsewhere = [
            {
                "machine": m.name,
                "devices": m.num_devices,
                "seconds": f.seconds,
                "bytes": f.bytes_a_device,
                "fits": f.fits,
            }
            for m in machines
            for f in [found.on(m)]
        ]
        numbers: dict[str, Any] = {"seconds": found.seconds, "bytes": found.peak_bytes, "gradients": found.gradients}
        return print_json(numbers | {"flops": found.flops, "elsewhere": elsewhere})
    typer.echo(str(found))
    if machines:
        typer.echo(found.table(machines))
    return None


def machine(word: str) -> Any:
    """ "a100*8", or "mine:flops=1e13,memory=4e10,bandwidth=1e11*2"."""
    from dataclasses import replace

    from posteria.planning import MACHINES, Machine

    text, star, count = word.partition("*")
    name, colon, pairs = text.partition(":")
    try:
        num_devices = int(count) if star else 1
        if not colon:
            return replace(MACHINES[name], num_devices=num_devices)
        given = {key.strip(): float(value) for key, value in (pair.split("=") for pair in pairs.split(","))}
        return Machine(name, num_devices, **given)
    except (KeyError, ValueError, TypeError) as error:
        wanted = f"one of {list(MACHINES)}, or mine:flops=1e13,memory=4e10,bandwidth=1e11"
        raise SettingError(f"--on {word}", wanted, "devices follow a star: a100*8") from error
