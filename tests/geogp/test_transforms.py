"""The scale of the target: chosen by likelihood, exact in and out, invisible to scores."""

import numpy as np
import pytest

import geogp
from geogp.errors import ImpossibleCombination, InvalidInput
from geogp.predictive import Predictive
from geogp.transforms import (
    Affine,
    Identity,
    Log10,
    Straightened,
    YeoJohnson,
    from_dict,
    straightened,
    transform_for,
)


def field(n=3000, seed=0):
    """A smooth field with Gaussian noise and the places it was seen at."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (n, 2))
    return X, np.sin(X[:, 0]) + 0.5 * np.cos(X[:, 1]) + 0.3 * rng.normal(size=n)


def curve_of(t):
    """What is straight beyond the targets."""
    assert isinstance(t, Affine) and isinstance(t.inner, Straightened)
    return t.inner.inner


def test_auto_finds_the_scale_that_made_the_data():
    X, u = field()
    assert transform_for("auto", u, X) == Identity()
    found = transform_for("auto", 10.0**u, X)
    assert curve_of(found) == Log10() and found.inner.beyond == (10.0**u).max()
    truth = YeoJohnson(0.3)
    bent = truth.inverse(1.5 * u)
    found = transform_for("auto", bent, X)
    assert isinstance(curve_of(found), YeoJohnson)
    # The bent targets' own scale differs from the truth's: what counts is that the result is straight again.
    assert np.corrcoef(found.forward(bent), u)[0, 1] > 0.99


def test_a_level_that_varies_is_not_taken_for_skewness():
    X, u = field()
    plateau = 9.0 * (X[:, 0] > 8.5) + u  # strongly skewed over space, Gaussian around its neighbours
    assert transform_for("auto", plateau, X) == Identity()
    assert transform_for("auto", plateau) != Identity()  # who does not look around is fooled


@pytest.mark.parametrize("name", ["log10", "yeo-johnson"])
def test_it_inverts_keeps_mean_and_sd_and_stores(name):
    _, u = field(500)
    y = 10.0**u
    t = transform_for(name, y)
    np.testing.assert_allclose(t.inverse(t.forward(y)), y, rtol=1e-9)
    forward = t.forward(y)
    assert forward.mean() == pytest.approx(y.mean()) and forward.std() == pytest.approx(y.std())
    assert from_dict(t.to_dict()) == t
    h = 1e-6 * y
    slope = (t.forward(y + h) - t.forward(y - h)) / (2 * h)
    np.testing.assert_allclose(np.exp(t.log_derivative(y)), slope, rtol=1e-5)


def test_a_model_predicts_on_the_scale_of_its_targets():
    X, u = field(1500)
    y = 10.0**u
    plain, curved = (
        geogp.GPRegressor("sgpr", rank=64, random_state=0, **said).fit(X[:1000], y[:1000])
        for said in ({"target_transform": "identity"}, {})
    )
    assert curve_of(curved.transform_) == Log10()
    p = curved.predictive(X[1000:])
    assert p.log_density(y[1000:]).mean() > plain.predictive(X[1000:]).log_density(y[1000:]).mean() + 0.2
    lower, upper = p.interval(0.95)
    assert (lower > 0).all()
    assert 0.92 < ((y[1000:] >= lower) & (y[1000:] <= upper)).mean() < 0.98
    # The exceedance of a threshold is the same question on either scale.
    np.testing.assert_allclose(p.exceedance(2.0), 1.0 - p.cdf(np.full(500, 2.0)), atol=1e-12)
    assert (p.exceedance(-1.0) == 1.0).all()


def test_what_covariates_explain_is_not_taken_for_skewness():
    rng = np.random.default_rng(0)
    X, u = field(400)
    height = np.exp(1.5 * rng.normal(size=400))  # another at each place, and skewed
    y = u - 2.0 * height
    assert transform_for("auto", y, X) != Identity()  # who does not know the heights is fooled
    assert transform_for("auto", y, X, height[:, None]) == Identity()
    model = geogp.GPRegressor("sgpr", spatial=(0, 1), rank=16, epochs=1).fit(np.column_stack([X, height]), y)
    assert model.transform_ == Identity()
    # More columns than a tenth of the rows explain nothing: else they would explain everything.
    many = np.column_stack([height, rng.normal(size=(400, 40))])
    assert transform_for("auto", y, X, many) != Identity()


def test_constant_and_few_targets_stay_as_they_are():
    assert transform_for("auto", np.ones(100)) == Identity()
    assert transform_for("auto", np.arange(5.0)) == Identity()


def test_bad_requests_are_refused():
    with pytest.raises(InvalidInput, match="target_transform must be one of"):
        transform_for("sqrt", np.ones(30))
    with pytest.raises(InvalidInput, match="needs positive targets; got -1"):
        transform_for("log10", np.linspace(-1, 1, 30))
    with pytest.raises(ImpossibleCombination, match="fixes the scale"):
        geogp.GPRegressor("cox", target_transform="log10").fit(
            np.random.default_rng(0).normal(size=(40, 2)), np.ones(40)
        )


def test_nothing_said_is_the_likeliest_scale_and_targets_of_either_sign_stay_straight():
    X, u = field(400)
    for y, expected in ((u, Identity()), (u - 5.0, Identity()), (1e-6 * u, Identity())):
        assert geogp.GPRegressor("sgpr", rank=16, epochs=1).fit(X, y).transform_ == expected
    skewed = np.sinh(1.5 * u) + np.exp(1.2 * u)  # of either sign: no logarithm
    chosen = geogp.GPRegressor("sgpr", rank=16, epochs=1).fit(X, skewed).transform_
    assert (skewed < 0).any() and isinstance(curve_of(chosen), YeoJohnson)


def test_a_method_that_fixes_its_scale_keeps_it():
    X, u = field(200)
    counts = np.log10(1.0 + np.round(np.exp(2.0 + u)))
    assert geogp.GPRegressor("cox", epochs=1).fit(X, counts).transform_ == Identity()
    flat = geogp.GPRegressor("fmgp", epochs=1, options={"predictor": lambda X: np.ones(len(X))})
    assert flat.fit(X, 10.0**u).transform_ == Identity()


@pytest.mark.parametrize(
    "curve", [Log10(), YeoJohnson(0.0, 1.0, 2.0), YeoJohnson(0.4, 1.0, 2.0), YeoJohnson(1.7, 1.0, 2.0)]
)
def test_a_curve_goes_on_along_its_tangent_where_nothing_was_measured(curve):
    measured = np.array([0.5, 1.0, 3.0, 8.0])
    t = straightened(curve, measured)
    upper = curve.growth[1] > 1.0
    end, out = (measured.max(), 1.0) if upper else (measured.min(), -1.0)
    assert t.beyond == end and max(t.growth) == 1.0 and t.growth[not upper] == curve.growth[not upper]
    inside = end - out * np.geomspace(1e-3, 0.4, 9)
    for ours, bare in ((t.forward, curve.forward), (t.log_derivative, curve.log_derivative)):
        np.testing.assert_array_equal(ours(inside), bare(inside))
    beyond = end + out * np.geomspace(1e-9, 1e6, 16)
    slope = np.exp(curve.log_derivative(np.asarray(end)))
    np.testing.assert_allclose(t.forward(beyond), curve.forward(end) + slope * (beyond - end))
    np.testing.assert_allclose(np.exp(t.log_derivative(beyond)), slope)
    everywhere = np.r_[inside, beyond]
    np.testing.assert_allclose(t.inverse(t.forward(everywhere)), everywhere, rtol=1e-9)
    assert (np.diff(t.forward(np.sort(everywhere))) > 0).all() and from_dict(t.to_dict()) == t


def test_what_is_not_positive_has_no_density_on_a_scale_of_logarithms():
    for t in (Log10(), transform_for("log10", np.arange(1.0, 40.0))):
        p = Predictive(np.zeros(3), np.ones(3), np.full(3, 4.0), t)
        assert (p.log_density(np.array([0.0, -1.0, -np.inf])) == -np.inf).all()
        assert np.isfinite(p.log_density(np.array([1e-3, 1.0, 1e3]))).all()


def test_a_curve_that_nowhere_runs_away_stays_as_it_is():
    for curve in (Identity(), YeoJohnson(1.0)):
        assert straightened(curve, np.arange(9.0)) == curve


def test_heavy_tails_on_a_curved_scale_have_a_mean_an_sd_and_a_crps():
    y = np.exp(np.random.default_rng(0).normal(size=500))
    heavy = Predictive(np.zeros(2), np.ones(2), np.full(2, 2.5), transform_for("log10", y))
    assert heavy.center == "mean" and np.isfinite(heavy.sd()).all()
    draws = heavy.sample(400_000, np.random.default_rng(1))
    np.testing.assert_allclose(heavy.mean(), draws.mean(axis=1), rtol=0.02)
    drawn = np.abs(draws - 2.0).mean(axis=1) - 0.5 * np.abs(draws - draws[:, ::-1]).mean(axis=1)
    np.testing.assert_allclose(heavy.crps(np.full(2, 2.0)), drawn, rtol=0.02)
    bare = Predictive(heavy.location, heavy.scale, heavy.degrees_of_freedom, Log10())
    assert bare.center == "median" and np.isinf(bare.crps(np.ones(2))).all()


def test_a_model_of_skewed_targets_predicts_means():
    X, u = field(300)
    y = 10.0 ** (2.0 * u)
    model = geogp.GPRegressor("local-gp", options={"steps": 10, "metric": False}).fit(X, y)
    assert curve_of(model.transform_) == Log10() and model.engine_.has_tails and model.center == "mean"
    p = model.predictive(X[:20])
    mean, sd = model.predict(X[:20], return_std=True)
    np.testing.assert_array_equal(mean, p.mean())
    assert (mean > p.median()).all() and np.isfinite(sd).all() and np.isfinite(p.crps(y[:20])).all()
    again = geogp.GPRegressor.from_state(*model.state())
    assert again.transform_ == model.transform_ and again.center == "mean"
