"""From published quarters to one state's table: ours, geopandas and DuckDB, in turn, each in a process of its own.

    python -m benchmarks.ingest [--rows 7000000] [--quarters 29] [--rounds 2] [--quick] [--out ingest.json]

One quarter of the made-up world of `benchmarks.archive`, sorted by quadkey and in no order; a made-up state of the size of
Georgia. `many` reads so many quarters, links to one file. Peak memory is the process' own. geopandas reads all columns of points
at tile centres and joins them with the polygon (polygons of `tile` would take longer still); DuckDB without its spatial
extension, which is a download, selects the polygon's box by tile_x and tile_y, and geopandas joins what is left.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machine import in_fresh, write_text

QUARTER = "2023Q4"
#: Of a published quarter; quarters since 2019; times that each way has its turn.
ROWS, QUARTERS, ROUNDS = 7_000_000, 29, 2
#: Mean of the state's place and its half width and height, degrees; it is no box, but has a wavy edge of so many points.
MIDDLE, REACH, POINTS = (-83.4, 32.7), (1.9, 2.1), 2000


def state(folder: Path) -> Path:
    """A file of one polygon."""
    import geopandas
    import numpy as np
    import shapely

    path = folder / "state.gpkg"
    if not path.exists():
        turn = np.linspace(0, 2 * np.pi, POINTS, endpoint=False)
        wave = 1 + 0.05 * np.sin(40 * turn)
        ring = np.stack(
            [MIDDLE[0] + REACH[0] * wave * np.cos(turn), MIDDLE[1] + REACH[1] * wave * np.sin(turn)], 1
        )
        geopandas.GeoSeries([shapely.Polygon(ring)], crs=4326).to_file(path)
    return path


def ours(root: Path, quarters: str) -> int:
    """`geogp ingest`: rows whose tile meets the state."""
    from data_pipelines.observations import ingest

    with tempfile.TemporaryDirectory(prefix="geogp-bench-") as out:
        made = ingest(
            root=root, quarters=quarters, boundary=state(root.parent), output=Path(out) / "obs.parquet"
        )
        return made.rows_kept


def geopandas_join(root: Path, quarters: str) -> int:
    """`read_parquet` and `sjoin`: rows whose tile's centre lies in the state."""
    import geopandas
    import pandas as pd

    from data_pipelines.readers.mirror import key

    rows = pd.read_parquet(root / key("fixed", quarters))
    points = geopandas.GeoDataFrame(
        rows, geometry=geopandas.points_from_xy(rows.tile_x, rows.tile_y), crs=4326
    )
    return len(geopandas.sjoin(points, geopandas.read_file(state(root.parent)), predicate="within"))


def duckdb_box(root: Path, quarters: str) -> int:
    """DuckDB's pushed-down box, then geopandas: rows whose tile's centre lies in the state."""
    import duckdb
    import geopandas

    from data_pipelines.readers.mirror import key

    place = geopandas.read_file(state(root.parent))
    west, south, east, north = place.total_bounds
    duckdb.execute("SET threads = 1")
    rows = duckdb.execute(
        "SELECT quadkey, tile_x, tile_y, avg_d_kbps, avg_u_kbps, avg_lat_ms, tests, devices FROM read_parquet(?) "
        "WHERE tile_x BETWEEN ? AND ? AND tile_y BETWEEN ? AND ?",
        [str(root / key("fixed", quarters)), west, east, south, north],
    ).df()
    points = geopandas.GeoDataFrame(
        rows, geometry=geopandas.points_from_xy(rows.tile_x, rows.tile_y), crs=4326
    )
    return len(geopandas.sjoin(points, place, predicate="within"))


def sort(root: Path, quarters: str) -> int:
    """`geogp ingest --sort-into`."""
    from data_pipelines import archive

    return sum(one.rows for one in archive.sort_into(root.parent / "copy", root=root, quarters=quarters))


#: name -> how it is done, and the roots it is done with.
WAYS: dict[str, tuple[Callable[[Path, str], int], tuple[str, ...]]] = {
    "geogp": (ours, ("sorted", "unsorted", "copy")),
    "geopandas": (geopandas_join, ("sorted", "unsorted")),
    "duckdb": (duckdb_box, ("sorted", "unsorted")),
}


def once(way: Callable[[Path, str], int], root: Path, quarters: str) -> dict[str, Any]:
    """One reading, timed from before its libraries are imported."""
    started, cpu = time.perf_counter(), time.process_time()
    rows = way(root, quarters)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    peak = next(
        int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line
    )
    return {
        "rows": rows,
        "seconds": round(seconds, 2),
        "cpu seconds": round(cpu, 2),
        "peak MB": round(peak / 1024),
    }


def rounds(folder: Path, n: int, many: int, size: int) -> list[dict[str, Any]]:
    """All ways in turn, `n` times; then many quarters with ours."""
    from benchmarks import archive
    from data_pipelines.quarters import parse
    from data_pipelines.readers.mirror import key

    for kind in archive.KINDS:
        if not (path := folder / kind / key("fixed", QUARTER)).exists():
            archive.write(path, kind, size)
    state(folder)
    found = [_told("sort", "unsorted", QUARTER, folder)]
    for _ in range(n):
        found += [_told(name, root, QUARTER, folder) for name, (_, roots) in WAYS.items() for root in roots]
    if many > 1:
        quarters = parse("2019Q1..2035Q4")[:many]
        for root in ("sorted", "unsorted", "copy"):
            archive.link(folder / root / key("fixed", QUARTER), folder / root, quarters)
            found.append(_told("geogp", root, f"{quarters[0]}..{quarters[-1]}", folder))
    return found


def _told(name: str, root: str, quarters: str, folder: Path) -> dict[str, Any]:
    told = in_fresh("benchmarks.ingest", "--one", name, "--root", str(folder / root), "--ask", quarters)
    row = {"way": name, "file": root, "quarters": quarters}
    row |= {"problem": told} if isinstance(told, str) else told
    print(*row.values(), file=sys.stderr)
    return row


def best(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the repeats of a thing, that of the fewest processor seconds."""
    done: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        which = (row["way"], row["file"], row["quarters"])
        if which not in done or row.get("cpu seconds", 1e9) < done[which].get("cpu seconds", 1e9):
            done[which] = row
    return list(done.values())


def measured(
    quick: bool, size: int = ROWS, many: int = QUARTERS, n: int = ROUNDS, folder: Path | None = None
) -> list[dict[str, Any]]:
    """The best of the rounds, of files that are made in a folder (None: a temporary one) unless they are there."""
    if quick:
        size, many, n = 20_000, 2, 1
    with tempfile.TemporaryDirectory(prefix="geogp-bench-") as temporary:
        return best(rounds(folder or Path(temporary), n, many, size))


def main(argv: list[str] | None = None) -> None:
    """Make the world, time, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest", description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--quarters", type=int, default=QUARTERS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="smallest sizes: does it run?")
    parser.add_argument(
        "--folder", type=Path, default=None, help="that keeps the made-up files; default: a temporary one"
    )
    parser.add_argument("--out", type=Path, default=None, help="also write the rows as JSON")
    for hidden in ("--one", "--root", "--ask"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.one:
        way = sort if given.one == "sort" else WAYS[given.one][0]
        write_text(given.out, json.dumps(once(way, Path(given.root), given.ask)))
        return
    from benchmarks.tables import markdown  # and with it torch, which those who are timed do without

    rows = measured(given.quick, given.rows, given.quarters, given.rounds, given.folder)
    header = list(dict.fromkeys(key for row in rows for key in row))
    print("\n".join(markdown(header, [[str(row.get(key, "")) for key in header] for row in rows])))
    if given.out:
        write_text(given.out, json.dumps({"schema": 1, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
