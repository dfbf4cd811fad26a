"""`geogp at`: what the maps say at the places of a table."""

from pathlib import Path
from typing import Annotated

import typer

from app.commands import options
from app.console import console

PLACE = 82
_WHERE = "Where the rows lie"


def at(
    run: options.RunFolder,
    places: Annotated[
        Path, typer.Argument(help="Table of places: CSV, GeoParquet, GeoPackage, GeoJSON, shapefile.")
    ],
    output: Annotated[Path, options.output("Table: .csv, .gpkg or .parquet.")],
    x: Annotated[
        str | None,
        typer.Option("--x", metavar="COLUMN", help="Default: lon, longitude, ..", rich_help_panel=_WHERE),
    ] = None,
    y: Annotated[
        str | None,
        typer.Option("--y", metavar="COLUMN", help="Default: lat, latitude, ..", rich_help_panel=_WHERE),
    ] = None,
    crs: Annotated[
        str | None,
        typer.Option(metavar="EPSG:..", help="Of these columns; default: degrees.", rich_help_panel=_WHERE),
    ] = None,
    quarter: options.Quarter = None,
    thresholds: options.Thresholds = None,
    level: options.Level = 0.95,
    tests: options.Tests = None,
    covariates: options.Covariates = None,
    as_json: options.AsJson = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Add to each row of a table the median, the interval, P(> threshold) and the distance to the nearest data.

    `median`, `lower`, `upper`, `exceedance_25`: of a new measurement there; `latent_..`: of the surface itself.

    Covariates that the run has learned by are columns of the table, or rasters: --covariates.

    A row outside the region and beyond the reach of the data has no values; from CSV to CSV any number of rows.
    """
    from app.workflow.rasters.covariates import opened
    from app.workflow.steps.at import at as tell

    with console.progress("asking") as progress:
        result = tell(
            opened(run, covariates),
            places,
            output,
            x=x,
            y=y,
            crs=crs,
            quarter=quarter,
            tests=tests,
            level=level,
            thresholds=options.numbers_of(thresholds, "--thresholds"),
            overwrite=overwrite,
            progress=progress,
        )
    console.notes(result.notes)
    if as_json:
        console.document(result.document())
    console.say(result.summary())
