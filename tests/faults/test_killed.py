"""A kill at any change of the file system leaves the old output or the new one, and the next run tidies up."""

import json
import os
import shutil
from pathlib import Path

import pytest

import data_pipelines.staging
import geogp
import geogp.storage.staging
import maps.staging
from geogp.storage import update_facts
from maps.raster import export
from tests.faults.killing import changes, killed_at, some
from tests.faults.made_maps import made_map

FORMATS = ("cog", "netcdf")


@pytest.fixture(autouse=True)
def _where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KILLING", str(tmp_path))


def test_three_packages_hold_the_same_staging() -> None:
    texts = {
        Path(m.__file__).read_bytes() for m in (geogp.storage.staging, maps.staging, data_pipelines.staging)
    }
    assert len(texts) == 1


def write(folder: Path, level: float, overwrite: bool) -> None:
    export(made_map(16, level), folder, FORMATS, overwrite=overwrite, extra={"level_made": level})


def whole(folder: Path) -> float:
    """The level of an export all of whose files are what its manifest says; fails for any other folder."""
    from maps.raster import _sha256

    manifest = json.loads((folder / "manifest.json").read_text())
    listed = {entry["path"]: entry["sha256"] for entry in manifest["files"]}
    assert {name: _sha256(folder / name) for name in listed} == listed
    return float(manifest["level_made"])


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "among-other-files"])
def test_a_killed_export_leaves_the_old_maps_or_the_new(tmp_path, count, beside) -> None:
    """Alone, the folder is one or the other at every instant; among other files, once the next run has begun."""
    old, folder = tmp_path / "old" / "maps", tmp_path / "new" / "maps"
    write(old, 10.0, False)
    if beside:
        (old / "mine.txt").write_text("mine")
    shutil.copytree(old, folder)
    total = changes(write, folder, 90.0, True)
    assert total > 10 and whole(folder) == 90.0
    found = set()
    for n in some(total, count(8, total)):
        shutil.rmtree(folder)
        shutil.copytree(old, folder)
        assert killed_at(n, write, folder, 90.0, True)
        if beside:
            maps.staging.sweep(folder)
        found.add(whole(folder))
        maps.staging.sweep(folder.parent)
        assert [p.name for p in tmp_path.rglob(".geogp-*")] == []
        assert not beside or (folder / "mine.txt").read_text() == "mine"
    assert found == {10.0, 90.0}
    write(folder, 50.0, True)  # the next run needs no clean-up
    assert whole(folder) == 50.0


def test_a_killed_first_export_leaves_all_or_nothing(tmp_path, count) -> None:
    folder = tmp_path / "maps"
    total = changes(write, folder, 90.0, False)
    for n in some(total, count(6, total)):
        shutil.rmtree(folder, ignore_errors=True)
        assert killed_at(n, write, folder, 90.0, False)
        assert not folder.exists() or whole(folder) == 90.0
        maps.staging.sweep(tmp_path)
        assert {p.name for p in tmp_path.iterdir()} <= {"maps"}
    shutil.rmtree(folder, ignore_errors=True)
    write(folder, 50.0, False)  # the next run needs neither a flag nor a clean-up


def store(run: Path) -> None:
    update_facts(run, {"scores": {"nll": 1.0}}, documents={"certificate.json": {"n": 3}})


def test_a_run_killed_while_scores_are_stored_is_whole(small_run, tmp_path, count) -> None:
    n, killed = 0, True
    while killed:
        run = Path(shutil.copytree(small_run, tmp_path / "run"))
        killed = killed_at(n, store, run)
        facts = geogp.load(run).facts
        assert ("scores" in facts) == (run / "certificate.json").exists()
        store(run)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]
        shutil.rmtree(run)
        n += count(4, 1)


def test_areas_and_covariances_are_of_one_run(tmp_path, count) -> None:
    """The table and the covariances beside it come together."""
    import geopandas
    import numpy as np
    import shapely
    import xarray as xr

    from app.workflow.steps.areas import _write

    files = (tmp_path / "areas.parquet", tmp_path / "areas_covariance.nc")

    def put(value: float) -> None:
        frame = geopandas.GeoDataFrame({"mean": [value]}, geometry=[shapely.box(0, 0, 1, 1)], crs=4326)
        matrix = (("area", "other"), np.full((1, 1), value))
        _write(frame, xr.Dataset({"latent_covariance": matrix}), files, {"value": value}, True)

    def found() -> tuple[float, float]:
        with xr.open_dataset(files[1], engine="h5netcdf") as ds:
            return float(geopandas.read_parquet(files[0])["mean"][0]), float(ds["latent_covariance"][0, 0])

    n, killed = 0, True
    while killed:
        put(1.0)
        killed = killed_at(n, put, 2.0)
        data_pipelines.staging.sweep(tmp_path)
        assert found() in ((1.0, 1.0), (2.0, 2.0))
        assert sorted(p.name for p in tmp_path.iterdir()) == sorted(f.name for f in files)
        n += count(2, 1)
    assert n > 4


def test_a_score_of_the_old_run_is_not_stored_on_the_new(cli, run, tmp_path, monkeypatch) -> None:
    """`evaluate` beside `update`: the run changes while it is scored."""
    from app.workflow import evaluate, update
    from app.workflow.steps import evaluate as step

    copy = Path(shutil.copytree(run, tmp_path / "run"))
    scored = step.scored

    def slow(*arguments, **keywords):
        update(copy, forget="2022Q1")
        return scored(*arguments, **keywords)

    monkeypatch.setattr(step, "scored", slow)
    with pytest.raises(geogp.InvalidInput, match="other weights"):
        evaluate(copy)
    fresh = geogp.load(copy)
    assert fresh.scores is None and not (copy / "certificate.json").exists()
    monkeypatch.undo()
    monkeypatch.setenv("KILLING", str(tmp_path))
    evaluate(copy)
    again = geogp.load(copy)
    assert again.scores["weights_sha256"] == again.weights_sha256


def test_leftovers_of_the_living_stay(tmp_path) -> None:
    with maps.staging.staged(tmp_path / "a") as mine:
        mine.write_text("x")
        other = mine.with_name(mine.name.replace(f"-{os.getpid()}-", f"-{os.getppid()}-"))
        start = maps.staging._start
        parent = other.with_name(other.name.replace(f"-{start(os.getpid())}-", f"-{start(os.getppid())}-"))
        parent.write_text("alive")
        dead = other.with_name(other.name.replace(f"-{os.getppid()}-", "-999999999-"))
        dead.write_text("dead")
        assert maps.staging.sweep(tmp_path) == [dead]
        assert mine.exists() and parent.exists() and not dead.exists()
    assert not mine.exists()
