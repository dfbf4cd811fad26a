"""The reproductions run, are plain data, and say what the paper says."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import importlib
import json
import math
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from app.workflow.steps.reproduce import reproduce
from geogp.reproduce import REPRODUCTIONS, journal, mobile, run, uci
from geogp.reproduce.one_dimensional import draw, nll, truth
from geogp.reproduce.result import READING

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
        sd = {row[0]: dict(zip(result.columns[1:4], row[1:4])) for row in result.rows}
        for method in ("FMGP", "GP"):  # the figure's point: surer at the data than between the clusters
            assert sd[method]["sd in the gap"] > 1.5 * sd[method]["sd at data"]
    if name == "lowrank-fig1":  # the rank grows with D, and Fourier features need more of it
        first, last = result.rows[0], result.rows[-1]
        assert last[2] > first[2] and all(row[4] >= row[2] for row in result.rows)
        # "Gaussian kernels require lower rank [..] when compared with Matern kernels" (section 5.1)
        assert all(row[-1] > row[2] for row in result.rows)


def test_the_printed_noise_cannot_give_the_printed_number():
    x = np.random.default_rng(0).uniform(-1, 1, 200_000)
    mean, sd = truth(x)
    y = mean + sd * np.random.default_rng(1).standard_normal(len(x))
    # The sd of the mean of 200,000 log densities of spread below 2 is .005.
    assert nll(y, mean, sd) == pytest.approx(-0.24, abs=0.03)
    assert nll(mean + 5 * (y - mean), mean, 5 * sd) == pytest.approx(1.37, abs=0.03)
    assert draw(5, 0)[0].shape == (5, 1)


def test_table_2_of_any_region(tmp_path, monkeypatch):
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
    fitted = []

    class Kept(geogp.GPRegressor):
        def fit(self, *args, **keywords):
            fitted.append(self)
            return super().fit(*args, **keywords)

    monkeypatch.setattr(mobile, "GPRegressor", Kept)
    result = run("dbk-table2", quick=True, observations=tmp_path / "obs.parquet", targets=("download",))
    by_method = {row[2]: row for row in result.rows}
    # "We compare DBK-RBF trained with dPPGP against RBF and DKL" (section 4.3)
    assert set(by_method) == {"sv-rbf", "sv-dkl", "dbk-rbf"}
    assert by_method["dbk-rbf"][result.columns.index("paper urban MAE")] == 0.512
    assert all(math.isfinite(v) for v in by_method["dbk-rbf"][3:])
    # "longitude and latitude alone": two numbers a row into every network
    assert [model.engine_.model.encoder.n_outputs for model in fitted] == [2, 2, 2]


@pytest.fixture
def uci_folder(tmp_path):
    """A made-up set under the name of one of the paper's."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    # heavy tails, so that validation rows ask for a Student-t
    y = np.sin(X[:, 0]) + 0.3 * rng.standard_t(2.5, size=3000)
    columns = {f"x{i}": X[:, i] for i in range(3)}
    table = pa.table({**columns, "y": y, "test_splits": (np.arange(3000) % 3 == 0) * 7})
    for name in ("pol", "elevators", "protein"):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    return tmp_path


def test_each_method_of_the_softki_table_has_the_papers_points(uci_folder, monkeypatch):
    asked = []

    def measured(method, split, *, seed, **settings):
        asked.append((method, settings))
        return {"rmse": 1.0, "nll": 1.0, "seconds": 0.0}

    monkeypatch.setattr(uci, "measure", measured)
    result = run("softki-table1", data=uci_folder)
    # "m = 512 for SGPR and m = 1024 for SVGP" (section 5.1)
    points = {"softki": {"rank": 512}, "sgpr": {"rank": 512}, "sv-rbf": {"rank": 1024}}
    assert asked == 3 * list(points.items())
    assert {(row[1], row[2]) for row in result.rows} == {(m, s["rank"]) for m, s in points.items()}
    notes = " ".join(result.notes)
    assert "Matern-3/2" in notes and "RBF" in notes and "1,024 for SVGP" in notes


def test_a_gaussian_reading_stands_beside_the_student_t(uci_folder):
    split = uci.load("pol", 0, data=uci_folder)
    found = uci.measure("dbk-silu", split, epochs=8, rank=16, hidden=8)
    # Outliers cost a Gaussian more: by how much is the point of showing both.
    assert found["gaussian_nll"] > found["nll"] + 0.02
    plain = uci.measure("sv-rbf", split, epochs=2, rank=16)
    assert plain["gaussian_nll"] == plain["nll"]


def test_a_stopped_reproduction_goes_on_where_it_was(uci_folder, tmp_path, monkeypatch):
    """Of nine fits the fifth is interrupted; the second start makes five, and its files are those of an unbroken one."""
    made, stop = [], 5

    def fitted(method, split, seed, keywords, attempt):
        if len(made) + 1 == stop:
            raise KeyboardInterrupt
        made.append((method, split.name, seed))
        return {"rmse": float(len(made)), "nll": 0.1, "seconds": 1.0}

    monkeypatch.setattr(uci, "_measure", fitted)
    with pytest.raises(KeyboardInterrupt):
        reproduce("softki-table1", tmp_path, data=uci_folder)
    assert [file.name for file in tmp_path.iterdir() if file.suffix != ".parquet"] == [
        "softki-table1.part.jsonl"
    ]
    with (tmp_path / "softki-table1.part.jsonl").open("a") as file:
        file.write('["a line that was cut')
    stop = 0
    document = reproduce("softki-table1", tmp_path, data=uci_folder)
    assert len(made) == len(set(made)) == 9
    assert [row[3] for row in document["rows"]] == [float(k) for k in range(1, 10)]
    assert not list(tmp_path.glob("*.part.jsonl"))
    # Another seed is another measurement.
    reproduce("softki-table1", tmp_path / "other", data=uci_folder, seed=1)
    assert len(made) == 18


def test_what_is_kept_knows_a_split_by_its_content(uci_folder, tmp_path):
    """A journal taken to another machine goes on there; another file of the same name is another split."""
    there = tmp_path / "there"
    shutil.copytree(uci_folder, there)
    split = uci.load("pol", 0, data=there)
    assert split.name == uci.load("pol", 0, data=uci_folder).name and str(tmp_path) not in split.name
    table = pq.read_table(there / "pol.parquet")
    pq.write_table(table.set_column(3, "y", pc.add(table["y"], 1.0)), there / "pol.parquet")
    assert uci.load("pol", 0, data=there).name != split.name


def test_a_fit_that_was_stopped_goes_on_at_its_checkpoint(uci_folder, tmp_path, monkeypatch):
    split = uci.load("pol", 0, data=uci_folder)
    settings = {"epochs": 6, "rank": 8, "hidden": 8}
    whole = uci.measure("dbk-silu", split, **settings)
    monkeypatch.setattr(journal, "CHECKPOINT_SECONDS", 0.0)
    honest, epochs = journal.write_checkpoint, []

    def stops(folder, state, key):
        honest(folder, state, key)
        epochs.append(state["progress"].epoch)
        if len(epochs) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(journal, "write_checkpoint", stops)
    with journal.keeping(tmp_path / "kept.part.jsonl"):
        with pytest.raises(KeyboardInterrupt):
            uci.measure("dbk-silu", split, **settings)
        again = uci.measure("dbk-silu", split, **settings)
        assert len(epochs) == len(set(epochs)) == 6  # none twice
    assert {k: v for k, v in again.items() if k != "seconds"} == {
        k: v for k, v in whole.items() if k != "seconds"
    }
    assert [file.name for file in tmp_path.glob("kept*")] == ["kept.part.jsonl"]


@pytest.mark.parametrize("name", ["dbk-table1", "dbk-fig6"])
def test_tables_with_deep_bases_say_how_their_spread_is_read(name, uci_folder, monkeypatch):
    scores = dict.fromkeys(("nll", "gaussian_nll", "crps", "mae", "coverage95", "seconds"), 1.0)
    monkeypatch.setattr(uci, "measure", lambda *args, **keywords: scores)
    inputs = {"sets": ("pol",)} if name == "dbk-table1" else {}
    result = run(name, quick=True, data=uci_folder, **inputs)
    assert READING in result.notes and "Student-t" in READING
    assert name == "dbk-fig6" or "NLL, Gaussian" in result.columns


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
