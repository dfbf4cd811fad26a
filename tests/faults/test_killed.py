"""A kill at any change of the file system leaves the old output or the new one, and the next run tidies up."""

import json
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

import data_pipelines.staging
import geogp
import geogp.storage.staging
import maps.staging
from app.workflow import fit
from data_pipelines.observations import ingest
from geogp.storage import update_facts
from maps.raster import export
from tests.faults.killing import changes, killed_after, killed_at, some
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
    from maps.atomic import sha256

    manifest = json.loads((folder / "manifest.json").read_text())
    listed = {entry["path"]: entry["sha256"] for entry in manifest["files"]}
    assert {name: sha256(folder / name) for name in listed} == listed
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


def make_table(folder: Path, name: str, overwrite: bool) -> Path:
    columns = {"x": "lon", "y": "lat", "value": "v"}
    return ingest(
        source="csv", file=folder / f"{name}.csv", columns=columns, output=folder / "out" / "o.parquet",
        overwrite=overwrite,
    ).path  # fmt: skip


@pytest.fixture
def two_sources(tmp_path: Path) -> Path:
    """Two files of points, and the tables that they become."""
    (tmp_path / "out").mkdir()
    for seed, name in enumerate(("old", "new")):
        rows = np.random.default_rng(seed).uniform([-159, 20, 0], [-158, 21, 1], (400, 3))
        text = "".join(f"{a:.6f},{b:.6f},{v:.6f}\n" for a, b, v in rows)
        (tmp_path / f"{name}.csv").write_text("lon,lat,v\n" + text)
        shutil.copy(make_table(tmp_path, name, True), tmp_path / f"{name}.parquet")
    (tmp_path / "out" / "o.parquet").unlink()
    return tmp_path


@pytest.mark.filterwarnings("ignore::data_pipelines.errors.DataWarning")
def test_a_killed_ingest_leaves_the_old_table_or_the_new(two_sources, count) -> None:
    """At each change of the file system and at random instants; the table made again is the same to the last byte."""
    out = two_sources / "out" / "o.parquet"
    old, new = ((two_sources / f"{name}.parquet").read_bytes() for name in ("old", "new"))
    for overwrite in (False, True):
        make_table(two_sources, "old", True)
        total = changes(make_table, two_sources, "new", True)
        rng = np.random.default_rng(0)
        instants = some(total, count(4, total)) + list(rng.uniform(0.0, 0.15, count(4, 100)))
        for instant in instants:
            out.write_bytes(old) if overwrite else out.unlink(missing_ok=True)
            kill = killed_at if isinstance(instant, int) else killed_after
            kill(instant, make_table, two_sources, "new", overwrite)
            found = out.read_bytes() if out.exists() else b""
            assert found in ((old, new) if overwrite else (b"", new))
            if found != new:
                make_table(two_sources, "new", overwrite)  # needs no clean-up, and no flag that was not there
            assert out.read_bytes() == new and [p.name for p in out.parent.iterdir()] == ["o.parquet"]


@pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")
def test_a_fit_killed_again_and_again_ends_where_an_unbroken_one_does(two_sources, count) -> None:
    table = two_sources / "new.parquet"
    small = {"rank": 8, "hidden": 8, "epochs": 6, "batch_size": 64}

    def work(name: str) -> None:
        fit(
            table, output=two_sources / "out" / name, target="value", method="dbk-rbf", model=small,
            checkpoint_seconds=0.0,
        )  # fmt: skip

    started = time.monotonic()
    assert not killed_after(60.0, work, "unbroken")
    takes = time.monotonic() - started
    wanted = geogp.load(two_sources / "out" / "unbroken").weights_sha256
    rng = np.random.default_rng(0)
    for number in range(count(1, 20)):
        kills, name = 0, f"run{number}"
        while not kills:
            shutil.rmtree(two_sources / "out" / name, ignore_errors=True)
            while not (two_sources / "out" / name).exists():
                kills += killed_after(takes * float(rng.uniform(0.1, 0.7)) * (1 + kills / 4), work, name)
            takes /= 1 if kills else 2  # the unbroken one ran on a busier machine: sooner
        geogp.storage.staging.sweep(two_sources / "out")  # as the next command beside it does
        assert geogp.load(two_sources / "out" / name).weights_sha256 == wanted
        assert sorted(p.name for p in (two_sources / "out").iterdir()) == [name, "unbroken"]
        shutil.rmtree(two_sources / "out" / name)


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
