"""`geogp suggest`: where to measure next."""

from pathlib import Path
from typing import Annotated

import typer

from app.commands import options
from app.console import console

PLACE = 100


def suggest(
    run: options.RunFolder,
    output: Annotated[Path, options.output("GeoJSON to write.")],
    n: Annotated[
        int | None, typer.Option("-n", metavar="N", help="How many places; default: 50, or all of fewer.")
    ] = None,
    quarter: options.Quarter = None,
    tests: options.Tests = None,
    within: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Stay in these polygons, and map them alone.")
    ] = None,
    area: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Know the mean over these polygons better, instead of the map."),
    ] = None,
    boundary: Annotated[
        float | None, typer.Option(metavar="X", help="Know better where the surface passes this threshold.")
    ] = None,
    candidates: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Table of places to choose from, lon and lat.")
    ] = None,
    budget_km: Annotated[
        float | None,
        typer.Option(metavar="KM", help="The path through all places is no longer; -n bounds them."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Try it on rows the run knows: hide places, choose among them, compare. Slow."
        ),
    ] = False,
    covariates: options.Covariates = None,
    data: options.Data = None,
    as_json: options.AsJson = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Suggest places to measure: each lowers the map's mean variance most, given those before it.

    --area and --boundary change what is to be known better; map's variance is then that mean's, or weighed by p (1 - p).

    Greedy, after Cohn (1996) and Krause et al. (2008), among at most 1,500 cells; --within looks closer.

    The map's emptiest places are not always where one can measure: name those with --within.

    --check says by how much such a choice has lowered the squared error of rows the run did not know, beside what was promised
    and what places at random do.
    """
    from app.workflow.rasters.covariates import opened
    from app.workflow.steps.suggest import suggest as suggest_tiles

    result = suggest_tiles(
        opened(run, covariates),
        n,
        output,
        quarter=quarter,
        tests=tests,
        within=within,
        overwrite=overwrite,
        area=area,
        boundary=boundary,
        candidates_file=candidates,
        budget_km=budget_km,
        check=check,
        data=data,
    )
    if as_json:
        console.document(result.document())
    else:
        console.table(result.title, result.header, result.rows())
    console.say(result.summary())
