"""Encoder, RBF basis and training loop against what they promise."""

import numpy as np
import pytest
import torch

import geogp
from geogp.basis.encoders import Encoder
from geogp.basis.expansions.rbf import RBF
from geogp.basis.train import robust_score
from geogp.data import Data, Moments
from geogp.linalg import JITTER, cholesky


def test_encoding_does_not_depend_on_the_unit_or_the_origin():
    X = torch.rand(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def encode(A):
        enc = Encoder(
            3,
            spatial=(0, 1),
            fourier_scales=(1, 5),
            n_frequencies=4,
            generator=torch.Generator().manual_seed(1),
        )
        enc.fit_scaling(A)
        return enc(A)

    torch.testing.assert_close(encode(X), encode(X * 1e5 + 3e6), rtol=0, atol=2e-4)


def test_a_metre_is_a_metre_in_both_directions():
    X = torch.tensor([[0.0, 0.0], [10.0, 1.0], [20.0, -1.0], [5.0, 0.5]], dtype=torch.float64)
    enc = Encoder(2, spatial=(0, 1))
    enc.fit_scaling(X)
    assert enc.scale[0] == enc.scale[1]


def test_fourier_needs_a_position():
    with pytest.raises(geogp.InvalidInput, match="name the two spatial columns"):
        Encoder(5, fourier_scales=(1.0,))


def test_rbf_basis_is_the_nystrom_approximation():
    torch.manual_seed(0)
    basis = RBF(3, 10).double()
    h = torch.randn(20, 3, dtype=torch.float64)
    with torch.no_grad():
        basis.log_variance.fill_(0.7)
        phi = basis(h)
        Z = basis.inducing_points
        # The jitter is part of the model, relative to the diagonal.
        K_ZZ = basis.base_kernel(Z, Z) + JITTER * basis.variance * torch.eye(10)
        expected = basis.base_kernel(h, Z) @ torch.linalg.solve(K_ZZ, basis.base_kernel(Z, h))
    torch.testing.assert_close(phi @ phi.T, expected, rtol=0, atol=1e-8)
    at_Z = basis(Z)
    torch.testing.assert_close(at_Z @ at_Z.T, K_ZZ, rtol=0, atol=1e-4)


def test_jitter_is_bounded_and_then_raises_with_the_cause():
    with pytest.raises(geogp.NumericalFailure, match="rows are duplicated or a lengthscale"):
        cholesky(-torch.eye(3), what="a bad matrix")
    with pytest.raises(geogp.NumericalFailure, match="non-finite"):
        cholesky(torch.full((2, 2), torch.nan))


class Fixed:
    """A stand-in model that predicts N(0, 1)."""

    def moments(self, X, counts):
        n = len(X)
        return Moments(torch.zeros(n), torch.full((n,), 0.5), torch.full((n,), 0.5), torch.ones(n))


def test_moments_joined_from_chunks_are_those_of_all_rows():
    X = torch.rand(10, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    data = Data(X, X[:, 0].float(), torch.arange(1.0, 11.0))
    parts = list(data.chunks(4))
    assert [len(part) for part in parts] == [4, 4, 2]
    joined = Moments.joined([Moments(p.y, p.counts, 2 * p.y, 3 * p.y) for p in parts])
    assert torch.equal(joined.mean, data.y) and torch.equal(joined.latent_variance, data.counts)
    assert joined.degrees_of_freedom is None


def test_one_outlier_cannot_rule_the_checkpoint():
    y = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    X = torch.zeros(1000, 1)
    clean = robust_score(Fixed(), Data(X, y))
    spoiled = y.clone()
    spoiled[0] = 1e4
    worst = robust_score(Fixed(), Data(X, spoiled)) - clean
    # Its share of the NLL is capped at 8 nats of 1,000 rows; its share of the CRPS grows only linearly.
    assert worst < (8 + 1e4) / 1000 + 1e-3
    assert worst < 0.001 * 0.5e8  # an uncapped NLL would add 5e4


def field(n=4300, seed=0):
    """A step and a wave with noise that grows to the right and shrinks with the count."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 100_000, (n, 2))
    truth = np.where(X[:, 0] > 50_000, 1.0, -1.0) + 0.5 * np.sin(X[:, 1] / 10_000)
    counts = rng.integers(1, 40, n).astype(float)
    sd = np.sqrt(0.01 + 0.25 / counts)
    return X, truth + sd * rng.standard_normal(n), counts, truth, sd


@pytest.mark.parametrize("method", ["dbk-silu", "dbk-rbf"])
def test_a_known_surface_and_its_noise_are_recovered(method):
    X, y, counts, truth, sd = field()
    train = slice(0, 4000)
    model = geogp.GPRegressor(method=method, rank=64, hidden=32, epochs=40, fourier_scales=None).fit(
        X[train], y[train], counts[train]
    )
    mean = model.predict(X[4000:], counts=counts[4000:])
    noise = model.target_sd_ * model.moments(X[4000:], counts[4000:]).noise_variance.sqrt().numpy()
    # 300 test places, surface sd about 1.05; a tenth of the variance unexplained is a poor fit.
    assert np.corrcoef(mean, truth[4000:])[0, 1] > 0.95
    assert np.corrcoef(np.log(noise), np.log(sd[4000:]))[0, 1] > 0.9
    lower, upper = model.interval(X[4000:], 0.95, counts=counts[4000:])
    inside = ((y[4000:] >= lower) & (y[4000:] <= upper)).mean()
    assert 0.90 <= inside <= 0.99  # binomial band of 300 rows around .95 at 4 sd


def test_same_seed_same_model_and_other_seed_another():
    X, y, counts, *_ = field(300)

    def mean(seed):
        model = geogp.GPRegressor(method="dbk-rbf", rank=16, hidden=16, epochs=3, random_state=seed)
        return model.fit(X, y, counts).predict(X[:5])

    np.testing.assert_array_equal(mean(0), mean(None))
    np.testing.assert_array_equal(mean(4), mean(4))
    assert not np.array_equal(mean(0), mean(4))
