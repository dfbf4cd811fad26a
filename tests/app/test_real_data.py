"""The main job on real tiles, as far as they lie under GEOGP_DATA."""

import json
import os
import time
from pathlib import Path

import pytest
import rasterio

pytestmark = [
    pytest.mark.data,
    pytest.mark.slow,
    pytest.mark.skipif(
        "GEOGP_DATA" not in os.environ, reason="GEOGP_DATA does not name a folder with the real files"
    ),
]


@pytest.mark.timeout(900)
def test_hawaii_from_files_to_maps(cli, tmp_path):
    data = Path(os.environ["GEOGP_DATA"])
    table, run, out = tmp_path / "hi.parquet", tmp_path / "run", tmp_path / "out"
    started = time.process_time()
    result = cli(
        "ingest", "--source", "ookla", "--root", data / "ookla-open-data", "--type", "fixed",
        "--quarters", "2019Q1..2023Q4", "--region", "HI", "--states", data / "census/cb_2018_us_state_500k.zip",
        "--urban", data / "census/hawaii_urban_proxy_uac20_schema.zip", "-o", table,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert time.process_time() - started < 15
    split = f"{data / 'splits/hawaii_fixed.parquet'}:random"
    fit = ("fit", table, "--method", "dbk-rbf", "--target", "download", "--split", split, "--steps", 1500)
    assert cli(*fit, "-o", run).code == 0
    rows = json.loads((run / "run.json").read_text())["rows"]
    assert abs(rows["read"] - 85_518) <= 2
    document = json.loads(cli("evaluate", run, "--json").out)
    assert document["scores"]["nll"] <= 1.12
    assert 0.93 <= document["scores"]["coverage95"] <= 0.97
    for name in ("urban", "rural"):
        assert 0.92 <= document["strata"][name]["coverage95"] <= 0.98
    assert cli("export", run, "-o", out, "--format", "cog,netcdf", "--resolution", 2000).code == 0
    with rasterio.open(out / "median.tif") as src:
        assert src.crs is not None and src.read(1, masked=True).count() > 3000
    slice_ = cli("slice", run, "--at", "-157.86", "21.31", "-o", tmp_path / "slice.tif", "--resolution", 2000)
    assert slice_.code == 0
