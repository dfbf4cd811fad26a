"""The real mirror and real Census files, where GEOGP_DATA points at them."""

import os
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from data_pipelines.errors import DataWarning
from data_pipelines.observations import for_target, ingest, read
from data_pipelines.splits import make_split

DATA = os.environ.get("GEOGP_DATA")
pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not DATA, reason="GEOGP_DATA does not point at the real files"),
]
ROOT = Path(DATA or ".")
STATES = ROOT / "census" / "cb_2018_us_state_500k.zip"
ALL = "2019Q1..2023Q4"


def run(output: Path, **place):
    return ingest(
        **{"root": ROOT / "ookla-open-data", "quarters": ALL, "states": STATES, "output": output, **place}
    )


@pytest.fixture(scope="module")
def hawaii(tmp_path_factory):
    started = time.perf_counter()
    urban = ROOT / "census" / "hawaii_urban_proxy_uac20_schema.zip"
    report = run(tmp_path_factory.mktemp("hi") / "hi.parquet", region="HI", urban=urban)
    return report, read(report.path)[0], time.perf_counter() - started


def test_hawaii_keeps_the_agreed_rows_in_time(hawaii):
    report, table, seconds = hawaii
    assert abs(table.num_rows - 85_518) <= 2
    assert seconds < 15
    assert report.metadata["dropped"]["undecodable_quadkey"] == report.metadata["dropped"]["duplicate"] == 0
    assert for_target(table, "download_mbps", positive=True)[0].all()


def test_hawaii_agrees_with_the_agreed_splits_and_labels(hawaii):
    _, table, _ = hawaii
    file = ROOT / "splits" / "hawaii_fixed.parquet"
    agreed = pq.ParquetFile(file).read().to_pandas()
    ours = table.select(["quadkey", "quarter", "urban"]).to_pandas()
    both = ours.merge(agreed, on=["quadkey", "quarter"], suffixes=("", "_agreed"), validate="1:1")
    assert len(both) == len(ours) == len(agreed)
    assert (both.urban.astype(bool) == both.urban_agreed).all()
    for column in ("random", "block", "forward"):
        assert (make_split(table, f"{file}:{column}") == both[column].to_numpy()).all()
    assert (make_split(table, "forward") == both.forward.to_numpy()).all()


def test_mobile_and_a_state_across_180_degrees(tmp_path):
    with pytest.warns(DataWarning, match="2020Q2"):  # the mirror holds a part of that quarter
        mobile = run(tmp_path / "m.parquet", region="HI", type="mobile")
    assert mobile.rows_kept > 30_000 and "2020Q2" in mobile.metadata["thin_quarters"]
    alaska = run(tmp_path / "ak.parquet", region="AK")
    table = read(alaska.path)[0]
    assert alaska.rows_kept > 20_000
    # Anchorage, 300-400 km from the middle of Alaska and not half the Earth away
    assert np.abs(table.column("easting_m").to_numpy()).max() < 200_000
    assert (
        "across" not in str(alaska.metadata["boundary"])
        and alaska.metadata["boundary"]["type"] == "MultiPolygon"
    )


def test_a_box_about_the_azores(tmp_path):
    report = run(tmp_path / "azores.parquet", bbox=(-31.5, 36.8, -24.9, 39.9), states=None)
    assert report.rows_kept > 20_000 and report.metadata["boundary"] is None
