"""Cox process: the bound, the moments of log counts, recovery of a known intensity."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import math

import numpy as np
import pytest
import torch

from geogp.engines.cox import hermite_nodes, log_count_moments, table
from geogp.objectives.poisson import poisson
from geogp.objectives.terms import Terms

pytestmark = pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")


def test_the_bound_is_the_expected_log_likelihood():
    g = torch.Generator().manual_seed(0)
    mean, variance = torch.randn(6, generator=g).double(), torch.rand(6, generator=g).double()
    y = torch.tensor([0.0, 1, 2, 5, 0, 3], dtype=torch.float64)
    zero = torch.zeros(6, dtype=torch.float64)
    terms = Terms(y, mean, variance, zero, zero, zero, torch.tensor(1.2, dtype=torch.float64), 6)
    nodes, weights = hermite_nodes(60)
    f = mean[:, None] + variance.sqrt()[:, None] * nodes
    log_likelihood = (
        torch.distributions.Poisson(f.exp()).log_prob(y[:, None].expand_as(f)) + torch.lgamma(y + 1)[:, None]
    )
    assert torch.allclose(poisson(terms), -(log_likelihood @ weights).mean() + 0.2, atol=1e-10)
    exposed = poisson(terms, exposure=torch.full((6,), 2.0).double())
    assert torch.allclose(exposed - poisson(terms), (mean + variance / 2).exp().mean(), atol=1e-10)


@pytest.mark.parametrize("dispersion", [1.0, 3.0])
def test_the_moments_of_log_counts_are_those_of_simulated_counts(dispersion):
    rng = np.random.default_rng(0)
    eta, variance = torch.tensor([-1.0, 1.0, 4.0]).double(), torch.tensor([0.5, 0.2, 0.1]).double()
    mean, latent, noise = log_count_moments(eta, variance, dispersion)
    f = eta.numpy()[:, None] + variance.sqrt().numpy()[:, None] * rng.standard_normal((3, 200_000))
    rate = np.exp(f)
    if dispersion > 1:
        rate = rng.gamma(rate / (dispersion - 1.0), dispersion - 1.0)
    t = np.log10(1.0 + rng.poisson(rate))
    # 200,000 draws of a variable of sd below .4: five standard errors are .005.
    assert np.allclose(mean, t.mean(1), atol=0.005)
    assert np.allclose(latent + noise, t.var(1), atol=0.005)


def test_the_table_is_smooth_where_sum_and_expansion_meet():
    means, variances = table(2.0)
    assert float(means.diff().min()) >= 0
    at = int(np.searchsorted(np.linspace(-9, 16, 501), math.log(500.0)))
    assert float((variances[at] / variances[at - 1] - 1).abs()) < 0.1


def test_a_known_intensity_is_recovered():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (1200, 2))
    rate = np.exp(1.5 + np.sin(X[:, 0]))
    counts = rng.poisson(rate)
    model = geogp.GPRegressor(method="cox", steps=200, hidden=16, rank=16).fit(X, np.log10(1 + counts))
    estimate, sd = model.engine_.intensity(torch.as_tensor(X))
    assert np.corrcoef(estimate, rate)[0, 1] > 0.9
    assert bool((sd > 0).all())
    assert 1.0 <= model.engine_.facts["dispersion"] < 1.5
    t = np.log10(1 + counts)
    lower, upper = model.interval(X, level=0.95)
    assert 0.9 < ((t >= lower) & (t <= upper)).mean() <= 1.0
    again = geogp.GPRegressor.from_state(*model.state())
    assert np.array_equal(again.predict(X), model.predict(X))
    assert model.sample_y(X[:5], n_samples=4).shape == (5, 4)


def test_events_without_bins():
    rng = np.random.default_rng(1)
    U = rng.uniform(0, 10, (4000, 2))
    events = U[rng.uniform(size=4000) < np.exp(np.sin(U[:, 0]) - 1.0)]
    model = geogp.GPRegressor(
        method="cox",
        steps=200,
        hidden=16,
        rank=16,
        fourier_scales=(1.0,),
        options={"process": "points", "scale": "count"},
    ).fit(events, np.ones(len(events)))
    G = rng.uniform(0.5, 9.5, (500, 2))
    estimate, _ = model.engine_.intensity(torch.as_tensor(G))
    assert np.corrcoef(estimate, np.exp(np.sin(G[:, 0])))[0, 1] > 0.8
    # The integral over the box is the number of rows: a uniform pattern has intensity 1.
    assert 0.8 < float(estimate.mean()) < 1.25


@pytest.mark.parametrize(
    ("options", "error"),
    [({"scale": "log"}, geogp.InvalidInput), ({"process": "lines"}, geogp.ImpossibleCombination)],
)
def test_bad_options_are_refused(options, error):
    with pytest.raises(error):
        geogp.GPRegressor(method="cox", options=options).fit(np.zeros((5, 2)), np.ones(5))


def test_targets_that_are_no_counts_are_refused():
    with pytest.raises(geogp.InvalidInput, match="counts"):
        geogp.GPRegressor(method="cox").fit(
            np.random.default_rng(0).normal(size=(30, 2)), -np.ones(30) - np.arange(30)
        )
