"""Plain networks, last-layer Laplace, and GPs on a network that stays as it is."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import numpy as np
import pytest
import torch

from geogp.basis.model import in_double
from geogp.data import Data
from geogp.engines.network import fit_noise, laplace

pytestmark = pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")
RNG = np.random.default_rng(0)
X = RNG.uniform(-3.0, 3.0, (200, 3))
Y = np.sin(X[:, 0]) + 0.3 * RNG.standard_normal(200)


def fit(method, **keywords):
    settings = {"epochs": 100, "hidden": 12} | keywords
    return geogp.GPRegressor(method=method, target_transform="identity", **settings).fit(X, Y)


@pytest.mark.parametrize("method", ["dnn", "map"])
def test_a_plain_network_has_a_mean_and_a_noise_and_no_latent_variance(method):
    model = fit(method)
    m = model.moments(X)
    assert model.score(X, Y) > 0.6
    assert float(m.latent_variance.max()) == 0.0
    # True noise sd .3; n = 200: its estimate has 5% of spread, overfitting takes some more.
    assert 0.2 < model.target_sd_ * float(m.noise_variance[0].sqrt()) < 0.4


@pytest.mark.agrees(
    methods=["lla"],
    of="latent variance of a float32 fit",
    with_="the inverse of the last layer's dense precision",
    tolerance=2e-3,
    relative=True,
    source="fixed-mean-gp, section V (last-layer LLA)",
)
def test_last_layer_laplace_keeps_the_network_and_has_the_dense_covariance(tolerance):
    plain, model = fit("dnn"), fit("lla")
    assert np.allclose(plain.predict(X), model.predict(X), atol=1e-5)
    net = in_double(model.engine_.model)
    delta = model.engine_.facts["prior_precision"]
    held = torch.randperm(200, generator=torch.Generator().manual_seed(0))[:40]
    train = torch.ones(200, dtype=torch.bool)
    train[held] = False
    with torch.no_grad():
        H = net.features(torch.as_tensor(X[train.numpy()])) * delta**0.5
        h = net.features(torch.as_tensor(X[:9])) * delta**0.5
        noise = net.noise(H, None)[0]
        covariance = torch.linalg.inv(H.T @ H / noise + delta * torch.eye(H.shape[1]))
        dense = (h @ covariance * h).sum(1)
    assert torch.allclose(net.moments(torch.as_tensor(X[:9])).latent_variance, dense, rtol=tolerance, atol=0)
    m = model.moments(X)
    assert bool((m.latent_variance > 0).all()) and bool((m.latent_variance < m.prior_variance).all())


def test_the_noise_of_counts_is_fitted_too():
    counts = RNG.integers(1, 50, 200).astype(float)
    y = np.sin(X[:, 0]) + RNG.standard_normal(200) / np.sqrt(counts)
    model = geogp.GPRegressor(method="dnn", target_transform="identity", epochs=100, hidden=12).fit(
        X, y, counts=counts
    )
    few, many = (float(model.moments(X[:1], counts=c).noise_variance[0]) for c in (1.0, 50.0))
    assert few > 4 * many


@pytest.mark.parametrize("method", ["dnn-s", "dnn-m", "dnn-f"])
def test_a_gp_on_a_network_leaves_the_network_as_it_was(method):
    model = fit(method)
    backbone = model.engine_.model.backbone
    assert backbone.n_outputs == 1
    assert not any(p.requires_grad for p in backbone.parameters())
    with torch.no_grad():
        h = backbone(model.engine_.model.encoder(torch.as_tensor(X)))
    assert abs(float(h.mean())) < 0.3 and 0.7 < float(h.std()) < 1.3  # standardised over the training rows
    assert model.score(X, Y) > 0.6
    again = geogp.GPRegressor.from_state(*model.state())
    assert np.allclose(again.predict(X), model.predict(X))


def test_networks_come_back_from_their_state():
    for method in ("dnn", "lla"):
        model = fit(method, epochs=5)
        again = geogp.GPRegressor.from_state(*model.state())
        for a, b in zip(model.predict(X, return_std=True), again.predict(X, return_std=True)):
            assert np.array_equal(a, b)


@pytest.mark.parametrize(
    ("method", "changes", "words"),
    [
        ("dnn", {"objective": "dppgp"}, "leaves the weights a point"),
        ("dnn", {"posterior": "dense"}, "posterior 'dense'"),
        ("dbk-rbf", {"objective": "mse"}, "'mse'"),
        ("dbk-rbf", {"objective": "poisson"}, "cox"),
        ("dbk-rbf", {"objective": "fixed_mean"}, "fmgp"),
        ("lla", {"expansion": "silu"}, "last layer"),
    ],
)
def test_impossible_choices_are_refused_by_name(method, changes, words):
    with pytest.raises(geogp.ImpossibleCombination, match=words):
        geogp.GPRegressor(method=method, **changes).fit(X, Y)


def test_laplace_precision_is_a_fixed_point():
    model = fit("lla", epochs=10).engine_.model
    data = Data(torch.as_tensor(X), torch.as_tensor(Y, dtype=torch.float32))
    model.expansion.scale.fill_(1.0)
    fit_noise(model, data)
    delta = laplace(model, data)
    with torch.no_grad():
        H = model.features(data.X).double() * delta**0.5
        eigenvalues = torch.linalg.eigvalsh(H.T @ H / model.noise(H, None)[0].double())
        gamma = (eigenvalues / (eigenvalues + delta)).sum()
        size = model.posterior.current().mean.double().square().sum()
    assert delta == pytest.approx(float(gamma / size), rel=1e-3)
