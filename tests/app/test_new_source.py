"""A source is one file and one line: those of a copy of the package with two more are known to every command."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr

import data_pipelines
from app.workflow.grids import grid_of
from app.workflow.steps.export import prediction
from geogp import storage
from geogp.run import load

FILE = '''
"""Gauges that are not there."""

from data_pipelines.sources.contract import Collected, Source


def collect(request):
    import numpy as np

    from data_pipelines import quadkey

    rng = np.random.default_rng(0)
    lon, lat = rng.uniform((5, 50), (6, 51), (300, 2)).T
    inside = request.place.holds_points(lon, lat)
    lon, lat, n = lon[inside], lat[inside], inside.sum()
    tiled = SOURCE.tiled
    return Collected(
        columns={
            "download_mbps" if tiled else "value": 30 + 5 * np.sin(6 * lon),
            "quarter": np.full(n, "2023Q4"),
            "tests": np.full(n, 3),
        },
        at=quadkey.tile_of(lon, lat) if tiled else (lon, lat),
        rows_read=300,
        dropped={"outside": int(300 - n)},
        sources=[],
        quarters=["2023Q4"],
    )


SOURCE = Source(
    words="gauges of the harbour",
    collect=collect,
    attribution="Harbour Office",
    licence="CC0",
    reference="https://example.org/gauges",
'''
#: name -> what else its entry says, options of its ingest, target
NEW = {
    "gauges": (
        "tiled=True, types=('sonar', 'radar')",
        ["--quarters", "2023Q4", "--type", "radar"],
        "download",
    ),
    "stations": ("tiled=False, takes_file=True", ["stations.txt"], "value"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A copy of the package with both."""
    folder = tmp_path_factory.mktemp("house")
    sources = (
        Path(shutil.copytree(Path(data_pipelines.__file__).parent, folder / "data_pipelines")) / "sources"
    )
    for name, (entry, *_) in NEW.items():
        (sources / f"{name}.py").write_text(f"{FILE}    {entry},\n)\n", encoding="utf-8")
        with (sources / "__init__.py").open("a", encoding="utf-8") as registry:
            registry.write(f"from data_pipelines.sources import {name}\nSOURCES['{name}'] = {name}.SOURCE\n")
    return folder


def geogp(folder: Path, *lines: list[object]) -> str:
    """What command lines print, one after the other in one process that sees the copy."""
    code = (
        "import json, sys, data_pipelines; from app.cli import main; print(data_pipelines.__file__);"
        "sys.exit(sum(main(line) for line in json.loads(sys.argv[1])))"
    )
    words = json.dumps([[str(word) for word in line] for line in lines])
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "1000"}
    command = [sys.executable, "-P", "-c", code, words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(folder))
    return done.stdout


def test_the_help_tells_of_them(folder):
    shown = geogp(folder, ["ingest", "--help"])
    assert "|gauges|stations>" in shown and "|sonar|radar>" in shown
    assert "gauges, gauges of the harbour; stations, gauges of the harbour." in " ".join(shown.split())
    assert "for --source csv, geoparquet, stations (path or URL)" in shown


@pytest.mark.slow
def test_they_go_the_whole_way(folder):
    """Ingested, fitted, named as they want to be on the map; and only tiles are suggested as tiles."""
    tiny = ["--method", "dbk-silu", "--rank", 8, "--hidden", 8, "--epochs", 2, "--split", "none"]
    place = ["--bbox", 5.2, 50.2, 5.8, 50.8]
    grid = ["--format", "netcdf", "--layers", "median", "--resolution", 10000]
    lines: list[list[object]] = []
    for name, (_, options, goal) in NEW.items():
        table, run, out = (folder / name / part for part in ("obs.parquet", "run", "out"))
        table.parent.mkdir()
        lines += [
            ["ingest", "--source", name, *options, *place, "-o", table],
            ["fit", table, "--target", goal, *tiny, "-o", run],
            ["export", run, "-o", out, *grid],
            ["suggest", run, "-n", 2, "-o", folder / name / "next.geojson"],
        ]
    geogp(folder, *lines)
    for name, title in {"gauges": "Radar download speed", "stations": "Value"}.items():
        with xr.open_dataset(folder / name / "out" / "prediction.nc", engine="h5netcdf") as ds:
            assert ds.attrs["title"].startswith(title)
            assert ds.attrs["source"] == "Harbour Office (CC0); GeoGP method dbk-silu"
            assert ds.attrs["references"] == "https://example.org/gauges"
        found = json.loads((folder / name / "next.geojson").read_text(encoding="utf-8"))["features"]
        assert [("quadkey" in place["properties"]) for place in found] == [name == "gauges"] * 2


@pytest.mark.parametrize(
    ("name", "said"),
    [(None, "GeoGP method dbk-silu"), ("lidar", "lidar; GeoGP method dbk-silu")],
)
def test_nothing_is_invented_for_a_source_that_is_not_known(run, tmp_path, name, said):
    copy = shutil.copytree(run, tmp_path / "run")
    storage.update_facts(copy, {"data": {**load(run).facts["data"], "source": name}})
    loaded = load(copy)
    ds = prediction(loaded, grid_of(loaded, resolution_m=20_000))
    assert ds.attrs["source"] == said and "references" not in ds.attrs
