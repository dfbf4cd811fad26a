"""`geogp areas`: what a run says of whole polygons, and how they go together."""

from pathlib import Path
from typing import Annotated

import typer

from app.console import console


def areas(
    run: Annotated[Path, typer.Argument(help="Run folder made by `geogp fit`.")],
    polygons: Annotated[
        Path,
        typer.Option("--areas", metavar="FILE", help="Polygons: GeoJSON, GeoPackage, GeoParquet; any CRS."),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="GeoParquet; the covariances go to <name>_covariance.nc beside."),
    ],
    quarter: Annotated[str | None, typer.Option(help="As 2023Q4; default: the run's last.")] = None,
    tests: Annotated[
        float | None,
        typer.Option(metavar="N", help="Tests behind the tile averages meant; default: the training median."),
    ] = None,
    level: Annotated[float, typer.Option(help="Of the credible intervals.")] = 0.95,
    thresholds: Annotated[
        str | None, typer.Option(metavar="LIST", help="Such as 25,100: the share of each area below them.")
    ] = None,
    resolution: Annotated[
        float | None,
        typer.Option(metavar="M", help="Metres between the points averaged; default: 500, by size."),
    ] = None,
    samples: Annotated[int, typer.Option(metavar="K", help="Joint draws of the surface.")] = 500,
    as_json: Annotated[bool, typer.Option("--json", help="The table as one JSON document.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
) -> None:
    """Average the surface over polygons: mean speed, its credible interval, the share below thresholds.

    From the joint posterior of all places, since neighbours err together; over the part inside the region.

    `mean`, `sd`, `median`, `lower`, `upper`: of the mean over the ground of the speed a tile average is about.

    `latent_mean`, `latent_sd`: the same of its logarithm, exact. Covariances between all areas lie beside.
    """
    from app.commands.export import numbers_of
    from app.workflow import areas as average_areas

    result = average_areas(
        run,
        polygons,
        output,
        quarter=quarter,
        tests=tests,
        level=level,
        thresholds=numbers_of(thresholds, "--thresholds"),
        resolution_m=resolution,
        n_samples=samples,
        overwrite=overwrite,
    )
    for note in result.notes:
        console.say(f"Note: {note}.")
    if as_json:
        console.document(result.document())
    else:
        console.table(result.title, result.header, result.rows())
    console.say(result.summary())
