"""Each expansion against the kernel that it stands for."""

import math

import pytest
import torch

import geogp
from geogp.basis.expansions import Concatenation, expansion_named
from geogp.basis.expansions.fourier import Fourier
from geogp.basis.expansions.hermite import Hermite, leading_degrees
from geogp.basis.expansions.lattice import Lattice
from geogp.basis.expansions.rbf import RBF
from geogp.basis.expansions.softki import SoftKI
from geogp.linalg import JITTER


def draw(n, d, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gaussian(h, epsilon):
    return torch.exp(-((h[:, None] - h) * epsilon).square().sum(-1))


def test_hermite_features_reproduce_the_gaussian_kernel_as_the_rank_grows():
    h = draw(15, 2)
    misses = []
    for rank in (10, 40, 160, 640):
        basis = Hermite(2, rank).double()
        with torch.no_grad():
            basis.log_epsilon.copy_(torch.tensor([0.4, 0.8]).log())
            basis.log_variance.fill_(0.3)
            phi = basis(h)
            expected = math.exp(0.3) * gaussian(h, basis.epsilon)
        misses.append(float((phi @ phi.T - expected).abs().max()))
        # A truncated Mercer series never adds variance.
        assert (phi.square().sum(1) <= math.exp(0.3) + 1e-12).all()
    assert misses[0] > misses[1] > misses[2] > misses[3] and misses[3] < 1e-6


def test_hermite_features_are_the_printed_eigenfunctions():
    # Equations 34 and 35 with n counted from 0: Hermite polynomials 1, 2u, 4u² − 2.
    x = draw(7, 1)[:, 0]
    basis = Hermite(1, 3).double()
    alpha2, eps2 = 0.5, basis.epsilon[0].item() ** 2
    beta = (1 + 4 * eps2 / alpha2) ** 0.25
    delta2 = alpha2 * (beta**2 - 1) / 2
    total = alpha2 + delta2 + eps2
    u = math.sqrt(alpha2) * beta * x
    for n, polynomial in enumerate((torch.ones_like(u), 2 * u, 4 * u**2 - 2)):
        gamma = math.sqrt(beta / (2**n * math.factorial(n)))
        value = math.sqrt(math.sqrt(alpha2 / total) * (eps2 / total) ** n)
        expected = value * gamma * torch.exp(-delta2 * x**2) * polynomial
        torch.testing.assert_close(basis(x[:, None])[:, n].detach(), expected, rtol=0, atol=1e-12)


def test_hermite_features_stay_finite_at_high_degree_and_far_away():
    basis = Hermite(1, 300).double()
    phi = basis(torch.tensor([[0.0], [3.0], [30.0], [1e6]], dtype=torch.float64))
    assert torch.isfinite(phi).all() and (phi.square().sum(1) <= 1 + 1e-9).all()


def test_leading_degrees_are_those_of_the_largest_eigenvalues():
    degrees = leading_degrees(3, 50)
    assert len(set(degrees)) == 50
    totals = [sum(d) for d in degrees]
    assert totals == sorted(totals) and totals[:4] == [0, 1, 1, 1]


def test_the_error_of_fourier_features_falls_as_one_over_the_root_of_the_rank():
    h = draw(12, 3)
    error = {}
    for rank in (50, 5000):
        squared = []
        for seed in range(20):
            torch.manual_seed(seed)
            basis = Fourier(3, rank).double()
            with torch.no_grad():
                phi = basis(h)
                squared.append((phi @ phi.T - gaussian(h, 0.5**0.5)).square().mean())
        error[rank] = float(torch.stack(squared).mean().sqrt())
    # A hundred times the rank, a tenth of the error; the mean over 20 draws varies by about 10%.
    assert error[50] / error[5000] == pytest.approx(10.0, rel=0.25)


def test_fourier_frequencies_are_drawn_once_and_fixed():
    basis = Fourier(2, 10)
    assert "frequencies" in dict(basis.named_buffers())
    assert {name for name, _ in basis.named_parameters()} == {"log_lengthscale", "log_variance"}
    assert Fourier(2, 9).rank == 8
    with pytest.raises(geogp.ImpossibleCombination, match="at least 2"):
        Fourier(2, 1)


def test_softki_is_its_formula():
    torch.manual_seed(0)
    basis = SoftKI(3, 9).double()
    h = draw(11, 3)
    with torch.no_grad():
        basis.log_temperature.copy_(torch.tensor([0.3, -0.2, 0.1]))
        Z, T = basis.interpolation_points, basis.temperature
        distance = (h[:, None] / T - Z).square().sum(-1).sqrt()
        S = torch.exp(-distance) / torch.exp(-distance).sum(1, keepdim=True)
        d = ((Z[:, None] - Z) / basis.lengthscale).square().sum(-1).sqrt() * math.sqrt(3.0)
        K = (1 + d) * torch.exp(-d) + JITTER * torch.eye(9)
        phi = basis(h)
    torch.testing.assert_close(phi @ phi.T, S @ K @ S.T, rtol=0, atol=1e-9)
    assert (phi.square().sum(1) <= basis.log_variance.exp() * (1 + 2 * JITTER)).all()


def test_softki_lengthscales_are_capped():
    basis = SoftKI(2, 4)
    with torch.no_grad():
        basis.raw_lengthscale.fill_(100.0)
    assert (basis.lengthscale <= 5.0).all()


def test_lattice_interpolation_approaches_the_product_kernel():
    h = draw(20, 2).clamp(-2, 2)
    root3 = math.sqrt(3.0)
    d = (h[:, None] - h).abs() * root3
    expected = ((1 + d) * torch.exp(-d)).prod(-1)
    misses = []
    for k in (12, 24, 48):
        basis = Lattice(2, k * k).double()
        basis.initialise(h)
        with torch.no_grad():
            basis.log_lengthscale.zero_()
            phi = basis(h)
        misses.append(float((phi @ phi.T - expected).abs().max()))
    assert misses[0] > misses[1] > misses[2] and misses[2] < 0.01


def test_lattice_weights_are_cubic_convolution():
    basis = Lattice(1, 10).double()
    basis.initialise(torch.linspace(0, 1, 50, dtype=torch.float64)[:, None])
    x = torch.linspace(0, 1, 31, dtype=torch.float64)[:, None]
    W = basis.axis_weights(x, 0)
    nodes = basis.low[0] + basis.step[0] * torch.arange(10)
    torch.testing.assert_close(W.sum(1), torch.ones(31, dtype=torch.float64), rtol=0, atol=1e-12)
    assert ((W != 0).sum(1) <= 4).all()
    for power in (1, 2):  # quadratics are reproduced exactly
        torch.testing.assert_close(W @ nodes**power, x[:, 0] ** power, rtol=0, atol=1e-10)


def test_a_lattice_is_for_three_inputs_at_most():
    with pytest.raises(geogp.ImpossibleCombination, match="'softki'"):
        Lattice(4, 1000)
    with pytest.raises(geogp.ImpossibleCombination, match="rank 216 or more"):
        Lattice(3, 100)


def test_a_concatenation_is_the_mean_of_its_kernels():
    torch.manual_seed(0)
    basis = expansion_named("rbf+fourier")(2, 11).double()
    assert isinstance(basis, Concatenation) and basis.rank == 10  # an odd share loses one to pairing
    h = draw(6, 2)
    with torch.no_grad():
        first, second = (part(h) for part in basis.parts)
        phi = basis(h)
    torch.testing.assert_close(phi @ phi.T, 0.5 * (first @ first.T + second @ second.T))
    assert isinstance(basis.parts[0], RBF) and basis.parts[0].rank == 6


def test_names_are_refused_or_accepted_by_name():
    with pytest.raises(geogp.ImpossibleCombination, match="no expansion 'wavelet'"):
        expansion_named("rbf+wavelet")
    X, y = torch.rand(20, 2).numpy(), torch.rand(20).numpy()
    model = geogp.GPRegressor("dbk-silu", expansion="rbf+fourier", rank=8, hidden=4, epochs=1).fit(X, y)
    assert model.engine_.features(torch.as_tensor(X).double()).shape == (20, 8)
    with pytest.raises(geogp.ImpossibleCombination, match="'nystrom'"):
        geogp.GPRegressor("sv-rbf", expansion="rbf+fourier").fit(X, y)
    with pytest.raises(geogp.ImpossibleCombination, match="'mll' solves for the weights"):
        geogp.GPRegressor("dbk-rbf", objective="mll").fit(X, y)
    with pytest.raises(geogp.ImpossibleCombination, match="'dppgp' learns the weights"):
        geogp.GPRegressor("sgpr", objective="dppgp").fit(X, y)
    with pytest.raises(
        geogp.ImpossibleCombination,
        match="'solved' cannot go with method 'dbk-rbf', which learns the weights",
    ):
        geogp.GPRegressor("dbk-rbf", posterior="solved").fit(X, y)


def test_a_kept_root_is_that_of_the_parameters_as_they_are():
    basis, h = RBF(2, 5).eval(), torch.rand(7, 2, generator=torch.Generator().manual_seed(0))

    def asked() -> torch.Tensor:
        with torch.no_grad():
            return basis(h)

    before = asked()
    basis.log_variance.data.add_(1.0)  # counts as no change
    torch.testing.assert_close(asked(), math.exp(0.5) * before)
    basis.double()
    assert asked().dtype == torch.float64
