"""Factors on the variances of the surface and of the noise, read from held-out and training rows together."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.basis.rescale import FARTHEST, FEWEST, Spread, factors_of, fit_factors, spread_of
from geogp.basis.spread import SPREADS, Factors
from geogp.data import Data
from geogp.engines import ENGINES
from geogp.engines.lowrank import LowRankEngine
from geogp.methods import METHODS

pytestmark = pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")
DEEP = ["dbk-silu", "dbk-rbf", "vbll", "sv-dkl", "pp-dkl"]


def rows(n, surface=1.0, noise=1.0, *, moved=0.0, seen=False, seed=0, draws=None):
    """Rows of a Gaussian process whose true variances are the given multiples of what its model says; `moved` times the
    weights' variance is noise."""
    g = torch.Generator().manual_seed(seed)
    v = 0.05 + 0.1 * torch.rand(n, generator=g, dtype=torch.float64)
    s = 0.1 + 0.3 * torch.rand(n, generator=g, dtype=torch.float64)
    own = noise * s + moved * v
    whole = own + surface * v
    z = torch.randn(n, generator=g, dtype=torch.float64) if draws is None else torch.from_numpy(draws)
    y = (own / whole.sqrt() if seen else whole.sqrt()) * z
    return Spread(y, torch.zeros_like(y), torch.zeros_like(y), v, s, v)


@pytest.mark.parametrize(("surface", "noise"), [(1.0, 1.0), (4.0, 0.5), (0.5, 2.0), (1.0, 1e5)])
def test_known_factors_are_found(surface, noise):
    held = rows(20_000, surface, noise)
    found = fit_factors(held, rows(20_000, surface, noise, seen=True, seed=1))
    # Each variance is known to sqrt(2 / 20,000) = 1%; the surface is the difference of two, some ten times smaller.
    assert found.noise == pytest.approx(noise, rel=0.1)
    if noise < 10:
        assert found.surface == pytest.approx(surface, rel=0.35)


def test_noise_that_only_the_weights_variance_shows_is_told_from_the_surface():
    """As a predictive objective leaves it: a flat noise of next to nothing, all of the spread in the weights."""

    def uneven(kind, seed):
        r = rows(20_000, 0.3, 1.0, moved=8.0, seen=kind == "seen", seed=seed)
        return replace(r, noise_variance=torch.full_like(r.noise_variance, 0.25))

    held, seen = uneven("held", 0), uneven("seen", 1)
    told = fit_factors(held, seen, moves=True)
    assert told.noise_from_weights == pytest.approx(8.0, rel=0.1)
    assert told.surface < 1.0
    assert told.score < fit_factors(held, seen).score - 0.01


def test_nothing_is_moved_where_the_weights_variance_is_the_surface_s_own_error():
    found = fit_factors(rows(20_000, 2.0, 0.7), rows(20_000, 2.0, 0.7, seen=True, seed=1), moves=True)
    assert found.noise_from_weights == 0.0
    assert found.surface == pytest.approx(2.0, rel=0.35)


def test_a_row_left_in_misses_by_what_the_docstring_says():
    g = torch.Generator().manual_seed(0)
    X = torch.rand(40, 1, generator=g, dtype=torch.float64)
    K, s = torch.exp(-0.5 * (X - X.T).square() / 0.04), 0.3
    left_in = (s * torch.linalg.inv(K + s * torch.eye(40))) @ (
        K + s * torch.eye(40)
    )  # residual = s (K + s)^-1 y
    inverse = torch.linalg.inv(K + s * torch.eye(40))
    variance = (left_in @ (s * inverse).T).diagonal()
    left_out = 1.0 / inverse.diagonal() - s  # of the surface at a row that is left out
    torch.testing.assert_close(variance, s**2 / (s + left_out))


@pytest.mark.parametrize("seed", range(6))
def test_no_part_is_sent_to_nothing(seed):
    """Held-out rows alone cannot tell a surface's variance from the noise where both are even."""
    few, many = rows(200, 0.6, 1.3, seed=seed), rows(2000, 0.6, 1.3, seen=True, seed=seed + 50)
    found = fit_factors(few, many)
    assert 0.1 < found.surface < 4.0 and 0.7 < found.noise < 2.0


def test_few_rows_move_little_and_none_beyond_the_bounds():
    absurd = replace(rows(30), y=100.0 * rows(30).y)
    found = fit_factors(absurd, rows(30, seen=True))
    assert math.exp(-FARTHEST) <= found.noise and found.surface <= math.exp(FARTHEST + 1.2)
    silent = fit_factors(replace(rows(30), y=0.0 * rows(30).y), rows(30, seen=True))
    assert silent.surface >= 0.99 * math.exp(-FARTHEST) and silent.noise >= 0.99 * math.exp(-FARTHEST)


def test_degrees_of_freedom_are_found_and_only_where_they_are():
    assert fit_factors(rows(5000), rows(5000, seen=True, seed=1), tails=True).degrees_of_freedom is None
    draws = [np.random.default_rng(i).standard_t(4.0, 5000) for i in range(2)]
    heavy, seen = rows(5000, draws=draws[0]), rows(5000, seen=True, draws=draws[1])
    # The sd of log(nu) from n = 10,000 draws is about 1.4 / sqrt(n) * nu / 2 ~ .03 at nu = 4.
    found = fit_factors(heavy, seen, tails=True)
    assert found.degrees_of_freedom == pytest.approx(4.0, rel=0.15)
    assert found.noise == pytest.approx(1.0, rel=0.15)


def world(n, seed):
    """A smooth surface with noise of sd .5: (X, y, surface there)."""
    rng = np.random.default_rng(seed)
    W, phase = (
        np.random.default_rng(7).normal(size=(200, 2)) / 8_000,
        np.random.default_rng(8).uniform(0, 6.3, 200),
    )
    X = rng.uniform(0, 50_000, (n, 2))
    f = 0.1 * np.cos(X @ W.T + phase).sum(1)
    return X, f + 0.5 * rng.standard_normal(n), f


@pytest.mark.slow
@pytest.mark.parametrize("name", DEEP)
def test_the_credible_interval_covers_the_surface_and_the_noise_is_the_noise(name):
    X, y, _ = world(2000, 0)
    model = geogp.GPRegressor(name, spread="rescaled", steps=300, rank=64, random_state=0).fit(X, y)
    new, _, surface = world(1500, 1)
    lower, upper = model.interval(new, latent=True)
    # Both variances rest on 200 held-out rows: 10% of their sum is a third of the surface's, .8 to 1.2 of its sd.
    assert 0.88 < ((lower <= surface) & (surface <= upper)).mean() < 0.995
    noise = model.target_sd_ * float(model.moments(new).noise_variance.mean()) ** 0.5
    assert 0.85 < noise / 0.5 < 1.15


def fitted(**keywords):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 4))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * rng.standard_normal(900)
    held = (X[:300], y[:300], None)
    settings_ = {"method": "dbk-rbf", "hidden": 16, "rank": 16, "epochs": 20} | keywords
    return geogp.GPRegressor(**settings_).fit(X[300:], y[300:], validation=held), held


@pytest.mark.parametrize(
    ("name", "posterior"), [("vbll", "lowrank"), ("pp-dkl", "dense"), ("sdkl", "solved")]
)
def test_factors_multiply_variances_and_leave_means(name, posterior):
    model, held = fitted(method=name, posterior=posterior, epochs=3)
    net, X = model.engine_.model, held[0]
    before, joint = model.moments(X), model.engine_.posterior_covariance(torch.as_tensor(X[:20]))
    draws = model.sample_y(X[:20], 3)
    net.factors = Factors(4.0, 0.5)
    geogp.estimator._LAST.pop(model.engine_, None)
    after = model.moments(X)
    assert torch.equal(before.mean, after.mean)
    close = {"rtol": 1e-5, "atol": 1e-7}
    torch.testing.assert_close(after.latent_variance, 4.0 * before.latent_variance, **close)
    torch.testing.assert_close(after.prior_variance, 4.0 * before.prior_variance, **close)
    floor = net.noise.floor
    torch.testing.assert_close(after.noise_variance - floor, 0.5 * (before.noise_variance - floor), **close)
    wide = model.engine_.posterior_covariance(torch.as_tensor(X[:20]))
    torch.testing.assert_close(wide, 4.0 * joint, **close)
    mean = model.predict(X[:20])[:, None]
    np.testing.assert_allclose(model.sample_y(X[:20], 3) - mean, 2.0 * (draws - mean), atol=2e-5)
    features = model.engine_.features(torch.as_tensor(X[:20]))
    if not net.residual.needs_base_kernel:
        torch.testing.assert_close(
            features @ features.T, model.engine_.prior_covariance(*[torch.as_tensor(X[:20])] * 2)
        )


@pytest.mark.parametrize("name", ["dbk-rbf", "vbll", "sdkl"])
def test_a_run_says_what_was_done_and_keeps_it(name):
    model, held = fitted(method=name, spread="student")
    said = model.engine_.facts["factors"]
    assert set(said) == {"surface", "noise", "score", "rows"} and said["rows"] == 300
    data = model._data(held[0], held[1], None, model.engine_.dtype)
    seen = Data(data.X[:0], data.y[:0])
    assert len(spread_of(model.engine_.model, data).y) == 300 and len(seen) == 0
    again = geogp.GPRegressor.from_state(*model.state())
    for a, b in zip(again.interval(held[0][:9]), model.interval(held[0][:9])):
        np.testing.assert_array_equal(a, b)
    plain, _ = fitted(method=name, spread="learned")
    assert plain.engine_.facts["factors"]["surface"] == 1.0


def test_runs_of_before_keep_the_factors_that_their_tensors_hold():
    model, held = fitted(spread="learned", epochs=3)
    tensors, facts = model.state()
    facts["engine"]["factors"] = {
        "weights": 1e-6,
        "noise": 2.0,
    }  # multiplied into the tensors by that version
    again = geogp.GPRegressor.from_state(tensors, facts)
    assert again.engine_.model.factors == Factors()
    np.testing.assert_array_equal(again.interval(held[0])[0], model.interval(held[0])[0])


def test_with_fewer_than_thirty_held_out_rows_nothing_is_moved():
    model, held = fitted(epochs=3)
    data = model._data(held[0], held[1], None)
    few = data.rows(torch.arange(FEWEST - 1))
    assert factors_of(model.engine_.model, data, few) == Factors(rows=FEWEST - 1)


def test_an_update_keeps_the_factors():
    model, held = fitted(method="vbll", spread="rescaled", epochs=3)
    data = model._data(held[0], held[1], None)
    engine = model.engine_
    assert isinstance(engine, LowRankEngine)
    merged = next(iter(engine.summarise(data, np.array(["all"] * len(data))).values()))
    assert engine.refreshed(merged).model.factors == engine.model.factors


def test_every_deep_row_may_be_rescaled_and_the_others_say_why_not():
    for row in METHODS.values():
        if ENGINES[row.engine].rescales:
            continue
        assert row.spread == "learned"
        with pytest.raises(geogp.ImpossibleCombination, match="spread 'rescaled'"):
            geogp.GPRegressor(row.name, spread="rescaled", options={}).fit(np.zeros((4, 2)), np.arange(4.0))
    assert all(ENGINES[METHODS[name].engine].rescales for name in DEEP)
    assert list(SPREADS) == ["learned", "rescaled", "student"]


def test_heavy_tails_reach_the_predictions_of_a_fitted_deep_basis():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 4))
    y = np.sin(X[:, 0]) + 0.5 * rng.standard_t(3.0, 2500)
    held = (X[:1000], y[:1000], None)
    model = geogp.GPRegressor("dbk-rbf", hidden=16, rank=16, epochs=10, random_state=0)
    model.fit(X[1000:], y[1000:], validation=held)
    nu = model.predictive(X[:5]).degrees_of_freedom
    assert nu is not None and (nu < 6.0).all()
    again = geogp.GPRegressor.from_state(*model.state())
    np.testing.assert_array_equal(again.predictive(X[:5]).degrees_of_freedom, nu)
    gaussian, _ = fitted()
    assert gaussian.predictive(X[:5]).degrees_of_freedom is None
