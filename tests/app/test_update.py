"""`geogp update`: what a run knows afterwards, against the same rows solved at once; and that a refusal changes nothing."""

import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from app.errors import Interrupted
from app.workflow import evaluate, update
from app.workflow.rows import read_rows
from data_pipelines import geoparquet
from data_pipelines.observations import read
from geogp import storage
from geogp.basis.statistics import Statistic
from geogp.run import load
from geogp.storage import folders, staging
from geogp.update import recondition, refresh, summarise

TINY = ("--rank", "24", "--hidden", "16", "--epochs", "8", "-q")
FIELD = ("--set", "options={steps=20, n_targets=300, epochs=2, neighbours=24, metric=false}", "-q")


def fit(cli, table, path, method, *more):
    size = FIELD if method in ("geogp", "local-gp") else TINY
    result = cli("fit", table, "--method", method, "-o", path, *size, *more)
    assert result.code == 0, result.err
    return path


def contents(path):
    """Every file of a run, to the byte."""
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def early(table, tmp_path_factory):
    """The table without its last quarter."""
    whole, metadata = read(table)
    rows = whole.filter(pc.not_equal(whole.column("quarter"), "2023Q4"))
    path = tmp_path_factory.mktemp("early") / "early.parquet"
    geoparquet.write_parts([rows], lambda: metadata, path, overwrite=False)
    return path


@pytest.mark.parametrize("method", ["sgpr", "dbk-silu", "vbll"])
def test_forgotten_and_added_equal_the_same_rows_at_once(cli, table, early, tmp_path, method):
    path = fit(cli, early, tmp_path / "run", method, "--split", "random")
    before = load(path)
    rows, late = read_rows(early, "download"), read_rows(table, "download")
    result = cli("update", path, "--forget", "2022Q1,2022Q3", "--add", table, "--json")
    assert result.code == 0, result.err
    document = json.loads(result.out)
    assert set(document["added"]) == {"2023Q4"} and set(document["forgotten"]) == {"2022Q1", "2022Q3"}
    assert (
        "only what the run did not know" in document["notes"][0]
        and "forgot" in result.err
        and "added" in result.err
    )

    fitted = before.tensors("split")["fitted"].numpy() & ~np.isin(rows.labels, ["2022Q1", "2022Q3"])
    new = late.usable & (late.labels == "2023Q4")
    X, t, counts = (np.concatenate(pair) for pair in zip(rows.select(fitted), late.select(new)))
    scratch = refresh(before.model, summarise(before.model, X, t, counts).values())
    after = load(path)
    at = late.X[:300]
    for a, b in zip(after.model.predict(at, True, counts=3), scratch.predict(at, True, counts=3)):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)
    a, b = after.model.engine_.model.solved, scratch.engine_.model.solved
    np.testing.assert_allclose(a.mean, b.mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(a.scale_tril, b.scale_tril, rtol=0, atol=1e-9)
    assert np.abs(after.model.predict(at) - before.model.predict(at)).max() > 1e-4


def test_the_record_follows(cli, table, early, tmp_path):
    path = fit(cli, early, tmp_path / "run", "sgpr", "--split", "random")
    evaluate(path)
    before = load(path)
    assert sum(before.facts["rows"]["known"].values()) == before.facts["rows"]["fitted"]
    assert cli("update", path, "--add", table, "--forget", "2022Q1").code == 0
    run, rows = load(path), read_rows(table, "download")
    known = run.facts["rows"]["known"]
    assert list(known) == ["2022Q2", "2022Q3", "2022Q4", "2023Q1", "2023Q2", "2023Q3", "2023Q4"]
    assert known["2023Q4"] == int((rows.usable & (rows.labels == "2023Q4")).sum())
    assert run.facts["rows"]["fitted"] == sum(known.values()) == run.model.n_rows_
    assert run.facts["data"]["last_quarter"] == "2023Q4" and "2022Q1" not in run.facts["data"]["quarters"]
    assert run.facts["scores"] is None
    (step,) = run.facts["updates"]
    assert step["forgotten"] == {"2022Q1": before.facts["rows"]["known"]["2022Q1"]}
    assert step["from"] == {"path": str(table), "sha256": storage.sha256(table)} and step["time"]
    assert {p.stem for p in (path / "statistics").iterdir()} == set(known)
    total = sum(Statistic.from_tensors(run.tensors(f"statistics/{q}")).n_rows for q in known)
    assert total == sum(known.values())
    # Support: the places of exactly the rows known now.
    own = read_rows(early, "download")
    fitted = run.tensors("split")["fitted"].numpy() & (own.labels != "2022Q1")
    places = np.concatenate([own.X[fitted, :2], rows.X[rows.usable & (rows.labels == "2023Q4"), :2]])
    np.testing.assert_array_equal(run.tensors("support")["positions_m"].numpy(), np.unique(places, axis=0))
    # Held-out rows stay held out, and the run can be scored and mapped.
    assert evaluate(path).document["n_test"] == before.facts["rows"]["test"]
    assert (
        cli("export", path, "-o", tmp_path / "out", "--format", "netcdf", "--resolution", 9000, "-q").code
        == 0
    )


@pytest.mark.parametrize("method", ["sgpr", "local-gp"])
def test_forgotten_then_added_is_never_forgotten(cli, table, tmp_path, kernels_in_parts, method):
    path = fit(cli, table, tmp_path / "run", method, "--split", "random")
    first = load(path)
    at = read_rows(table, "download").X[:200]
    if method == "sgpr":  # a refresh of what is known already: the fit's own weights
        same = {
            q: Statistic.from_tensors(first.tensors(f"statistics/{q}")) for q in first.facts["rows"]["known"]
        }
        np.testing.assert_allclose(
            refresh(first.model, same.values()).predict(at), first.model.predict(at), atol=1e-9
        )
    fewer = tmp_path / "fewer"
    assert cli("update", path, "--forget", "2022Q2..2022Q4", "-o", fewer).code == 0
    assert contents(path) == contents(first.path)  # -o leaves the run alone
    assert cli("update", fewer, "--add", "2022Q3,2022Q4").code == 0
    assert cli("update", fewer, "--add", "2022Q2").code == 0
    back = load(fewer)
    assert back.facts["rows"]["known"] == first.facts["rows"]["known"] and len(back.facts["updates"]) == 3
    np.testing.assert_array_equal(
        back.tensors("support")["positions_m"], first.tensors("support")["positions_m"]
    )
    for a, b in zip(back.model.predict(at, True, counts=2), first.model.predict(at, True, counts=2)):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)


def test_a_field_is_told_a_new_quarter(cli, table, early, tmp_path, kernels_in_parts):
    path = fit(cli, early, tmp_path / "run", "geogp", "--split", "random")
    before, rows = load(path), read_rows(table, "download")
    assert not (path / "statistics").exists()
    assert cli("update", path, "--add", table, "--forget", "2022Q1").code == 0
    after = load(path)
    new = rows.usable & (rows.labels == "2023Q4")
    keep = before.model.engine_.field.seen.X[:, 2].numpy()
    told = recondition(before.model, *rows.select(new), keep=keep > keep.min())
    at = rows.X[:100]
    for a, b in zip(after.model.predict(at, True, counts=2), told.predict(at, True, counts=2)):
        np.testing.assert_array_equal(a, b)
    assert len(after.model.engine_.field.seen.X) == sum(after.facts["rows"]["known"].values())
    assert after.model.engine_.field.calibration == before.model.engine_.field.calibration


def test_held_out_quarters_can_be_learned_and_are_then_no_test(cli, table, tmp_path):
    path = fit(cli, table, tmp_path / "run", "sgpr", "--split", "forward")
    held = load(path).facts["rows"]
    result = cli("update", path, "--add", "2023Q4")
    assert result.code == 0 and "2023Q4, held out so far" in result.err
    rows = load(path).facts["rows"]
    assert rows["test"] == held["test"] - rows["known"]["2023Q4"] > 0 and rows["val"] == held["val"]
    assert evaluate(path).document["n_test"] == rows["test"]
    assert cli("update", path, "--add", table).code == 0  # the run's own file: whatever it does not know yet
    assert load(path).facts["rows"]["test"] == 0
    assert cli("evaluate", path).code == 3
    again = cli("update", path, "--add", table)
    assert again.code == 3 and "nothing to add" in again.err


def test_a_quarter_taken_from_another_file_spoils_its_test_rows(cli, table, early, tmp_path):
    """The other file may hold the very rows that were held out."""
    path = fit(cli, table, tmp_path / "run", "sgpr", "--split", "random")
    part = load(path).tensors("split")["part"].numpy()
    labels = read_rows(table, "download").labels
    assert cli("update", path, "--forget", "2022Q4").code == 0
    assert load(path).facts["rows"]["test"] == int((part == 2).sum())
    assert cli("update", path, "--add", early).code == 0
    after = load(path)
    assert after.facts["rows"]["test"] == int(((part == 2) & (labels != "2022Q4")).sum())
    assert evaluate(path).document["n_test"] == after.facts["rows"]["test"]


def test_measurements_without_time(cli, tmp_path):
    rng = np.random.default_rng(0)
    files = []
    for k in (0, 1):
        lon, lat = rng.uniform(-100, -99, 150), rng.uniform(40, 41, 150)
        lines = [f"{x},{y},{np.sin(5 * x) + 0.1 * e}" for x, y, e in zip(lon, lat, rng.standard_normal(150))]
        files.append(tmp_path / f"{k}.csv")
        files[-1].write_text("\n".join(["lon,lat,depth", "-100,40,0", "-99,41,0", *lines]) + "\n")
        line = ("ingest", "--source", "csv", files[-1], "--columns", "x=lon,y=lat,value=depth")
        assert cli(*line, "-o", tmp_path / f"{k}.parquet", "-q").code == 0
    path = fit(cli, tmp_path / "0.parquet", tmp_path / "run", "sgpr", "--target", "value")
    result = cli("update", path, "--add", tmp_path / "1.parquet", "--json")
    assert result.code == 0, result.err
    (label,) = json.loads(result.out)["added"]
    assert label.startswith("added-") and cli("update", path, "--add", tmp_path / "1.parquet").code == 3
    refused = cli("update", path, "--forget", "2022Q1")
    assert (
        refused.code == 3
        and f"have no quarters, so that it cannot forget 2022Q1; what can be forgotten is {label}, all."
        in refused.err
    )
    assert cli("update", path, "--forget", label).code == 0
    assert list(load(path).facts["rows"]["known"]) == ["all"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("--forget", "2010Q1"), "does not know 2010Q1"),
        (("--forget", "last year"), "last year"),
        (("--forget", "2022Q1..2023Q4"), "know nothing"),
        (("--add", "2022Q1"), "knows 2022Q1 already"),
        (("--add", "2030Q1"), "no usable row of 2030Q1"),
        (("--forget", "2022Q1", "--add", "2022Q1"), "in another command"),
        (("--add", "nowhere.parquet"), "neither a file nor quarters"),
        (("--add", "THE TABLE"), "nothing to add"),
        (("--add", "A SPOILT FILE"), "Parquet"),
        (("--add", "ANOTHER PLANE"), "plane"),
        (("--add", "MOBILE TILES"), "type 'mobile'"),
        (("--forget", "2022Q1", "-o", "THE TABLE"), "--overwrite"),
        (("--forget", "2022Q1", "-o", "no/such/folder"), "not a folder"),
        ((), "--add"),
    ],
)
def test_a_refusal_is_one_sentence_and_changes_nothing(cli, table, run, tmp_path, line, words):
    whole, metadata = read(table)
    moved = {
        **metadata,
        "crs": metadata["crs"].replace('"Latitude of natural origin",', '"Latitude of natural origin",1'),
    }
    for name, changed in (("plane", moved), ("mobile", {**metadata, "type": "mobile"})):
        rows = whole.set_column(
            whole.schema.get_field_index("quarter"), "quarter", pa.array(["2024Q1"] * whole.num_rows)
        )
        path = tmp_path / f"{name}.parquet"
        geoparquet.write_parts([rows.slice(0, 50)], lambda told=changed: told, path, overwrite=False)
    (tmp_path / "spoilt.parquet").write_bytes(b"PAR1 no")
    files = {
        "THE TABLE": table, "A SPOILT FILE": tmp_path / "spoilt.parquet", "ANOTHER PLANE": tmp_path / "plane.parquet",
        "MOBILE TILES": tmp_path / "mobile.parquet",
    }  # fmt: skip
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    before = contents(copy)
    result = cli("update", copy, *(files.get(a, a) for a in line))
    assert result.code == (3 if line else 2) and words in result.err and result.out == ""
    assert len(result.err.strip().splitlines()) == 1
    assert contents(copy) == before and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("method", ["gp-rbf", "lla"])
def test_methods_without_statistics_name_those_that_have_them(cli, early, tmp_path, method):
    path = fit(cli, early, tmp_path / "run", method)
    result = cli("update", path, "--forget", "2022Q1")
    assert (
        result.code == 3 and f"'{method}'" in result.err and "dbk-rbf" in result.err and "geogp" in result.err
    )


def test_an_interruption_leaves_the_old_run(run, tmp_path, monkeypatch):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    before = contents(copy)
    steps = [(folders, name) for name in ("write_tensors", "write_text", "write_sums")]
    for place, step in (*steps, (staging, "swap")):
        with monkeypatch.context() as patch:

            def stop(*arguments, **keywords):
                raise Interrupted(terminated=True)

            patch.setattr(place, step, stop)
            with pytest.raises(Interrupted):
                update(copy, forget="2022Q1")
        assert contents(copy) == before and [p.name for p in tmp_path.iterdir()] == ["run"], step
    update(copy, forget="2022Q1")
    assert contents(copy) != before


def test_two_updates_at_once_are_refused(cli, run, tmp_path):
    import fcntl

    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    handle = os.open(copy, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    result = cli("update", copy, "--forget", "2022Q1")
    os.close(handle)
    assert result.code == 3 and "Another update" in result.err
    assert cli("update", copy, "--forget", "2022Q1").code == 0
