"""A table that the memory allowed does not hold is fitted in parts, to a run like any other."""

import json

import numpy as np
import pytest

from app.workflow.fitting import parts
from app.workflow.fitting.parts import Parts, rows_at_once
from app.workflow.rows import read_rows
from app.workflow.steps import fit as step
from data_pipelines.geoparquet import read_groups
from geogp.run import load
from geogp.update import STATISTICS, way

METHOD = "dbk-silu"
SMALL = {"rank": 8, "hidden": 8, "epochs": 2, "fourier_scales": [1.0]}


@pytest.fixture(scope="module")
def fitted(table, tmp_path_factory):
    """A run of rows read in parts, of which a tenth may lie in memory at once."""
    out = tmp_path_factory.mktemp("parts") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "rows_at_once", lambda *asked: 2000)
        step.fit(table, output=out, method=METHOD, model=SMALL, max_memory=2**30)
    return out


def test_the_rows_are_those_of_memory(table):
    whole, read = read_rows(table, "download"), Parts.of(table, "download", "tests", {}, seed=0)
    assert read.manifest() == whole.manifest() and read.n_rows == whole.n_rows
    assert {k: v for k, v in read.dropped.items() if v} == {k: v for k, v in whole.dropped.items() if v}
    assert read.counted_as_one == whole.counted_as_one and read.has_time and len(read.sizes) > 2
    np.testing.assert_array_equal(read.usable, whole.usable)
    np.testing.assert_array_equal(read.split()["quarter"].numpy(), whole.quarter_codes)
    groups = read.groups(read.usable)
    found = [np.concatenate(columns) for columns in zip(*(groups.read(g) for g in range(len(groups.sizes))))]
    for given, expected in zip(found, whole.select(whole.usable)):
        np.testing.assert_array_equal(given, expected)
    assert groups.sizes == [len(groups.read(g)[1]) for g in range(len(groups.sizes))]
    assert len(read.held) == int(whole.usable.sum()) // 10 and whole.usable[read.held].all()


def test_its_run_knows_what_it_learned_from(fitted, table):
    run, rows = load(fitted), read_rows(table, "download")
    split, support = run.tensors("split"), run.tensors("support")
    kept = split["fitted"].numpy()
    assert (
        kept.sum()
        == run.facts["rows"]["fitted"]
        == run.model.n_rows_
        == rows.usable.sum() - rows.usable.sum() // 10
    )
    assert not (kept & ~rows.usable).any() and (split["part"] == 0).all()
    np.testing.assert_array_equal(support["positions_m"].numpy(), rows.places_m(kept))
    labels, counts = np.unique(rows.labels[kept], return_counts=True)
    assert run.facts["rows"]["known"] == dict(zip(labels.tolist(), counts.tolist()))
    where = {tuple(place): k for k, place in enumerate(support["positions_m"].numpy())}
    for label, column in zip(labels, support["here"].numpy().T):
        there = {where[tuple(place)] for place in rows.X[kept & (rows.labels == label), :2]}
        assert set(np.flatnonzero(column)) == there
    assert run.facts["arguments"]["rows_at_once"] == 2000 and run.facts["data"] == rows.manifest()


def test_it_predicts_and_is_updated_as_any_other(cli, fitted, table, tmp_path):
    run, rows = load(fitted), read_rows(table, "download")
    assert way(run.model) == STATISTICS
    error = run.model.predict(rows.X[rows.usable]) - rows.t[rows.usable]
    assert np.sqrt(np.mean(error**2)) < 0.95 * rows.t[rows.usable].std()
    made = cli("update", fitted, "--forget", run.quarters[0], "-o", tmp_path / "newer")
    assert made.code == 0, made.err
    assert run.quarters[0] not in load(tmp_path / "newer").facts["rows"]["known"]


def test_a_fit_in_parts_is_deterministic(fitted, table, tmp_path, monkeypatch):
    monkeypatch.setattr(step, "rows_at_once", lambda *asked: 2000)
    again = step.fit(table, output=tmp_path / "again", method=METHOD, model=SMALL, max_memory=2**30)
    assert again.run.weights_sha256 == load(fitted).weights_sha256


def test_what_fits_is_not_read_in_parts(table, monkeypatch):
    monkeypatch.setattr(parts, "resident", lambda name: 100 * 2**20)
    n, sizes = 10_000_000, [2**16] * 153
    monkeypatch.setattr(parts, "read_groups", lambda path: ([*sizes, n - sum(sizes)], None, {}))
    assert rows_at_once(table, "geogp", None) is None and rows_at_once(table, "geogp", 8 * 2**30) is None
    most = rows_at_once(table, METHOD, 2**30)
    assert most is not None and 2**16 <= most < n
    held = 100 * 2**20 + parts.WORK + parts.NOTED * n + parts.SHUFFLED * most
    assert 2**30 - parts.SHUFFLED < held <= 2**30
    with pytest.raises(ValueError, match="reads its table in parts: dbk-silu"):
        rows_at_once(table, "geogp", 2**30)
    with pytest.raises(ValueError, match=r"read in parts it takes about 5.. MiB"):
        rows_at_once(table, METHOD, 400 * 2**20)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (("--method", "geogp", "--max-memory", "2MiB"), "takes about"),
        (("--method", METHOD, "--max-memory", "2MiB"), "read in parts it takes about"),
        (("--method", METHOD, "--max-memory", "much"), "is a size such as 2GiB"),
    ],
)
def test_too_little_memory_is_said_in_one_sentence(cli, table, said, words, tmp_path):
    made = cli("fit", table, *said, "-o", tmp_path / "run")
    assert made.code in (2, 3) and words in made.err and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (("--split", "random"), "--split random"),
        (("--refit", "train+val"), "--refit train+val"),
        (("--predictor", "mean.tif"), "--predictor mean.tif"),
        (("--covariates", "height=dem.tif"), "no rasters"),
        (("--covariates", "height"), "no column height"),
    ],
)
def test_what_asks_for_all_rows_is_refused(cli, table, said, words, tmp_path, monkeypatch):
    monkeypatch.setattr(step, "rows_at_once", lambda *asked: 2000)
    made = cli("fit", table, "--max-memory", "1GiB", "--method", METHOD, *said, "-o", tmp_path / "run")
    assert made.code == 3 and words in made.err and not list(tmp_path.iterdir())


def test_groups_are_read_as_they_lie(table):
    sizes, read, metadata = read_groups(table)
    assert json.dumps(metadata) and sum(sizes) == read_rows(table, "download").n_rows
    assert read(0, {"tests", "lon", "nothing"}).column_names == ["lon", "tests"]
    assert "geometry" not in read(1, None).column_names and read(1, None).num_rows == sizes[1]
