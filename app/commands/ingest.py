"""`geogp ingest`: public files become one GeoParquet of observations."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from app.console import console
from app.errors import Usage

PLACE = 20


def ingest(
    output: Annotated[Path, typer.Option("--output", "-o", help="GeoParquet to write.")],
    file: Annotated[
        str | None, typer.Argument(help="The table, for --source csv and geoparquet (path or URL).")
    ] = None,
    source: Annotated[
        Literal["ookla", "synthetic", "csv", "geoparquet"],
        typer.Option(help="Where the measurements come from."),
    ] = "ookla",
    root: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="https URL, s3://bucket or folder in the bucket's layout; default the public bucket.",
        ),
    ] = None,
    type_: Annotated[
        Literal["fixed", "mobile"], typer.Option("--type", help="Kind of connection.")
    ] = "fixed",
    quarters: Annotated[
        str | None, typer.Option(help="2023Q4, 2019Q1..2023Q4 or a comma list.", metavar="QUARTERS")
    ] = None,
    region: Annotated[str | None, typer.Option(help="State code, such as HI.")] = None,
    states: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Census states file for --region; default: download it."),
    ] = None,
    bbox: Annotated[
        tuple[float, float, float, float] | None, typer.Option(metavar="W S E N", help="Box in degrees.")
    ] = None,
    boundary: Annotated[str | None, typer.Option(metavar="FILE", help="Polygons in any CRS.")] = None,
    urban: Annotated[
        str | None, typer.Option(metavar="FILE", help="Census urban areas; without it `urban` stays null.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="x=..,y=..,value=..[,count=..,time=..]", help="Column names, for csv and geoparquet."
        ),
    ] = None,
    crs: Annotated[str | None, typer.Option(help="CRS of x and y; default longitude and latitude.")] = None,
    value_unit: Annotated[str | None, typer.Option(help="Unit of `value`, for legends.")] = None,
    seed: Annotated[int, typer.Option(help="Of a synthetic world that is made on the way.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
) -> None:
    """Public speed-test files and Census files become one table of observations."""
    from data_pipelines.observations import ingest as ingest_tiles
    from data_pipelines.observations import ingest_table

    place = {"region": region, "states": states, "bbox": bbox, "boundary": boundary, "urban": urban}
    with console.progress("reading") as progress:
        if source in ("csv", "geoparquet"):
            if file is None:
                raise Usage(f"--source {source} needs the FILE to read; see `geogp ingest --help`.")
            report = ingest_table(
                file=file,
                source=source,
                columns=_pairs(columns),
                crs=crs,
                value_unit=value_unit,
                output=output,
                overwrite=overwrite,
                progress=progress,
                **place,  # type: ignore[arg-type]
            )
        else:
            if file is not None:
                raise Usage(f"--source {source} takes no FILE ({file}); name its folder or URL with --root.")
            report = ingest_tiles(
                source=source,
                root=root,
                type=type_,
                quarters=quarters,
                output=output,
                overwrite=overwrite,
                progress=progress,
                seed=seed,
                **place,  # type: ignore[arg-type]
            )
    console.say(report.summary())


def _pairs(text: str | None) -> dict[str, str]:
    """`x=lon,y=lat` as a dict."""
    pairs = [part.partition("=") for part in (text or "").split(",") if part.strip()]
    wrong = [name for name, equals, value in pairs if not (equals and value)]
    if wrong:
        raise Usage(f"--columns is written x=..,y=..,value=..; {wrong[0]!r} has no `=NAME`.")
    return {name.strip(): value.strip() for name, _, value in pairs}
