"""The same inputs give the same weights and the same bytes; where they cannot, maps agree to a stated tolerance."""

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import geogp
from app.errors import InvalidInput
from app.workflow import fit
from app.workflow.steps.export import FORMATS, export
from app.workflow.tables import write_table

#: 2023-11-14T22:13:20Z
EPOCH = "1700000000"


@pytest.fixture(autouse=True)
def _as_many_threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def toy(n: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X, counts = rng.uniform(0, 30_000, (n, 2)), rng.integers(1, 50, n).astype(float)
    y = np.sin(X[:, 0] / 4000) + np.cos(X[:, 1] / 5000) + rng.normal(0, np.sqrt(0.05 + 0.3 / counts))
    return X, y, counts


def weights(method: str, **options) -> str:
    """The hash of what a fit learns."""
    tensors, _ = geogp.GPRegressor(method, **options).fit(*toy()).state()
    parts = [np.ascontiguousarray(tensors[name].numpy()).tobytes() for name in sorted(tensors)]
    return hashlib.sha256(b"".join(parts)).hexdigest()


@pytest.mark.parametrize(
    ("method", "options"),
    [("dbk-silu", {"rank": 64, "hidden": 64, "epochs": 1}), ("local-gp", {"options": {"steps": 3}})],
)
@pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")
def test_one_and_two_threads_give_the_same_weights(method, options) -> None:
    """Inside `deterministic`; outside they need not, which is why it is there."""
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        with geogp.deterministic():
            assert torch.get_num_threads() == 1 and torch.are_deterministic_algorithms_enabled()
            found.append(weights(method, **options))
    assert found[0] == found[1]
    assert torch.get_num_threads() == 2 and not torch.are_deterministic_algorithms_enabled()


@pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")
def test_a_run_says_that_it_was_fitted_so(tmp_path) -> None:
    points = tmp_path / "p.csv"
    X, y, _ = toy(90)
    points.write_text("x,y,v\n" + "".join(f"{600_000 + a},{2_300_000 + b},{v}\n" for (a, b), v in zip(X, y)))
    from data_pipelines.observations import ingest

    columns = {"x": "x", "y": "y", "value": "v"}
    ingest(source="csv", file=points, columns=columns, crs="EPSG:32604", output=tmp_path / "o.parquet")
    small = {"rank": 8, "hidden": 8, "epochs": 1}
    runs = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        name = tmp_path / f"run{threads}"
        made = fit(
            tmp_path / "o.parquet", output=name, target="value", method="dbk-silu", model=small, deterministic=True
        ).run  # fmt: skip
        assert made.facts["arguments"]["deterministic"] is True
        runs.append(made.weights_sha256)
    assert runs[0] == runs[1]


@pytest.mark.parametrize("method", ["dbk-rbf", "local-gp"])
@pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")
def test_maps_of_one_run_are_equal_with_one_and_two_threads(method) -> None:
    """To the last bit: a thread takes a piece of the places, whole."""
    X, y, counts = toy()
    own = {"options": {"steps": 3}} if method == "local-gp" else {"rank": 64, "hidden": 64, "epochs": 1}
    model = geogp.GPRegressor(method, **own).fit(X, y, counts)
    new = np.random.default_rng(1).uniform(0, 30_000, (3000, 2))
    told = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        told.append(np.stack(model.predict(new, return_std=True)))
        new = new.copy()
    np.testing.assert_array_equal(*told)


def sums(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_exports_are_equal_to_the_last_byte(tmp_path, monkeypatch, count) -> None:
    """Every format, figures and page; the clock has gone on between the two."""
    import geogp.storage.clock
    import maps.clock

    monkeypatch.setenv("SOURCE_DATE_EPOCH", EPOCH)
    formats = count(["cog", "netcdf", "gpkg", "csv"], list(FORMATS))
    found = []
    with zipfile.ZipFile(Path(__file__).parents[1] / "data/written-2026-11-22T10-43.zip") as file:
        file.extractall(tmp_path)
    for _ in range(2):
        export(
            tmp_path / "dbk-silu", tmp_path / "maps", formats=formats, layers=["median", "latent_sd"],
            resolution_m=4000.0, overwrite=True,
        )  # fmt: skip
        found.append(sums(tmp_path / "maps"))
    assert found[0] == found[1] and len(found[0]) > len(formats)
    assert geogp.storage.clock.now() == maps.clock.now() and f"{maps.clock.now():%Y-%m-%d}" == "2023-11-14"


def test_tables_have_the_time_that_is_told(tmp_path, monkeypatch) -> None:
    import geopandas
    import shapely

    monkeypatch.setenv("SOURCE_DATE_EPOCH", EPOCH)
    frame = geopandas.GeoDataFrame({"mean": [1.0]}, geometry=[shapely.box(0, 0, 1, 1)], crs=4326)
    for kind in ("gpkg", "parquet"):
        for name in "ab":
            write_table(frame, tmp_path / f"{name}.{kind}", {}, overwrite=False, layer="areas")
        a, b = ((tmp_path / f"{name}.{kind}").read_bytes() for name in "ab")
        assert a == b and b"2023-11-14" in a


def test_a_time_that_is_not_told_is_the_clock_s_in_whole_seconds(monkeypatch) -> None:
    from datetime import UTC, datetime

    from geogp.storage import clock
    from maps import clock as other

    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    before = datetime.now(UTC)
    assert clock.now().microsecond == 0
    for found in (clock.now(), other.now()):
        assert -1 <= (found - before).total_seconds() < 60


@pytest.mark.parametrize("text", ["yesterday", "1e9", "9" * 30])
def test_a_time_that_is_none_is_one_sentence(monkeypatch, text) -> None:
    from geogp.storage import clock
    from maps import clock as other
    from maps.errors import InvalidInput as Unusable

    monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
    with pytest.raises(InvalidInput, match="whole seconds since 1970"):
        clock.now()
    with pytest.raises(Unusable, match="whole seconds since 1970"):
        other.now()
