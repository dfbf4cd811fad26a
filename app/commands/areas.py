"""`geogp areas`: what a run says of whole polygons, and how they go together."""

from pathlib import Path
from typing import Annotated

import typer

from app.commands import options
from app.console import console

PLACE = 80
_PEOPLE = "People"


def areas(
    run: options.RunFolder,
    polygons: Annotated[
        Path,
        typer.Option(
            "--areas", metavar="FILE", help="Polygons: GeoJSON, GeoPackage, GeoParquet, zipped shapefile."
        ),
    ],
    output: Annotated[
        Path,
        options.output("Table: .parquet, .gpkg or .csv; covariances go to <name>_covariance.nc beside."),
    ],
    key: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Names each area once; default: GEOID, LAU_ID, .. if there."),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="RASTER", help="People per pixel: averages over people, too.", rich_help_panel=_PEOPLE
        ),
    ] = None,
    weight_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="People of each area, a column of FILE.", rich_help_panel=_PEOPLE
        ),
    ] = None,
    worst: Annotated[
        int | None,
        typer.Option(metavar="K", help="P(among the K worst, or lowest); default: 10, of few areas 1."),
    ] = None,
    pairs: Annotated[
        str | None,
        typer.Option(
            metavar="A:B,..",
            help="Keys: how likely is A's mean below B's?",
            callback=options.pairs_first,
        ),
    ] = None,
    other: options.With = None,
    below: options.Below = None,
    with_below: options.WithBelow = None,
    quarter: options.Quarter = None,
    level: options.Level = 0.95,
    thresholds: options.Thresholds = None,
    resolution: Annotated[
        float | None,
        typer.Option(metavar="M", help="Metres between the points averaged; default: 500, by size."),
    ] = None,
    samples: Annotated[int, typer.Option(metavar="K", help="Joint draws of the surface.")] = 500,
    covariates: options.Covariates = None,
    data: options.Data = None,
    scheduler: options.Scheduler = None,
    as_json: options.AsJson = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Average the surface over polygons: the mean, its credible interval, the share below thresholds, ranks.

    From the joint posterior of all places, since neighbours err together; over the part inside the region. The
    surface is the level of averages of the run's reference count of measurements.

    `mean`, `sd`, `median`, `lower`, `upper`, `p10` .. `p90`, `share_below_25`: over the ground; `tiles_..` over the
    measured tiles, `people_..` over the people, if given. `rank` 1 is the worst, with its interval;
    the lowest where `ingest` was not told which values are `--better`. An interval holds its mean: a share that few draws
    make up is an end of it.

    `evidence`: measured, partly or filled, by how much of the ground has data near (`share_near`). `n_tiles`, `n_tests`: what the
    run learned from there; rows held out do not count.

    `share_either_missed` (--with): of ground or people where download < 100 or upload < 20, say, their errors counted together.

    `latent_mean`, `latent_sd`: of the logarithm of speeds and latencies. Covariances between all areas lie beside.
    """
    from app.workflow.outputs import level_note
    from app.workflow.rasters.covariates import opened
    from app.workflow.steps.areas import areas as average

    options.check_both(other, below, with_below)
    with console.progress("drawing") as progress:
        result = average(
            opened(run, covariates),
            polygons,
            output,
            key=key,
            weights=weights,
            weight_column=weight_column,
            worst=worst,
            pairs=options.pairs_of(pairs, "--pairs"),
            data=data,
            quarter=quarter,
            level=level,
            thresholds=options.numbers_of(thresholds, "--thresholds"),
            resolution_m=resolution,
            n_samples=samples,
            beside=other,
            either=(below, with_below),
            scheduler=scheduler,
            overwrite=overwrite,
            progress=progress,
        )
    console.notes(result.notes)
    if as_json:
        console.document(result.document())
    else:
        console.table(result.title, result.header, result.rows())
        console.notes([level_note(result.facts)])
        for pair in result.facts["pairs"]:
            p = "unknown" if pair["p_a_below_b"] is None else f"{pair['p_a_below_b']:.3f}"
            console.data(f"P({pair['a']} lies below {pair['b']}) = {p}")
    console.say(result.summary())
