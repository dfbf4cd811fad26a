"""The surface is one thing: latent moments, draws, covariances and maps of it agree, at the run's reference count."""

import numpy as np
import pytest
import torch
from odc.geo.geobox import GeoBox

import geogp
from geogp.areas import surface
from geogp.methods import METHODS
from geogp.prediction import SURFACE
from geogp.run import Run
from geogp.suggest import suggest_places
from tests.geogp.test_contracts import for_method, small

#: The table, and a basis with the field on what it leaves over.
KINDS = {**{name: {} for name in METHODS}, "sv-rbf, local": {"residual": "local"}}


def counted(n=60, seed=0):
    """A field whose averages of few measurements lie higher."""
    rng = np.random.default_rng(seed)
    X, counts = rng.uniform(0, 10, (n, 2)), rng.integers(1, 60, n).astype(float)
    return X, np.sin(X[:, 0]) + 2.0 / counts + 0.1 * rng.standard_normal(n), counts


@pytest.fixture(scope="module")
def shifted():
    """A local field on averages whose level shifts with the count."""
    return geogp.GPRegressor(
        "local-gp", target_transform="identity", options={"steps": 30, "metric": False}
    ).fit(*counted(300))


@pytest.mark.parametrize("kind", KINDS)
def test_draws_covariance_and_moments_agree(kind):
    method = kind.split(",")[0]
    changes = KINDS[kind] | (
        {"options": {"steps": 10}} if "local" in (METHODS[method].residual, *KINDS[kind].values()) else {}
    )
    X, y, n = counted()
    model = small(method, target_transform="identity", **changes).fit(X, for_method(method, y), n)
    for counts in (None, 2.0):
        agree(model, X[:6], counts)


def agree(model, places, counts):
    """Moments, covariance and draws of a model at places are of one surface."""
    mean, sd = model.predict(places, return_std=True, latent=True, counts=counts)
    center, covariance = model.predict(places, return_cov=True, latent=True, counts=counts)
    np.testing.assert_array_equal(center, mean)
    np.testing.assert_allclose(np.diag(covariance), sd**2, rtol=1e-9, atol=1e-15)
    draws = model.sample_y(places, n_samples=4000, random_state=1, counts=counts)
    # The mean of 4,000 draws; float32 where a method works in it, and the table of a Cox process is linear between.
    assert (np.abs(draws.mean(1) - mean) < 5 * sd / 4000**0.5 + 1e-4).all()
    new, spread = model.predict(places, return_std=True, counts=counts)
    new_too, whole = model.predict(places, return_cov=True, counts=counts)
    np.testing.assert_array_equal(new_too, new)
    np.testing.assert_allclose(np.diag(whole), spread**2, rtol=1e-9, atol=1e-15)
    if model.row_.objective != "poisson":  # whose target is a curved function of the surface
        n = torch.full((len(places),), model.reference_count_ if counts is None else counts)
        own = model.engine_.posterior_covariance(torch.as_tensor(places), n).double().numpy().diagonal()
        np.testing.assert_allclose(model.target_sd_**2 * own, sd**2, rtol=1e-9, atol=1e-9)


def test_the_surface_is_that_of_the_reference_count(shifted):
    X, _, counts = counted(300)
    assert shifted.reference_count_ == np.median(counts)
    places = X[:40]
    mean, sd = shifted.predict(places, return_std=True, latent=True)
    high = shifted.predict(places, latent=True, counts=1.0)
    assert (high > mean + 4 * sd).mean() > 0.5  # so that the wrong count would show
    draws = shifted.sample_y(places, 2000)
    assert (np.abs(draws.mean(1) - mean) < 5 * sd / 2000**0.5).all()
    of_one = shifted.sample_y(places, 2000, counts=1.0)
    assert (np.abs(of_one.mean(1) - high) < 6 * sd / 2000**0.5).all()
    np.testing.assert_allclose(surface(shifted, places).location, mean)
    np.testing.assert_allclose(surface(shifted, places, counts=1.0).location, high)
    lower, upper = shifted.interval(places, latent=True, counts=1.0)
    assert (lower < high).all() and (high < upper).all()


def test_suggestions_narrow_the_surface_of_the_reference_count(shifted):
    candidates = np.random.default_rng(1).uniform(0, 10, (12, 2))
    few, many = (suggest_places(shifted, candidates, 3, counts=n) for n in (1.0, 50.0))
    assert few.average_before[0] == many.average_before[0]
    assert (few.noise_variance > many.noise_variance.max()).all()


def test_maps_hold_the_surface_still_while_tests_change(shifted):
    crs = "EPSG:32604"
    run = Run("run", {"target": "value", "data": {"crs": crs}}, shifted)
    box = GeoBox.from_bbox((0, 0, 10, 10), crs, resolution=1)
    usual, one = geogp.predict(run, box), geogp.predict(run, box, tests=1)
    for name in SURFACE:
        np.testing.assert_array_equal(one[name].values, usual[name].values)
        assert f"reference count of {shifted.reference_count_:g} measurements" in one[name].attrs["long_name"]
    assert (one["median"] > usual["median"]).mean() > 0.9
    assert one.attrs["reference_count"] == usual.attrs["reference_count"] == shifted.reference_count_
    assert one.attrs["tests"] == 1


def test_runs_written_before_say_their_typical_count():
    X, y, n = counted()
    tensors, facts = small("sgpr").fit(X, y, n).state()
    assert facts.pop("reference_count") == np.median(n)
    assert geogp.GPRegressor.from_state(tensors, facts).reference_count_ == np.median(n)
