"""The mean over time, against least squares written out."""

import numpy as np
import pytest
import torch

from geogp.field.mean.trend import DOUBTED, Trend, fit_trend


def rows(quarters, n=50, seed=0):
    """Times of quarters, values about a line through them, and weights."""
    rng = np.random.default_rng(seed)
    time = rng.choice(np.asarray(quarters, dtype=float), n)
    y = 3.0 - 0.7 * time + np.sin(3 * time) + 0.2 * rng.standard_normal(n)
    return tuple(torch.from_numpy(a) for a in (time, y, rng.uniform(0.5, 2.0, n)))


def by_period(time, y, weight, period):
    """Weighted means of time and value in each period."""
    parts = [period == p for p in np.unique(period)]
    return tuple(np.array([np.average(v[part], weights=weight[part]) for part in parts]) for v in (time, y))


def line(time, y, weight, period):
    """intercept, slope, drift and variance of the slope, of four periods or more."""
    slope, intercept = np.polyfit(time, y, 1, w=np.sqrt(weight))
    when, means = by_period(time, y, weight, period)
    rest = means - intercept - slope * when
    drift = np.mean(np.diff(rest) ** 2 / np.diff(when))
    return intercept, slope, drift, (rest @ rest) / (len(when) - 2) / ((when - when.mean()) ** 2).sum()


@pytest.mark.parametrize("quarters", [[3.0, 3.25, 4.0, 5.5], 2.0 + np.arange(40) / 4])
def test_a_line_and_its_doubts_are_those_of_least_squares(quarters):
    time, y, weight = rows(quarters, 400)
    trend = fit_trend(time, y, weight)
    expected = line(time.numpy(), y.numpy(), weight.numpy(), time.numpy())
    np.testing.assert_allclose(
        (trend.intercept, trend.slope, trend.drift, trend.slope_variance), expected, rtol=1e-9
    )
    assert (trend.newest, trend.span) == (max(quarters), max(quarters) - min(quarters))


def test_many_times_are_twenty_periods():
    quarters = np.sort(np.random.default_rng(1).uniform(2.0, 10.0, 41))
    time, y, weight = rows(quarters, 900)
    assert len(time.unique()) == 41
    trend = fit_trend(time, y, weight)
    first, last = quarters[0], quarters[-1]
    period = np.minimum(np.ceil(20 * (time.numpy() - first) / (last - first)).clip(1), 20)
    intercept, slope, drift, slope_variance = line(time.numpy(), y.numpy(), weight.numpy(), period)
    k = 41 / len(np.unique(period))  # times a period
    expected = intercept, slope, drift / ((2 * k**2 + 1) / (3 * k**2)), slope_variance
    np.testing.assert_allclose(
        (trend.intercept, trend.slope, trend.drift, trend.slope_variance), expected, rtol=1e-9
    )


@pytest.mark.parametrize("n", [30, 48, 400])
def test_a_walk_has_its_own_pace_however_many_times_a_period_has(n):
    time = torch.arange(n).double()
    walks = np.cumsum(np.random.default_rng(0).standard_normal((300, n)), axis=1)
    found = [fit_trend(time, torch.from_numpy(walk), torch.ones(n).double()).drift for walk in walks]
    assert np.mean(found) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("quarters", [[1.0, 1.5], [0.0, 1.0, 3.0]])
def test_of_two_or_three_periods_a_walk_has_the_changes_and_a_line_a_quarter(quarters):
    time, y, weight = rows(quarters)
    trend = fit_trend(time, y, weight)
    when, means = by_period(*(v.numpy() for v in (time, y, weight)), period=time.numpy())
    assert trend.intercept == pytest.approx(np.average(y, weights=weight)) and trend.slope == 0.0
    change, step = np.diff(means), np.diff(when)
    assert trend.drift == pytest.approx(np.mean(change**2 / step))
    assert trend.slope_variance == pytest.approx(np.mean((change / step) ** 2) / 4)
    assert trend.newest is None and trend.span is None


def test_one_period_or_no_times_have_a_mean_alone():
    time, y, weight = rows([2.0])
    mean = Trend(pytest.approx(np.average(y, weights=weight)))
    assert fit_trend(None, y, weight) == mean and fit_trend(time, y, weight) == mean
    trend = Trend(1.5)
    assert (trend.slope, trend.drift, trend.slope_variance) == (0.0, 0.0, 0.0)
    assert trend(None, 3).tolist() == [1.5] * 3 and trend(None, 3).dtype == torch.float64
    assert trend.extra_variance(torch.tensor([2.0])).tolist() == [0.0]


def test_the_line_is_read_as_far_as_the_data_and_levels_off_beyond():
    """After the newest, and as much before the oldest."""
    trend = Trend(1.0, 2.0, newest=10.0, span=4.0)
    time = torch.tensor([7.5, 10.0, 11.0, 14.0, 500.0]).double()
    ahead = np.array([0.0, 0.0, 1.0, 4.0, 490.0])
    read = np.minimum(time.numpy(), 10.0) + 4.0 * (1.0 - np.exp(-ahead / 4.0))
    np.testing.assert_allclose(trend.levelled(time), read, rtol=1e-12)
    np.testing.assert_allclose(trend(time, 5), 1.0 + 2.0 * read, rtol=1e-12)
    np.testing.assert_allclose(trend.levelled(16.0 - time), 16.0 - read, rtol=1e-12)
    assert trend.levelled(torch.tensor([6.0, -500.0]).double()).tolist() == [6.0, pytest.approx(2.0)]
    # A line that goes on for ever, and one whose data span nothing.
    for endless in (Trend(1.0, 2.0), Trend(1.0, 2.0, newest=10.0, span=0.0), Trend(1.0, 2.0, span=4.0)):
        assert torch.equal(endless.levelled(time), time)
        assert torch.equal(endless(time, 5), 1.0 + 2.0 * time)


def test_a_walk_gains_variance_with_the_gap_and_a_slope_with_its_square():
    gap = torch.tensor([0.0, 0.5, 3.0]).double()
    doubt = Trend(0.0, drift=0.3, slope_variance=0.2).extra_variance(gap)
    np.testing.assert_allclose(doubt, [0.0, 0.15 + 0.05, 0.9 + 1.8])


def test_that_a_line_may_go_on_is_doubted_where_it_levels_off():
    trend = Trend(1.0, slope=-2.0, newest=3.0, span=4.0)
    t = torch.tensor([-9.0, -1.0, 0.0, 3.0, 3.5, 11.0], dtype=torch.float64)
    taken = (trend(t, 6) - Trend(1.0, slope=-2.0)(t, 6)).abs()
    torch.testing.assert_close(trend.doubt(t, 3.0).sqrt(), DOUBTED * taken)
    assert trend.doubt(t[1:4], 3.0).tolist() == [0.0] * 3 and float(trend.doubt(t, 3.0)[4]) > 0
    # Going on as before lies within two of these, and more.
    assert 1.0 / DOUBTED < 2.0
    # What measurements have told since is not in doubt.
    later = trend.doubt(t, 5.0)
    assert float(later[4]) == 0.0 < float(later[5]) < float(trend.doubt(t, 3.0)[5])
    assert Trend(1.0, slope=-2.0).doubt(t, 3.0).tolist() == [0.0] * 6 == Trend(1.0).doubt(t, 3.0).tolist()
