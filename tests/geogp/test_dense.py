"""Methods against plain dense algebra over all rows: those that no other file compares so."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from geogp.basis.build import Shape, Size, build
from geogp.basis.model import in_double
from geogp.basis.objectives import OBJECTIVES, Weights
from geogp.basis.train import terms_of
from geogp.data import Data
from geogp.engines.closed_form import condition
from geogp.methods import METHODS, method

pytestmark = pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")
VARIATIONAL = [name for name, row in METHODS.items() if row.engine == "lowrank"]
NETWORKS = [name for name, row in METHODS.items() if row.engine == "pretrained"]
EVERY = (np.zeros((0, 2)), np.zeros(0), None)  # no rows held out


def rows(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 4, (n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(n)


def close(found, expected, tolerance):
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def gaussian(K, cross, prior, y):
    """Mean and variance at new places of a Gaussian process whose observations y, less mean, have covariance K."""
    solved = torch.linalg.solve(K, torch.cat([y[:, None], cross.T], 1))
    return cross @ solved[:, 0], prior - (cross * solved[:, 1:].T).sum(1)


def variational(name, data):
    """A model of a row, not trained, whose weights have some distribution N(m, L L')."""
    shape = Shape(2, (0, 1), None, False)
    size = Size(hidden=8, rank=METHODS[name].rank or 12, fourier_scales=(1.0,))
    model = build(method(name), shape, size, seed=0).double()
    model.encoder.fit_scaling(data.X)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        model.expansion.initialise(model.backbone(model.encoder(data.X)))
        model.constant_mean.fill_(0.1)
        for p in model.posterior.parameters():
            p.add_(0.2 * torch.randn_like(p))
    model.residual.settle(model, data)
    return model.eval()


def beyond(model, X):
    """(n,) what the prior variance has beyond the basis, written out from the base kernel, the level or the nearest place."""
    phi = model.features(X).square().sum(1)
    if model.residual.needs_base_kernel:
        h = model.backbone(model.encoder(X))
        return model.expansion.base_kernel(h, h).diagonal() - phi
    if model.residual.moved_by_rows:
        r = model.residual
        d = torch.cdist(
            model.encoder.standardise(X), r.anchors, compute_mode="donot_use_mm_for_euclid_dist"
        ).amin(1)
        return r.sill * (1.0 - torch.exp(-((d / r.range) ** r.power)))
    level = getattr(model.residual, "level", None)
    return torch.zeros_like(phi) if level is None else (level - phi).clamp_min(0.0)


@pytest.mark.agrees(
    methods=[
        "dbk-silu", "dbk-rbf", "sv-rbf", "sv-dkl", "pp-rbf", "pp-dkl", "vbll", "svdbk", "svdbk-c", "svdbk-r", "svdbk-cr",
    ],
    of="mean, covariance and objective of any N(m, L L') over the weights",
    with_="the dense Gaussian of all 60 rows, torch.distributions",
    tolerance=1e-9,
    source="deep-basis-kernel-gp, eq. 5, 6, 15; low-rank-deep-kernel-decomposition, eq. 8-12",
)  # fmt: skip
@pytest.mark.parametrize("name", VARIATIONAL)
def test_moments_and_objective_are_those_of_the_dense_distribution(name, tolerance):
    X, y = (torch.as_tensor(a) for a in rows())
    data, weights = Data(X, y), Weights(trace=0.3, kl=0.7, crps=0.0)
    model = variational(name, data)
    with torch.no_grad():
        moments, terms = model.moments(X), terms_of(model, data, len(data))
        loss = OBJECTIVES[METHODS[name].objective](terms, weights)
        Phi, q = model.features(X), model.posterior.current()
        S = q.scale_tril @ q.scale_tril.T
        latent = Phi @ S @ Phi.T
        latent = latent + torch.diag(beyond(model, X))
        mean, noise = 0.1 + Phi @ q.mean, model.noise(model.encoder.standardise(X), None)
        one = MultivariateNormal(torch.zeros_like(q.mean), torch.eye(len(q.mean)).double())
        kl = kl_divergence(MultivariateNormal(q.mean, S), one) / len(y)
        # E log N(y; f, σ²) over f ~ q, and log N(y; E f, var f + σ²): the two ways to fit.
        expected = Normal(mean, noise.sqrt()).log_prob(y) - latent.diagonal() / (2 * noise)
        predicted = Normal(mean, (latent.diagonal() + noise).sqrt()).log_prob(y)
        size = Phi.square().sum(1)
        trace = ((size.max() - size) / (2 * noise)).mean()
    close(moments.mean, mean, tolerance)
    close(moments.latent_variance, latent.diagonal(), tolerance)
    if not model.residual.needs_base_kernel:
        close(model.posterior_covariance(X), latent, tolerance)
    dense = {
        "elbo": -expected.mean() + kl,
        "ppgp": -predicted.mean() + 0.7 * kl,
        "dppgp": -predicted.mean() + 0.7 * kl + 0.3 * trace,
    }
    close(loss, dense[METHODS[name].objective], tolerance)


@pytest.mark.agrees(
    methods=[
        "dbk-silu", "dbk-rbf", "sv-rbf", "sv-dkl", "pp-rbf", "pp-dkl", "vbll", "svdbk", "svdbk-c", "svdbk-r", "svdbk-cr",
    ],
    of="posterior mean and variance, log evidence, with the weights solved for",
    with_="dense N x N algebra on 60 rows",
    tolerance=1e-8,
    source="Rasmussen and Williams 2006, eq. 2.22-2.24, 2.30",
)  # fmt: skip
@pytest.mark.parametrize("name", VARIATIONAL)
def test_solved_weights_are_the_posterior_of_the_dense_gaussian(name, tolerance):
    X, y = (torch.as_tensor(a) for a in rows())
    new = torch.as_tensor(rows(25, seed=1)[0])
    model = variational(name, Data(X, y))
    evidence = condition(model, Data(X, y))
    with torch.no_grad():
        Phi, phi = model.features(X), model.features(new)
        own = model.noise(model.encoder.standardise(X), None)
        if model.residual.in_precision:
            own = own + beyond(model, X)
        K = Phi @ Phi.T + torch.diag(own)
        mean, variance = gaussian(K, phi @ Phi.T, phi.square().sum(1), y - 0.1)
        moments = model.moments(new)
        close(moments.mean, 0.1 + mean, tolerance)
        close(moments.latent_variance, variance + beyond(model, new), tolerance)
        dense = MultivariateNormal(torch.full_like(y, 0.1), K).log_prob(y)
    assert evidence == pytest.approx(float(dense), abs=tolerance)


@pytest.mark.agrees(
    methods=["dnn-s", "dnn-m", "dnn-f"],
    of="posterior mean and variance of a whole fit, log evidence",
    with_="dense N x N algebra on 60 rows, on the trained network's output",
    tolerance=1e-7,
    source="how-good-are-low-rank-approximations, eq. 36, 37; Rasmussen and Williams 2006, eq. 2.22-2.24",
)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_gp_on_a_trained_network_is_the_dense_gp_on_its_output(name, tolerance):
    X, y = rows()
    fitted = geogp.GPRegressor(name, epochs=20, hidden=8, rank=10).fit(X, y, validation=EVERY)
    model = fitted.engine_.model
    z = torch.as_tensor((y - fitted.target_mean_) / fitted.target_sd_) - model.constant_mean.detach()
    new = torch.as_tensor(rows(25, seed=1)[0])
    with torch.no_grad():
        X = torch.as_tensor(X)
        Phi, phi = model.features(X), model.features(new)
        K = Phi @ Phi.T + torch.diag(model.noise(model.encoder.standardise(X), None))
        mean, variance = gaussian(K, phi @ Phi.T, phi.square().sum(1), z)
        moments = fitted.moments(new.numpy())
        close(moments.mean, model.constant_mean + mean, tolerance)
        close(moments.latent_variance, variance + beyond(model, new), tolerance)
        dense = MultivariateNormal(torch.zeros_like(z), K).log_prob(z)
    assert fitted.engine_.facts["log_evidence"] == pytest.approx(float(dense), abs=tolerance)


@pytest.mark.agrees(
    methods=["dnn", "map"],
    of="mean, latent variance (none) and objective",
    with_="the network's last layer and the losses written out, 60 rows",
    tolerance=1e-9,
    source="deep-basis-kernel-gp, appendix B (DNN); fixed-mean-gp, section V (MAP)",
)
@pytest.mark.parametrize("name", ["dnn", "map"])
def test_a_plain_network_is_its_last_layer_and_its_loss(name, tolerance):
    X, y = rows()
    fitted = geogp.GPRegressor(name, epochs=5, hidden=8).fit(X, y, validation=EVERY)
    model = in_double(fitted.engine_.model)
    z = torch.as_tensor((y - fitted.target_mean_) / fitted.target_sd_)
    X = torch.as_tensor(X)
    with torch.no_grad():
        w = model.posterior.current().mean
        h = model.backbone(model.encoder(X))
        mean = model.constant_mean + h @ w[:-1] + w[-1]
        variance = model.noise(model.encoder.standardise(X), None)
        loss = OBJECTIVES[METHODS[name].objective](terms_of(model, Data(X, z), 60), Weights())
    moments = fitted.moments(X.numpy())
    close(moments.mean, mean, tolerance)
    assert float(moments.latent_variance.abs().max()) == 0.0
    prior = 0.5 * w.square().sum() / 60  # -log N(w; 0, I) / n, up to a constant
    dense = {
        "mse": 0.5 * (z - mean).square().mean(),
        "map": -Normal(mean, variance.sqrt()).log_prob(z).mean() + prior,
    }
    close(loss, dense[METHODS[name].objective], tolerance)


@pytest.mark.agrees(
    methods=["geogp", "local-gp"],
    of="mean and latent variance of a whole fit, its noise Gaussian, all rows being neighbours",
    with_="dense N x N algebra on 60 rows, the kernel written out",
    tolerance=1e-7,
    source="Rasmussen and Williams 2006, eq. 2.22-2.24, 4.17",
)
@pytest.mark.parametrize("name", ["geogp", "local-gp"])
def test_a_local_field_of_all_neighbours_is_the_dense_gp(name, tolerance):
    X, y = rows()
    counts = np.random.default_rng(2).integers(1, 9, 60).astype(float)
    new = rows(25, seed=1)[0]
    fitted = geogp.GPRegressor(name, options={"neighbours": 60, "steps": 8}).fit(
        X, y, counts, validation=EVERY
    )
    field = fitted.engine_.field
    one = replace(field.gp, weighted=False, degrees_of_freedom=None)
    known = replace(field.known, gp=one, averaged=None)
    fitted.engine_.field = field = replace(field, known=known)
    z = torch.as_tensor((y - fitted.target_mean_) / fitted.target_sd_)
    C, at = (field.frame.coordinates(torch.as_tensor(A)) for A in (X, new))

    def k(A, B):
        total = torch.zeros(len(A), len(B), dtype=torch.float64)
        kernel = field.gp.kernel
        for log_length, log_variance, smoothness in zip(
            kernel.log_lengthscale, kernel.log_variance, kernel.smoothness
        ):
            r = torch.cdist(A / log_length.exp(), B / log_length.exp())
            form = {
                "matern12": torch.exp(-r),
                "matern32": (1 + math.sqrt(3) * r) * torch.exp(-math.sqrt(3) * r),
                "matern52": (1 + math.sqrt(5) * r + 5 * r**2 / 3) * torch.exp(-math.sqrt(5) * r),
            }
            total = total + log_variance.exp() * form[smoothness]
        return total

    n = torch.as_tensor(counts)
    noise = field.gp.tau2 + field.gp.s2 / n
    K = k(C, C) + torch.diag(noise)
    mean, variance = gaussian(K, k(at, C), k(at, at).diagonal(), z - known.prior_mean(C, n))
    drift = known.drift
    open_ = drift.columns(at) - k(at, C) @ torch.linalg.solve(K, drift.columns(C))
    variance = variance + ((open_ @ drift.covariance) * open_).sum(1)
    moments = fitted.moments(new, counts=4.0)
    base = known.prior_mean(at, torch.full((25,), 4.0).double())
    close(moments.mean.double(), base + mean, tolerance)
    close(moments.latent_variance.double(), variance, tolerance)
    close(
        moments.noise_variance.double(),
        (field.gp.tau2 + field.gp.s2 / 4.0) * torch.ones(25).double(),
        tolerance,
    )


@pytest.mark.agrees(
    methods=["cox"],
    of="mean and variance of the log intensity, expected count",
    with_="the dense Gaussian of f at 60 rows, and E exp f by quadrature",
    tolerance=1e-6,
    relative=True,
    source="low-rank-deep-kernel-decomposition, appendix A.5",
)
def test_the_intensity_of_a_cox_process_is_that_of_the_dense_gaussian(tolerance):
    X, y = rows()
    counts = np.random.default_rng(0).poisson(np.exp(1 + y))
    fitted = geogp.GPRegressor("cox", epochs=5, hidden=8, rank=12).fit(
        X, np.log10(1 + counts), validation=EVERY
    )
    model = in_double(fitted.engine_.model)
    X = torch.as_tensor(X)
    with torch.no_grad():
        Phi, q = model.features(X), model.posterior.current()
        mean = model.constant_mean + Phi @ q.mean
        variance = (Phi @ (q.scale_tril @ q.scale_tril.T) @ Phi.T).diagonal()
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    f = mean[:, None] + variance.sqrt()[:, None] * torch.as_tensor(nodes)
    share = torch.as_tensor(weights / weights.sum())
    found, sd = fitted.engine_.intensity(X)
    torch.testing.assert_close(found, f.exp() @ share, rtol=tolerance, atol=0)
    second = (2 * f).exp() @ share
    torch.testing.assert_close(sd.square(), second - (f.exp() @ share) ** 2, rtol=100 * tolerance, atol=0)
