"""The diagonal correction and the distance term: what they add, where, and how it enters the fit."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import numpy as np
import pytest
import torch

from geogp.basis.build import Shape, Size, build
from geogp.basis.encoders import Encoder
from geogp.basis.expansions.linear import Linear
from geogp.basis.objectives import OBJECTIVES, Weights
from geogp.basis.residuals.distance import Distance, variogram
from geogp.basis.residuals.unit import Unit
from geogp.basis.train import terms_of
from geogp.data import Data
from geogp.engines.closed_form import condition
from geogp.methods import method

pytestmark = pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")
SHAPE = Shape(2, None, None, False)


def rows(n: int, seed: int = 0) -> Data:
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 2, generator=g, dtype=torch.float64)
    return Data(X, torch.sin(2 * X[:, 0]) + 0.1 * torch.randn(n, generator=g, dtype=torch.float64))


def model_of(name: str, rank: int = 5):
    model = build(method(name), SHAPE, Size(hidden=8, rank=rank), seed=0).double()
    with torch.no_grad():
        model.noise.log_variance.fill_(-1.5)
    return model


def test_the_elbo_with_the_correction_is_the_plain_elbo_less_the_trace():
    data = rows(12)
    corrected, plain = model_of("svdbk").train(), model_of("svdbk-c").train()
    losses = [OBJECTIVES["elbo"](terms_of(m, data, 12), Weights()) for m in (corrected, plain)]
    size = plain.features(data.X).square().sum(1)
    trace = (size.max() - size).sum() / (2 * plain.noise(data.X, None)[0])
    assert torch.allclose(losses[0] - losses[1], trace / 12, rtol=1e-10)


@pytest.mark.agrees(
    methods=["dbk-corrected", "dbk-corrected-c", "dbk-corrected-r", "dbk-corrected-cr"],
    of="posterior mean and variance",
    with_="dense N x N algebra with the correction in every row's own variance, 30 rows",
    tolerance=1e-8,
    source="low-rank-deep-kernel-decomposition, eq. 1, 11, 12",
)
@pytest.mark.parametrize("name", ["dbk-corrected", "dbk-corrected-c", "dbk-corrected-r", "dbk-corrected-cr"])
def test_the_closed_form_posterior_is_the_dense_one_of_the_source(name, tolerance):
    data, new = rows(30), rows(7, seed=1)
    model = model_of(name, rank=method(name).rank or 5).eval()
    condition(model, data)
    moments = model.moments(new.X)
    # Dense, eq. 1 with K^ = Phi Phi' + diag(c): the correction is part of every row's own variance.
    Phi, phi = model.features(data.X), model.features(new.X)
    noise = model.noise(data.X, None)
    c, c_new = torch.zeros(30).double(), torch.zeros(7).double()
    if method(name).residual == "unit":
        level = Phi.square().sum(1).max()
        c = level - Phi.square().sum(1)
        c_new = torch.clamp(level - phi.square().sum(1), min=0)
    S = torch.linalg.inv(Phi @ Phi.T + torch.diag(c + noise))
    k = Phi @ phi.T
    assert torch.allclose(moments.mean, k.T @ S @ (data.y - model.constant_mean), rtol=0, atol=tolerance)
    variance = phi.square().sum(1) - (k * (S @ k)).sum(0) + c_new
    assert torch.allclose(moments.latent_variance, variance, rtol=0, atol=tolerance)


def test_the_corrected_prior_variance_is_the_same_everywhere_the_basis_is_small():
    data = rows(40)
    model = model_of("svdbk").eval()
    model.residual.settle(model, data)
    with torch.no_grad():
        prior = model.moments(data.X).prior_variance
        alone = model_of("svdbk-c").moments(data.X).prior_variance
    assert torch.allclose(prior, prior.max().expand(40))
    assert float(alone.std()) > 0


def test_the_distance_term_is_zero_on_training_rows_and_grows_to_its_sill():
    g = torch.Generator().manual_seed(0)
    P = torch.rand(3000, 2, generator=g)  # more places than anchors
    residual = Distance(Linear(2, 3)).eval()
    residual.place(P)
    residual.sill, residual.range = torch.tensor(0.7), torch.tensor(0.5)
    assert len(residual.anchors) == 1024
    assert float(residual.distance(P).max()) == pytest.approx(0.0, abs=1e-4)
    away = torch.tensor([[1.0 + s, 0.5] for s in (0.1, 0.5, 1.0, 5.0, 50.0)])
    v = residual.variance(Linear(2, 3), away, away, away)
    assert bool((v.diff() > 0).all()) and float(v[-1]) == pytest.approx(0.7)


def test_the_variogram_finds_sill_and_range():
    g = torch.Generator().manual_seed(1)
    P = 10 * torch.rand(1200, 2, generator=g, dtype=torch.float64)
    K = 0.8 * torch.exp(-torch.cdist(P, P) / 0.7)
    y = torch.linalg.cholesky(K + 0.2 * torch.eye(1200)) @ torch.randn(1200, generator=g, dtype=torch.float64)
    sill, reach = variogram(P, y)
    # Effective sample size is about (10 / 1.4)^2 = 50 patches: 25% of spread, twice that as a bound.
    assert 0.4 < sill < 1.2 and 0.35 < reach < 1.4


def test_a_map_with_the_distance_term_is_widest_where_nobody_measured():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 4000, (300, 2))
    y = np.sin(X[:, 0] / 500) + 0.1 * rng.standard_normal(300)
    plain = geogp.GPRegressor(method="dbk-silu", epochs=30, rank=16, hidden=16).fit(X, y)
    model = geogp.GPRegressor(method="dbk-silu", residual="distance", epochs=30, rank=16, hidden=16).fit(X, y)
    assert model.row_.reverts_to_prior and not plain.row_.reverts_to_prior
    far = np.array([[20_000.0, 20_000.0], [40_000.0, 0.0]])
    near, away = model.moments(X).latent_variance, model.moments(far).latent_variance
    assert float(away.min()) > float(near.quantile(0.9))
    assert np.array_equal(plain.predict(far), model.predict(far))
    tensors, facts = model.state()
    again = geogp.GPRegressor.from_state(tensors, facts)
    assert torch.equal(again.moments(far).latent_variance, away)


def test_held_out_blocks_tune_the_distance_term():
    g = torch.Generator().manual_seed(2)
    X = torch.rand(1500, 2, generator=g, dtype=torch.float64) * 100
    inside = (X - 50).abs().amax(1) < 25
    truth = torch.sin(X[:, 0] / 8) + torch.cos(X[:, 1] / 8)
    y = (truth + 0.1 * torch.randn(1500, generator=g, dtype=torch.float64)).float()
    model = build(method("dbk-silu"), Shape(2, (0, 1), None, False), Size(hidden=8, rank=8), seed=0)
    model.residual = Distance(model.expansion)
    model.encoder.fit_scaling(X[~inside])
    model.eval()
    train, held = Data(X[~inside], y[~inside]), Data(X[inside], y[inside])
    model.residual.settle(model, train)
    before = (float(model.residual.sill), float(model.residual.range))
    model.residual.settle(model, train, held)
    assert (float(model.residual.sill), float(model.residual.range)) != before
    assert isinstance(model.encoder, Encoder)


@pytest.mark.parametrize("name", ["svdbk", "svdbk-r", "dbk-corrected", "dbk-corrected-r"])
def test_corrected_rows_fit_and_keep_their_variance_positive(name):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(150, 3))
    y = X[:, 0] + 0.1 * rng.standard_normal(150)
    model = geogp.GPRegressor(method=name, epochs=60, hidden=16).fit(X, y)
    assert isinstance(model.engine_.model.residual, Unit)
    for inputs in (X, X + 1e6):
        m = model.moments(inputs)
        assert bool((m.latent_variance >= 0).all()) and bool(torch.isfinite(m.latent_variance).all())
        assert bool((m.latent_variance <= m.prior_variance * 1.001 + 1e-6).all()) or name.startswith("sv")
