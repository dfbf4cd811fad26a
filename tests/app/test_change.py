"""`geogp change`: maps and a table from the joint posterior of two quarters."""

import json

import geopandas
import numpy as np
import pytest
import rasterio

from geogp.areas import pairs_at, surface
from geogp.run import load
from tests.app.test_areas import HALVES, boxes

WHEN = ("--from", "2022Q1", "--to", "2023Q4")


@pytest.fixture
def file(world, tmp_path):
    path = tmp_path / "boxes.geojson"
    wide = [tuple(4 * v for v in half) for half in HALVES[:2]]
    boxes(world, *wide, (2000, 500, 2010, 510)).assign(GEOID=["01", "02", "03"]).to_file(path)
    return path


def test_maps_and_areas_are_the_joint_posteriors(cli, run, file, tmp_path):
    out = tmp_path / "out"
    line = (
        "change",
        run,
        *WHEN,
        "--areas",
        file,
        "-o",
        out,
        "--at-least",
        "0,10.2345678",
        "--resolution",
        20_000,
        "--json",
    )
    result = cli(*line, "--samples", 400)
    assert result.code == 0, result.err
    document = json.loads(result.out)
    names = [
        "change.tif",
        "change_lower.tif",
        "change_upper.tif",
        "improved_0.tif",
        "improved_10.2345678.tif",
        "areas.gpkg",
    ]
    listed = [entry["path"] for entry in document["files"] if entry["kind"] != "style"]
    assert listed == [*names, "item.json"]
    assert json.loads((out / "manifest.json").read_text())["files"] == document["files"]
    assert (document["from"], document["to"], document["key"]) == ("2022Q1", "2023Q4", "GEOID")

    loaded = load(run)
    planes = {}
    for name in names[:5]:
        with rasterio.open(out / name) as src:
            assert src.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG" and "2022Q1" in src.tags()["title"]
            planes[name] = src.read(1)
            transform = src.transform
    inside = np.isfinite(planes["change.tif"])
    assert inside.any() and (planes["change_lower.tif"] < planes["change_upper.tif"])[inside].all()
    assert (planes["improved_10.2345678.tif"] <= planes["improved_0.tif"])[inside].all()
    row, col = (int(v[0]) for v in np.nonzero(inside))
    xy = np.array([transform * (col + 0.5, row + 0.5)])
    found = pairs_at(loaded.model, loaded.inputs(xy, "2022Q1"), loaded.inputs(xy, "2023Q4"))
    want = found.differences(loaded.target.from_score, 0.95, [0.0, 10.2345678])[:, 0]
    assert [planes[n][row, col] for n in names[:5]] == pytest.approx(want, rel=1e-3, abs=1e-3)

    table = geopandas.read_file(out / "areas.gpkg")
    assert table["GEOID"].tolist() == ["01", "02", "03"] and np.isnan(table["change"][2])
    assert "1 of 3 polygons lies outside the region of the run" in result.err
    np.testing.assert_allclose(table["change"][:2], (table["mean_to"] - table["mean_from"])[:2])
    assert (table["change_lower"] <= table["change"])[:2].all() and (table["p_improved_0"][:2] <= 1).all()
    assert (table["p_improved_10.2345678"] <= table["p_improved_0"])[:2].all()


def test_the_change_of_areas_has_the_variance_of_the_difference(run, world, tmp_path):
    """On the model's scale it is w'Cw with the covariance between the quarters counted."""
    from scipy import sparse

    from app.workflow.steps.change import Between, _columns
    from app.workflow.weighing import GROUND, AreaPoints

    loaded = load(run)
    xy = loaded.support.positions_m[:60]
    points = AreaPoints(xy, np.repeat([0, 1], 30), np.ones(2), np.ones(2), {GROUND: np.full(60, 1 / 30)})
    facts = {"level": 0.95, "at_least": [0.0]}
    drawn = _columns(Between(loaded, ("2022Q1", "2023Q4"), "2023Q4"), points, facts, 2000, 0)
    X = np.concatenate([loaded.inputs(xy, "2022Q1"), loaded.inputs(xy, "2023Q4")])
    W = sparse.hstack([-points.weights(), points.weights()], format="csr")
    exact = surface(loaded.model, X).moments(W)
    np.testing.assert_allclose(drawn["latent_change"], exact.mean, atol=4 * exact.sd.max() / np.sqrt(2000))
    np.testing.assert_allclose(drawn["latent_change_sd"], exact.sd, rtol=4 / np.sqrt(2 * 2000))


def test_the_difference_of_two_runs(cli, run, table, file, tmp_path):
    """Of a run fitted otherwise, at pixels and areas: its surface less the first's, its variance of both."""
    from app.workflow.together import learned_together
    from tests.app.conftest import TINY

    other = tmp_path / "other"
    line = ("fit", table, "--method", "dbk-rbf", "--split", "random", *TINY, "-o", other, "-q")
    assert cli(*line).code == 0
    out = tmp_path / "out"
    result = cli("change", run, "--with", other, "-o", out, "--areas", file, "--resolution", 20_000, "--json")
    assert result.code == 0, result.err
    document = json.loads(result.out)
    one, two = load(run), load(other)
    r = learned_together(one, two)[0].surface
    assert document["with"]["correlation"] == pytest.approx(r) and r > 0.3
    assert (document["from"], document["to"], document["quarter"]) == ("run", "other", "2023Q4")
    with rasterio.open(out / "change.tif") as src:
        values, transform = src.read(1), src.transform
    row, col = (v[::3] for v in np.nonzero(np.isfinite(values)))
    xy = np.column_stack(transform * (col + 0.5, row + 0.5))
    laws = [
        m.model.distribution(m.model.moments(m.inputs(xy), m.model.reference_count_), latent=True)
        for m in (one, two)
    ]
    z = np.random.default_rng(0).multivariate_normal([0, 0], [[1, r], [r, 1]], 20_000).T
    draws = [
        10 ** (law.transform.inverse(law.location[:, None] + law.scale[:, None] * part[None]) - 3)
        for law, part in zip(laws, z)
    ]
    d = draws[1] - draws[0]
    np.testing.assert_allclose(values[row, col], np.median(d, axis=1), atol=0.05 * d.std())
    with rasterio.open(out / "change_lower.tif") as src:
        low = src.read(1)[row, col]
    np.testing.assert_allclose(low, np.quantile(d, 0.025, axis=1), atol=0.1 * d.std())
    areas = geopandas.read_file(out / "areas.gpkg")
    np.testing.assert_allclose(areas["change"][:2], (areas["mean_to"] - areas["mean_from"])[:2])
    again = cli("change", run, "--with", run, "-o", tmp_path / "o", "--resolution", 20_000)
    assert again.code == 0  # a run less itself, its errors all shared but for what is never taken for one


def test_areas_are_called_by_their_names_and_of_many_the_least_improved_come_first(
    cli, run, file, tmp_path, monkeypatch
):
    line = ("change", run, *WHEN, "--areas", file, "--format", "none", "--samples", 20)
    few = cli(*line, "-o", tmp_path / "few").out
    assert all(name in few for name in ("box 0", "box 1", "box 2")) and few.index("box 0") < few.index(
        "box 1"
    )
    table = geopandas.read_file(tmp_path / "few" / "areas.gpkg").dropna(subset="change")
    monkeypatch.setattr("app.workflow.steps.change.SHOWN", 1)
    shown = cli(*line, "-o", tmp_path / "many").out
    first = table.sort_values("change")["name"].iloc[0]
    assert f"the 1 least improved of {len(table)}" in " ".join(shown.split())
    assert [name for name in ("box 0", "box 1", "box 2") if name in shown] == [first]


BAD = {
    "neither": ((), "--from one quarter --to another"),
    "both": ((*WHEN, "--with", "x"), "leave --from and --to out"),
    "quarter of a change": ((*WHEN, "--quarter", "2023Q4"), "--quarter belongs to --with"),
    "one quarter twice": (("--from", "2023Q4", "--to", "2023Q4"), "2023Q4 twice"),
    "no quarter": (("--from", "2023", "--to", "2023Q4"), "2023Q4; got '2023'"),
    "nothing to write": ((*WHEN, "--format", "none"), "nothing to write"),
    "at least": ((*WHEN, "--at-least", "inf"), "--at-least"),
    "level": ((*WHEN, "--level", "2"), "--level"),
    "format": ((*WHEN, "--format", "gif"), "no format 'gif'"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_is_one_sentence_and_leaves_nothing(case, cli, run, tmp_path):
    options, words = BAD[case]
    result = cli("change", run, "-o", tmp_path / "out", *options)
    assert result.code == 3 and words in result.err and result.out == "", result.err
    assert len(result.err.strip().splitlines()) == 1 and not (tmp_path / "out").exists()


def test_a_quarter_that_is_none_is_refused_before_anything_is_learned(cli, run, tmp_path, monkeypatch):
    from app.workflow.steps import change

    monkeypatch.setattr(change, "learned_together", lambda *runs: pytest.fail("learned for nothing"))
    result = cli("change", run, "--with", run, "--quarter", "bogus", "-o", tmp_path / "out")
    assert result.code == 3 and "2023Q4; got 'bogus'" in result.err


def test_a_folder_with_results_is_refused_unless_overwritten(cli, run, file, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "areas.gpkg").write_text("precious")
    line = ("change", run, *WHEN, "--areas", file, "-o", out, "--format", "none", "--samples", 20)
    result = cli(*line)
    assert result.code == 3 and (out / "areas.gpkg").read_text() == "precious"
    assert cli(*line, "--overwrite").code == 0 and len(geopandas.read_file(out / "areas.gpkg")) == 3
