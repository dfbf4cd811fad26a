"""Exact GPs against dense algebra, and their limits."""

import numpy as np
import pytest
import torch

import geogp
from geogp.data import Data
from geogp.engines.asked import plan_of
from geogp.engines.exact import MAX_ROWS, ExactEngine


def toy(n=50, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 6, (n, 2))
    counts = rng.integers(1, 9, n)
    return X, np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.2 * rng.standard_normal(n) / np.sqrt(counts), counts


@pytest.mark.agrees(
    methods=["gp-rbf", "dkl"],
    of="posterior mean and covariance, log evidence",
    with_="dense N x N algebra on 50 rows",
    tolerance=1e-8,
    source="Rasmussen and Williams 2006, eq. 2.22-2.24, 2.30",
)
@pytest.mark.parametrize("method", ["gp-rbf", "dkl"])
def test_moments_and_evidence_are_those_of_the_dense_gaussian(method, tolerance):
    X, y, counts = toy()
    new = toy(20, seed=1)[0]
    model = geogp.GPRegressor(method, target_transform="identity", hidden=8, epochs=5).fit(
        X, y, counts=counts
    )
    gp = model.engine_.model
    with torch.no_grad():
        h, h_new = (gp.represent(torch.as_tensor(A)) for A in (X, new))
        length, scale = gp.kernel.base_kernel.lengthscale, gp.kernel.outputscale

        def k(a, b):
            return scale * torch.exp(-0.5 * ((a[:, None] - b) / length).square().sum(-1))

        z = torch.as_tensor((y - model.target_mean_) / model.target_sd_) - gp.constant_mean
        noise = gp.noise(h, torch.as_tensor(counts).double())
        K = k(h, h) + torch.diag(noise)
        mean = gp.constant_mean + k(h_new, h) @ torch.linalg.solve(K, z)
        covariance = k(h_new, h_new) - k(h_new, h) @ torch.linalg.solve(K, k(h, h_new))
        data = Data(torch.as_tensor(X), z + gp.constant_mean, torch.as_tensor(counts).double())
        dense = torch.distributions.MultivariateNormal(torch.zeros_like(z), K).log_prob(z)
        assert gp.log_evidence(data).item() == pytest.approx(dense.item(), abs=tolerance)
    moments = model.moments(new, counts=4)
    torch.testing.assert_close(moments.mean, mean, rtol=0, atol=tolerance)
    torch.testing.assert_close(moments.latent_variance, covariance.diagonal(), rtol=0, atol=tolerance)
    torch.testing.assert_close(
        model.engine_.posterior_covariance(torch.as_tensor(new)), covariance, rtol=0, atol=tolerance
    )
    assert (noise[counts == 1].min() > noise[counts == 8].max()).item()


def test_gradients_of_the_evidence_check():
    X, y, counts = toy(8)
    plan = plan_of(geogp.GPRegressor("gp-rbf").get_params(), 2, True, 8)
    gp = ExactEngine.new(plan.row, plan.shape, plan.size, 0)
    data = Data(torch.as_tensor(X), torch.as_tensor(y), torch.as_tensor(counts).double())
    gp.encoder.fit_scaling(data.X)
    names, values = zip(*[(n, p.detach().clone().requires_grad_()) for n, p in gp.named_parameters()])

    class Evidence(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gp = gp

        def forward(self):
            return self.gp.log_evidence(data)

    module = Evidence()

    def f(*v):
        return torch.func.functional_call(module, {f"gp.{n}": p for n, p in zip(names, v)}, ())

    assert torch.autograd.gradcheck(f, values, atol=1e-6)


def test_a_smooth_field_and_its_noise_are_recovered():
    X, y, counts = toy(300)
    new = np.random.default_rng(3).uniform(0.3, 5.7, (200, 2))
    model = geogp.GPRegressor("gp-rbf", target_transform="identity", epochs=100).fit(X, y, counts=counts)
    mean, sd = model.predict(new, return_std=True, counts=1)
    assert np.sqrt(np.mean((mean - np.sin(new[:, 0]) * np.cos(new[:, 1])) ** 2)) < 0.05
    assert 0.15 < np.median(sd) < 0.27  # one measurement: .2 and what the surface adds


def test_too_many_rows_are_refused_with_what_to_take_instead():
    X = np.zeros((MAX_ROWS + 1, 2))
    with pytest.raises(geogp.ImpossibleCombination, match="'sgpr' for the same kernel or 'dbk-rbf'"):
        geogp.GPRegressor("gp-rbf", epochs=1).fit(X, X[:, 0], validation=(X[:2], X[:2, 0], None))


def test_a_search_turns_back_from_a_kernel_that_is_not_finite():
    """A plane without noise: lengthscales ran to where all covariances are NaN, and the fit ended in GPyTorch's own error."""
    for seed in range(3):
        X = np.random.default_rng(seed).uniform(size=(200, 2))
        model = geogp.GPRegressor("gp-rbf", target_transform="identity", epochs=60).fit(
            X, np.sin(2 * X[:, 0])
        )
        mean = model.predict(X)
        assert np.abs(mean - np.sin(2 * X[:, 0])).max() < 0.01
