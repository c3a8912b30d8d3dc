"""`posteria serve`: a fit or an export behind HTTP."""

from pathlib import Path
from typing import Annotated

import typer

from posteria.cli.app import Quiet, app
from posteria.cli.fitted import OwnMethods, OwnNetwork, load_posterior
from posteria.cli.printing import say
from posteria.errors import SettingError

LONGEST_END = 60  # seconds that requests get to be answered after SIGTERM


@app.command()
def serve(
    folder: Annotated[Path, typer.Argument(help="The folder of a fit, or of an export.")],
    host: Annotated[str, typer.Option(help="The address to listen at; 0.0.0.0 is all of them.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="POSTERIA_TOKEN",
            help="What clients must show.  [default: a new one, shown once]",
            show_default=False,
        ),
    ] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Let everybody in.")] = False,
    certificate: Annotated[Path | None, typer.Option(help="For HTTPS, with --key.", show_default=False)] = None,
    key: Annotated[Path | None, typer.Option(help="Of the certificate.", show_default=False)] = None,
    level: Annotated[float, typer.Option(help="Of the intervals whose coverage is watched.")] = 0.9,
    rows: Annotated[int, typer.Option(min=1, max=65536, help="Most of a request.")] = 1024,
    megabytes: Annotated[float, typer.Option(min=0.001, max=65536, help="Most of a body.")] = 8.0,
    seconds: Annotated[float, typer.Option(min=0.1, max=86400, help="Most to send a body, and to be answered.")] = 30.0,
    waiting: Annotated[int, typer.Option(min=1, help="Most requests at once.")] = 64,
    network: OwnNetwork = None,
    methods: OwnMethods = None,
    quiet: Quiet = False,
) -> None:
    """Serve predictions over HTTP, with a token, limits, metrics, and a watch on coverage."""
    import secrets
    import socket

    try:
        import uvicorn

        from posteria.serve import web
    except ImportError as error:
        raise SettingError(
            f"{error.name} is not installed", "the extra `serve`", "pip install 'posteria[serve]'"
        ) from None
    from posteria.posteriors.export import ABOUT
    from posteria.serve.served import Served, ServedExport

    if token is not None and no_token:
        raise SettingError("--token and --no-token", "one of them", "leave one out")
    if token is not None and (not token or not token.isascii() or token != token.strip()):
        raise SettingError("a token that is empty, or not plain ASCII", "letters and digits", "leave --token out")
    if (certificate is None) != (key is None):
        raise SettingError("--certificate or --key alone", "both", "name the other")
    for path in filter(None, (certificate, key)):
        if not path.is_file():
            raise SettingError(f"{path} is no file", "a certificate and its key, in PEM", "check the path")
    try:
        socket.getaddrinfo(host or "an empty one", port)
    except (OSError, ValueError) as error:
        raise SettingError(f"--host {host!r} ({error})", "an address of this machine", "0.0.0.0 is all") from None
    if not 0.5 <= level <= 0.99:
        raise SettingError(f"--level {level}", "between 0.5 and 0.99", "0.9 is usual")
    if (folder / ABOUT).is_file():
        served: Served = ServedExport(folder)
    else:
        served = Served(*load_posterior(folder, network, methods))
    if token is None and not no_token:
        token = secrets.token_urlsafe(32)
        say(f"token, shown this once: {token}")
    limits = web.Limits(int(megabytes * 2**20), rows, seconds, waiting)
    application = web.build(served, token, limits, level, lambda line: say(line, quiet))
    scheme = "http" if certificate is None else "https"
    say(f"compiling; then at {scheme}://{host}:{port}", quiet)
    uvicorn.run(
        application,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=LONGEST_END,
        ssl_certfile=None if certificate is None else str(certificate),
        ssl_keyfile=None if key is None else str(key),
    )
