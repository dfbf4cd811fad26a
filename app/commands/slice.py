"""`geogp slice`: what the model thinks varies together with one place."""

from pathlib import Path
from typing import Annotated

import typer

from app.console import console


def slice_(
    run: Annotated[Path, typer.Argument(help="Run folder made by `geogp fit`.")],
    at: Annotated[tuple[float, float], typer.Option(metavar="LON LAT", help="The reference place, degrees.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="GeoTIFF to write.")],
    quarter: Annotated[str | None, typer.Option(help="As 2023Q4; default: the run's last.")] = None,
    resolution: Annotated[
        float | None, typer.Option(metavar="M", help="Pixel in metres; default: 500.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
) -> None:
    """Write the kernel slice k(., x_ref): two bands, covariance and correlation with one place."""
    from app.workflow import write_slice

    path = write_slice(run, at, output, quarter=quarter, resolution_m=resolution, overwrite=overwrite)
    console.say(f"{path}: covariance and correlation with {at[0]:g} {at[1]:g}")
