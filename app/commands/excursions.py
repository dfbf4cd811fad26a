"""`geogp excursions`: where the surface exceeds a threshold everywhere at once."""

from pathlib import Path
from typing import Annotated

import typer

from app.commands import options
from app.console import console
from app.errors import Usage

PLACE = 86


def excursions(
    run: options.RunFolder,
    output: Annotated[Path, options.output("Folder to write into.")],
    above: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Thresholds to exceed, such as 100; default: the target's own.",
            callback=options.numbers_first,
        ),
    ] = None,
    below: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Thresholds to fall below, such as 25.",
            callback=options.numbers_first,
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="Joint probability of the set.")] = 0.95,
    quarter: options.Quarter = None,
    formats: Annotated[str, typer.Option("--format", metavar="LIST", help="As for export.")] = "cog",
    resolution: Annotated[
        float | None,
        typer.Option(
            metavar="M", help="Pixel in metres; default: some 10,000 pixels.", rich_help_panel=options.WHERE
        ),
    ] = None,
    bounds: options.Bounds = None,
    crs: options.MapCrs = None,
    max_distance: options.MaxDistance = None,
    samples: Annotated[int, typer.Option(metavar="K", help="Joint draws of the surface.")] = 2000,
    covariates: options.Covariates = None,
    as_json: options.AsJson = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Map where the surface exceeds (falls below) a threshold everywhere at once, with one probability for the whole set.

    P(> 100) of an export speaks of each pixel alone: of 1,000 pixels at 95% some 50 fall short. Here all hold together.

    `excursion_100`: the largest probability of a set that holds the pixel; `excursion_set_100`: 1 where it is --level.

    After Bolin and Lindgren (2015), from joint draws.
    """
    from app.workflow.rasters.covariates import opened
    from app.workflow.steps.excursions import excursions as find

    if above is not None and below is not None:
        raise Usage("--above and --below are two maps; ask for one at a time.")
    side = "--above" if below is None else "--below"
    thresholds = options.numbers_of(above if below is None else below, side)
    if thresholds == []:
        raise Usage(f"{side} names no threshold; name one, or leave it out for the target's own.")
    result = find(
        opened(run, covariates),
        output,
        thresholds=thresholds,
        above=below is None,
        level=level,
        quarter=quarter,
        formats=options.names_of(formats) or [],
        resolution_m=resolution,
        bounds=bounds,
        crs=crs,
        max_distance_m=max_distance,
        n_samples=samples,
        overwrite=overwrite,
    )
    console.notes(result.notes)
    if as_json:
        console.document(result.document())
    else:
        console.table(result.title, result.header, result.rows())
    console.say(result.summary())
