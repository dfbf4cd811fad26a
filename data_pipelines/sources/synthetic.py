"""The made-up world written exactly as Ookla and the Census publish, so that the real pipeline reads it.

    folder/parquet/performance/type=../year=../quarter=../..parquet   tiles, both types
    folder/census/cb_halcyon_state_500k.zip, tl_halcyon_uac20.zip      states, urban areas (NAD83 shapefiles)
    folder/truth.json, truth_fixed.parquet, truth_mobile.parquet       the truth, for each row and everywhere

The oddities of the published files are there too: one quarter is not sorted, one has no geometry, columns
are added from 2022Q4 and 2023Q2 on, and some tiles lie at sea or in another state.
"""

import json
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely
from numpy.typing import NDArray

from data_pipelines import quadkey
from data_pipelines.atomic import atomic_path
from data_pipelines.errors import InvalidInput
from data_pipelines.sources import ookla
from data_pipelines.sources.synthetic_world import SIZES, World

UNSORTED_QUARTER, NO_GEOMETRY_QUARTER = "2022Q2", "2022Q3"
LOADED_LATENCY_FROM, TILE_XY_FROM = "2022Q4", "2023Q2"
ROW_GROUP_ROWS = 1000
#: shares of rows drawn from (cities, roads, country)
SHARES = {"fixed": (0.45, 0.20, 0.35), "mobile": (0.40, 0.40, 0.20)}
#: mean of log tests in the country and what a city adds: about 20% (fixed) and 39% (mobile) single tests
LOG_TESTS = {"fixed": (1.0, 1.4), "mobile": (0.3, 1.0)}
SD_LOG_TESTS = 1.35
#: sd of the log of how often a tile is measured
SD_ACTIVITY = 1.6
#: share of all tiles that may be measured at all, which keeps the small world quick
CANDIDATES = {"demo": 1.0, "small": 0.1}

__all__ = ["World", "collect", "load_world", "world_folder", "write_world"]

#: reads a written world as the real thing
collect = ookla.collect


def write_world(folder: str | Path, *, seed: int = 0, size: str = "demo", overwrite: bool = False) -> World:
    """Write the world of a seed into a folder in the published formats; about 2 s for "demo".

    `truth.json` is written last: a folder that has it is complete. The same world already there is left as
    it is; another one is refused unless `overwrite`.

    Parameters
    ----------
    folder : made when it does not exist; it is then a root for `ingest`
    seed, size : see `World`

    Raises
    ------
    InvalidInput
        The folder holds another world and `overwrite` is False.
    """
    folder, world = Path(folder), World(seed=seed, size=size)
    mark = folder / "truth.json"
    if mark.exists() and not overwrite:
        if load_world(folder) == world:
            return world
        raise InvalidInput(
            f"The folder {folder} holds another synthetic world; choose another or allow overwriting."
        )
    mark.unlink(missing_ok=True)
    _write_states(world, world.states_file(folder))
    _write_urban(world, world.urban_file(folder))
    for type in ookla.TYPES:
        _write_tiles(world, folder, type)
    with atomic_path(mark, overwrite=True) as temporary:
        temporary.write_text(json.dumps(world.to_json(), indent=1), encoding="utf-8")
    return world


def load_world(folder: str | Path) -> World:
    """The world a folder was written from, regenerated from its seed."""
    mark = Path(folder) / "truth.json"
    try:
        found = json.loads(mark.read_text(encoding="utf-8"))
        return World(seed=int(found["seed"]), size=str(found["size"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{folder} holds no complete synthetic world (no readable truth.json).") from error


@contextmanager
def world_folder(
    root: str | Path | None, *, seed: int = 0, size: str = "demo"
) -> Iterator[tuple[World, Path]]:
    """A written world to read: the one in `root`, made there when missing, or a temporary one for None."""
    if root is None:
        with tempfile.TemporaryDirectory(prefix="geogp-world-") as temporary:
            yield write_world(temporary, seed=seed, size=size), Path(temporary)
    elif (Path(root) / "truth.json").exists():
        yield load_world(root), Path(root)
    else:
        yield write_world(root, seed=seed, size=size), Path(root)


def _write_tiles(world: World, folder: Path, type: str) -> None:
    """All quarters of one type, and the truth of each row beside them."""
    rng = np.random.default_rng([world.seed, 10 + ookla.TYPES.index(type)])
    rows = SIZES[world.size][ookla.TYPES.index(type)] / len(world.quarters)
    x, y, chance, strays = _places(world, type, rows, rng)
    # few country tiles have people in them and those recur in many quarters, as in the published data
    activity = rng.normal(0, SD_ACTIVITY, len(x))
    chance = np.minimum(chance * np.exp(activity - SD_ACTIVITY**2 / 2), 0.95)
    lon, lat = quadkey.centre(x, y)
    east, north = world.to_km(lon, lat)
    country, more = LOG_TESTS[type]
    log_tests = country + more * world.urbanness(east, north) + 0.2 * activity
    truths = []
    for quarter in world.quarters:
        here = np.flatnonzero(strays | (rng.random(len(x)) < chance))
        tests = np.maximum(1, np.exp(rng.normal(log_tests[here], SD_LOG_TESTS))).astype(np.int64)
        median = world.median_log10_kbps(lon[here], lat[here], quarter, type)
        sd = world.noise_sd(lon[here], lat[here], tests, type)
        keys = quadkey.encode(x[here], y[here])
        truths.append(
            pa.table(
                {
                    "quadkey": keys,
                    "quarter": np.full(len(here), quarter),
                    "median_log10_kbps": median,
                    "noise_sd": sd,
                }
            )
        )
        columns = _measured(median, sd, tests, world.urbanness(east[here], north[here]), rng)
        _write_quarter(folder / ookla.key(type, quarter), quarter, x[here], y[here], columns, rng)
    with atomic_path(folder / f"truth_{type}.parquet", overwrite=True) as temporary:
        pq.write_table(pa.concat_tables(truths), temporary, compression="zstd")


def _places(
    world: World, type: str, rows: float, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
    """Tiles that can be measured: indices, chance a quarter, and which are strays outside the state."""
    land = world.land()
    west, south, east, north = land.bounds
    (x0, x1), (y1, y0) = quadkey.tile_of([west, east], [south, north])
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(x0, x1 + 1), np.arange(y0, y1 + 1)))
    able = rng.random(len(x)) < CANDIDATES[world.size]
    x, y = x[able], y[able]
    lon, lat = quadkey.centre(x, y)
    shapely.prepare(land)
    dry = shapely.contains_xy(land, lon, lat)
    wet = np.flatnonzero(~dry)
    sea = rng.choice(wet, size=max(3, round(rows / 200)), replace=False)
    islet = quadkey.tile_of(*world.islet().centroid.coords[0])
    strays = np.stack([np.append(x[sea], islet[0]), np.append(y[sea], islet[1])])
    x, y, lon, lat = x[dry], y[dry], lon[dry], lat[dry]
    east_km, north_km = world.to_km(lon, lat)
    city = world.urbanness(east_km, north_km)
    road = (world.road_distance_km(east_km, north_km) < 0.8) * (1 - city)
    # towards the middle of a city tiles are measured more often
    middle = sum(np.exp(-np.square(c.reach(east_km, north_km)) / 0.5) for c in world.cities)
    parts = (city * (0.3 + middle), road, (1 - city) * (1 - road))
    wanted = sum(share * rows * part / part.sum() for share, part in zip(SHARES[type], parts, strict=True))
    outside = np.zeros(len(x) + strays.shape[1], bool)
    outside[len(x) :] = True
    chance = np.concatenate([np.asarray(wanted), np.zeros(strays.shape[1])])
    return np.append(x, strays[0]), np.append(y, strays[1]), chance, outside


def _measured(
    median: NDArray[np.float64],
    sd: NDArray[np.float64],
    tests: NDArray[np.int64],
    urbanness: NDArray[np.float64],
    rng: np.random.Generator,
) -> dict[str, NDArray[np.int64]]:
    """The published columns: whole kbit/s and ms, means over the tests of a tile."""
    shared = rng.standard_normal(len(median))
    own = 0.5 * shared + np.sqrt(0.75) * rng.standard_normal(len(median))
    latency = 1.65 - 0.35 * urbanness + np.sqrt(0.01 + 0.06 / tests) * rng.standard_normal(len(median))
    loaded = 1 + rng.gamma(4.0, 0.5, (2, len(median)))
    return {
        "avg_d_kbps": _whole(10 ** (median + sd * shared)),
        "avg_u_kbps": _whole(10 ** (0.9 * median - 0.15 + sd * own)),
        "avg_lat_ms": _whole(10**latency),
        "avg_lat_down_ms": _whole(10**latency * loaded[0]),
        "avg_lat_up_ms": _whole(10**latency * loaded[1]),
        "tests": tests,
        "devices": np.maximum(1, np.round(tests * rng.uniform(0.35, 0.9, len(tests)))).astype(np.int64),
    }


def _whole(values: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.maximum(1, np.round(values)).astype(np.int64)


def _write_quarter(
    path: Path,
    quarter: str,
    x: NDArray[np.int64],
    y: NDArray[np.int64],
    columns: dict[str, NDArray[np.int64]],
    rng: np.random.Generator,
) -> None:
    keys = quadkey.encode(x, y)
    order = rng.permutation(len(keys)) if quarter == UNSORTED_QUARTER else np.argsort(keys)
    lon, lat = quadkey.centre(x, y)
    none = pa.nulls(len(keys), pa.string())
    data: dict[str, pa.Array] = {
        "quadkey": pa.array(keys, pa.string()),
        "tile": none if quarter == NO_GEOMETRY_QUARTER else pa.array(_wkt(x, y), pa.string()),
    }
    if quarter >= TILE_XY_FROM:
        data |= {"tile_x": pa.array(lon), "tile_y": pa.array(lat)}
    for name, values in columns.items():
        if name not in ookla.OPTIONAL_COLUMNS:
            data[name] = pa.array(values, pa.int64())
        elif quarter >= LOADED_LATENCY_FROM:
            # a tenth of the tiles has no latency under load
            data[name] = pa.array(values, pa.int32(), mask=rng.random(len(values)) < 0.1)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path, overwrite=True) as temporary:
        pq.write_table(pa.table(data).take(pa.array(order)), temporary, row_group_size=ROW_GROUP_ROWS)


def _wkt(x: NDArray[np.int64], y: NDArray[np.int64]) -> list[str]:
    """Polygons as Ookla writes them: from the north-west corner, 14 significant digits."""
    return [
        f"POLYGON(({w:.14g} {n:.14g}, {e:.14g} {n:.14g}, {e:.14g} {s:.14g}, {w:.14g} {s:.14g}, {w:.14g} {n:.14g}))"
        for w, s, e, n in zip(*quadkey.bounds(x, y), strict=True)
    ]


def _write_states(world: World, path: Path) -> None:
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


def _write_urban(world: World, path: Path) -> None:
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
    x, y = world.to_km(*shapely.get_coordinates(shape.exterior if hasattr(shape, "exterior") else shape).T)
    return round(shapely.Polygon(np.stack([x, y], 1)).area * 1e6)


def _write_shapefile(columns: dict[str, Any], shapes: list[shapely.Geometry], path: Path) -> None:
    """A zipped shapefile in NAD83, byte for byte the same each time."""
    import geopandas

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
