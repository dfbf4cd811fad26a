"""`geogp export`: the maps of one quarter as files."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from app.console import console
from app.errors import Usage

_WHERE, _WHAT = "Where", "What"


def export(
    run: Annotated[Path, typer.Argument(help="Run folder made by `geogp fit`.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write into.")],
    formats: Annotated[
        str,
        typer.Option("--format", metavar="LIST", help="Of cog, netcdf, zarr, geoparquet, figures, html."),
    ] = "cog,netcdf",
    layers: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Of {layers}, or one threshold as exceedance_25; default: all."),
    ] = None,
    quarter: Annotated[str | None, typer.Option(help="As 2023Q4; default: the run's last.")] = None,
    thresholds: Annotated[
        str | None, typer.Option(metavar="LIST", help="Of exceedance, such as 25,100, in the target's unit.")
    ] = None,
    level: Annotated[float, typer.Option(help="Of the prediction intervals.")] = 0.95,
    tests: Annotated[
        float | None,
        typer.Option(metavar="N", help="Tests behind the tile average; default: the training median."),
    ] = None,
    resolution: Annotated[
        float | None,
        typer.Option(
            metavar="M",
            help="Pixel in metres; default: 500, or what the size allows.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(metavar="RASTER", help="Take the pixels of this raster.", rich_help_panel=_WHERE),
    ] = None,
    bounds: Annotated[
        tuple[float, float, float, float] | None,
        typer.Option(metavar="W S E N", help="Cut to this box, degrees.", rich_help_panel=_WHERE),
    ] = None,
    crs: Annotated[
        str | None,
        typer.Option(metavar="EPSG:..", help="Of the maps; default: the run's.", rich_help_panel=_WHERE),
    ] = None,
    max_distance: Annotated[
        float | None,
        typer.Option(metavar="M", help="Reach of a map without a boundary.", rich_help_panel=_WHERE),
    ] = None,
    max_error: Annotated[
        float | None, typer.Option(metavar="X", help="Smaller COGs, off by at most this much.")
    ] = None,
    max_memory: Annotated[str, typer.Option(metavar="SIZE", help="Stay below, such as 2GiB.")] = "2GiB",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print pixels, bytes and seconds; write nothing.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="The manifest (or estimate) as one JSON document.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
) -> None:
    """Write the maps of one quarter, masked by the region's polygon, else by the reach of the data."""
    from app.workflow import estimate
    from app.workflow import export as export_run

    names = names_of(formats) or []
    options: dict[str, Any] = {
        "layers": names_of(layers),
        "quarter": quarter,
        "thresholds": numbers_of(thresholds, "--thresholds"),
        "level": level,
        "tests": tests,
        "resolution_m": resolution,
        "like": like,
        "bounds": bounds,
        "crs": crs,
        "max_distance_m": max_distance,
    }
    if dry_run:
        guess = estimate(run, formats=names, **options)
        if as_json:
            console.document(guess.document())
        else:
            console.data(guess.summary())
        return
    with console.progress("mapping") as progress:
        result = export_run(
            run,
            output,
            formats=names,
            max_error=max_error,
            max_memory=bytes_of(max_memory),
            overwrite=overwrite,
            progress=progress,
            **options,
        )
    for note in result.notes:
        console.say(f"Note: {note}.")
    if as_json:
        console.document(result.manifest)
    console.say(result.summary())


def names_of(text: str | None) -> list[str] | None:
    """A comma list; None for nothing said."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def numbers_of(text: str | None, option: str) -> list[float] | None:
    """A comma list of numbers."""
    try:
        return None if text is None else [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise Usage(f"{option} is a comma list of numbers, such as 25,100; got {text!r}.") from None


def bytes_of(text: str) -> int:
    """A size such as 2GiB, 500MB or a number of bytes.

    Examples
    --------
    >>> bytes_of("2GiB"), bytes_of("500 MB"), bytes_of("1e6")
    (2147483648, 500000000, 1000000)
    """
    match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if not match or float(match[1]) <= 0:
        raise Usage(f"--max-memory is a size such as 2GiB; got {text!r}.")
    base = 1024 if match[3] or not match[2] else 1000
    return int(float(match[1]) * base ** " kmgt".index(match[2] or " "))
