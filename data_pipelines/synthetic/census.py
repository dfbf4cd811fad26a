"""The world's states, counties and urban areas, written as the Census publishes them."""

import tempfile
import zipfile
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import shapely

from data_pipelines.atomic import atomic_path
from data_pipelines.synthetic.world import World


def write_states(world: World, path: Path) -> None:
    """The world's two states, with the columns of `cb_{year}_us_state_500k.zip`."""
    shapes = [world.land(), world.islet()]
    codes, names, numbers = [world.state_code, "LH"], [world.name, f"Little {world.name}"], ["99", "98"]
    columns: dict[str, Any] = {
        "STATEFP": numbers,
        "STATENS": [f"099{n}9999" for n in numbers],
        "AFFGEOID": [f"0400000US{n}" for n in numbers],
        "GEOID": numbers,
        "STUSPS": codes,
        "NAME": names,
        "LSAD": ["00", "00"],
        "ALAND": [_square_metres(world, shape) for shape in shapes],
        "AWATER": [0, 0],
    }
    _write_shapefile(columns, shapes, path)


def write_counties(world: World, path: Path) -> None:
    """A county about each city and the islet's own, with the columns of `cb_{year}_us_county_500k.zip`."""
    land, seats = world.land(), [world.to_degrees(city.x_km, city.y_km) for city in world.cities]
    cells = shapely.voronoi_polygons(shapely.MultiPoint(seats), extend_to=land, ordered=True)
    shapes = [shapely.intersection(land, cell) for cell in cells.geoms] + [world.islet()]
    names = [city.name for city in world.cities] + [f"Little {world.name}"]
    states = ["99"] * len(seats) + ["98"]
    numbers = [f"{2 * i + 1:03d}" for i in range(len(seats))] + ["001"]
    columns: dict[str, Any] = {
        "STATEFP": states,
        "COUNTYFP": numbers,
        "COUNTYNS": [f"099{s}9{n}" for s, n in zip(states, numbers, strict=True)],
        "AFFGEOID": [f"0500000US{s}{n}" for s, n in zip(states, numbers, strict=True)],
        "GEOID": [f"{s}{n}" for s, n in zip(states, numbers, strict=True)],
        "NAME": names,
        "LSAD": ["06"] * len(names),
        "ALAND": [_square_metres(world, shape) for shape in shapes],
        "AWATER": [0] * len(names),
    }
    _write_shapefile(columns, shapes, path)


def write_urban(world: World, path: Path) -> None:
    """The world's cities, with the columns of `tl_{year}_us_uac20.zip`."""
    names, shapes = zip(*world.urban_areas(), strict=True)
    codes = [f"{90000 + i:05d}" for i in range(len(names))]
    middles = [shape.representative_point() for shape in shapes]
    columns: dict[str, Any] = {
        "UACE20": codes,
        "GEOID20": codes,
        "GEOIDFQ20": [f"400C200US{code}" for code in codes],
        "NAME20": [f"{name}, {world.state_code}" for name in names],
        "NAMELSAD20": [f"{name}, {world.state_code} Urban Area" for name in names],
        "LSAD20": ["UA"] * len(names),
        "MTFCC20": ["G3500"] * len(names),
        "FUNCSTAT20": ["S"] * len(names),
        "ALAND20": [_square_metres(world, shape) for shape in shapes],
        "AWATER20": [0] * len(names),
        "INTPTLAT20": [f"{point.y:+.7f}" for point in middles],
        "INTPTLON20": [f"{point.x:+.7f}" for point in middles],
    }
    _write_shapefile(columns, list(shapes), path)


def _square_metres(world: World, shape: shapely.Geometry) -> int:
    in_km = shapely.transform(shape, lambda points: np.stack(world.to_km(*points.T), 1))
    return round(in_km.area * 1e6)


def _write_shapefile(columns: dict[str, Any], shapes: list[shapely.Geometry], path: Path) -> None:
    """A zipped shapefile in NAD83, byte for byte the same each time."""
    frame = geopandas.GeoDataFrame(columns, geometry=shapes, crs=4326).to_crs(4269)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, atomic_path(path, overwrite=True) as temporary:
        shp = Path(folder) / f"{path.stem}.shp"
        frame.to_file(shp, engine="pyogrio", DBF_DATE_LAST_UPDATE="2024-01-01")
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(Path(folder).iterdir()):
                archive.writestr(
                    zipfile.ZipInfo(file.name, (2024, 1, 1, 0, 0, 0)), file.read_bytes(), zipfile.ZIP_DEFLATED
                )
