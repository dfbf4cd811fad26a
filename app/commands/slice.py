"""`geogp slice`: what the model thinks varies together with one place."""

from pathlib import Path
from typing import Annotated

import typer

from app.commands import options
from app.console import console

PLACE = 70


def slice(
    run: options.RunFolder,
    at: Annotated[tuple[float, float], typer.Option(metavar="LON LAT", help="The reference place, degrees.")],
    output: Annotated[Path, options.output("GeoTIFF to write.")],
    quarter: options.Quarter = None,
    resolution: Annotated[
        float | None, typer.Option(metavar="M", help="Pixel in metres; default: 500.")
    ] = None,
    covariates: options.Covariates = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Write the kernel slice k(., x_ref): two bands, covariance and correlation with one place."""
    from app.workflow.rasters.covariates import opened
    from app.workflow.steps.slice import slice as write

    asked = opened(run, covariates)
    path = write(asked, at, output, quarter=quarter, resolution_m=resolution, overwrite=overwrite)
    console.say(f"{path}: covariance and correlation with {at[0]:g} {at[1]:g}")
