"""The scale of the target: chosen by likelihood, exact in and out, invisible to scores."""

import numpy as np
import pytest

import geogp
from geogp.errors import ImpossibleCombination, InvalidInput
from geogp.transforms import Affine, Identity, Log10, YeoJohnson, from_dict, transform_for


def field(n=3000, seed=0):
    """A smooth field with Gaussian noise and the places it was seen at."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (n, 2))
    return X, np.sin(X[:, 0]) + 0.5 * np.cos(X[:, 1]) + 0.3 * rng.normal(size=n)


def test_auto_finds_the_scale_that_made_the_data():
    X, u = field()
    assert transform_for("auto", u, X) == Identity()
    found = transform_for("auto", 10.0**u, X)
    assert isinstance(found, Affine) and found.inner == Log10()
    truth = YeoJohnson(0.3)
    bent = truth.inverse(1.5 * u)
    found = transform_for("auto", bent, X)
    assert isinstance(found, Affine) and isinstance(found.inner, YeoJohnson)
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
    assert isinstance(curved.transform_, Affine) and curved.transform_.inner == Log10()
    p = curved.predictive(X[1000:])
    assert p.log_density(y[1000:]).mean() > plain.predictive(X[1000:]).log_density(y[1000:]).mean() + 0.2
    lower, upper = p.interval(0.95)
    assert (lower > 0).all()
    assert 0.92 < ((y[1000:] >= lower) & (y[1000:] <= upper)).mean() < 0.98
    # The exceedance of a threshold is the same question on either scale.
    np.testing.assert_allclose(p.exceedance(2.0), 1.0 - p.cdf(np.full(500, 2.0)), atol=1e-12)
    assert (p.exceedance(-1.0) == 1.0).all()


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
    assert (skewed < 0).any() and isinstance(chosen, Affine) and isinstance(chosen.inner, YeoJohnson)


def test_a_method_that_fixes_its_scale_keeps_it():
    X, u = field(200)
    counts = np.log10(1.0 + np.round(np.exp(2.0 + u)))
    assert geogp.GPRegressor("cox", epochs=1).fit(X, counts).transform_ == Identity()
    flat = geogp.GPRegressor("fmgp", epochs=1, options={"predictor": lambda X: np.ones(len(X))})
    assert flat.fit(X, 10.0**u).transform_ == Identity()


def test_a_model_says_that_it_predicts_medians():
    X, u = field(300)
    y = 10.0 ** (2.0 * u)
    model = geogp.GPRegressor("local-gp", options={"steps": 10, "metric": False}).fit(X, y)
    assert model.transform_.inner == Log10() and model.center == "median"
    p = model.predictive(X[:20])
    mean, sd = model.predict(X[:20], return_std=True)
    np.testing.assert_array_equal(mean, p.median())
    assert (mean < p.quantile(0.975)).all() and np.isfinite(sd).all()
    assert geogp.GPRegressor.from_state(*model.state()).center == "median"
    straight = geogp.GPRegressor(
        "local-gp", options={"steps": 10, "metric": False}, target_transform="identity"
    ).fit(X, y)
    assert straight.center == "mean"
