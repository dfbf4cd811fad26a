"""The world's tiles, drawn from its truth and written as Ookla publishes them.

The oddities of the published files are there too: one quarter is not sorted, one has no geometry, columns
are added from 2022Q4 and 2023Q2 on, and some tiles lie at sea or in another state.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely
from numpy.typing import NDArray

from data_pipelines import quadkey, zorder
from data_pipelines.atomic import atomic_path
from data_pipelines.readers.mirror import key
from data_pipelines.readers.tiles import OPTIONAL_COLUMNS
from data_pipelines.sources.ookla import OOKLA
from data_pipelines.synthetic.world import SIZES, World

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


def write_tiles(world: World, folder: Path, type: str) -> None:
    """All quarters of one type, and the truth of each row beside them."""
    rng = np.random.default_rng([world.seed, 10 + OOKLA.types.index(type)])
    rows = SIZES[world.size][OOKLA.types.index(type)] / len(world.quarters)
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
        keys = zorder.quadkeys(x[here], y[here])
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
        _write_quarter(folder / key(type, quarter), quarter, x[here], y[here], columns, rng)
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
    keys = zorder.quadkeys(x, y)
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
        if name not in OPTIONAL_COLUMNS:
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
