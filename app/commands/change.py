"""`geogp change`: whether it got better between two quarters, or is better in another run."""

from pathlib import Path
from typing import Annotated

import typer

from app.commands import options
from app.console import console

PLACE = 84


def change(
    run: options.RunFolder,
    output: Annotated[Path, options.output("Folder to write into.")],
    start: Annotated[str | None, typer.Option("--from", metavar="QUARTER", help="As 2019Q4.")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="QUARTER", help="As 2023Q4.")] = None,
    other: Annotated[
        Path | None,
        typer.Option("--with", metavar="RUN", help="Instead: this run less the first, in one quarter."),
    ] = None,
    quarter: Annotated[str | None, typer.Option(help="Of --with; default: the first run's last.")] = None,
    at_least: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="P(improved by at least so much), in the target's unit.",
            callback=options.numbers_first,
        ),
    ] = "0",
    polygons: Annotated[
        Path | None, typer.Option("--areas", metavar="FILE", help="Polygons: a table of their changes, too.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Names each area once; default: GEOID, LAU_ID, ..")
    ] = None,
    formats: Annotated[
        str,
        typer.Option(
            "--format", metavar="LIST", help="Of cog, netcdf, zarr, geoparquet; none for areas alone."
        ),
    ] = "cog",
    level: options.Level = 0.95,
    resolution: Annotated[
        float | None,
        typer.Option(
            metavar="M", help="Pixel in metres; default as for export.", rich_help_panel=options.WHERE
        ),
    ] = None,
    bounds: options.Bounds = None,
    crs: options.MapCrs = None,
    max_distance: options.MaxDistance = None,
    samples: Annotated[int, typer.Option(metavar="K", help="Joint draws, for areas.")] = 500,
    covariates: options.Covariates = None,
    scheduler: options.Scheduler = None,
    as_json: options.AsJson = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Map the difference between two quarters, its interval and P(improved), per pixel and per area.

    From the joint posterior of both quarters: what is doubtful of both alike is not doubtful of their difference.

    --with compares two runs instead, mobile with fixed: the second less the first.

    Of the surface, the level of averages of the run's reference count; the later quarter less the earlier.
    """
    from app.workflow.outputs import level_note
    from app.workflow.rasters.covariates import opened
    from app.workflow.steps.change import change as compare

    names = [name for name in options.names_of(formats) or [] if name != "none"]
    with console.progress("comparing") as progress:
        result = compare(
            opened(run, covariates),
            start,
            end,
            output,
            beside=other,
            quarter=quarter,
            at_least=options.numbers_of(at_least, "--at-least") or [],
            polygons=polygons,
            key=key,
            formats=names,
            level=level,
            resolution_m=resolution,
            bounds=bounds,
            crs=crs,
            max_distance_m=max_distance,
            n_samples=samples,
            scheduler=scheduler,
            overwrite=overwrite,
            progress=progress,
        )
    console.notes(result.notes)
    if as_json:
        console.document(result.document())
    elif result.table is not None:
        console.table(result.title, result.header, result.rows())
        console.notes([level_note(result.facts)])
    console.say(result.summary())
