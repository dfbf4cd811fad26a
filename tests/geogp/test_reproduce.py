"""The reproductions run, are plain data, and say what the paper says."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import importlib
import json
import math
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geogp.reproduce import REPRODUCTIONS, run
from geogp.reproduce.one_dimensional import draw, nll, truth

DATA = os.environ.get("GEOGP_DATA")


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_every_name_leads_to_a_function(name):
    module, function = REPRODUCTIONS[name].split(":")
    assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize("name", ["dbk-fig5", "lowrank-fig1", "fmgp-fig1", "softki-ricker"])
def test_a_quick_run_gives_a_table_and_panels(name):
    result = run(name, quick=True)
    json.dumps(result.to_dict())
    assert result.name == name and result.rows and result.notes and result.panels
    assert all(len(row) == len(result.columns) for row in result.rows)
    text = result.markdown()
    assert all(column in text for column in result.columns)
    for panel in result.panels:
        for line in panel.lines:
            assert len(line.x) == len(line.y) == len(line.band or line.y)
    if name == "fmgp-fig1":
        kept = {row[0]: row[-1] for row in result.rows}
        assert kept["FMGP"] == "yes" and kept["GP"] == "no"
    if name == "lowrank-fig1":  # the rank grows with D, and Fourier features need more of it
        first, last = result.rows[0], result.rows[-1]
        assert last[2] > first[2] and all(row[4] >= row[2] for row in result.rows)


def test_the_printed_noise_cannot_give_the_printed_number():
    x = np.random.default_rng(0).uniform(-1, 1, 200_000)
    mean, sd = truth(x)
    y = mean + sd * np.random.default_rng(1).standard_normal(len(x))
    # The sd of the mean of 200,000 log densities of spread below 2 is .005.
    assert nll(y, mean, sd) == pytest.approx(-0.24, abs=0.03)
    assert nll(mean + 5 * (y - mean), mean, 5 * sd) == pytest.approx(1.37, abs=0.03)
    assert draw(5, 0)[0].shape == (5, 1)


def test_table_2_of_any_region(tmp_path):
    rng = np.random.default_rng(0)
    n = 300
    table = pa.table(
        {
            "lon": rng.uniform(-84, -83, n),
            "lat": rng.uniform(33, 34, n),
            "urban": rng.uniform(size=n) < 0.5,
            "region": ["GA"] * n,
            "download_mbps": np.exp(rng.normal(3, 1, n)),
            "upload_mbps": np.exp(rng.normal(2, 1, n)),
        }
    )
    pq.write_table(table, tmp_path / "obs.parquet")
    result = run("dbk-table2", quick=True, observations=tmp_path / "obs.parquet", targets=("download",))
    by_method = {row[2]: row for row in result.rows}
    assert set(by_method) == {"sv-rbf", "sv-dkl", "dbk-silu"}
    assert by_method["dbk-silu"][result.columns.index("paper urban MAE")] == 0.512
    assert all(math.isfinite(v) for v in by_method["dbk-silu"][3:])


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    with pytest.raises(geogp.InvalidInput, match="there is no reproduction 'nope'"):
        run("nope")
    with pytest.raises(geogp.InvalidInput, match="GEOGP_DATA"):
        run("dbk-table1", data=tmp_path, quick=True)
    monkeypatch.delenv("GEOGP_OBSERVATIONS", raising=False)
    with pytest.raises(geogp.InvalidInput, match="needs a table"):
        run("dbk-table2")
    with pytest.raises(geogp.InvalidInput, match="no table"):
        run("dbk-table2", observations=tmp_path / "absent.parquet")


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="needs the UCI files: set GEOGP_DATA to the folder that holds uci/")
@pytest.mark.parametrize("name", ["dbk-table1", "dbk-fig6", "lowrank-table1", "softki-table1"])
def test_a_quick_run_on_the_uci_files(name):
    result = run(name, quick=True)
    assert result.rows
    json.dumps(result.to_dict())
