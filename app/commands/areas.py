"""`geogp areas`: what a run says of whole polygons, and how they go together."""

from pathlib import Path
from typing import Annotated

import typer

from app.commands import options
from app.console import console

PLACE = 80


def areas(
    run: options.RunFolder,
    polygons: Annotated[
        Path,
        typer.Option("--areas", metavar="FILE", help="Polygons: GeoJSON, GeoPackage, GeoParquet; any CRS."),
    ],
    output: Annotated[Path, options.output("GeoParquet; the covariances go to <name>_covariance.nc beside.")],
    quarter: options.Quarter = None,
    level: options.Level = 0.95,
    thresholds: options.Thresholds = None,
    resolution: Annotated[
        float | None,
        typer.Option(metavar="M", help="Metres between the points averaged; default: 500, by size."),
    ] = None,
    samples: Annotated[int, typer.Option(metavar="K", help="Joint draws of the surface.")] = 500,
    as_json: options.AsJson = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Average the surface over polygons: mean speed, its credible interval, the share below thresholds.

    From the joint posterior of all places, since neighbours err together; over the part inside the region. The
    surface is the level of tile averages of the run's reference count of tests.

    `mean`, `sd`, `median`, `lower`, `upper`: of the mean over the ground of the speed a tile average is about.

    `latent_mean`, `latent_sd`: the same of its logarithm, exact. Covariances between all areas lie beside.
    """
    from app.workflow.steps.areas import areas as average

    result = average(
        run,
        polygons,
        output,
        quarter=quarter,
        level=level,
        thresholds=options.numbers_of(thresholds, "--thresholds"),
        resolution_m=resolution,
        n_samples=samples,
        overwrite=overwrite,
    )
    console.notes(result.notes)
    if as_json:
        console.document(result.document())
    else:
        console.table(result.title, result.header, result.rows())
    console.say(result.summary())
