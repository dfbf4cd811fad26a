"""`geogp app`: the dashboard."""

from pathlib import Path
from typing import Annotated

import typer

from app.console import console


def dashboard(
    run: Annotated[Path, typer.Argument(help="Run folder made by `geogp fit`.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="To listen on.")] = 8501,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Serve the dashboard of a run until Ctrl-C."""
    import sys
    import threading
    import webbrowser

    from app.dashboard import serve
    from geogp.storage import verify

    verify(run) if run.is_dir() else _refuse(run)
    if open_ and sys.stdout.isatty():
        threading.Timer(2.0, webbrowser.open, (f"http://{host}:{port}/",)).start()
    console.say(f"http://{host}:{port}/ shows {run}; Ctrl-C ends it.")
    serve(run, port=port, host=host)


def _refuse(run: Path) -> None:
    from app.errors import InvalidInput

    raise InvalidInput(f"{run} is not a run folder; `geogp fit ... -o {run}` makes one.")
