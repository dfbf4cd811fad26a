"""A quarter may be noisier than others: its rows count for less, and new ones are known less."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from scipy.stats import t as student

import geogp
from geogp.field import FieldOptions, LocalField, LocalKernel
from geogp.field.choose import SURELY, Trials
from geogp.field.frame import frame_of
from geogp.field.left_out import LeftOut, leave_out
from geogp.field.likelihood.together import minus_log_likelihoods
from geogp.field.local_gp import LocalGP
from geogp.field.noise import times
from geogp.field.noise.fit import held_out_rows
from geogp.field.noise.times import LENGTHS, Misses, NoiseOfTimes, noise_of_times
from geogp.field.predict.outlook import outlook
from geogp.field.stages import Stages

QUARTERS = 2020.0 + np.arange(8) / 4.0
LOUD = QUARTERS[3]


def misses(log_factor, rows, seed, *, variance=0.3, noise=0.5, nu=None):
    """Of so many rows of each quarter, whose noise variances are multiplied so."""
    rng = np.random.default_rng(seed)
    time = np.repeat(QUARTERS[: len(log_factor)], rows)
    wide = noise * np.exp(np.repeat(log_factor, rows))
    e = rng.standard_normal(len(time)) if nu is None else rng.standard_t(nu, len(time))
    v = np.full(len(time), variance)
    miss = np.sqrt(v) * rng.standard_normal(len(time)) + np.sqrt(wide) * e
    return Misses(*(torch.from_numpy(a) for a in (miss, v, np.full(len(time), noise), time)))


# -- what rows left out say ------------------------------------------------------------------------------


@pytest.mark.parametrize("nu", [None, 4.0])
def test_factors_are_found_and_so_is_what_all_share(nu):
    true = np.array([0.0, 0.0, 1.4, 0.0, -1.0, 0.0, 0.0, 0.0])
    found = noise_of_times(misses(true, 600, 0, nu=nu), None if nu is None else 9.0)
    log = found.noise.log_factor(torch.from_numpy(QUARTERS)).numpy() + math.log(found.overall)
    assert found.nats > 100 and np.abs(log - true).max() < 0.3
    if nu is None:
        assert found.degrees_of_freedom is None
    else:
        assert 3.0 < found.degrees_of_freedom < 7.0


@pytest.mark.parametrize("nu", [None, 4.0])
@pytest.mark.parametrize("rows", [25, 100])
def test_where_times_are_alike_nothing_speaks_for_factors(rows, nu):
    nats = [noise_of_times(misses(np.zeros(8), rows, seed, nu=nu), nu).nats for seed in range(12)]
    assert max(nats) < SURELY and np.mean(nats) < 0.0


def test_one_time_and_few_rows_tell_nothing():
    assert noise_of_times(misses(np.zeros(1), 100, 0), None) is None
    assert noise_of_times(misses(np.zeros(3), 10, 0), None) is None
    assert noise_of_times(misses(np.zeros(4), 10, 0), None) is not None


@pytest.mark.parametrize("nu", [None, 5.0])
def test_factors_are_likeliest_under_their_prior(nu):
    """A search of the joint density written out again ends where the found factors are."""
    rows = misses(np.array([0.0, 1.2, 1.0, 0.9, -0.5]), 60, 1, nu=nu)
    found = noise_of_times(rows, nu)
    of = np.repeat(np.arange(5), 60)
    at, spread, length = QUARTERS[:5], found.noise.spread, found.noise.length
    R = np.eye(5) if length == 0 else np.exp(-np.abs(at[:, None] - at) / length)

    def minus_log_density(p):
        scale = np.sqrt(rows.variance.numpy() + rows.noise.numpy() * np.exp(p[0] + p[1:6][of]))
        df = 1e7 if nu is None else found.degrees_of_freedom
        prior = multivariate_normal(np.zeros(5), spread**2 * R).logpdf(p[1:6])
        return -student(df, 0.0, scale).logpdf(rows.miss.numpy()).sum() - prior

    p = np.r_[math.log(found.overall), found.noise.log.numpy()]
    best = minimize(minus_log_density, np.zeros(6))
    assert minus_log_density(p) == pytest.approx(best.fun, abs=0.01)
    np.testing.assert_allclose(p - p[0], best.x - best.x[0], atol=0.02)


@pytest.mark.parametrize("spread", [0.15, 1.5])
def test_how_far_factors_spread_is_learned(spread):
    true = spread * np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    assert noise_of_times(misses(true, 1000, 3), None).noise.spread == pytest.approx(spread, rel=0.25)


def test_a_noise_that_wanders_says_what_the_next_quarter_will_be():
    wandering = noise_of_times(misses(np.linspace(1.5, -1.5, 8), 300, 2), None).noise
    jumping = noise_of_times(misses(np.array([1.5, -1.5] * 4), 300, 2), None).noise
    assert wandering.length > jumping.length == LENGTHS[0]
    ahead = torch.tensor([QUARTERS[-1] + 0.25]).double()
    last = torch.from_numpy(QUARTERS[-1:])
    assert float(wandering.log_factor(ahead)) == pytest.approx(float(wandering.log_factor(last)), abs=0.5)
    assert float(jumping.factor(ahead)) == pytest.approx(math.exp(0.5 * jumping.spread**2))


def test_what_lies_between_times_is_what_a_process_makes_of_them():
    log, first, last = (
        torch.tensor(v, dtype=torch.float64) for v in ([1.0, -0.5, 0.3], [0.0, 2.0, 3.0], [0.0, 2.4, 3.0])
    )
    noise = NoiseOfTimes(log, first, last, 0.7, 2.0)
    at = np.array([0.0, 2.2, 3.0])

    def k(a, b):
        return 0.49 * np.exp(-np.abs(np.subtract.outer(a, b)) / 2.0)

    asked = np.array([-1.0, 1.0, 2.7, 5.0])
    W = k(asked, at) @ np.linalg.inv(k(at, at))
    wanted = W @ log.numpy() + 0.5 * np.diag(k(asked, asked) - W @ k(at, asked))
    np.testing.assert_allclose(noise.log_factor(torch.from_numpy(asked)).numpy(), wanted)
    within = noise.log_factor(torch.tensor([0.0, 2.0, 2.1, 2.4, 3.0], dtype=torch.float64))
    np.testing.assert_allclose(within.numpy(), [1.0, -0.5, -0.5, -0.5, 0.3])


def test_a_time_that_is_off_by_rounding_is_that_time():
    at = torch.tensor(QUARTERS + 1.0 / 12.0)
    log = torch.linspace(-1.0, 1.0, len(at), dtype=torch.float64)
    noise = NoiseOfTimes(log, at, at, 0.8, 0.0)
    rounded = at.float().double()
    assert (rounded != at).any()
    np.testing.assert_array_equal(noise.log_factor(rounded), log)
    np.testing.assert_allclose(noise.log_factor(at + 0.05), 0.32)  # and another time is none of them


def test_times_of_few_rows_speak_with_the_next(monkeypatch):
    days = np.repeat(np.arange(40.0), 7)
    first, last, of = times._times(days)
    rows = np.bincount(of.numpy())
    assert rows.min() >= times.ROWS_OF_A_TIME and rows.sum() == 280
    assert (first[1:] > last[:-1]).all() and (first <= last).all()
    for k in range(len(first)):
        assert set(days[of.numpy() == k]) == set(np.arange(first[k], last[k] + 1))
    assert len(times._times(np.arange(40_000.0))[0]) <= 64


# -- what a fit makes of it ------------------------------------------------------------------------------


def panel(places, seed, loud=3.0, *, counts=False):
    """Places in eight quarters, one of which is so many times as noisy by sd: X, y and counts."""
    rng = np.random.default_rng(seed)
    P = rng.uniform(0.0, 1e5, (places, 2))
    X = np.column_stack([np.repeat(P, 8, axis=0), np.tile(QUARTERS, places)])
    surface = np.sin(X[:, 0] / 9e3) + np.cos(X[:, 1] / 1.2e4 + X[:, 2] - 2020)
    n = np.ceil(rng.pareto(1.0, len(X)) * 2).clip(1, 50) if counts else None
    sd = np.where(X[:, 2] == LOUD, loud, 1.0) * 0.3 * (1.0 if n is None else np.sqrt(0.3 + 3.0 / n))
    return X, surface + sd * rng.standard_normal(len(X)), n


@pytest.fixture(scope="module", params=[(30, False), (60, True), (140, False)], ids=str)
def fitted(request):
    """A model of so many places, and what is new to it: X, y, counts."""
    places, counts = request.param
    X, y, n = panel(2 * places, 1, counts=counts)
    known = np.arange(len(X)) < 8 * places
    model = geogp.GPRegressor(time=2, target_transform="identity")
    model.fit(X[known], y[known], n if n is None else n[known])
    return model, X[~known], y[~known], n if n is None else n[~known]


def test_a_loud_quarter_is_heard(fitted):
    model, X, y, n = fitted
    known, moments = model.engine_.field.known, model.moments(X, n)
    noise = (moments.noise_variance * (1.0 + 2.0 / (moments.degrees_of_freedom - 2.0))).sqrt().numpy()
    loud = X[:, 2] == LOUD
    assert known.gp.of_times is not None and 2.0 < np.median(noise[loud]) / np.median(noise[~loud]) < 4.2
    low, high = model.predictive(X, n).interval(0.95)
    inside = (low < y) & (y < high)
    assert 0.87 < inside[loud].mean() <= 1.0 and 0.9 < inside[~loud].mean() < 0.99
    # And what was measured then counts for less.
    was_loud = known.gp.of_times.log_factor(known.seen.X[:, 2]) > 0.5
    assert was_loud.sum() == len(was_loud) / 8
    seen = known.seen.noise_variance
    assert float(seen[was_loud].median() / seen[~was_loud].median()) > 3.0


def test_networks_hear_how_noisy_a_time_is(fitted):
    model, X, _, n = fitted
    known = model.engine_.field.known
    new = torch.from_numpy(X[:8])
    inputs = outlook(known, new, None if n is None else torch.from_numpy(n[:8])).inputs
    log = known.gp.of_times.log_factor(known.frame.coordinates(new)[:, 2])
    assert bool((inputs == log[:, None]).all(0).any())


def test_of_a_future_left_out_networks_hear_what_was_known_then(fitted):
    """And of rows, blocks and sides what is known: others were measured at their times."""
    known = fitted[0].engine_.field.known
    at = known.seen.X
    X, out = torch.from_numpy(known.frame.inputs(at)), []
    loud = known.gp.of_times.log_factor(at[:, 2]) > 0.5
    then = at[:, 2] < at[loud, 2].min()
    some = loud.nonzero()[:5, 0]
    nearest = then.nonzero()[:, 0][torch.cdist(at[some], at[then]).argsort(1)[:, :12]]
    for kind in ("future", "blocks"):
        out.append(LeftOut(kind, then, some, nearest))
    future, blocks = held_out_rows(known, out, X, Stages())

    def heard(rows, log):
        return bool(torch.isclose(rows.features, torch.full((5, 1), log).double(), atol=1e-6).all(0).any())

    what_came = float(known.gp.of_times.log_factor(at[loud, 2])[0])
    expected = known.gp.of_times.until(float(at[out[0].reference, 2].max()))
    forecast = float(expected.log_factor(at[loud, 2])[0])
    assert len(expected.log) == 3 and forecast < what_came - 0.5
    assert heard(future, forecast) and not heard(future, what_came)
    assert heard(blocks, what_came)


def test_rows_left_out_singly_are_counted_once():
    """However few are left out, and whether or not some of them judge."""
    X, y, _ = panel(100, 2)
    X, y, one = torch.from_numpy(X), torch.from_numpy(y), torch.ones(800).double()
    frame = frame_of(X.numpy(), (0, 1), 2)
    C = frame.coordinates(X)
    for n_targets, wanted in ((200, None), (799, None), (800, 800), (12_000, 800)):
        options = FieldOptions(n_targets=n_targets)
        out = leave_out(C, frame, options)
        t = Trials.of(C, y, one, out, options, per_count=False, stages=Stages(), near=frame.near(C))
        told = torch.cat([rows for rows, *_ in t._singly])
        assert len(told.unique()) == len(told) and wanted in (None, len(told))


def test_a_noise_that_differs_from_place_to_place_is_heard_in_time_too():
    rng = np.random.default_rng(4)
    X = np.column_stack([rng.uniform(0.0, 1e5, (700, 2)), QUARTERS[rng.integers(0, 8, 700)]])
    surface = np.sin(X[:, 0] / 1.5e4) + np.cos(X[:, 1] / 1.9e4 + X[:, 2] - 2020)
    sd = np.where(X[:, 0] < 5e4, 0.15, 0.8)
    y = surface + sd * rng.standard_normal(700)
    model = geogp.GPRegressor(time=2, target_transform="identity").fit(X[:400], y[:400])
    assert model.engine_.field.gp.kernel.variation.noise is not None
    low, high = model.predictive(X[400:]).interval(0.95)
    inside, east = (low < y[400:]) & (y[400:] < high), X[400:, 0] > 5e4
    assert inside[east].mean() > 0.88 and 0.88 < inside[~east].mean() < 0.985
    width = high - low
    assert np.median(width[east]) > 2.5 * np.median(width[~east])


def test_a_panel_without_one_answers_as_before(monkeypatch):
    X, y, _ = panel(40, 3, loud=1.0)

    def answers():
        model = geogp.GPRegressor(time=2, target_transform="identity").fit(X, y)
        assert model.engine_.field.gp.of_times is None
        return model.moments(X[:40] + [500.0, 0.0, 0.0])

    one = answers()
    monkeypatch.setattr("geogp.field.choose.Trials.of_times", lambda trials, gp: gp)
    other = answers()
    assert torch.equal(one.mean, other.mean) and torch.equal(one.noise_variance, other.noise_variance)


def test_a_run_that_is_opened_knows_it(tmp_path):
    X, y, _ = panel(40, 2)
    model = geogp.GPRegressor(time=2, target_transform="identity").fit(X, y)
    of_times = model.engine_.field.gp.of_times
    again = geogp.save(tmp_path / "run", model, {"target": "value"}).model
    ahead = X[:16] + [700.0, 0.0, 1.0]
    for asked in (X[:16] + [700.0, 0.0, 0.0], ahead):
        one, other = model.moments(asked), again.moments(asked)
        assert torch.equal(one.noise_variance, other.noise_variance) and torch.equal(one.mean, other.mean)
    assert again.engine_.field.gp.of_times.tensors().keys() == of_times.tensors().keys()


def test_rows_that_a_run_is_told_later_are_as_noisy_as_their_time():
    X, y, _ = panel(40, 2)
    field = LocalField.fit(*(torch.from_numpy(a) for a in (X, y)), None, time=2, options=FieldOptions())
    one = torch.ones(8).double()
    new = torch.from_numpy(X[:8] + [2000.0, 0.0, 0.0])
    noise = field.gp.observed(field.frame.coordinates(new), torch.zeros(8).double(), one).noise_variance
    factor = field.gp.of_times.factor(field.frame.coordinates(new)[:, 2])
    torch.testing.assert_close(noise / noise[0], factor / factor[0])
    assert float(noise[3] / noise.median()) > 3.0


def test_all_rows_are_as_likely_as_with_counts_that_say_the_same():
    """Noise s²/n alone: a factor on it is a smaller count."""
    rng = np.random.default_rng(0)
    X = torch.from_numpy(np.column_stack([rng.uniform(0, 1, (60, 2)), rng.integers(0, 3, 60)]))
    y = torch.from_numpy(rng.standard_normal(60))
    lengths = torch.tensor([[0.2, 0.2, 2.0]]).double().log()
    kernel = LocalKernel(lengths, torch.zeros(1).double(), ("matern32",), 2)
    gp = LocalGP(kernel, 1e-12, 0.4, None, torch.zeros(2).double(), ())
    at = torch.arange(3).double()
    loud = NoiseOfTimes(torch.tensor([0.0, 1.0, -0.5]).double(), at, at, 1.0, 0.0)
    n = torch.full((60,), 4.0).double()
    columns = torch.zeros(60, 2).double()
    (one,) = minus_log_likelihoods([replace(gp, of_times=loud)], X, y, n, weighed_by=gp, columns=columns)
    fewer = n / loud.factor(X[:, 2])
    (other,) = minus_log_likelihoods([gp], X, y, fewer, weighed_by=gp, columns=columns)
    (without,) = minus_log_likelihoods([gp], X, y, n, weighed_by=gp, columns=columns)
    assert one == pytest.approx(other, rel=1e-9) and abs(one - without) > 0.1
