"""Mutations of good files, each read in a process that may die of it: what came of each.

`python -m tests.faults.fuzzing 1000 kept.json` prints, for every format, how many were read, refused, or worse; stopped, it
goes on where kept.json says that it came to.
"""

import faulthandler
import json
import multiprocessing
import resource
import shutil
import signal
import sys
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.limiting import one_thread

#: Address space of the reading process, beyond what it has when it starts; seconds for one file.
MOST_BYTES, MOST_SECONDS = 2 * 2**30, 5
TOKENS = (
    b"\x00" * 8,
    b"\xff" * 8,
    b"\x7f\xff\xff\xff",
    b"1e999",
    b"nan",
    b"-1",
    b"[[[[",
    b"}",
    b'"',
    b"9" * 30,
    b"",
)


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """The file with one to four bits flipped, a part cut out, doubled, overwritten, or its end gone."""
    out = bytearray(data)
    kind, n = rng.integers(0, 6), max(1, len(data))
    at = int(rng.integers(0, n))
    if rng.random() < 0.4:  # headers, footers and directories lie at the ends
        at = (
            int(rng.integers(0, min(n, 200)))
            if rng.random() < 0.4
            else n - 1 - int(rng.integers(0, min(n, 800)))
        )
    if kind <= 1:
        for _ in range(int(rng.integers(1, 5))):
            out[int(rng.integers(0, n)) if rng.random() < 0.5 else at] ^= 1 << int(rng.integers(0, 8))
    elif kind == 2:
        del out[at : at + int(rng.integers(1, 1 + n // 4))]
    elif kind == 3:
        out[at:at] = out[at : at + int(rng.integers(1, 200))]
    elif kind == 4:
        token = TOKENS[int(rng.integers(0, len(TOKENS)))]
        out[at : at + len(token)] = token
    else:
        out = out[:at]
    return bytes(out)


def mutated_json(value: Any, rng: np.random.Generator) -> Any:
    """The document with one value replaced by another kind of thing, or gone."""
    paths = list(_paths(value))
    path = paths[int(rng.integers(0, len(paths)))]
    odd = [None, -1, 0, 10**12, 1e308, "junk", "", [], {}, [1], {"a": 1}, True, "../../x", -0.5]
    out = json.loads(json.dumps(value))
    inner = out
    for key in path[:-1]:
        inner = inner[key]
    if rng.random() < 0.2 and isinstance(inner, dict):
        del inner[path[-1]]
    else:
        inner[path[-1]] = odd[int(rng.integers(0, len(odd)))]
    return out


def _paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*before, key)
        yield from _paths(inner, (*before, key))


@dataclass
class Outcome:
    """What became of a format's mutations: words of each kind -> how many, and the worst ones' seeds."""

    read: int = 0
    refused: int = 0
    bad: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        words = "; ".join(f"{n} x {what}" for what, n in self.bad.most_common(6))
        return f"{self.read} read, {self.refused} refused, {sum(self.bad.values())} other {words}".rstrip()


def play(make: Callable[[Path, int], Any], read: Callable[[Any], Any], n: int, first: int = 0) -> Outcome:
    """Make mutation number i with `make(folder, i)` and hand what it gives to `read`, for n numbers."""
    out = Outcome()
    i = first
    while i < first + n:
        told, tell = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(
            target=_child, args=(make, read, i, first + n, tell)
        )
        process.start()
        tell.close()
        at = i
        while True:
            if not told.poll(2 * MOST_SECONDS):
                out.bad[f"hangs at {at}"] += 1
                process.kill()
                i = at + 1
                break
            try:
                at, what = told.recv()
            except EOFError:
                process.join()
                if process.exitcode:
                    out.bad[f"signal {signal.Signals(-process.exitcode).name} at {at}"] += 1
                i = at + 1
                break
            if what == "read":
                out.read += 1
            elif what == "refused":
                out.refused += 1
            elif what != "begun":
                out.bad[what] += 1
            i = at + 1 if what != "begun" else at
        process.join()
    return out


def _child(make: Any, read: Any, start: int, stop: int, tell: Any) -> None:
    one_thread()
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MOST_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    faulthandler.disable()
    for i in range(start, stop):
        tell.send((i, "begun"))
        folder = Path(tempfile.mkdtemp())
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            read(make(folder, i))
            what = "read"
        except Exception as error:
            text = str(error)
            known = getattr(error, "exit_code", None) in (1, 2, 3)
            sentence = 0 < len(text) < 2000
            what = "refused" if known and sentence else _where(error)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        tell.send((i, what))


def _where(error: Exception) -> str:
    frame, trace = "", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if (
            any(f"/{p}/" in name for p in ("app", "geogp", "maps", "data_pipelines"))
            and "site-packages" not in name
        ):
            frame = f"{Path(name).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__} in {frame}: {str(error)[:60]!r}"


def formats(seeds: Path) -> dict[str, tuple[Callable[[Path, int], Any], Callable[[Any], Any]]]:
    """For each format what makes a mutation and what reads it; `seeds` from `write_seeds`."""
    from app.config import fit_config
    from app.workflow.polygons import read_polygons
    from app.workflow.rows import read_rows
    from data_pipelines.census import boundary
    from data_pipelines.observations import ingest
    from geogp.run import load
    from geogp.storage import write_sums
    from maps.grid import geobox_like
    from maps.reader import open_raster

    def of(name: str) -> Callable[[Path, int], Path]:
        data = (seeds / name).read_bytes()

        def make(folder: Path, i: int) -> Path:
            (folder / name).write_bytes(mutated(data, np.random.default_rng([i, zlib.crc32(name.encode())])))
            return folder / name

        return make

    def points(source: str) -> Callable[[Path], Any]:
        columns = {"x": "lon", "y": "lat", "value": "v", "time": "t"}

        def read(path: Path) -> Any:
            return ingest(source=source, file=path, columns=columns, output=path.with_name("out.parquet"))

        return read

    def raster(path: Path) -> None:
        geobox_like(path)
        open_raster(path).values.sum()

    def vectors(path: Path) -> None:
        boundary(path)
        read_polygons(path)

    facts = json.loads((seeds / "run/run.json").read_text())
    weights = (seeds / "run/weights.safetensors").read_bytes()

    def run(folder: Path, i: int) -> Path:
        rng = np.random.default_rng([i, 7])
        path = Path(shutil.copytree(seeds / "run", folder / "run"))
        document = facts
        if i % 3:
            document = mutated_json({k: v for k, v in facts.items() if k != "files"}, rng)
        else:
            (path / "weights.safetensors").write_bytes(mutated(weights, rng))
        (path / "run.json").write_text(json.dumps({k: v for k, v in document.items() if k != "files"}))
        write_sums(path)
        return path

    def asked(path: Path) -> None:
        run = load(path)
        places = run.from_degrees(-159.0, 21.0) + np.arange(6)[:, None]
        run.model.predictive(run.inputs(places)).interval(0.95)
        repr((run.target, run.unit, run.quarters, run.thresholds, run.boundary))

    return {
        "parquet": (of("obs.parquet"), lambda path: read_rows(path, "value")),
        "geoparquet": (of("points.parquet"), points("geoparquet")),
        "csv": (of("points.csv"), points("csv")),
        "geojson": (of("areas.geojson"), vectors),
        "shapefile zip": (of("areas.zip"), vectors),
        "geotiff": (of("raster.tif"), raster),
        "toml": (of("run.toml"), lambda path: fit_config(path, {}, {})),
        "run folder": (run, asked),
    }


def write_seeds(folder: Path) -> None:
    """Small good files of each format."""
    import geopandas
    import rasterio
    import shapely

    import geogp
    from data_pipelines.observations import ingest
    from geogp.run import save

    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(-160, -158, 60), rng.uniform(20, 22, 60)
    rows = [f"{a:.5f},{b:.5f},{10 + i % 7},2023-0{1 + i % 9}-15" for i, (a, b) in enumerate(zip(lon, lat))]
    (folder / "points.csv").write_text("lon,lat,v,t\n" + "\n".join(rows) + "\n")
    columns = {"x": "lon", "y": "lat", "value": "v", "time": "t"}
    ingest(source="csv", file=folder / "points.csv", columns=columns, output=folder / "obs.parquet")
    import pandas as pd

    pd.read_csv(folder / "points.csv").to_parquet(folder / "points.parquet")
    shapes = [shapely.Point(-159 + i / 4, 21).buffer(0.1) for i in range(3)]
    frame = geopandas.GeoDataFrame({"name": ["a", "b", "c"]}, geometry=shapes, crs=4326)
    frame.to_file(folder / "areas.geojson")
    frame.to_file(folder / "areas.shz", driver="ESRI Shapefile")
    (folder / "areas.shz").rename(folder / "areas.zip")
    with rasterio.open(
        folder / "raster.tif", "w", driver="GTiff", width=40, height=30, count=1, dtype="float32", crs="EPSG:4326",
        transform=rasterio.transform.from_bounds(-160, 20, -158, 22, 40, 30), compress="deflate",
    ) as out:  # fmt: skip
        out.write(rng.uniform(1, 9, (30, 40)).astype("float32"), 1)
    (folder / "run.toml").write_text(
        'target = "download"\nmethod = "dbk-rbf"\nsplit = "block"\nseed = 3\n\n[model]\nrank = 256\nsteps = 3000\n'
    )
    X = np.column_stack([rng.uniform(0, 10_000, (80, 2))])
    model = geogp.GPRegressor("dbk-rbf", rank=8, hidden=8, epochs=1, batch_size=64)
    model.fit(
        X, np.sin(X[:, 0] / 2000) + 0.2 * rng.standard_normal(80), rng.integers(1, 50, 80).astype(float)
    )
    data = {
        "crs": "EPSG:32604",
        "quarters": ["2023Q4"],
        "sha256": "0" * 64,
        "value_unit": "m",
        "boundary": None,
    }
    save(folder / "run", model, {"target": "value", "method": "dbk-rbf", "data": data})


#: Mutations between two notes of how far it came.
BLOCK = 200


def play_on(kept: Path, name: str, make: Any, read: Any, n: int) -> dict[str, Any]:
    """`play` in blocks, from where the file `kept` says that it came to: {format: {"played", "read", "refused", "bad"}}."""
    while True:
        document = json.loads(kept.read_text()) if kept.exists() else {}
        so_far = document.setdefault(name, {"played": 0, "read": 0, "refused": 0, "bad": {}})
        more = min(BLOCK, n - so_far["played"])
        if more <= 0:
            return so_far
        found = play(make, read, more, so_far["played"])
        document[name] = {
            "played": so_far["played"] + more,
            "read": so_far["read"] + found.read,
            "refused": so_far["refused"] + found.refused,
            "bad": dict(Counter(so_far["bad"]) + found.bad),
        }
        beside = kept.with_suffix(".part")
        beside.write_text(json.dumps(document, indent=1) + "\n")
        beside.replace(kept)


def main(arguments: list[str]) -> None:
    """`N KEPT.json [FORMAT ..]`: N mutations of each format; stopped, the same command goes on."""
    n, kept, *names = arguments
    with tempfile.TemporaryDirectory() as place:
        write_seeds(Path(place))
        for name, (make, read) in formats(Path(place)).items():
            if not names or name in names:
                done = play_on(Path(kept), name, make, read, int(n))
                words = "; ".join(f"{times} x {what}" for what, times in done["bad"].items()) or "no other"
                print(
                    f"{name}: {done['played']} played, {done['read']} read, {done['refused']} refused, {words}",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1:])
