"""Predictive distributions against scipy, scoringrules and brute-force quadrature."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scoringrules
from scipy import integrate, special, stats

from geogp.predictive import Peak, Predictive, student_tail
from geogp.scores import score
from geogp.transforms import Affine, Identity, Log10, YeoJohnson, transform_for

rng = np.random.default_rng(3)
LOCATION = rng.normal(size=6)
SCALE = rng.uniform(0.2, 2.0, 6)
DF = rng.uniform(2.5, 30.0, 6)
Y = rng.normal(size=6) * 2
SKEW = np.array([-0.7, -0.2, 0.0, 0.1, 0.4, 0.7])
SHARE = np.array([0.0, 0.01, 0.2, 0.5, 0.9, 0.3])
PEAK = Peak(
    SHARE, LOCATION + np.array([1.0, -6.0, 0.1, 4.0, -2.0, 0.0]), np.array([1.0, 0.3, 0.01, 0.5, 1.0, 4.0])
)
CASES = {
    "gaussian": Predictive(LOCATION, SCALE),
    "student": Predictive(LOCATION, SCALE, DF),
    "gaussian-skewed": Predictive(LOCATION, SCALE, log_skewness=SKEW),
    "student-skewed": Predictive(LOCATION, SCALE, DF, log_skewness=SKEW),
    "skewed-curved": Predictive(LOCATION, SCALE, DF, YeoJohnson(0.8, 0.1, 1.3), SKEW),
    "gaussian-curved": Predictive(LOCATION, SCALE, None, YeoJohnson(0.6, 0.1, 1.3)),
    "student-curved": Predictive(LOCATION, SCALE, DF, YeoJohnson(0.8, 0.1, 1.3)),
    "two-peaks": Predictive(LOCATION, SCALE, DF, log_skewness=SKEW, peak=PEAK),
    "two-gaussians": Predictive(LOCATION, SCALE, peak=PEAK),
    "two-peaks-curved": Predictive(LOCATION, SCALE, DF + 2.0, YeoJohnson(0.8, 0.1, 1.3), SKEW, peak=PEAK),
}
curves = pytest.mark.parametrize("p", CASES.values(), ids=CASES)


@curves
def test_quantile_inverts_cdf_and_exceedance_complements_it(p):
    for level in (0.01, 0.3, 0.975):
        np.testing.assert_allclose(p.cdf(p.quantile(level)), level, rtol=1e-9)
    np.testing.assert_allclose(p.exceedance(0.4) + p.cdf(np.full(6, 0.4)), 1.0, rtol=1e-12)


@curves
def test_density_is_the_derivative_of_the_cdf(p):
    h = 1e-5
    slope = (p.cdf(Y + h) - p.cdf(Y - h)) / (2 * h)
    # The difference quotient of a cdf near 0 or 1 carries rounding of 1e-16 / h.
    np.testing.assert_allclose(np.exp(p.log_density(Y)), slope, rtol=1e-5, atol=1e-10)


@curves
def test_crps_is_the_integral_of_its_definition(p):
    for i in range(6):
        one = p.rows(np.array([i]))

        def below(x, one=one):
            return one.cdf(np.array([x]))[0] ** 2

        def above(x, one=one):
            return one.exceedance(x)[0] ** 2

        expected = (
            integrate.quad(below, -np.inf, Y[i], limit=200)[0]
            + integrate.quad(above, Y[i], np.inf, limit=200)[0]
        )
        # Curved transforms use 64 quantile nodes: heavy tails beyond the last node cost a few per mille.
        tolerance = 1e-6 if isinstance(p.transform, Identity) else 2e-2
        np.testing.assert_allclose(one.crps(Y[[i]])[0], expected, rtol=tolerance)


def test_closed_forms_match_scoringrules_and_scipy():
    student = CASES["student"]
    np.testing.assert_allclose(student.crps(Y), scoringrules.crps_t(Y, DF, LOCATION, SCALE), rtol=1e-8)
    np.testing.assert_allclose(student.log_density(Y), stats.t.logpdf(Y, DF, LOCATION, SCALE), rtol=1e-10)
    np.testing.assert_allclose(student.sd(), stats.t.std(DF, LOCATION, SCALE), rtol=1e-10)
    np.testing.assert_allclose(
        CASES["gaussian"].crps(Y), scoringrules.crps_normal(Y, LOCATION, SCALE), rtol=1e-9
    )


def test_mean_of_a_power_is_the_lognormal_mean():
    p = Predictive(np.array([2.0, 2.5]), np.array([0.1, 0.3]))
    exact = 10 ** (p.location + 0.5 * np.log(10) * p.scale**2)
    np.testing.assert_allclose(p.mean_of(lambda t: 10**t, (-9, 9)), exact, rtol=2e-3)


@pytest.mark.parametrize("transform", [Identity(), Log10()])
@pytest.mark.parametrize("tails", ["gaussian", "student", "skewed"])
def test_a_bounded_mean_is_that_of_a_dense_quadrature(transform, tails):
    """Narrow and wide, light and heavy, with bounds within and far beyond what is likely."""
    rng = np.random.default_rng(0)
    n = 60
    location, scale = rng.uniform(1.2, 2.8, n), 10 ** rng.uniform(-2.0, -0.1, n)
    df = None if tails == "gaussian" else 2.05 + 10 ** rng.uniform(-1.0, 1.7, n)
    skew = rng.uniform(-0.75, 0.75, n) if tails == "skewed" else None
    p = Predictive(location, scale, df, transform, skew)
    low, high = (3.0, 900.0) if isinstance(transform, Log10) else (1.0, 3.2)
    found = p.mean_of(lambda y: y, (low, high))
    least, most = np.minimum(low, p.quantile(0.25)), np.maximum(high, p.quantile(0.75))
    # Of the density: even steps of asinh((u - location) / scale).
    s = np.linspace(-16.0, 16.0, 20_001)
    for i in range(n):
        u = location[i] + scale[i] * np.sinh(s)
        mass = np.exp(replace(p.rows(np.full(len(s), i)), transform=Identity()).log_density(u)) * np.cosh(s)
        y = transform.inverse(np.clip(u, -300.0, 300.0))
        assert found[i] == pytest.approx((np.clip(y, least[i], most[i]) * mass).sum() / mass.sum(), rel=2e-6)


def test_the_tail_of_a_student_t_is_one_everywhere():
    """scipy's own inverse gives +inf, NaN (2.68079912 at 1.74082538e-291) and quantiles that are half of what they should be."""
    rng = np.random.default_rng(0)
    nu, p = 2.05 + 10 ** rng.uniform(-1.0, 2.5, 40_000), 10 ** rng.uniform(-300.0, -0.31, 40_000)
    u = student_tail(nu, p)
    assert np.isfinite(u).all() and (student_tail(nu, p / 2) < u).all()
    np.testing.assert_allclose(special.stdtr(nu, u), p, rtol=1e-6)
    assert student_tail(2.68079912, np.array(1.74082538e-291)) < -1e107


def test_a_bounded_mean_lies_in_its_own_interval():
    p = Predictive(np.array([68.8, 30.0, 5.0]), np.array([2.0, 3.0, 0.5]))
    mean = p.mean_of(lambda t: t, (20.0, 46.0))
    lower, upper = p.interval(0.5)
    assert (lower < mean).all() and (mean < upper).all(), mean
    assert mean[1] == pytest.approx(30.0, abs=0.1)  # within the bounds nothing changes


def test_level_out_of_range_is_named():
    with pytest.raises(ValueError, match=r"level must lie between 0 and 1; got 95"):
        CASES["gaussian"].interval(95)


def test_samples_follow_the_distribution():
    p = CASES["student"].rows(np.array([0]))
    draws = p.sample(20_000, np.random.default_rng(0))[0]
    # Kolmogorov-Smirnov at the 0.1% level: 1.95 / sqrt(n).
    assert stats.kstest(draws, lambda y: p.cdf(y)).statistic < 1.95 / np.sqrt(20_000)


def test_skewness_stretches_the_halves_and_leaves_the_mode():
    p = Predictive(np.zeros(1), np.ones(1), np.array([5.0]), log_skewness=np.array([np.log(1.5)]))
    h = np.array([1e-3])
    assert p.log_density(0 * h) > p.log_density(h) and p.log_density(0 * h) > p.log_density(-h)
    # Equal densities lie gamma and 1 / gamma away from the mode, and gamma^2 : 1 is the ratio of the masses.
    np.testing.assert_allclose(p.log_density(np.array([1.5])), p.log_density(np.array([-1 / 1.5])))
    np.testing.assert_allclose(p.exceedance(0.0) / p.cdf(np.zeros(1)), 1.5**2)


def test_zero_skewness_is_the_symmetric_distribution():
    for df in (None, DF):
        a, b = Predictive(LOCATION, SCALE, df), Predictive(LOCATION, SCALE, df, log_skewness=0 * SKEW)
        for f in ("median", "mean", "sd"):
            np.testing.assert_allclose(getattr(b, f)(), getattr(a, f)(), rtol=1e-12)
        for f in ("cdf", "log_density", "crps"):
            np.testing.assert_allclose(getattr(b, f)(Y), getattr(a, f)(Y), rtol=1e-12)


def test_skewed_mean_and_sd_match_quadrature():
    for p in (CASES["gaussian-skewed"], Predictive(LOCATION, SCALE, DF + 3.0, log_skewness=SKEW)):
        for i in range(6):
            one = p.rows(np.array([i]))

            def density(x, one=one):
                return np.exp(one.log_density(np.array([x]))[0])

            grid = [-np.inf, LOCATION[i], np.inf]
            m, m2 = (
                sum(
                    integrate.quad(lambda x, k=k: x**k * density(x), a, b, limit=200)[0]
                    for a, b in pairwise(grid)
                )
                for k in (1, 2)
            )
            np.testing.assert_allclose(one.mean()[0], m, rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(one.sd()[0], np.sqrt(m2 - m * m), rtol=1e-5)


CURVES = {
    "log10": Log10(),
    "root": YeoJohnson(0.5),
    "convex": YeoJohnson(1.6),
    "steep": Affine(YeoJohnson(0.1), 0.3, 2.0),
}


@pytest.mark.parametrize("transform", CURVES.values(), ids=CURVES)
@pytest.mark.parametrize("df", [None, 4.0])
def test_a_mean_is_the_integral_or_said_to_be_none(transform, df):
    nu = None if df is None else np.full(1, df)
    p = Predictive(np.array([0.4]), np.array([0.35]), nu, transform, np.array([0.3]))
    finite = df is None or max(transform.growth) < df
    assert np.isfinite(p.mean()).all() == finite
    assert np.isfinite(p.crps(np.ones(1))).all() == finite
    assert p.center == ("mean" if df is None or max(transform.growth) <= 2 else "median")
    np.testing.assert_array_equal(p.central(), p.mean() if p.center == "mean" else p.median())
    twice = df is None or 2 * max(transform.growth) < df
    assert np.isfinite(p.sd()).all() == twice
    if twice:  # its moments by the density
        grid = np.linspace(-40, 40, 400_001) if df is None else np.sinh(np.linspace(-40, 40, 400_001))
        u = p.location + p.scale * grid
        y = transform.inverse(u)
        density = np.exp(Predictive(p.location, p.scale, nu, log_skewness=p.log_skewness).log_density(u))
        mean, square = (np.trapezoid(np.where(density > 0, v * density, 0.0), u) for v in (y, y**2))
        np.testing.assert_allclose(p.mean(), mean, rtol=1e-5)
        np.testing.assert_allclose(p.sd(), np.sqrt(square - mean**2), rtol=1e-3)


def test_the_lognormal_mean_is_exact_however_wide():
    scale = np.array([0.1, 0.5, 1.0, 2.0])
    p = Predictive(np.ones(4), scale, None, Log10())
    np.testing.assert_allclose(p.mean(), 10 ** (1 + 0.5 * np.log(10) * scale**2), rtol=1e-6)
    assert p.center == "mean"


def test_scores_of_a_distribution_without_a_mean_are_finite_and_of_the_median():
    rng = np.random.default_rng(0)
    p = Predictive(np.zeros(500), np.full(500, 0.4), np.full(500, 3.0), Log10())
    y = p.sample(1, rng)[:, 0]
    assert (p.central() < p.quantile(0.975)).all() and np.isinf(p.mean()).all()
    found = score(p, y, target_mean=0.0, target_sd=1.0, bounds=(y.min(), y.max()))
    assert np.isfinite(list(found.values())).all()
    np.testing.assert_allclose(found["rmse"], np.sqrt(np.square(y - p.median()).mean()))
    lower, upper = p.interval(0.6826894921370859)
    np.testing.assert_allclose(p.spread(), 0.5 * (upper - lower))


def test_densities_on_a_chosen_scale_hold_all_their_mass():
    """A power below 0 or above 2 ends: what lay beyond was an atom at the end, and the density lacked its mass."""
    u = np.random.default_rng(0).standard_normal(2000)
    for y in (np.exp(1.5 * u), -np.exp(1.5 * u)):
        transform = transform_for("yeo-johnson", y)
        p = Predictive(
            np.array([float(transform.forward(y).max())]), np.full(1, 2.0 * y.std()), None, transform
        )
        assert min(transform.growth) > 0
        edges = p.quantile(1e-6)[0], p.quantile(1 - 1e-6)[0]
        grid = transform.inverse(np.linspace(*(float(transform.forward(np.array(e))) for e in edges), 20_001))
        many = Predictive(*(np.full(20_001, v[0]) for v in (p.location, p.scale)), None, transform)
        mass = np.trapezoid(np.exp(many.log_density(grid)), grid)
        assert mass == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("nu", [2.2, 3.0, 5.53491372, 6.1])
def test_a_mean_through_a_curve_is_finite_however_few_the_degrees_of_freedom(nu):
    """scipy's far tail is +inf there: means and sds were NaN, and `GPRegressor.predict` with them."""
    transform = YeoJohnson(power=1.4, centre=0.2, scale=0.6)
    n, df = 2, np.full(2, nu)
    found = Predictive(np.array([0.1, -0.5]), np.full(n, 0.2), df, transform)
    assert np.isfinite(found.mean()).all()
    rng = np.random.default_rng(0)
    draws = transform.inverse(found.location[:, None] + 0.2 * rng.standard_t(nu, (n, 400_000)))
    np.testing.assert_allclose(found.mean(), draws.mean(axis=1), atol=0.01)
    assert (np.diff(student_tail(nu, 10.0 ** -np.arange(301.0, 0.0, -10.0))) > 0).all()


def test_two_peaks_are_a_mixture():
    """Probabilities, moments, draws; where the second has no share all is the first's, to the bit."""
    p = CASES["two-peaks"]
    first, second = replace(p, peak=None), Predictive(PEAK.location, PEAK.scale)
    w = SHARE
    for y in (Y, LOCATION, LOCATION - 9.0):
        np.testing.assert_allclose(p.cdf(y), (1 - w) * first.cdf(y) + w * second.cdf(y), rtol=1e-13)
    np.testing.assert_allclose(p.mean(), (1 - w) * first.mean() + w * second.mean(), rtol=1e-13)
    square = (1 - w) * (first.sd() ** 2 + first.mean() ** 2) + w * (second.sd() ** 2 + second.mean() ** 2)
    np.testing.assert_allclose(p.sd() ** 2, square - p.mean() ** 2, rtol=1e-9)
    draws = p.sample(200_000, np.random.default_rng(0))
    for level in (0.1, 0.5, 0.9):
        np.testing.assert_allclose((draws <= p.quantile(level)[:, None]).mean(axis=1), level, atol=0.004)
    # In either tail to its last digit: an interval of one in a hundred million.
    far = 1e-9
    np.testing.assert_allclose(p.cdf(p.quantile(far)), far, rtol=1e-6)
    upper = p._working(far, upper=True)
    np.testing.assert_allclose(
        [p.rows(np.array([i])).exceedance(upper[i])[0] for i in range(6)], far, rtol=1e-6
    )
    np.testing.assert_allclose(p.median(), p.quantile(0.5), rtol=0)
    alone = np.array([0])
    one, other = p.rows(alone), first.rows(alone)
    for of in (lambda d: d.quantile(0.2), lambda d: d.crps(Y[alone]), Predictive.mean, Predictive.median, Predictive.sd,
               lambda d: d.log_density(Y[alone]), lambda d: d.exceedance(0.3)):  # fmt: skip
        assert of(one) == of(other)


def test_a_bounded_mean_of_two_peaks_is_that_of_either():
    """Held within bounds that the middle half of the mixture lies in."""
    p = CASES["two-peaks"]
    low, high = p.quantile(0.25).min() - 1.0, p.quantile(0.75).max() + 1.0
    got = p.mean_of(np.exp, (low, high))
    y = np.linspace(low, high, 400_001)
    for i in range(6):
        one = p.rows(np.array([i]))
        inner = np.trapezoid(np.exp(y + one.log_density(y)), y)
        ends = np.exp(low) * one.cdf(np.array([low])) + np.exp(high) * one.exceedance(high)
        np.testing.assert_allclose(got[i], inner + ends[0], rtol=2e-5)
