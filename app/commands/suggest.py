"""`geogp suggest`: where to measure next."""

from pathlib import Path
from typing import Annotated

import typer

from app.console import console


def suggest(
    run: Annotated[Path, typer.Argument(help="Run folder made by `geogp fit`.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="GeoJSON to write.")],
    n: Annotated[int, typer.Option("-n", metavar="N", help="How many places.")] = 50,
    quarter: Annotated[str | None, typer.Option(help="When, as 2023Q4; default: the run's last.")] = None,
    tests: Annotated[
        float | None,
        typer.Option(metavar="N", help="Tests behind each new tile average; default: the training median."),
    ] = None,
    within: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Stay in these polygons, and map them alone.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The places as one JSON document.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
) -> None:
    """Suggest tiles to measure: each lowers the map's mean variance most, given those before it.

    Greedy, after Cohn (1996) and Krause et al. (2008), among at most 1,500 cells; --within looks closer.

    The map's emptiest places are not always where one can measure: name those with --within.
    """
    from app.workflow import suggest as suggest_tiles

    result = suggest_tiles(run, n, output, quarter=quarter, tests=tests, within=within, overwrite=overwrite)
    if as_json:
        console.document(result.document())
    else:
        console.table(result.title, result.header, result.rows())
    console.say(result.summary())
