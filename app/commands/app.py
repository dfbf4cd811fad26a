"""`geogp app`: the dashboard."""

from pathlib import Path
from typing import Annotated

import typer

from app.errors import Interrupted

PLACE = 110


def app(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders made by `geogp fit`, the first shown first.")
    ],
    port: Annotated[int, typer.Option(min=1, max=65535, help="To listen on.")] = 8501,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; 0.0.0.0 lets other machines in, to compute and train here, too."
        ),
    ] = "127.0.0.1",
    places: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Names to find: polygons (counties, islands) or a table of name, lon, lat."
        ),
    ] = None,
    areas: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Polygons such as counties: the page Areas offers them."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Serve the dashboard of one run or several until Ctrl-C."""
    import sys

    from app.dashboard import serve

    try:
        serve(
            *runs,
            port=port,
            host=host,
            open_browser=open_ and sys.stderr.isatty(),
            places=places,
            areas=areas,
        )
    except Interrupted:
        raise Interrupted("the dashboard is closed") from None
