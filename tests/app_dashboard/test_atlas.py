"""A run's page: its planes are the model's, kept between starts, and told apart by what the model says."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from app.caches import DiskCache
from app.dashboard.atlas import Atlas, Wanted
from app.workflow import naming
from app.workflow.distributions import COUNTS, counts_of, distributions
from app.workflow.grids import grid_of
from app.workflow.page import Legend, page_grid
from geogp import load, storage
from geogp.prediction import VARIABLES
from geogp.predictive import Predictive
from maps.packing import unpack

from .conftest import peak_of


def planes_of(atlas: Atlas) -> tuple[dict, dict[str, np.ndarray], dict[str, np.ndarray]]:
    first, others = atlas._made(Wanted("2023Q4"), lambda done, total: None)
    assert others is not None
    header, values = unpack(first)
    return header, values, unpack(others)[1]


@pytest.fixture(scope="module")
def planes(atlas: Atlas) -> tuple[dict, dict[str, np.ndarray], dict[str, np.ndarray]]:
    return planes_of(atlas)


@pytest.mark.parametrize("run", ["atlas", "peaked"])
def test_the_packed_planes_are_the_maps(run: str, request: pytest.FixtureRequest) -> None:
    """What the page computes of them is what an export holds, to fewer digits than are printed."""
    atlas = request.getfixturevalue(run)
    header, values, others = planes_of(atlas)
    usual = f"{atlas.choices.tests:.10g}"
    known = values["known"]
    for n in (usual, *(f"{c:.10g}" for c in COUNTS)):
        table = values if n == usual else others
        a = table[f"inverse_df_{n}"]
        p = Predictive(
            table[f"location_{n}"],
            table[f"scale_{n}"],
            1 / a if (a > 0).all() else None,
            atlas.run.model.transform_,
            table[f"log_skewness_{n}"],
            peak=peak_of(table, f"_{n}"),
        )
        assert (p.peak is None) == (run == "atlas")
        if p.peak is not None:
            assert 0.1 < (p.peak.share > 0).mean() < 0.9 and p.peak.share.max() > 0.5
            high = p.peak.location + 3.0 * p.peak.scale
            assert high[p.peak.share > 0.1].max() < header["table"]["high"] < 30.0
        expected = atlas.run.predict(
            atlas.page.geobox, tests=float(n), quarter="2023Q4", **atlas.page.options
        )
        for level in (0.5, 0.95):
            ds = (
                expected
                if level == 0.95
                else atlas.run.predict(atlas.page.geobox, tests=float(n), level=level, **atlas.page.options)
            )
            for end, key in zip(p.interval(level), ("lower", "upper"), strict=True):
                np.testing.assert_allclose(atlas.target.from_score(end), ds[key].values[known], rtol=2e-3)
        np.testing.assert_allclose(
            atlas.target.from_score(p.median()), expected["median"].values[known], rtol=1e-3
        )
    np.testing.assert_allclose(values["surface_sd"], expected["latent_sd"].values[known], rtol=2e-3)
    np.testing.assert_allclose(
        1 - (values["surface_sd"] / values["prior_sd"]) ** 2, expected["explained"].values[known], atol=2e-3
    )


def test_every_variable_of_a_map_can_be_computed_from_the_planes_or_is_left_to_files(atlas: Atlas) -> None:
    listed = {layer["formula"] for layer in atlas.spec()["layers"] if "formula" in layer}
    assert set(VARIABLES) - listed == {"mean"}


def test_the_planes_lie_where_the_map_has_values(atlas: Atlas, planes: tuple) -> None:
    _, values, _ = planes
    ds = atlas.run.predict(atlas.page.geobox, **atlas.page.options)
    np.testing.assert_array_equal(values["known"], np.isfinite(ds["median"].values))
    away = atlas.run.support.distances_m(atlas.page.places[1][:, :2])
    np.testing.assert_allclose(values["nearest_m"], np.maximum(away, 1), rtol=2e-3)


def test_a_quarter_costs_one_prediction_whatever_the_number_of_tests(atlas: Atlas) -> None:
    """Of an engine that shares the work; here the counts are asked for together."""
    asked: list[int] = []
    engine = atlas.run.model.engine_
    original = engine.moments_by_count
    engine.moments_by_count = lambda X, counts: (asked.append(len(X)), original(X, counts))[1]  # type: ignore[method-assign]  # a spy
    try:
        distributions(atlas.run, atlas.page.geobox, **atlas.page.options)
    finally:
        del engine.moments_by_count
    assert sum(asked) == int(atlas.page.places[0].sum())


def test_what_progress_raises_ends_the_work(atlas: Atlas) -> None:
    class Enough(Exception):
        pass

    def progress(done: int, total: int) -> None:
        assert 0 < done <= total
        raise Enough

    with pytest.raises(Enough):
        distributions(atlas.run, atlas.page.geobox, progress=progress, **atlas.page.options)


def test_the_next_start_reads_what_was_computed(run_path: Path, tmp_path: Path) -> None:
    first = Atlas(load(run_path), DiskCache(tmp_path))
    assert first.kept(Wanted("2023Q4")) is None
    made = first._made(Wanted("2023Q4"), lambda done, total: None)
    legend = first.legend
    second = Atlas(load(run_path), DiskCache(tmp_path))
    second.run.model.engine_.moments_by_count = None  # type: ignore[method-assign]  # nothing may be computed
    second.run.model.engine_.moments = None  # type: ignore[method-assign]  # nothing may be computed
    assert second.kept(Wanted("2023Q4")) == made and second.legend == legend
    assert second.kept(Wanted("2023Q3")) is None


@pytest.mark.parametrize("junk", [b"", b"\x93NUMPY junk", b"\x80\x04K\x01.", b"null"])
def test_a_damaged_cache_is_computed_again(run_path: Path, tmp_path: Path, junk: bytes) -> None:
    atlas = Atlas(load(run_path), DiskCache(tmp_path))
    for file in ("2023Q4.pack", "2023Q4_counts.pack", "legend.json"):
        path = tmp_path / atlas.id / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(junk)
    assert atlas.kept(Wanted("2023Q4")) is None
    first, _ = atlas._made(Wanted("2023Q4"), lambda done, total: None)
    assert unpack(first)[0]["n"] == int(atlas.page.places[0].sum())
    assert atlas.legend.scales["level"].high > atlas.legend.scales["level"].low > 0


def test_a_cache_that_cannot_be_written_does_no_harm(run_path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    atlas = Atlas(load(run_path), DiskCache(tmp_path / "file"))
    assert atlas._made(Wanted("2023Q4"), lambda done, total: None)[0] and atlas.kept(Wanted("2023Q4")) is None


def test_a_legend_survives_its_document(atlas: Atlas) -> None:
    assert Legend.from_document(atlas.legend.document()) == atlas.legend
    assert atlas.legend.scales["level"].high / atlas.legend.scales["level"].low < (
        atlas.legend.scales["ends"].high / atlas.legend.scales["ends"].low
    )  # the ends of intervals do not flatten what to expect


def test_the_page_offers_what_an_address_may_name(atlas: Atlas) -> None:
    spec = atlas.spec()
    settings = spec["settings"]
    assert settings["quarters"] == list(atlas.choices.quarters)
    assert settings["counts"] == list(counts_of(atlas.run)) and spec["start"]["n"] in settings["counts"]
    for n in settings["counts"]:
        for t in (settings["least"], settings["most"], *settings["thresholds"]):
            params = {"n": f"{n:.10g}", "t": f"{t:.10g}", "level": "80"}
            found = atlas.choices.read(params)
            assert (found.tests, found.threshold) == (n, t)


def test_scores_do_not_throw_away_computed_maps(run_path: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run_path, tmp_path / "run"))
    before = Atlas(load(copy), DiskCache(tmp_path / "cache")).id
    storage.update_facts(copy, {"scores": {}})
    assert Atlas(load(copy), DiskCache(tmp_path / "cache")).id == before


def test_a_place_at_the_coast_is_the_pixel_beside_it(atlas: Atlas) -> None:
    known = atlas.page.places[0]
    columns = [int(np.flatnonzero(line)[0]) if line.any() else 0 for line in known]
    row = next(
        r for r in range(1, len(known) - 1) if columns[r] >= 3 and min(columns[r - 1 : r + 2]) >= columns[r]
    )
    column, affine = columns[row], atlas.page.geobox.affine
    (lon,), (lat,) = atlas.run.to_degrees([affine * (column - 0.3, row + 0.5)])
    assert not known[row, column - 1] and atlas.pixel(lat, lon) == (row, column)
    (lon,), (lat,) = atlas.run.to_degrees([affine * (column - 2.5, row + 0.5)])
    assert atlas.pixel(lat, lon) is None


def test_a_count_beyond_the_usual_ones_can_be_asked_for(atlas: Atlas) -> None:
    box = atlas.page.geobox[20:22, 20:22]
    parts = distributions(atlas.run, box, tests=17.0)
    assert 17.0 in parts["count"].values and parts.attrs["tests"] == 17.0
    ds = atlas.at(*_middle(atlas, 20, 20), replace(atlas.choices.default, tests=17.0))
    i = list(parts["count"].values).index(17.0)
    p = Predictive(
        parts["location"].values[i].astype(float),
        parts["scale"].values[i].astype(float),
        None if not parts["inverse_df"].values.any() else 1 / parts["inverse_df"].values[i].astype(float),
        atlas.run.model.transform_,
        parts["log_skewness"].values[i].astype(float),
    )
    np.testing.assert_allclose(atlas.target.from_score(p.median())[0], ds["median"].values[0, 0], rtol=1e-5)


def _middle(atlas: Atlas, row: int, column: int) -> tuple[float, float]:
    (lon,), (lat,) = atlas.run.to_degrees([atlas.page.geobox.affine * (column + 0.5, row + 0.5)])
    return float(lat), float(lon)


def test_engines_give_the_same_by_count_as_one_by_one(atlas: Atlas) -> None:
    X = torch.as_tensor(atlas.page.places[1][::200])
    counts = [torch.full((len(X),), n) for n in (1.0, 8.0)]
    engine = atlas.run.model.engine_
    for n, together in zip(counts, engine.moments_by_count(X, counts), strict=True):
        torch.testing.assert_close(together.stack(), engine.moments(X, n).stack())


def test_a_page_of_fewer_pixels_says_so(atlas: Atlas) -> None:
    whole, few = (page_grid(atlas.run, grid_of(atlas.run), n) for n in (150_000, 500))
    assert "pixel along a side" not in whole.note and whole.places[0].sum() > 4000
    assert few.note.endswith("the page shows every 3rd pixel along a side; exported files have all")
    assert 400 < few.places[0].sum() < 700


def test_names_are_found_once_and_kept(
    run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a nation they take seconds: the next start reads them; what is not whole is found again."""
    first = Atlas(load(run_path), DiskCache(tmp_path))
    asked: list[object] = []

    def found(*given: object) -> naming.Names:
        asked.append(given)
        place = {"name": "Hub", "lon": -143.0, "lat": 34.0, "kind": "town"}
        return naming.Names([place], [[[-143.0, 34.0], [-143.1, 34.0]]], "us")

    monkeypatch.setattr(naming, "named", found)
    known = first.names
    again = Atlas(load(run_path), DiskCache(tmp_path)).names
    assert len(asked) == 1 and again.document() == known.document()
    first.disk.write_note(first.id, "names.json", {"places": [{"name": "Hub"}], "lines": [], "credit": ""})
    assert Atlas(load(run_path), DiskCache(tmp_path)).names.document() == known.document()
    assert len(asked) == 2
