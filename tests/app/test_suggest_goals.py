"""`geogp suggest` with a goal: an area, a threshold's boundary, places of a file, a path of so many kilometres."""

import itertools
import json

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import norm

import app.workflow.steps.suggest as suggesting
from geogp.run import load
from geogp.suggest import greedy
from tests.app.test_areas import boxes


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(suggesting, "CELLS", 200)


def asked(cli, run, path, *options):
    result = cli("suggest", run, "-o", path, "--json", "--overwrite", *options)
    assert result.code == 0, result.err
    document = json.loads(result.out)
    return document, np.array([[p["lon"], p["lat"]] for p in document["points"]])


def test_an_area_is_better_known_by_places_chosen_for_it(cli, run, world, tmp_path):
    file = tmp_path / "box.geojson"
    box = boxes(world, (20, -60, 60, -20))
    box.to_file(file)
    out = tmp_path / "p.geojson"
    document, here = asked(cli, run, out, "-n", 5, "--area", file)
    _, anywhere = asked(cli, run, out, "-n", 5)
    assert document["goal"] == "the mean over an area"
    loaded = load(run)
    rng = np.random.default_rng(0)
    west, south, east, north = box.total_bounds
    P = loaded.from_degrees(rng.uniform(west, east, 80), rng.uniform(south, north, 80))

    def left(lonlat: np.ndarray) -> float:
        """Variance over the area after measuring, by conditioning a dense covariance."""
        X = loaded.inputs(np.concatenate([loaded.from_degrees(*lonlat.T), P]))
        C = loaded.model.predict(X, return_cov=True, latent=True)[1]
        k = len(lonlat)
        noise = np.diag(np.full(k, 0.05))
        return np.trace(C[k:, k:] - C[k:, :k] @ np.linalg.solve(C[:k, :k] + noise, C[:k, k:]))

    assert left(here) < left(anywhere)


def test_a_boundary_draws_places_to_where_it_is_undecided(cli, run, tmp_path):
    out = tmp_path / "p.geojson"
    document, near = asked(cli, run, out, "-n", 8, "--boundary", 100)
    _, plain = asked(cli, run, out, "-n", 8)
    assert (document["goal"], document["boundary"]) == ("the boundary", 100)
    loaded = load(run)

    def undecided(lonlat: np.ndarray) -> float:
        mean, sd = loaded.model.predict(
            loaded.inputs(loaded.from_degrees(*lonlat.T)), return_std=True, latent=True
        )
        p = norm.cdf((5.0 - mean) / sd)
        return float((p * (1 - p)).mean())

    assert undecided(near) > undecided(plain)
    result = cli("suggest", run, "-o", tmp_path / "q.geojson", "--boundary", 1e9)
    assert result.code == 3 and "one side of 1e+9" in result.err and not (tmp_path / "q.geojson").exists()


def test_places_are_those_of_the_file(cli, run, world, tmp_path):
    rng = np.random.default_rng(0)
    lon, lat = world.to_degrees(*rng.uniform(-50, 50, (2, 500)))
    file = tmp_path / "masts.csv"
    file.write_text("\n".join(["name,lon,lat", *(f"m{i},{a},{b}" for i, (a, b) in enumerate(zip(lon, lat)))]))
    _, found = asked(cli, run, tmp_path / "p.geojson", "-n", 4, "--candidates", file)
    assert cdist(found, np.column_stack([lon, lat])).min(axis=1).max() < 1e-5
    file.write_text("lon,lat\n10,50\n")
    result = cli("suggest", run, "-o", tmp_path / "q.geojson", "--candidates", file)
    assert result.code == 3 and "No place of" in result.err


def test_the_path_keeps_its_budget(cli, run, tmp_path):
    document, lonlat = asked(cli, run, tmp_path / "p.geojson", "-n", 40, "--budget-km", 120)
    xy = load(run).from_degrees(*lonlat.T)
    assert 2 <= len(xy) < 40 and document["budget_km"] == 120
    D = cdist(xy, xy)
    path = [0]
    for c in range(1, len(xy)):  # each in the place where it lengthens the path least
        lengths = [
            sum(D[a, b] for a, b in itertools.pairwise(p))
            for p in (path[:i] + [c] + path[i:] for i in range(len(path) + 1))
        ]
        i = int(np.argmin(lengths))
        path.insert(i, c)
    assert min(lengths) <= 120_000
    C, noise = np.eye(5) + 0.1, np.full(5, 0.1)
    line = np.abs(np.subtract.outer([0.0, 1, 2, 10, 50], [0.0, 1, 2, 10, 50]))
    assert set(greedy(C, noise, 5, distances=line, budget=10.0).chosen) == {0, 1, 2, 3}
    assert len(greedy(C, noise, 5, distances=line, budget=50.0)) == 5
    assert cli("suggest", run, "-o", tmp_path / "q.geojson", "--budget-km", -1).code == 3


def test_few_candidates_are_all_ranked_and_a_budget_bounds_them(cli, run, world, tmp_path):
    lonlat = [world.to_degrees(x, 2 * x) for x in (-12, -5, 1, 6, 11)]
    file, out = tmp_path / "candidates.csv", tmp_path / "p.geojson"
    file.write_text("\n".join(["lon,lat", *(f"{lon},{lat}" for lon, lat in lonlat)]))
    _, places = asked(cli, run, out, "--candidates", file)
    assert len(places) == 5
    _, places = asked(cli, run, out, "--candidates", file, "-n", 9, "--budget-km", 10)
    assert len(places) == 1
    result = cli("suggest", run, "-o", out, "--overwrite", "--candidates", file, "-n", 6)
    assert result.code == 3 and "There are 5 places to choose from, and -n 6 asks for more" in result.err
