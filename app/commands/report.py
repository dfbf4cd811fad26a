"""`geogp report`: a run as one page to read, print and hand on."""

from pathlib import Path
from typing import Annotated

import typer

from app.commands import options
from app.console import console

PLACE = 88


def report(
    run: options.RunFolder,
    output: Annotated[Path, options.output("HTML page to write; a browser prints it as PDF.")],
    polygons: Annotated[
        Path | None,
        typer.Option("--areas", metavar="FILE", help="Polygons: a table of them, the worst first."),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Names each area once; default: GEOID, LAU_ID, ..")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="RASTER", help="People per pixel: areas by people.")
    ] = None,
    quarter: options.Quarter = None,
    thresholds: options.Thresholds = None,
    level: options.Level = 0.95,
    covariates: options.Covariates = None,
    data: options.Data = None,
    leaderboard: Annotated[
        Path | None,
        typer.Option(
            "--compare",
            metavar="FILE",
            help="What `geogp compare --json` printed; default: beside a run that it kept.",
        ),
    ] = None,
    as_json: options.AsJson = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Write a page that a director reads: the map, three sentences, the table of areas, where not to trust it.

    An appendix for reviewers follows: the certificate, reliability, PIT, widths, errors by cell,
    what the kernel learned, peers.
    """
    from app.workflow.rasters.covariates import opened
    from app.workflow.steps.report import report as write_report

    result = write_report(
        opened(run, covariates),
        output,
        polygons=polygons,
        key=key,
        weights=weights,
        quarter=quarter,
        thresholds=options.numbers_of(thresholds, "--thresholds"),
        level=level,
        data=data,
        leaderboard=leaderboard,
        overwrite=overwrite,
    )
    console.notes(note.rstrip(".") for note in result.notes)
    if as_json:
        console.document(result.document())
    console.say(result.summary())
