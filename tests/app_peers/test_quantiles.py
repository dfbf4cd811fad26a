"""A distribution rebuilt from quantiles against the distribution they came from."""

import numpy as np
import pytest
from scipy import integrate, stats

from app.peers.quantiles import QuantilePredictive, from_quantiles, tuned
from geogp.predictive import Predictive
from geogp.scores import score, score_strata

LEVELS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99)


def gaussian(n: int = 40) -> tuple[Predictive, QuantilePredictive, np.ndarray]:
    rng = np.random.default_rng(0)
    location, scale = rng.normal(size=n), rng.uniform(0.3, 2.0, n)
    exact = Predictive(location, scale)
    values = np.column_stack([exact.quantile(p) for p in LEVELS])
    return exact, from_quantiles(LEVELS, values), location + scale * rng.normal(size=n) * 2.0


def skewed(n: int = 30) -> tuple[QuantilePredictive, np.ndarray]:
    rng = np.random.default_rng(1)
    values = np.sort(rng.gumbel(size=(n, len(LEVELS))) * 0.5 + rng.normal(size=(n, 1)), axis=1)
    return from_quantiles(LEVELS, values, tail=2.0), rng.normal(size=n) * 2.0


def test_quantiles_of_a_gaussian_give_back_the_gaussian():
    exact, rebuilt, y = gaussian()
    for name in ("log_density", "crps", "cdf"):
        np.testing.assert_allclose(getattr(rebuilt, name)(y), getattr(exact, name)(y), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(rebuilt.sd(), exact.sd(), rtol=2e-3)  # by 64-point quadrature
    np.testing.assert_allclose(rebuilt.exceedance(0.3), exact.exceedance(0.3), atol=1e-12)
    np.testing.assert_allclose(np.array(rebuilt.interval(0.87)), np.array(exact.interval(0.87)), atol=1e-12)


def test_given_quantiles_are_met_and_forward_inverts_inverse():
    p, y = skewed()
    for j, level in enumerate(LEVELS):
        np.testing.assert_allclose(p.cdf(p.transform.values[:, j]), level, atol=1e-12)
    u = p.transform.forward(y)
    np.testing.assert_allclose(p.transform.inverse(u), y, atol=1e-12)
    np.testing.assert_allclose(p.transform.inverse(np.repeat(u[:, None], 3, 1)), np.repeat(y[:, None], 3, 1))


def test_density_integrates_to_one_and_matches_the_cdf():
    p, _ = skewed(3)
    for i in range(3):
        one = p.rows(np.array([i]))
        knots = one.transform.values[0]
        mass, _ = integrate.quad(
            lambda v, one=one: float(np.exp(one.log_density(np.array([v])))[0]), knots[0] - 40, knots[-1] + 40,
            points=knots, limit=400,
        )  # fmt: skip
        assert mass == pytest.approx(1.0, abs=1e-6)


def test_crps_is_the_integral_of_the_squared_difference():
    p, y = skewed(4)
    for i in range(4):
        one, v = p.rows(np.array([i])), float(y[i])
        low, high = float(one.quantile(1e-9)[0]), float(one.quantile(1 - 1e-9)[0])
        kinks = [*one.transform.values[0], v]

        def square(x, one=one, v=v):
            return float((one.cdf(np.array([x]))[0] - (x >= v)) ** 2)

        area, _ = integrate.quad(square, min(low, v) - 1, max(high, v) + 1, points=kinks, limit=500)
        assert one.crps(np.array([v]))[0] == pytest.approx(area, abs=1e-6)


def test_general_scores_agree_with_the_exact_crps():
    p, y = skewed()
    np.testing.assert_allclose(p.crps_of(lambda v: v, y), p.crps(y), rtol=5e-3)


def test_crossing_and_equal_quantiles_keep_the_density_finite():
    values = np.tile([[1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]], (5, 1))
    p = from_quantiles(LEVELS, values, least_sd=0.1)
    assert np.isfinite(p.log_density(np.linspace(-1, 3, 5))).all()
    assert (np.diff(p.transform.values, axis=1) > 0).all()
    assert p.sd() == pytest.approx(0.1, abs=0.5)


def test_rescaling_shifts_and_stretches():
    p, y = skewed()
    big = p.rescaled(5.0, 3.0)
    np.testing.assert_allclose(big.median(), 5.0 + 3.0 * p.median())
    np.testing.assert_allclose(big.crps(5.0 + 3.0 * y), 3.0 * p.crps(y), atol=1e-12)
    np.testing.assert_allclose(big.log_density(5.0 + 3.0 * y), p.log_density(y) - np.log(3.0), atol=1e-12)


def test_it_is_scored_like_any_other():
    _, p, y = gaussian()
    s = score(p, y, target_mean=0.0, target_sd=1.0)
    assert set(s) >= {"nll", "crps", "mae", "rmse", "coverage95"}
    strata = score_strata(p, y, {"some": y > 0}, target_mean=0.0, target_sd=1.0)
    assert strata["some"]["n"] == int((y > 0).sum())


def test_heavy_tails_are_chosen_where_they_are():
    rng = np.random.default_rng(2)
    z = stats.t.rvs(2.5, size=4000, random_state=rng)
    values = np.tile(np.quantile(z, LEVELS), (4000, 1))
    assert tuned(LEVELS, values, z)["tail"] > 1.0


def test_bad_levels_are_refused():
    with pytest.raises(ValueError, match="levels must increase"):
        from_quantiles([0.5, 0.1], np.zeros((2, 2)))
