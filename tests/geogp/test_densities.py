"""Densities and correlations against scipy's, and the two ways of writing each against one another."""

import numpy as np
import pytest
import torch
from scipy import special, stats

from geogp.densities import (
    MATERN,
    gaussian_crps,
    gaussian_nll,
    log_density,
    matern,
    matern32_of_squared,
    standard_log_density,
)


def numbers(n=50, seed=0):
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(v) for v in (*rng.normal(size=(2, n)), rng.uniform(0.1, 3.0, n))]


def test_log_densities_are_scipys():
    y, location, scale2 = numbers()
    sd, nu = scale2.sqrt().numpy(), np.linspace(1.5, 40.0, len(y))
    gaussian = stats.norm.logpdf(y, location, sd)
    np.testing.assert_allclose(log_density(y, location, scale2, None), gaussian, rtol=1e-10)
    np.testing.assert_allclose(-gaussian_nll(y, location, scale2), gaussian, rtol=1e-10)
    student = log_density(y, location, scale2, torch.from_numpy(nu))
    np.testing.assert_allclose(student, stats.t.logpdf(y, nu, location, sd), rtol=1e-10)
    u = ((y - location) / scale2.sqrt()).numpy()
    np.testing.assert_allclose(standard_log_density(u, None) - np.log(sd), gaussian, rtol=1e-10)
    np.testing.assert_allclose(standard_log_density(u, nu) - np.log(sd), student, rtol=1e-10)


def test_crps_is_the_integral_of_the_squared_difference_of_distribution_functions():
    y, mean, variance = numbers(20)
    t = np.linspace(-20, 20, 400_001)
    for i, found in enumerate(gaussian_crps(y, mean, variance)):
        below = stats.norm.cdf(t, mean[i], variance[i].sqrt())
        # The trapezium rule errs by half the step of 1e-4 where the indicator jumps.
        assert float(found) == pytest.approx(np.trapezoid((below - (t >= y[i].item())) ** 2, t), abs=1e-4)


@pytest.mark.parametrize(("name", "nu"), [("matern12", 0.5), ("matern32", 1.5), ("matern52", 2.5)])
def test_matern_correlations_are_bessel_functions(name, nu):
    d = torch.linspace(0.01, 5.0, 40, dtype=torch.float64)
    a = np.sqrt(2 * nu) * d.numpy()
    expected = 2 ** (1 - nu) / special.gamma(nu) * a**nu * special.kv(nu, a)
    np.testing.assert_allclose(matern(d, name), expected, rtol=1e-10)
    assert float(matern(torch.zeros(()), name)) == 1.0
    assert list(MATERN) == ["matern12", "matern32", "matern52"]


def test_the_correlation_of_squared_distances_is_the_same_with_a_slope_at_zero():
    d = torch.linspace(0.1, 5.0, 40, dtype=torch.float64)
    # The constant under the root moves sqrt(3) d by 5e-13 / (sqrt(3) d).
    torch.testing.assert_close(matern32_of_squared(d.square()), matern(d, "matern32"), rtol=1e-10, atol=1e-12)
    zero = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    matern32_of_squared(zero).sum().backward()
    # -3/2 exp(-a) with a = 1e-6, the root of that constant.
    assert zero.grad.item() == pytest.approx(-1.5, abs=2e-6)


def test_unknown_smoothness_is_refused():
    with pytest.raises(ValueError, match="smoothness must be one of"):
        matern(torch.zeros(1), "rbf")
