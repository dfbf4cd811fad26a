"""Cox process: the bound, the moments of log counts, recovery of a known intensity."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import math

import numpy as np
import pytest
import torch

from geogp.basis.objectives.poisson import bursts, hermite_nodes, poisson
from geogp.basis.objectives.terms import Terms
from geogp.engines.cox import log_count_moments, table

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


@pytest.mark.agrees(
    methods=["cox"],
    of="objective",
    with_="the negative binomial log likelihood by quadrature with 60 nodes",
    tolerance=1e-7,
    source="low-rank-deep-kernel-decomposition, appendix A.5",
)
def test_the_bound_with_bursts_is_that_of_the_negative_binomial(tolerance):
    g = torch.Generator().manual_seed(0)
    mean, variance = torch.randn(6, generator=g).double(), 0.3 * torch.rand(6, generator=g).double()
    y = torch.tensor([0.0, 1, 2, 5, 0, 300], dtype=torch.float64)
    zero, kl = torch.zeros(6, dtype=torch.float64), torch.tensor(1.2, dtype=torch.float64)

    def terms(c):
        return Terms(y, mean, variance, zero, zero, zero + c, kl, 6)

    nodes, weights = hermite_nodes(60)
    rate = 3.0 * (mean[:, None] + variance.sqrt()[:, None] * nodes).exp()
    size = 1.0 / 0.7
    exact = torch.distributions.NegativeBinomial(size, logits=(rate / size).log())
    log_likelihood = exact.log_prob(y[:, None].expand_as(rate)) + torch.lgamma(y + 1)[:, None]
    ours = bursts(terms(0.7), exposure=torch.full((6,), 3.0).double())
    assert torch.allclose(ours, -(log_likelihood @ weights).mean() + 0.2, rtol=0, atol=tolerance)
    # No bursts: the Poisson bound, but for the logarithm of the exposure that it leaves out. The variance of G is
    # 1e-6 there: its effect is half of that times y^2.
    assert torch.allclose(bursts(terms(0.0)), poisson(terms(0.0)), atol=10 * tolerance * 300**2)


@pytest.mark.parametrize("c", [0.0, 0.05, 1.5])
def test_the_moments_of_log_counts_are_those_of_simulated_counts(c):
    rng = np.random.default_rng(0)
    eta, variance = torch.tensor([-1.0, 1.0, 4.0, 8.0]).double(), torch.tensor([0.5, 0.2, 0.1, 0.1]).double()
    mean, latent, noise = log_count_moments(eta, variance, c)
    f = eta.numpy()[:, None] + variance.sqrt().numpy()[:, None] * rng.standard_normal((4, 200_000))
    rate = np.exp(f)
    if c:
        rate = rate * rng.gamma(1.0 / c, c, rate.shape)
    t = np.log10(1.0 + rng.poisson(rate))
    # 200,000 draws of a variable of sd below .7: five standard errors of its mean and variance are below .01.
    assert np.allclose(mean, t.mean(1), atol=0.01)
    assert np.allclose(latent + noise, t.var(1), atol=0.01)


def test_the_table_is_smooth_where_sum_and_expansion_meet():
    means, variances = table(1.0)
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
    assert 0.0 < model.engine_.burst_variance < 0.15
    t = np.log10(1 + counts)
    lower, upper = model.interval(X, level=0.95)
    assert 0.9 < ((t >= lower) & (t <= upper)).mean() <= 1.0
    again = geogp.GPRegressor.from_state(*model.state())
    assert np.array_equal(again.predict(X), model.predict(X))
    assert model.sample_y(X[:5], n_samples=4).shape == (5, 4)


def test_bursts_are_told_from_the_intensity():
    """Counts whose rate has a gamma factor of variance 1.5: found again, and the intervals cover new counts."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (2400, 2))
    rate = np.exp(2.5 + np.sin(X[:, 0]))
    t = np.log10(1 + rng.poisson(rate * rng.gamma(1 / 1.5, 1.5, 2400)))
    size = {"hidden": 16, "rank": 16, "fourier_scales": (1.0,)}
    model = geogp.GPRegressor(method="cox", steps=1500, **size).fit(X[:2000], t[:2000])
    # 2,000 rows tell the variance of a gamma factor to about 5%; what the intensity misses or takes comes on top.
    assert 1.2 < model.engine_.burst_variance < 1.9
    estimate, _ = model.engine_.intensity(torch.as_tensor(X))
    assert np.corrcoef(estimate, rate)[0, 1] > 0.9
    lower, upper = model.interval(X[2000:], level=0.95)
    assert 0.91 < ((t[2000:] >= lower) & (t[2000:] <= upper)).mean() < 0.995
    plain = geogp.GPRegressor(method="cox", steps=50, hidden=8, rank=8, options={"bursts": False}).fit(X, t)
    assert plain.engine_.burst_variance == 0.0 and np.isfinite(plain.predict(X[:5])).all()


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


def test_the_bound_pulls_a_wild_intensity_back():
    f = torch.tensor([12.0, 31.0, 80.0], dtype=torch.float64, requires_grad=True)
    zero = torch.zeros(3, dtype=torch.float64)
    loss = poisson(Terms(torch.full_like(zero, 5.0), f, zero, zero, zero, zero, zero.sum(), 3))
    slope = torch.autograd.grad(loss, f)[0]
    assert bool(torch.isfinite(loss)) and bool((slope > 0).all())


def test_events_without_rows_held_out_keep_a_finite_intensity():
    rng = np.random.default_rng(0)
    U = rng.uniform(0, 10, (800, 2))
    events = U[rng.uniform(size=800) < np.exp(np.sin(U[:, 0]) - 1.0)]
    nothing = (np.empty((0, 2)), np.empty(0), None)
    model = geogp.GPRegressor(
        "cox", hidden=16, rank=16, steps=400, options={"process": "points", "scale": "count"}
    ).fit(events, np.ones(len(events)), validation=nothing)
    rate, sd = model.engine_.intensity(torch.as_tensor(rng.uniform(0, 10, (2000, 2))))
    assert bool(torch.isfinite(rate).all()) and bool(torch.isfinite(sd).all())
    # Its mean over the box is 1, known to 1 / sqrt(450) = 5%; overfitted bumps come on top.
    assert 0.7 < float(rate.mean()) < 1.4 and float(rate.max()) < 30.0


def test_no_interval_of_a_count_is_negative():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (300, 2))
    counts = rng.poisson(np.exp(np.sin(X[:, 0]) - 0.5)).astype(float)
    size = {"steps": 60, "hidden": 8, "rank": 8}
    for options, y in (({}, np.log10(1 + counts)), ({"scale": "count"}, counts)):
        model = geogp.GPRegressor("cox", options=options, **size).fit(X, y)
        for latent in (False, True):
            lower, upper = model.interval(X, 0.99, latent=latent)
            assert lower.min() >= 0.0 and (upper > lower).all()
        new = model.predictive(X)
        assert new.median().min() >= 0.0 and new.sample(20, np.random.default_rng(0)).min() >= 0.0
        assert (new.exceedance(-0.01) == 1.0).all() and (new.cdf(-0.01) == 0.0).all()
        assert (new.cdf(np.zeros(len(X))) > 0.0).any() and np.isfinite(new.log_density(y)).all()


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
