"""`geogp demo`: the whole way on a made-up world."""

from pathlib import Path
from typing import Annotated

import typer

from app.commands import options
from app.console import console
from app.errors import Failed

PLACE = 10


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for everything made.")
    ] = Path("geogp-demo"),
    seed: options.Seed = None,
    method: options.Method = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Make a world, ingest, fit, evaluate, map and draw it; print the path of manifest.json."""
    from app.workflow.steps.demo import demo as demonstrate
    from geogp.methods import DEFAULT

    result = demonstrate(out, seed=seed or 0, method=method or DEFAULT, overwrite=overwrite, say=console.say)
    if not console.quiet:
        console.table("How close it came", result.header, result.rows(), stderr=True)
        console.say(f"Open {result.folder.resolve() / 'maps' / 'map.html'} in a browser.")
        console.say(
            f"A table of its counties: geogp areas {out}/run --areas {result.counties} -o counties.csv"
        )
    console.data(str(result.path))
    if result.problems:
        raise Failed(f"The demo is not as good as it must be: {'; '.join(result.problems)}.")
