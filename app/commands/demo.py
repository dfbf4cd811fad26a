"""`geogp demo`: the whole way on a made-up world."""

from pathlib import Path
from typing import Annotated

import typer

from app.console import console
from app.errors import Failed


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for everything made.")
    ] = Path("geogp-demo"),
    seed: Annotated[int, typer.Option(help="Of the world and the training.")] = 0,
    method: Annotated[str, typer.Option(help="See `geogp methods`.")] = "geogp",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier demo.")] = False,
) -> None:
    """Make a world, ingest, fit, evaluate, map and draw it; print the path of manifest.json."""
    from app.workflow import demo as demonstrate

    result = demonstrate(out, seed=seed, method=method, overwrite=overwrite, say=console.say)
    if not console.quiet:
        console.table("How close it came", result.header, result.rows(), stderr=True)
        console.say(f"Open {result.folder.resolve() / 'maps' / 'map.html'} in a browser.")
    console.data(str(result.path))
    if result.problems:
        raise Failed(f"The demo is not as good as it must be: {'; '.join(result.problems)}.")
