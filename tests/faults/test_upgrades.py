"""What earlier versions wrote opens in this one, and says what it said."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import geogp
from app.workflow import update
from app.workflow.grids import grid_of
from app.workflow.rows import read_rows
from data_pipelines.observations import read

DATA = Path(__file__).parents[1] / "data"
WRITTEN = sorted(DATA.glob("written-*.zip"))
#: Of a prediction's sd. A field's places may lean on other neighbours than they did before cells shared them.
WITHIN = {"dbk-silu": 1e-6, "geogp": 0.35}


@pytest.fixture(params=WRITTEN, ids=lambda path: path.stem)
def before(request, tmp_path: Path) -> Path:
    """The folder of one version's files."""
    with zipfile.ZipFile(request.param) as file:
        file.extractall(tmp_path)
    return tmp_path


def test_there_is_one_of_each_and_all_are_small() -> None:
    assert len(WRITTEN) >= 4 and all(path.stat().st_size < 200_000 for path in WRITTEN)


def test_a_table_of_before_is_read(before) -> None:
    table, metadata = read(before / "obs.parquet")
    rows = read_rows(before / "obs.parquet", "value")
    assert table.num_rows == rows.usable.sum() == 160 and metadata["targets"] == ["value"]
    assert rows.quarters[0] == "2022Q1" and rows.X.shape == (160, 3)


@pytest.mark.parametrize("method", ["geogp", "dbk-silu"])
def test_a_run_of_before_predicts_what_it_did(before, method) -> None:
    run = geogp.load(before / method)
    said = {k: np.array(v) for k, v in json.loads((before / "expected.json").read_text())[method].items()}
    mean, sd = run.model.predict(said["X"], return_std=True)
    lower, upper = run.model.interval(said["X"], level=0.95)
    for name, now in (("mean", mean), ("sd", sd), ("lower", lower), ("upper", upper)):
        assert np.abs(now - said[name]).max() <= WITHIN[method] * said["sd"].max(), name


@pytest.mark.parametrize("method", ["geogp", "dbk-silu"])
@pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")
def test_a_run_of_before_is_mapped_and_updated(before, method) -> None:
    run = geogp.load(before / method)
    grid = grid_of(run, resolution_m=4000.0)
    ds = geogp.predict(run, grid.geobox)
    assert np.isfinite(ds["median"].values).all() and (ds["pi_width"].values > 0).all()
    after = update(before / method, forget="2022Q1", output=before / "after")
    assert "2022Q1" not in after.known and sum(after.known.values()) < 160
