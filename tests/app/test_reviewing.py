"""What a report shows of the kernel: places that stand for others, windows as wide as the kernel, the basis' components."""

import json
import shutil

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from app.workflow import report
from app.workflow.grids import grid_of
from app.workflow.reviewing import held_out, learned
from geogp.run import load


@pytest.fixture
def drawn(monkeypatch):
    """The figures that pictures are made of."""
    figures: list[Figure] = []
    kept = held_out.Picture.of.__func__

    def of(cls, figure, words, dpi=110):
        figures.append(figure)
        return kept(cls, figure, words, dpi)

    monkeypatch.setattr(held_out.Picture, "of", classmethod(of))
    return figures


def test_a_city_a_road_and_the_wild_are_told_apart():
    rng = np.random.default_rng(0)
    city = rng.normal(0, 300, (150, 2))
    villages = rng.uniform(-20_000, 20_000, (120, 2))
    road = np.column_stack([np.linspace(30_000, 60_000, 60), np.linspace(0, 5_000, 60)])
    ground = rng.uniform(-70_000, 70_000, (200, 2))
    far = np.linalg.norm(ground - np.array([0, 0]), axis=1)
    found = list(learned.standing(np.concatenate([villages, road, city]), ground, far).values())
    assert np.linalg.norm(found[0]) < 600
    assert found[1][0] > 29_000 and (found[1] == road).all(axis=1).any()
    assert (found[2] == ground[far.argmax()]).all()
    few = learned.standing(city[:3], ground, far)
    assert list(few) == ["farthest from data, in the wild"]


def test_the_functions_are_components_of_the_kernel_over_the_ground(run, drawn):
    loaded = load(run)
    grid = grid_of(loaded, resolution_m=8000.0)
    picture = learned.basis_functions(loaded, grid, None)
    assert picture is not None and picture.data.startswith("data:image/png")
    shares = [float(axes.get_title().split("%")[0]) for axes in drawn[0].axes]
    assert len(shares) == learned.DRAWN and shares == sorted(shares, reverse=True)
    planes = [np.asarray(axes.images[0].get_array(), float) for axes in drawn[0].axes]
    inside = np.isfinite(planes[0])
    assert inside.sum() == grid.n_inside
    # By another route: the eigenvalues of what the basis brings to the pixels' prior covariance, whose trace they share.
    from app.workflow.pixels import pixels_of

    X = loaded.inputs(pixels_of(loaded, grid, "").xy)
    K = np.column_stack([loaded.model.kernel_slice(X, x) for x in X])
    phi = loaded.model.engine_.features(torch.as_tensor(X)).double().numpy()
    values, vectors = np.linalg.eigh(loaded.model.target_sd_**2 * (phi @ phi.T))
    assert values.sum() < 0.9 * np.trace(K)  # the rest is the residual's
    assert shares[0] == pytest.approx(100 * values[-1] / np.trace(K), abs=0.51)
    for k, plane in enumerate(planes[:2], 1):
        assert abs(np.corrcoef(np.ma.filled(plane, np.nan)[inside], vectors[:, -k])[0, 1]) > 0.999


def test_a_slice_is_as_wide_as_the_kernel(run, drawn, monkeypatch):
    loaded = load(run)
    P = loaded.support.positions_m

    def bump(engine, X, x_ref):
        """A kernel of 3 km, whatever was learned."""
        k = torch.exp(-(X - x_ref)[:, :2].norm(dim=1) / 3000.0)
        return k, k

    monkeypatch.setattr(type(loaded.model.engine_), "prior_slice", bump)
    picture = learned.slices(loaded, (P, loaded.support.distances_m(P)), None)
    assert picture is not None and "as along a road" in picture.words
    for axes in drawn[0].axes[:3]:
        left, right = axes.images[0].get_extent()[:2]
        assert right == pytest.approx(3 * np.log(10), rel=0.2) and left == -right
        plane = axes.images[0].get_array()
        assert np.nanmax(plane) > 0.9 and np.ma.filled(plane, 1.0).min() >= 0.0


def test_peers_stand_in_the_report_of_a_run_that_a_comparison_kept(run, tmp_path):
    copy = tmp_path / "dbk-silu"
    shutil.copytree(run, copy)
    scores = {"nll": 1.0, "crps": 0.5, "mae": 0.25, "coverage95": 0.951}
    board = {
        "target": "download",
        "split": "random",
        "rows": [{"method": m, "scores": scores, "fit_seconds": 2} for m in ("sgpr", "dbk-silu")],
    }
    (tmp_path / "compare.json").write_text(json.dumps(board))
    report(copy, tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "dbk-silu (this run)" in text and "<td>sgpr</td>" in text
    (tmp_path / "compare.json").write_text(json.dumps({**board, "target": "upload"}))
    report(copy, tmp_path / "r.html", overwrite=True)
    assert "Beside other methods" not in (tmp_path / "r.html").read_text()


def test_a_run_that_holds_nothing_out_has_a_report_with_its_data_named(run, table, tmp_path):
    """It was refused where --data was given."""
    from app.workflow import fit

    whole = fit(
        table, method="dbk-silu", split="none", output=tmp_path / "run", model={"epochs": 1, "rank": 8}
    )
    made = report(whole.path, tmp_path / "r.html", data=table)
    assert any("holds no rows out" in note for note in made.notes)
    assert not any("never evaluated" in note for note in made.notes)
