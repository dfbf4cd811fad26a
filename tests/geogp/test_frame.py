"""Coordinates: what one unit of each is, and which columns there are."""

import numpy as np
import pytest
import torch

from geogp.field.frame import ISOTROPIC, Frame, frame_of
from geogp.holdout import spacing

#: Rows of easting, a covariate, northing, years, a constant and another covariate.
X = np.random.default_rng(0).normal(size=(200, 6)) * [5e3, 3.0, 5e3, 2.0, 0.0, 0.2] + [
    4e5,
    -7.0,
    2e6,
    2020.0,
    9.0,
    1.0,
]


def test_each_column_is_centred_and_in_its_unit():
    metric = (1.5, 0.5, 0.5, 0.8333333333333334)
    frame = frame_of(X, (0, 2), 3, metric)
    assert frame.time == 3 and frame.others == (1, 5) and frame.time_axis == 2 and frame.n_axes == 5
    C = frame.coordinates(torch.from_numpy(X)).numpy()
    away = X - X.mean(0)
    M = np.reshape(metric, (2, 2))
    unit = 3.5 * spacing(X[:, [0, 2]] @ M.T)
    np.testing.assert_allclose(C[:, :2], away[:, [0, 2]] @ M.T / unit, atol=1e-12)
    np.testing.assert_allclose(C[:, 2], away[:, 3] / (0.4 * np.ptp(X[:, 3])), atol=1e-12)
    np.testing.assert_allclose(C[:, 3:], away[:, [1, 5]] / X[:, [1, 5]].std(0), atol=1e-12)
    T = torch.from_numpy(C)
    assert torch.equal(frame.times(T), T[:, 2]) and frame.newest(T) == C[:, 2].max()
    assert torch.equal(frame.near(T), T[:, :3])


def test_without_time_or_where_it_stands_still_there_is_none():
    still = X.copy()
    still[:, 3] = 2020.0
    for frame in (frame_of(X[:, :3], (0, 2), None), frame_of(still, (0, 2), 3)):
        assert frame.time is None and frame.time_axis is None and frame.time_unit == 1.0
        C = frame.coordinates(torch.from_numpy(still[:, : len(frame.origin)]))
        assert C.shape[1] == frame.n_axes == 2 + len(frame.others)
        assert frame.times(C) is None and frame.newest(C) == 0.0 and torch.equal(frame.near(C), C[:, :2])


def test_what_varies_little_is_a_coordinate_too():
    little = X * [1.0, 1e-2, 1.0, 1e-2, 1.0, 1e-2]
    frame = frame_of(little, (0, 2), 3)
    assert frame.time == 3 and frame.others == (1, 5)
    assert frame.time_unit == pytest.approx(0.4 * np.ptp(little[:, 3])) and frame.time_unit < 0.1
    assert frame.other_units == pytest.approx(little[:, [1, 5]].std(0))


def test_nothing_said_all_directions_are_alike():
    frame = frame_of(X, (0, 2), None)
    assert frame.metric == ISOTROPIC == (1.0, 0.0, 0.0, 1.0)
    assert frame.space_unit == pytest.approx(3.5 * spacing(X[:, [0, 2]]))
    C = frame.coordinates(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(C[:, :2], (X - X.mean(0))[:, [0, 2]] / frame.space_unit, atol=1e-12)


def test_a_line_has_northing_0_and_its_own_spacing():
    frame = frame_of(X[:, [1, 0]], (1,), None)
    C = frame.coordinates(torch.from_numpy(X[:, [1, 0]])).numpy()
    np.testing.assert_allclose(C[:, 0], (X[:, 0] - X[:, 0].mean()) / (3.5 * spacing(X[:, :1])), atol=1e-12)
    assert (C[:, 1] == 0).all() and frame.others == (0,) and frame.metric == ISOTROPIC


def test_nothing_said_covariates_are_no_coordinates():
    frame = Frame((0, 1), 2, (3,), (1.0, 2.0, 3.0, 4.0), 2.0, 4.0)
    C = frame.coordinates(torch.tensor([[5.0, 12.0, 11.0, 7.0]]).double())
    assert C.tolist() == [[2.0, 5.0, 2.0]] and frame.n_axes == 3


@pytest.mark.parametrize("time", [None, 2])
def test_neighbours_are_near_in_space_and_time(time):
    rng = np.random.default_rng(1)
    rows = rng.uniform(0, 10, (60, 4))
    frame = frame_of(rows, (0, 1), time)
    C = frame.coordinates(torch.from_numpy(rows))
    search = frame.search_among(C)
    assert len(search.place_space) == 60
    wanted = C.numpy()[:, :2]
    assert {tuple(p) for p in np.round(search.place_space, 9)} == {tuple(p) for p in np.round(wanted, 9)}


@pytest.mark.parametrize(("n_far", "robust"), [(0, False), (1, True), (30, True), (150, False)])
def test_a_few_far_values_do_not_set_the_unit_of_a_covariate(n_far, robust):
    """Nor does one with few values other than one: most of such a covariate spans nothing."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 9, (300, 2)), rng.normal(5.0, 2.0, 300), np.arange(300) % 10 == 0])
    X[:n_far, 2] *= 1000.0
    unit, flag = frame_of(X, (0, 1), None).other_units
    assert flag == X[:, 3].std()
    middle = np.quantile(X[:, 2], 0.84) - np.quantile(X[:, 2], 0.16)
    assert unit == pytest.approx(middle / 2 if robust else X[:, 2].std())
    assert (unit < 4.0) == (n_far <= 30)
