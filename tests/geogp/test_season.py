"""What comes back each year: found where the means of the times show it, part of the drift, and carried ahead."""

from dataclasses import asdict

import numpy as np
import pytest
import torch

import geogp
from geogp.errors import InvalidInput
from geogp.field import FieldOptions, LocalField
from geogp.field.mean.drift import Drift
from geogp.field.mean.season import SURELY, WAVES, YEAR, Season, season_of, years_of

QUARTERS, MONTHS = 0.25, 1 / 12


def stations(n=60, times=12, step=QUARTERS, ahead=4, seed=0, height=1.0, period=1.0):
    """X, the surface, readings, and which are to come: a smooth map whose season is stronger in the north."""
    rng = np.random.default_rng(seed)
    P = rng.uniform(0, 100.0, (n, 2))
    t = 2019.1 + step * np.arange(times + ahead)
    X = np.column_stack([np.repeat(P, len(t), axis=0), np.tile(t, n)])
    season = (1.0 + 0.5 * (X[:, 1] / 50.0 - 1.0)) * np.cos(2 * np.pi * (X[:, 2] / period - 0.3))
    f = np.sin(X[:, 0] / 15.0) + height * season + 0.1 * (X[:, 2] - 2019)
    return X, f, f + 0.2 * rng.standard_normal(len(X)), X[:, 2] > t[times - 1] + 1e-9


def found(X, y, period=1.0):
    one = torch.ones(len(y), dtype=torch.float64)
    return season_of(torch.from_numpy(X), torch.from_numpy(y), one, (0, 1), 2, period)


@pytest.mark.parametrize("times, step", [(8, QUARTERS), (12, QUARTERS), (36, MONTHS)])
def test_the_year_to_come_has_the_season_of_those_before(times, step):
    X, f, y, ahead = stations(n=18, times=times, step=step, ahead=round(1 / step))
    options = {"steps": 30, "n_targets": 500, "epochs": 3}
    models = [
        geogp.GPRegressor(time=2, random_state=0, options=options | {"season": season}).fit(
            X[~ahead], y[~ahead]
        )
        for season in (1.0, None)
    ]
    error, without = (np.sqrt(np.square(m.predict(X[ahead]) - f[ahead]).mean()) for m in models)
    assert error < 0.25 < 0.6 < without
    lower, upper = models[0].interval(X[ahead])
    assert ((lower < y[ahead]) & (y[ahead] < upper)).mean() > 0.88
    assert (upper - lower).mean() < 2.0  # a season that is not known takes 3 and more


@pytest.mark.parametrize("times, step", [(8, QUARTERS), (20, QUARTERS), (48, MONTHS)])
@pytest.mark.parametrize("walk", [0.0, 0.2])
def test_chance_passes_for_no_season(times, step, walk):
    rng = np.random.default_rng(0)
    X, *_, ahead = stations(n=20, times=times, step=step)
    seen, at = X[~ahead], np.unique(X[~ahead][:, 2], return_inverse=True)[1]
    n_found = 0
    for _ in range(200):
        level = np.cumsum(walk * rng.standard_normal(times)) + 0.1 * rng.standard_normal(times)
        n_found += found(seen, level[at] + 0.3 * rng.standard_normal(len(seen))) is not None
    assert n_found <= 5  # one in a hundred is the rule


def test_a_season_of_another_period_is_found_when_it_is_named():
    X, _, y, ahead = stations(times=36, step=1.0, period=12.0)
    assert found(X[~ahead], y[~ahead]) is None  # whole numbers lie in no different parts of a unit
    assert found(X[~ahead], y[~ahead], 12.0).period == 12.0


@pytest.mark.parametrize(
    ("times", "step", "period"), [(36, 1, 12.0), (130, 1, 52.1775), (150, 7, 365.2425), (800, 1, 365.2425)]
)
@pytest.mark.parametrize("begin", [0, 738_000])
def test_a_year_is_found_in_months_weeks_and_days(times, step, period, begin):
    """Without a word about the unit: times are whole numbers that are no years."""
    X, _, y, _ = stations(n=9, times=times, step=step, ahead=0, period=period)
    X[:, 2] += begin - 2019.1
    X[:, 2] = X[:, 2].round()
    year = found(X, y, YEAR)
    assert year.period == pytest.approx(period)
    said = year.fitted(*map(torch.from_numpy, (X, y, np.ones(len(y))))).numpy()
    wave = np.cos(2 * np.pi * ((X[:, 2] - begin + 2019.1) / period - 0.3))
    assert np.corrcoef(said, wave)[0, 1] > 0.95
    assert found(X, np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(len(y)), YEAR) is None


@pytest.mark.parametrize("walk", [0.0, 0.2])
def test_chance_passes_for_no_year_of_any_unit(walk):
    rng = np.random.default_rng(0)
    X = np.column_stack([np.tile(rng.uniform(0, 100.0, (9, 2)), (120, 1)), np.repeat(np.arange(120.0), 9)])
    n_found = 0
    for _ in range(100):
        level = np.cumsum(walk * rng.standard_normal(120)) + 0.1 * rng.standard_normal(120)
        y = np.repeat(level, 9) + 0.3 * rng.standard_normal(len(X))
        n_found += found(X, y, YEAR) is not None
    assert n_found <= 3


def test_units_share_what_chance_may_find(monkeypatch):
    """Who tries three years must be surer of each."""
    months, quarters = np.arange(48.0), 2020.0 + np.arange(48) / 4.0
    for chance, surely in ((0.9 * SURELY, False), (0.3 * SURELY, True)):
        monkeypatch.setattr(
            "geogp.field.mean.season._of_period", lambda *_, p=chance: (p, Season(2, 1.0, 0.0, WAVES))
        )
        for when, several in ((months, True), (quarters, False)):
            X = np.column_stack([np.zeros((48, 2)), when])
            assert (found(X, np.zeros(48), YEAR) is not None) == (surely or not several)


@pytest.mark.parametrize(
    "when", [np.arange(1990.0, 2024.0), 2019.0 + np.arange(12) / 4, np.array([0.5, 1.0, 48.0])]
)
def test_years_are_years(when):
    assert years_of(when) == (1.0,)
    assert FieldOptions().season == YEAR


def test_a_faint_season_is_found_where_nothing_walks():
    """Months of a walk of any size passed for one that might hide it: 4 of 100 were found."""
    rng = np.random.default_rng(7)
    X, *_ = stations(n=20, times=48, step=MONTHS, ahead=0)
    times, at = np.unique(X[:, 2], return_inverse=True)
    faint = 0
    for _ in range(40):
        level = 0.05 * rng.standard_normal(48) + 0.15 * np.cos(2 * np.pi * (times - rng.uniform()))
        faint += found(X, level[at] + 0.5 * rng.standard_normal(len(X))) is not None
    assert faint >= 32


@pytest.mark.parametrize("times", [4, 7])
def test_less_than_two_years_tell_of_no_season(times):
    X, _, y, ahead = stations(times=times)
    assert found(X[~ahead], y[~ahead]) is None


def test_what_places_have_for_themselves_is_no_season():
    """High stations report in winter, low ones in summer: the means of the times alone would say that it is cold."""
    rng = np.random.default_rng(0)
    X, *_ = stations(n=60, times=16, ahead=0)
    high, winter = np.repeat(np.arange(60) < 30, 16), np.tile(np.arange(16) % 4 < 2, 60)
    seen = (high == winter) | (rng.random(len(X)) < 0.2)
    y = 5.0 * high + 0.2 * rng.standard_normal(len(X))
    assert found(X[seen], y[seen]) is None
    warmer = y - 1.0 * winter
    assert found(X[seen], warmer[seen]) is not None


@pytest.mark.parametrize("times, waves", [(2, 1), (3, 2), (4, 3), (12, 4)])
def test_times_tell_as_many_waves_as_they_can(times, waves):
    X, _, y, _ = stations(n=10, times=5 * times, step=1.0 / times, ahead=0)
    y = y + np.random.default_rng(0).normal(size=times)[np.tile(np.arange(5 * times) % times, 10)]
    assert len(found(X, y).waves) == waves


def test_the_drift_has_the_waves_along_the_plane():
    X, f, *_ = stations(n=12, times=16, ahead=0)
    C = torch.from_numpy(X)
    season = Season(2, 1.0, 2019.0, ((1, 0), (1, 1)))
    drift = Drift.over(C, 2, season=season)
    phi = drift.columns(C)
    assert phi.shape == (len(C), 3 * (1 + 2)) and drift.n_weights == 9
    truth = torch.from_numpy(f - np.sin(X[:, 0] / 15.0) - 0.1 * (X[:, 2] - 2019))
    left = truth - phi @ torch.linalg.lstsq(phi, truth[:, None]).solution[:, 0]
    assert left.abs().max() < 1e-9
    later = drift.columns(C + torch.tensor([0.0, 0.0, 7.0]))
    torch.testing.assert_close(later, phi, atol=1e-9, rtol=0)


def test_few_rows_have_one_height_everywhere():
    X, *_ = stations(n=2, times=12, ahead=0)
    season = Season(2, 1.0, 2019.0, ((1, 0), (1, 1)))
    assert Drift.over(torch.from_numpy(X), 2, season=season).n_weights == 3  # no plane through two places


def test_a_stored_season_is_the_same_and_runs_of_before_have_none():
    X, _, y, ahead = stations(n=20)
    options = FieldOptions(steps=5, n_targets=200, metric=False)
    seen = torch.from_numpy(X[~ahead])
    field = LocalField.fit(seen, torch.from_numpy(y[~ahead]), None, time=2, options=options)
    tensors, facts = field.state()
    assert facts["season"]["waves"] and field.known.drift.varies
    again = LocalField.from_state(tensors, facts)
    later = torch.from_numpy(X[ahead])
    assert again.known.drift.season == field.known.drift.season
    assert torch.equal(again.moments(later).mean, field.moments(later).mean)
    plain = LocalField.fit(
        seen,
        torch.from_numpy(y[~ahead]),
        None,
        time=2,
        options=FieldOptions(**asdict(options) | {"season": None}),
    )
    tensors, facts = plain.state()
    del facts["season"], facts["options"]["season"]
    old = LocalField.from_state(tensors, facts)
    assert torch.equal(old.moments(later).mean, plain.moments(later).mean)


def test_means_of_few_years_leave_doubt_of_the_season():
    """What all stations err together in a quarter no number of stations tells."""
    rng = np.random.default_rng(0)
    X, f, *_ = stations(n=200, times=12, ahead=0)
    shock = 0.3 * rng.standard_normal(12)[np.tile(np.arange(12), 200)]
    quiet, shaken = found(X, f + 0.01 * rng.standard_normal(len(X))), found(X, f + shock)
    heights = [np.sqrt(np.trace(season.doubt)) for season in (quiet, shaken)]
    assert heights[0] < 0.02 and 0.1 < heights[1] < 0.6


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), "month"])
def test_a_period_is_a_length_of_time(wrong):
    with pytest.raises(InvalidInput, match="season is a period"):
        FieldOptions(season=wrong)
