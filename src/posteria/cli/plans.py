"""`posteria plan`: what a fit will take, before it runs."""

from typing import Annotated, Any

import typer

from posteria.cli.app import Json, app
from posteria.cli.printing import print_json
from posteria.cli.set_option import build_method
from posteria.cli.table_options import Ignore, Kind, Target
from posteria.errors import SettingError


@app.command()
def plan(
    data: Annotated[str, typer.Argument(help="A file (with --target), an .npz with x and y, or a data set's name.")],
    target: Target = None,
    method: Annotated[str, typer.Option(help="See `posteria methods`.")] = "hmc",
    network: Annotated[
        str, typer.Option(help="mlp:50,50, lenet5, ..., or mypkg.nets:build of your own.")
    ] = "mlp:50,50",
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
    rehearse: Annotated[bool, typer.Option(help="Time a few steps here; only count otherwise.")] = True,
    as_json: Json = False,
) -> None:
    """Plan a fit: its memory and time on this machine, from a few timed steps, and on others, by counting."""
    from posteria.data.origin import read_origin
    from posteria.engine.layout import use_cores
    from posteria.models.model import model_for
    from posteria.planning import plan as planned

    machines = [machine(word) for word in on or ()]
    source = read_origin(data, target, kind, ignore or ())
    wanted = build_method(method, settings or [])
    use_cores()
    preparation, (x, y) = source.prepare()
    model = model_for(preparation.kind, preparation.num_outputs, len(y), network)
    found = planned(model, (x, y), wanted, rehearse=rehearse)
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
