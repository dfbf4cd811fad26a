"""Both posteriors say of phi'w what dense algebra says."""

import pytest
import torch

from geogp.basis.posterior import LowRankPosterior, VariationalPosterior


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
