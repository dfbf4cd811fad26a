"""Both posteriors say of phi'w what dense algebra says."""

import math

import pytest
import torch

from geogp.basis.posterior import (
    LowRankPosterior,
    PointPosterior,
    Posterior,
    Prior,
    VariationalPosterior,
    WeightPosterior,
)


def dense_covariance(posterior):
    q = posterior.current()
    if hasattr(q, "scale_tril"):
        return q.scale_tril @ q.scale_tril.T
    return q.factor @ q.factor.T + torch.diag(q.diagonal**2)


@pytest.mark.parametrize("kind", [VariationalPosterior, LowRankPosterior])
def test_moments_covariance_and_kl_equal_the_dense_ones(kind):
    torch.manual_seed(0)
    posterior = kind(7).double()
    with torch.no_grad():
        for p in posterior.parameters():
            p.add_(0.3 * torch.randn_like(p))
    q = posterior.current()
    S = dense_covariance(posterior)
    phi = torch.randn(5, 7, dtype=torch.float64)
    mean, variance = q.moments(phi)
    torch.testing.assert_close(mean, phi @ q.mean)
    torch.testing.assert_close(variance, (phi @ S @ phi.T).diagonal())
    torch.testing.assert_close(q.covariance(phi, phi), phi @ S @ phi.T)
    prior = torch.distributions.MultivariateNormal(torch.zeros(7).double(), torch.eye(7).double())
    own = torch.distributions.MultivariateNormal(q.mean.detach(), S.detach())
    torch.testing.assert_close(q.kl().detach(), torch.distributions.kl_divergence(own, prior))


def moved(kind, rank=7):
    """A posterior away from where it starts."""
    torch.manual_seed(1)
    posterior = kind(rank).double()
    with torch.no_grad():
        for p in posterior.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return posterior


@pytest.mark.parametrize("kind", [VariationalPosterior, LowRankPosterior, Prior])
def test_beside_the_moments_stands_the_variance_before_data(kind):
    q = moved(kind).current()
    phi = torch.randn(5, 7, dtype=torch.float64)
    for found, expected in zip(
        q.moments_and_prior(phi), (*q.moments(phi), (phi @ phi.T).diagonal()), strict=True
    ):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", [VariationalPosterior, LowRankPosterior])
def test_it_begins_with_a_share_of_the_prior_and_knows_little_across(kind):
    """Of each of r weights 1/r of the prior's variance, so that phi'w begins as wide as one weight of the prior."""
    torch.manual_seed(0)
    S = dense_covariance(kind(64))
    torch.testing.assert_close(S.diagonal(), torch.full((64,), 1 / 64), rtol=0.02, atol=0)
    across = S - S.diagonal().diag()
    assert 0 < across.abs().max() < 0.1 / 64
    assert kind(64).mean.abs().max() == 0


@pytest.mark.parametrize("kind", [VariationalPosterior, LowRankPosterior])
def test_multiplied_the_covariance_is_the_whole_one_times_the_factor(kind):
    posterior = moved(kind)
    mean, S = posterior.mean.detach().clone(), dense_covariance(posterior).detach()
    posterior.multiply(2.5)
    torch.testing.assert_close(dense_covariance(posterior).detach(), 2.5 * S)
    torch.testing.assert_close(posterior.mean.detach(), mean)


@pytest.mark.parametrize("kind", [VariationalPosterior, LowRankPosterior])
def test_initialised_it_is_near_what_was_asked(kind):
    torch.manual_seed(0)
    posterior, mean = kind(64), torch.linspace(-1, 1, 64)
    posterior.initialise(mean, 0.05)
    S = dense_covariance(posterior)
    torch.testing.assert_close(posterior.mean.detach(), mean)
    torch.testing.assert_close(S.diagonal(), torch.full((64,), 0.05**2), rtol=0.05, atol=0)
    assert (S - S.diagonal().diag()).abs().max() < 0.1 * 0.05**2


@pytest.mark.parametrize("kind", [VariationalPosterior, LowRankPosterior])
def test_draws_have_the_mean_and_covariance(kind):
    """Of 40,000 draws: their mean within 5 of its standard errors, their covariance within 5 of its own."""
    q, n = moved(kind).current(), 40_000
    S = dense_covariance(moved(kind)).detach()
    w = q.sample(n, torch.Generator().manual_seed(0)).detach()
    sd = S.diagonal().sqrt()
    assert w.shape == (7, n)
    assert ((w.mean(1) - q.mean).abs() < 5 * sd / n**0.5).all()
    error = (torch.cov(w) - S).abs()
    assert (error < 5 * (S.square() + torch.outer(sd, sd).square()).sqrt() / n**0.5).all()


def test_any_square_root_of_the_covariance_will_do():
    """(r, k) with fewer columns than weights, in the dtype that is asked for."""
    torch.manual_seed(0)
    q = WeightPosterior(torch.randn(5), torch.randn(5, 2)).to(torch.zeros(1, dtype=torch.float64))
    assert q.mean.dtype == q.scale_tril.dtype == torch.float64
    phi, other = torch.randn(4, 5, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    S = q.scale_tril @ q.scale_tril.T
    torch.testing.assert_close(q.covariance(phi, other), phi @ S @ other.T)
    torch.testing.assert_close(q.moments(phi)[1], (phi @ S @ phi.T).diagonal())
    assert q.sample(6, torch.Generator().manual_seed(0)).shape == (5, 6)


def test_a_prior_is_the_standard_normal_and_a_point_has_no_variance():
    prior = Prior(4)
    prior.initialise(torch.ones(4), 3.0)
    q = prior.current()
    assert torch.equal(q.mean, torch.zeros(4)) and torch.equal(q.scale_tril, torch.eye(4))
    assert float(q.kl()) == 0.0 and "mean" not in prior.state_dict()
    assert (
        "mean" in dict(prior.double().named_buffers()) and prior.current().scale_tril.dtype == torch.float64
    )

    point = PointPosterior(4)
    assert torch.equal(point.current().mean, torch.zeros(4))
    point.initialise(torch.tensor([1.0, 2.0, 0.0, -1.0]), 3.0)
    found, variance = point.current().moments(torch.eye(4))
    assert found.tolist() == [1.0, 2.0, 0.0, -1.0] and variance.tolist() == [0.0] * 4
    # Less the constant, the negative logarithm of the prior's density at the point.
    density = torch.distributions.Normal(0.0, 1.0).log_prob(point.mean.detach()).sum()
    assert float(point.current().kl().detach()) == pytest.approx(-float(density) - 2 * math.log(2 * math.pi))


def test_what_a_posterior_does_not_say_is_not_taken_for_granted():
    for call in (
        lambda p: p.current(),
        lambda p: p.initialise(torch.zeros(1), 1.0),
        lambda p: p.multiply(2.0),
    ):
        with pytest.raises(NotImplementedError):
            call(Posterior())


def test_the_covariance_is_that_of_what_is_learned():
    """As runs hold it: another reading of the same tensors would be another model."""
    dense = moved(VariationalPosterior)
    L = torch.diag(dense.log_diagonal.exp()) + dense.off_diagonal.tril(-1)
    assert torch.equal(dense.current().scale_tril, L)
    low = moved(LowRankPosterior)
    S = low.factor @ low.factor.T + torch.diag(low.log_diagonal.exp() ** 2)
    torch.testing.assert_close(dense_covariance(low), S)
    assert low.factor.shape == (7, 16) and torch.equal(low.current().mean, low.mean)


@pytest.mark.parametrize("kind", [VariationalPosterior, LowRankPosterior])
def test_a_start_is_as_round_at_every_scale(kind):
    across = []
    for scale in (0.05, 0.5):
        torch.manual_seed(0)
        posterior = kind(64)
        posterior.initialise(torch.zeros(64), scale)
        S = dense_covariance(posterior).detach() / scale**2
        across.append(S - S.diagonal().diag())
    torch.testing.assert_close(*across, rtol=1e-3, atol=1e-7)


def test_weights_begin_all_but_independent():
    """Of r weights the part of the root that ties them has a tenth of the diagonal's size, spread over r a row."""
    torch.manual_seed(0)
    for r in (16, 256):
        found = VariationalPosterior(r).off_diagonal.detach().square().sum(1).mean().sqrt()
        assert float(found) == pytest.approx(0.1 / r, rel=0.1)
