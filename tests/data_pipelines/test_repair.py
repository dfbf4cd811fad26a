"""Polygons that cross themselves: repaired where that is a moment's work, refused where it would never end."""

import json
import time

import numpy as np
import pytest
import shapely

from data_pipelines.census import boundary
from data_pipelines.errors import InvalidInput
from data_pipelines.regions import MOST_VERTICES, Region
from data_pipelines.repair import crossings, repaired


def tangle(n: int, seed: int = 0) -> shapely.Polygon:
    """A ring through n random places: some n²/6 crossings."""
    return shapely.Polygon(np.random.default_rng(seed).uniform([-160, 18], [-154, 23], (n, 2)))


def star(n: int) -> shapely.Polygon:
    a = np.linspace(0, 2 * np.pi, n, endpoint=False)
    r = 1 + 0.1 * np.sin(40 * a) + 1e-6 * np.random.default_rng(0).standard_normal(n)
    return shapely.Polygon(np.column_stack([-157 + r * np.cos(a), 21 + r * np.sin(a)]))


def test_crossings_are_those_of_every_pair_of_edges():
    shape = tangle(40)
    xy = shapely.get_coordinates(shape)
    edges = shapely.linestrings(np.stack([xy[:-1], xy[1:]], axis=1))
    pairs = [shapely.crosses(edges[i], edges[:i]).sum() for i in range(len(edges))]
    assert crossings(shape) == sum(pairs) > 100


@pytest.mark.parametrize("n", [3_000, 100_000])
def test_a_tangle_is_refused_before_geos_sees_it(tmp_path, n):
    path = tmp_path / "tangle.geojson"
    feature = {"type": "Feature", "properties": {}, "geometry": shapely.geometry.mapping(tangle(n))}
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    started = time.perf_counter()
    with pytest.raises(InvalidInput, match=r"cross in some [\d,]+ places.*repair it") as caught:
        boundary(path)
    assert time.perf_counter() - started < 15.0 and "\n" not in str(caught.value)


def test_a_bow_tie_is_repaired_and_a_good_shape_untouched():
    bow = shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])
    assert repaired(bow, "it").area == pytest.approx(0.5) and repaired(bow, "it").is_valid
    good = shapely.box(0, 0, 1, 1)
    assert repaired(good, "it") is good


def test_a_boundary_of_many_vertices_is_stored_by_fewer():
    """Every point of either lies within the step of the other, and rows are still held to the whole of it."""
    region = Region.from_polygon("star", star(300_000))
    stored = shapely.geometry.shape(region.boundary())
    assert shapely.get_num_coordinates(stored) <= MOST_VERTICES < shapely.get_num_coordinates(region.shape)
    step = 3e-5  # degrees: simplified by 1 m, then perhaps 2 m
    assert region.shape.boundary.buffer(step).covers(stored.boundary)
    assert abs(stored.area - region.shape.area) < step * region.shape.length
    few = Region.from_polygon("few", star(5_000))
    assert shapely.get_num_coordinates(shapely.geometry.shape(few.boundary())) == 5_001


def test_a_file_beyond_all_bounds_is_refused_at_once(tmp_path):
    path = tmp_path / "huge.geojson"
    with path.open("wb") as file:
        file.truncate(2 * 2**30)
    started = time.perf_counter()
    from data_pipelines.census import read_polygons

    with pytest.raises(InvalidInput, match=r"2 GiB.*simplify"):
        read_polygons(path)
    assert time.perf_counter() - started < 0.1
