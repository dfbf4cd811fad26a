"""The closed-form route against dense float64 algebra, against the variational route and against GPyTorch."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

import geogp
from geogp.basis.build import Shape, Size, build
from geogp.basis.expansions.softki import SoftKI
from geogp.basis.objectives import OBJECTIVES, Design, Sums, Weights
from geogp.basis.objectives.objective import SOLVES
from geogp.basis.objectives.softki import pseudoloss, softki
from geogp.basis.posterior import WeightPosterior
from geogp.basis.train import terms_of
from geogp.data import Data
from geogp.densities import matern32_of_squared
from geogp.engines.asked import plan_of
from geogp.engines.closed_form import (
    batch_of,
    choose_latent,
    condition,
    condition_roughly,
    full_batch_backward,
    rows_of,
)
from geogp.linalg import JITTER, cholesky, conjugate_gradients, squared_distances
from geogp.methods import METHODS, method

EVIDENCES = [name for name, o in OBJECTIVES.items() if o.does == SOLVES]
CLOSED = [name for name, row in METHODS.items() if row.engine == "closed_form"]
#: Of these the prior covariance is dense: the basis (and its base kernel), nothing else.
PLAIN = [name for name in CLOSED if METHODS[name].residual in ("none", "nystrom")]


def close(a, b, atol=1e-8):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


def toy(n=60, d=2, seed=0, counts=True):
    g = torch.Generator().manual_seed(seed)
    X = 4.0 * torch.rand(n, d, generator=g, dtype=torch.float64)
    y = torch.sin(2.0 * X[:, 0]) + 0.2 * torch.randn(n, generator=g, dtype=torch.float64)
    n_i = torch.randint(1, 9, (n,), generator=g).double() if counts else None
    return Data(X, y, n_i)


def untrained(name, data, rank=36, hidden=8, **choices):
    shape = Shape(data.X.shape[1], (0, 1) if data.X.shape[1] == 2 else None, None, data.counts is not None)
    row = replace(method(name), **choices)
    model = build(row, shape, Size(hidden=hidden, rank=rank, fourier_scales=(1.0,)), seed=0).double()
    model.encoder.fit_scaling(data.X)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        model.expansion.initialise(model.backbone(model.encoder(data.X)))
        model.constant_mean.fill_(0.1)
    return model


@pytest.mark.agrees(
    methods=[
        "dbk-silu-exact",
        "dbk-rbf-exact",
        "sgpr",
        "sdkl",
        "fgp",
        "dfgp",
        "mgp",
        "dmgp",
        "softki",
        "ski",
        "dbk-corrected-c",
        "dbk-corrected-cr",
    ],
    of="posterior mean and variance, log evidence",
    with_="dense N x N algebra on 60 rows",
    tolerance=1e-8,
    source="Rasmussen and Williams 2006, eq. 2.22-2.24, 2.30",
)
@pytest.mark.parametrize("name", PLAIN)
def test_mean_variance_and_evidence_are_those_of_the_dense_gaussian(name, tolerance):
    data, new = toy(), toy(25, seed=1)
    model = untrained(name, data)
    evidence = condition(model, data)
    with torch.no_grad():
        moments = model.moments(new.X, new.counts)
        phi, phi_new = model.features(data.X), model.features(new.X)
        noise = model.noise(model.encoder.standardise(data.X), data.counts)
        K = phi @ phi.T + torch.diag(noise)
        mean = 0.1 + phi_new @ phi.T @ torch.linalg.solve(K, data.y - 0.1)
        basis = (phi_new @ phi_new.T - phi_new @ phi.T @ torch.linalg.solve(K, phi @ phi_new.T)).diagonal()
        prior = model.prior_covariance(new.X, new.X).diagonal()
        gap = prior - phi_new.square().sum(1)
    close(moments.mean, mean, tolerance)
    close(moments.latent_variance, basis + gap.clamp_min(0.0), tolerance)
    close(moments.prior_variance, prior, tolerance)
    dense = torch.distributions.MultivariateNormal(torch.full_like(data.y, 0.1), K)
    assert evidence == pytest.approx(float(dense.log_prob(data.y)), abs=tolerance)


@pytest.mark.agrees(
    methods=[
        "dbk-silu-exact",
        "dbk-rbf-exact",
        "sgpr",
        "sdkl",
        "fgp",
        "dfgp",
        "mgp",
        "dmgp",
        "ski",
        "dbk-corrected-c",
        "dbk-corrected-cr",
    ],
    of="objective and its gradient, per row",
    with_="automatic differentiation of the dense log determinant, 30 rows",
    tolerance=1e-8,
    source="Titsias 2009, eq. 9 (collapsed bound)",
)
@pytest.mark.parametrize("name", [n for n in PLAIN if METHODS[n].objective in EVIDENCES])
def test_the_objective_and_its_gradient_are_those_of_the_dense_formula(name, tolerance):
    data = toy(30)
    model = untrained(name, data)
    row = method(name)

    def dense():
        rows = rows_of(model, data)
        K = rows.phi @ rows.phi.T + torch.diag(rows.noise_variance)
        loss = -torch.distributions.MultivariateNormal(torch.zeros_like(rows.y), K).log_prob(rows.y)
        if row.objective == "collapsed_elbo":
            loss = loss + 0.5 * (rows.residual_variance / rows.noise_variance).sum()
        return loss / len(data)

    parameters = [p for p in model.parameters() if p.requires_grad]
    expected = torch.autograd.grad(dense(), parameters, allow_unused=True)
    loss = full_batch_backward(model, row.objective, data)
    assert loss.item() == pytest.approx(dense().item(), abs=tolerance)
    for p, g in zip(parameters, expected):
        if g is not None:
            close(p.grad, g, tolerance * max(1.0, float(g.abs().max())))


@pytest.mark.parametrize("objective", EVIDENCES)
def test_gradcheck_of_the_full_batch_objectives(objective):
    g = torch.Generator().manual_seed(0)
    phi, y, noise, gap = (
        torch.randn(6, 3, generator=g, dtype=torch.float64).requires_grad_(),
        torch.randn(6, generator=g, dtype=torch.float64).requires_grad_(),
        (0.2 + torch.rand(6, generator=g, dtype=torch.float64)).requires_grad_(),
        torch.rand(6, generator=g, dtype=torch.float64).requires_grad_(),
    )
    assert torch.autograd.gradcheck(
        lambda *v: OBJECTIVES[objective](Sums.of(Design(*v))), (phi, y, noise, gap)
    )


@pytest.mark.parametrize("name", ["sgpr", "dbk-silu-exact", "dbk-corrected", "dbk-corrected-r"])
def test_chunks_give_the_very_gradient_of_all_rows(name):
    data = toy(50)
    whole, pieces = untrained(name, data), untrained(name, data)
    a = full_batch_backward(whole, method(name).objective, data)
    b = full_batch_backward(pieces, method(name).objective, data, chunk=7)
    close(a.detach(), b, 1e-11)
    for p, q in zip(whole.parameters(), pieces.parameters()):
        if p.grad is not None:
            close(p.grad, q.grad, 1e-11)


@pytest.mark.parametrize("name", CLOSED)
def test_the_quick_solve_that_ranks_epochs_agrees_with_the_qr_solve(name):
    data = toy(50)
    model = untrained(name, data, rank=36).eval()
    condition(model, data)
    exact = model.solved
    condition_roughly(model, data)
    close(model.solved.mean, exact.mean, 1e-7)
    S = exact.scale_tril @ exact.scale_tril.T
    close(model.solved.scale_tril @ model.solved.scale_tril.T, S, 1e-7)


# -- the family of sparse methods ---------------------------------------------------------------------


def exact_moments(model, data, new):
    """The dense GP with the sparse model's base kernel."""
    with torch.no_grad():
        noise = model.noise(model.encoder.standardise(data.X), data.counts)
        K = model.prior_covariance(data.X, data.X) + torch.diag(noise)
        cross = model.prior_covariance(new.X, data.X)
        mean = cross @ torch.linalg.solve(K, data.y)
        variance = model.prior_covariance(new.X, new.X) - cross @ torch.linalg.solve(K, cross.T)
        evidence = torch.distributions.MultivariateNormal(torch.zeros_like(data.y), K).log_prob(data.y)
    return mean, variance.diagonal(), float(evidence)


def with_points_at_data(name, data):
    model = untrained(name, data, rank=len(data))
    with torch.no_grad():
        model.constant_mean.zero_()
        model.expansion.inducing_points.copy_(model.encoder(data.X))
        # Short enough that the kernel matrix is well conditioned and the jitter of 1e-6 shows nowhere.
        model.expansion.log_lengthscale.fill_(math.log(0.25))
    return model


def test_inducing_points_at_the_data_make_sgpr_the_optimal_svgp_and_the_exact_gp():
    data, new = toy(40), toy(20, seed=1)
    sgpr = with_points_at_data("sgpr", data)
    condition(sgpr, data)
    mean, variance, evidence = exact_moments(sgpr, data, new)
    with torch.no_grad():
        moments = sgpr.moments(new.X)
        bound = -OBJECTIVES["collapsed_elbo"](Sums.of(rows_of(sgpr, data))) * len(data)
    # The jitter, relative 1e-6 of K_ZZ, is the only difference left.
    close(moments.mean, mean, 2e-5)
    close(moments.latent_variance, variance, 2e-5)
    assert bound.item() == pytest.approx(evidence, abs=1e-3)
    assert bound.item() <= evidence + 1e-9

    svgp = with_points_at_data("sv-rbf", data)
    svgp.solved = sgpr.solved
    with torch.no_grad():
        optimal = -OBJECTIVES["elbo"](terms_of(svgp, data, len(data)), Weights()) * len(data)
    # With its optimal q the uncollapsed bound is the collapsed one, exactly.
    assert optimal.item() == pytest.approx(bound.item(), abs=1e-7)


@pytest.mark.parametrize("rank", [2, 8, 20])
def test_the_bounds_lie_below_the_evidence_and_in_order(rank):
    data = toy(40)
    sgpr = untrained("sgpr", data, rank=rank)
    with torch.no_grad():
        sgpr.constant_mean.zero_()
        _, _, evidence = exact_moments(sgpr, data, data)
        collapsed = -OBJECTIVES["collapsed_elbo"](Sums.of(rows_of(sgpr, data))) * len(data)
        svgp = untrained("sv-rbf", data, rank=rank)
        svgp.constant_mean.zero_()
        free = -OBJECTIVES["elbo"](terms_of(svgp, data, len(data)), Weights()) * len(data)
    assert free.item() < collapsed.item() < evidence + 1e-9


def test_the_optimal_weights_beat_any_other():
    data = toy(40)
    model = untrained("sv-rbf", data, rank=10)
    condition(model, data)
    best = model.solved

    def bound(weights):
        model.solved = weights
        with torch.no_grad():
            return -OBJECTIVES["elbo"](terms_of(model, data, len(data)), Weights()).item()

    top = bound(best)
    for seed in range(5):
        g = torch.Generator().manual_seed(seed)
        step = 0.05 * torch.randn(10, generator=g, dtype=torch.float64)
        assert bound(WeightPosterior(best.mean + step, best.scale_tril)) < top
        assert bound(WeightPosterior(best.mean, best.scale_tril * (1 + step))) < top


# -- GPyTorch at the same parameters -------------------------------------------------------------------

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="`torch.jit.script", category=DeprecationWarning)
    import gpytorch


def gpytorch_kernel(model):
    kernel = gpytorch.kernels.ScaleKernel(
        gpytorch.kernels.RBFKernel(ard_num_dims=model.expansion.lengthscale.shape[0])
    ).double()
    kernel.outputscale = model.expansion.variance.detach()
    kernel.base_kernel.lengthscale = model.expansion.lengthscale.detach()
    return kernel


@pytest.mark.agrees(
    methods=["sgpr"],
    of="objective at the same parameters",
    with_="GPyTorch's InducingPointKernel",
    tolerance=1e-5,
    relative=True,
    source="Gardner et al. 2018",
)
def test_sgpr_has_gpytorchs_objective(tolerance):
    data = toy(50, counts=False)
    model = untrained("sgpr", data, rank=12)
    with torch.no_grad():  # K_ZZ well conditioned, so that our jitter, absent there, shows nowhere
        model.expansion.log_lengthscale.fill_(math.log(0.3))
    Z = model.encoder(data.X)
    noise = float(model.noise(Z, None)[0].detach())

    class SGPR(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(Z, data.y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean().double()
            self.covar_module = gpytorch.kernels.InducingPointKernel(
                gpytorch_kernel(model), model.expansion.inducing_points.detach().clone(), likelihood
            )

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = noise
    theirs = SGPR(likelihood)
    theirs.mean_module.constant.data.fill_(0.1)
    theirs.train()
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, theirs)(theirs(Z), data.y)
    ours = -OBJECTIVES["collapsed_elbo"](Sums.of(rows_of(model, data)))
    assert ours.item() == pytest.approx(bound.item(), rel=tolerance)


@pytest.mark.agrees(
    methods=["sv-rbf"],
    of="objective at the same parameters",
    with_="GPyTorch's VariationalELBO",
    tolerance=1e-5,
    relative=True,
    source="Gardner et al. 2018",
)
def test_svgp_has_gpytorchs_objective(tolerance):
    data = toy(50, counts=False)
    model = untrained("sv-rbf", data, rank=12)
    Z = model.encoder(data.X)
    q = model.posterior.current()

    class SVGP(gpytorch.models.ApproximateGP):
        def __init__(self):
            points = model.expansion.inducing_points.detach().clone()
            distribution = gpytorch.variational.CholeskyVariationalDistribution(12).double()
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, distribution))
            self.mean_module = gpytorch.means.ConstantMean().double()
            self.covar_module = gpytorch_kernel(model)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    theirs = SVGP()
    strategy = theirs.variational_strategy
    strategy.variational_params_initialized.fill_(1)
    strategy._variational_distribution.variational_mean.data.copy_(q.mean.detach())
    strategy._variational_distribution.chol_variational_covar.data.copy_(q.scale_tril.detach())
    theirs.mean_module.constant.data.fill_(0.1)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = float(model.noise(Z, None)[0].detach())
    theirs.train()
    with gpytorch.settings.variational_cholesky_jitter(double_value=JITTER):
        bound = gpytorch.mlls.VariationalELBO(likelihood, theirs, num_data=50)(theirs(Z), data.y)
    ours = -OBJECTIVES["elbo"](terms_of(model, data, 50), Weights())
    # Their jitter also enters the variance of the data; ours does not.
    assert ours.item() == pytest.approx(bound.item(), rel=tolerance)


# -- SoftKI ---------------------------------------------------------------------------------------------


@pytest.mark.agrees(
    methods=["softki"],
    of="posterior mean and covariance",
    with_="the paper's dense solve, its two signs as derived, 80 rows",
    tolerance=1e-7,
    source="soft-kernel-interpolation, eq. 18",
)
def test_softkis_qr_solve_equals_the_dense_solve(tolerance):
    """Mean and covariance of eq. 18, with the covariance derived rather than copied.

    k** - k*x (K + L)^-1 kx* = k*z^ C^-1 kz*^ for C = Kzz + Kzx^ L^-1 Kxz^: the published code has two signs
    of it flipped (variance 1.756 where the posterior is .0036).
    """
    data, new = toy(80), toy(25, seed=1)
    model = untrained("softki", data, rank=20)
    condition(model, data)
    with torch.no_grad():
        moments = model.moments(new.X)
        basis, encode = model.expansion, model.encoder
        S, S_new = basis.weights(encode(data.X)), basis.weights(encode(new.X))
        K_zz = basis.base_matrix() + JITTER * basis.log_variance.exp() * torch.eye(20)
        noise = model.noise(encode(data.X), data.counts)
        K_xz, K_newz = S @ K_zz, S_new @ K_zz
        C = K_zz + K_xz.T @ (K_xz / noise[:, None])
        alpha = torch.linalg.solve(C, K_xz.T @ ((data.y - 0.1) / noise))
        close(moments.mean, 0.1 + K_newz @ alpha, tolerance)
        close(moments.latent_variance, (K_newz @ torch.linalg.solve(C, K_newz.T)).diagonal(), tolerance)
        dense = S @ K_zz @ S.T + torch.diag(noise)
        long_way = S_new @ K_zz @ S_new.T - (S_new @ K_zz @ S.T) @ torch.linalg.solve(
            dense, S @ K_zz @ S_new.T
        )
        close(moments.latent_variance, long_way.diagonal(), tolerance)
        assert (moments.latent_variance < 0.2 * moments.prior_variance).all()


def rows(n=40, r=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    phi = torch.randn(n, r, generator=g, dtype=torch.float64).requires_grad_()
    noise = (0.3 + torch.rand(n, generator=g, dtype=torch.float64)).requires_grad_()
    y = torch.randn(n, generator=g, dtype=torch.float64)
    return Design(phi, y, noise, torch.zeros(n, dtype=torch.float64))


def test_the_pseudoloss_has_the_gradient_of_the_likelihood():
    batch = rows()
    inputs = [batch.phi, batch.noise_variance]
    exact = torch.autograd.grad(softki(batch), inputs)
    # Probes √b e_j satisfy mean zz' = I exactly, so the trace is exact.
    unit = math.sqrt(40.0) * torch.eye(40, dtype=torch.float64)
    for e, p in zip(exact, torch.autograd.grad(pseudoloss(batch, probes=unit), inputs)):
        close(p, e, 1e-8)
    # Gaussian probes: unbiased. The mean over 300 draws of 16 is within four of its standard errors.
    draws = torch.stack([torch.autograd.grad(pseudoloss(batch, seed=s), inputs)[1] for s in range(300)])
    error = draws.std(0) / 300**0.5
    assert ((draws.mean(0) - exact[1]).abs() < 4.5 * error).all()


def test_an_unstable_batch_falls_back_on_the_pseudoloss(monkeypatch, caplog):
    def fail(*args, **kwargs):
        raise geogp.NumericalFailure("no factor")

    batch = rows()
    expected = pseudoloss(batch)
    monkeypatch.setattr("geogp.basis.objectives.sums.cholesky", fail)
    caplog.set_level("INFO")
    assert softki(batch).item() == expected.item()
    assert "Hutchinson" in caplog.text


def test_softki_trains_through_instability(monkeypatch):
    def fail(*args, **kwargs):
        raise geogp.NumericalFailure("no factor")

    monkeypatch.setattr("geogp.basis.objectives.sums.cholesky", fail)
    data = toy(100, counts=False)
    model = geogp.GPRegressor("softki", rank=16, epochs=120).fit(data.X.numpy(), data.y.numpy())
    assert model.score(data.X.numpy(), data.y.numpy()) > 0.8


def test_softki_learns_the_noise_of_few_rows():
    data = toy(400, counts=False)  # noise sd .2; with a point for every row it came out as .14
    model = geogp.GPRegressor("softki").fit(data.X.numpy(), data.y.numpy())
    noise_sd = model.target_sd_ * model.moments(data.X.numpy()).noise_variance.sqrt()
    assert float(noise_sd.mean()) == pytest.approx(0.2, rel=0.15)
    assert plan_of(model.get_params(), 2, False, 100_000).size.rank == 512


def in_single_precision(monkeypatch):
    """K_ZZ computed as the paper's code does, in float32."""

    def base_matrix(self):
        Z = (self.interpolation_points / self.lengthscale).float()
        return self.log_variance.exp().float() * matern32_of_squared(squared_distances(Z, Z))

    monkeypatch.setattr(SoftKI, "base_matrix", base_matrix)


def coinciding(model, sites=4):
    """Interpolation points that have drifted together, the instability of appendix B.1."""
    with torch.no_grad():
        places = model.expansion.places
        model.expansion.raw_lengthscale.fill_(-3.0)
        apart = 1e-5 * torch.randn(
            places.shape, generator=torch.Generator().manual_seed(0), dtype=places.dtype
        )
        places.copy_(places[torch.arange(len(places)) % sites] + apart)


def test_coinciding_points_in_single_precision_fall_back_on_the_pseudoloss(monkeypatch, caplog):
    data = toy(60)
    model = untrained("softki", data, rank=48).train()
    coinciding(model)
    parameters = [model.noise.log_tau2, model.expansion.log_variance]
    exact = torch.autograd.grad(softki(batch_of(model, data)), parameters)
    in_single_precision(monkeypatch)
    with pytest.raises(geogp.NumericalFailure):
        cholesky(model.expansion.base_matrix(), max_jitter=JITTER)
    caplog.set_level("INFO")
    losses = [torch.autograd.grad(softki(batch_of(model, data), seed), parameters) for seed in range(40)]
    assert "Hutchinson" in caplog.text
    for j, wanted in enumerate(exact):
        draws = torch.stack([loss[j] for loss in losses])
        # Four standard errors of 40 draws, and the jitter of the exact one.
        assert abs(draws.mean() - wanted) < 4.0 * draws.std() / 40**0.5 + 1e-3 * abs(wanted)


def test_softki_learns_through_coinciding_points_in_single_precision(monkeypatch, caplog):
    in_single_precision(monkeypatch)
    initialise = SoftKI.initialise

    def together(self, h):
        initialise(self, h)
        with torch.no_grad():  # four points at each of ten places
            self.raw_lengthscale.fill_(-2.0)
            self.places.copy_(
                self.places[torch.arange(self.rank) // 4] + 1e-5 * torch.randn_like(self.places)
            )

    monkeypatch.setattr(SoftKI, "initialise", together)
    caplog.set_level("INFO", logger="geogp.basis.objectives.softki")
    data = toy(150, counts=False)
    model = geogp.GPRegressor("softki", rank=40, epochs=20).fit(data.X.numpy(), data.y.numpy())
    assert "Hutchinson" in caplog.text
    assert model.score(data.X.numpy(), data.y.numpy()) > 0.8


def test_conjugate_gradients_solve_and_say_when_they_do_not(caplog):
    g = torch.Generator().manual_seed(0)
    A = torch.randn(30, 30, generator=g, dtype=torch.float64)
    A = A @ A.T + torch.eye(30)
    B = torch.randn(30, 4, generator=g, dtype=torch.float64)
    close(conjugate_gradients(lambda V: A @ V, B, A.diagonal()), torch.linalg.solve(A, B), 1e-7)
    conjugate_gradients(lambda V: A @ V, B, A.diagonal(), max_steps=2)
    assert "relative residual" in caplog.text


# -- learning -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sgpr", "fgp", "mgp", "ski", "softki"])
def test_a_smooth_field_and_its_noise_are_recovered(name):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (300, 2))

    def truth(X):
        return np.sin(X[:, 0]) * np.cos(X[:, 1])

    y = truth(X) + 0.1 * rng.standard_normal(300)
    rank = 64 if name == "softki" else 100
    model = geogp.GPRegressor(name, rank=rank, epochs=120).fit(X, y)
    new = rng.uniform(0.3, 5.7, (200, 2))
    mean, sd = model.predict(new, return_std=True)
    rmse = np.sqrt(np.mean((mean - truth(new)) ** 2))
    assert rmse < (0.07 if name in ("sgpr", "mgp", "fgp") else 0.12)
    # sd of an observation: at least the noise's, known to 5% from 300 rows, and little more.
    assert 0.07 < np.median(sd) < 0.15


def test_the_projection_is_chosen_on_validation_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 6))
    # A field of five directions: three cannot carry it.
    y = np.sin(X[:, :5]).sum(1) + 0.05 * rng.standard_normal(300)
    model = geogp.GPRegressor("mgp", rank=60, epochs=60).fit(
        X[:250], y[:250], validation=(X[250:], y[250:], None)
    )
    assert model.engine_.facts["latent"] in (5, 6)
    assert model.engine_.model.backbone.n_outputs == model.engine_.facts["latent"]
    again = geogp.GPRegressor.from_state(*model.state())
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    fixed = geogp.GPRegressor("mgp", rank=20, epochs=1, options={"latent": 2}).fit(X, y)
    assert fixed.engine_.model.backbone.n_outputs == 2


def test_deep_rows_end_in_the_papers_number_of_outputs():
    data = toy(40, 5, counts=False)
    for name, width in (("dmgp", 1), ("dfgp", 4)):
        plan = plan_of(geogp.GPRegressor(name, epochs=1).get_params(), 5, False, 40)
        assert choose_latent(plan, data, None) is None or width
        assert untrained(name, data).expansion.degrees.shape[1] == 1 if name == "dmgp" else True
        assert untrained(name, data).backbone.n_outputs == width
