"""`geogp export`: the maps of one quarter as files."""

from pathlib import Path
from typing import Annotated, Any

import typer

from app.commands import options
from app.console import console

PLACE = 60


def export(
    run: options.RunFolder,
    output: Annotated[Path, options.output("Folder to write into.")],
    formats: options.Formats = "cog,netcdf",
    layers: options.Layers = None,
    quarter: options.Quarter = None,
    thresholds: options.Thresholds = None,
    level: options.Level = 0.95,
    tests: options.Tests = None,
    resolution: options.Resolution = None,
    like: Annotated[
        Path | None,
        typer.Option(metavar="RASTER", help="Take the pixels of this raster.", rich_help_panel=options.WHERE),
    ] = None,
    tiles: Annotated[
        bool,
        typer.Option(
            "--tiles",
            help="One pixel a tile of zoom 16; tables have its quadkey.",
            rich_help_panel=options.WHERE,
        ),
    ] = False,
    bounds: options.Bounds = None,
    crs: options.MapCrs = None,
    max_distance: options.MaxDistance = None,
    other: options.With = None,
    below: options.Below = None,
    with_below: options.WithBelow = None,
    max_error: Annotated[
        float | None, typer.Option(metavar="X", help="Smaller COGs, off by at most this much.")
    ] = None,
    max_memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Stay below, such as 2GiB.", callback=options.bytes_first)
    ] = "2GiB",
    samples: Annotated[
        int | None, typer.Option(metavar="K", help="K coherent maps, joint draws of the surface: samples.nc.")
    ] = None,
    places: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Names on pictures and page: polygons (counties, with their lines) or a table of name, lon, lat.",
        ),
    ] = None,
    covariates: options.Covariates = None,
    scheduler: options.Scheduler = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print pixels, bytes, memory and seconds; write nothing.")
    ] = False,
    as_json: options.AsJson = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Write the maps of one quarter, masked by the region's polygon, else by the reach of the data.

    cog: a GeoTIFF a layer and its QGIS style; pmtiles: a layer's coloured web tiles; netcdf, zarr: all layers.

    geoparquet, csv, gpkg: a row a pixel; h3: a row a cell. `item.json` is the STAC Item of them all.
    """
    from app.workflow.grids import of_tiles
    from app.workflow.rasters.covariates import opened
    from app.workflow.steps.export import estimate
    from app.workflow.steps.export import export as export_run

    options.check_both(other, below, with_below)
    names = options.names_of(formats) or []
    if tiles:
        crs, resolution = of_tiles(crs, resolution)
    which: dict[str, Any] = {
        "layers": options.names_of(layers),
        "quarter": quarter,
        "thresholds": options.numbers_of(thresholds, "--thresholds"),
        "level": level,
        "tests": tests,
        "resolution_m": resolution,
        "like": like,
        "bounds": bounds,
        "crs": crs,
        "max_distance_m": max_distance,
    }
    asked = opened(run, covariates)
    if dry_run:
        guess = estimate(asked, formats=names, **which)
        if as_json:
            console.document(guess.document())
        else:
            console.data(guess.summary())
        return
    with console.progress("mapping") as progress:
        result = export_run(
            asked,
            output,
            formats=names,
            max_error=max_error,
            max_memory=options.bytes_of(max_memory),
            samples=samples,
            beside=other,
            either=(below, with_below),
            names=places,
            scheduler=scheduler,
            overwrite=overwrite,
            progress=progress,
            **which,
        )
    console.notes(result.notes)
    if as_json:
        console.document(result.manifest)
    console.say(result.summary())
