"""The local Gaussian process: exact with all neighbours, honest far away, recovers what made the data."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from geogp.errors import NumericalFailure
from geogp.field import LocalKernel, neighbours
from geogp.field.earlier import earlier
from geogp.field.likelihood.conditional import conditional_log_density
from geogp.field.likelihood.minibatches import fit_local_gp
from geogp.field.observations import Observations
from geogp.field.solve import Neighbourhoods, conditional_moments, factor, predictors
from geogp.field.student import student_weights
from geogp.field.variation import Variation


def kernel(smoothness=("matern32",), lengthscale=(0.4, 0.7), variance=1.3, time_axis=None):
    C = len(smoothness)
    lengths = torch.tensor([lengthscale] * C, dtype=torch.float64) * torch.arange(1, C + 1)[:, None]
    return LocalKernel(
        lengths.log(), torch.full((C,), math.log(variance), dtype=torch.float64), smoothness, time_axis
    )


def points(n, d=2, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).uniform(0, 2, (n, d)))


def dense(k, X_new, X, y, noise):
    K = k(X, X) + torch.diag(noise)
    cross = k(X_new, X)
    mean = cross @ torch.linalg.solve(K, y)
    return mean, k(X_new, X_new) - cross @ torch.linalg.solve(K, cross.T)


@pytest.mark.agrees(
    methods=["geogp", "local-gp"],
    of="mean and variance of the local field, all rows being neighbours",
    with_="dense N x N algebra on 60 rows, four kernels, with and without time",
    tolerance=1e-8,
    source="Rasmussen and Williams 2006, eq. 2.22-2.24",
)
@pytest.mark.parametrize(
    "smoothness", [("matern12",), ("matern32",), ("matern52",), ("matern12", "matern32")]
)
@pytest.mark.parametrize("time_axis", [None, 2])
def test_all_neighbours_equal_the_dense_gp(smoothness, time_axis, tolerance):
    d = 2 if time_axis is None else 3
    X, X_new = points(60, d), points(9, d, seed=1)
    y = torch.sin(3 * X[:, 0])
    noise = 0.01 + 0.2 * torch.rand(60, generator=torch.Generator().manual_seed(0)).double()
    k = kernel(smoothness, (0.4, 0.7, 0.9)[:d], time_axis=time_axis)
    search = neighbours.build(X.numpy(), time_axis=time_axis)
    index = torch.from_numpy(neighbours.query(search, X_new.numpy(), 60))
    got = conditional_moments(k, X_new, X, y, noise, index)
    mean, covariance = dense(k, X_new, X, y, noise)
    assert torch.allclose(got.mean, mean, atol=tolerance, rtol=0)
    assert torch.allclose(got.variance, covariance.diagonal(), atol=tolerance, rtol=0)
    made = predictors(k, X_new, Observations(X, y, torch.ones(60), noise), index, None)
    assert torch.allclose((made.weights * y[index]).sum(1), mean, atol=tolerance, rtol=0)
    error = made.left + (made.weights.square() * made.noise).sum(1)
    assert torch.allclose(error, covariance.diagonal(), atol=tolerance, rtol=0)


def test_missing_neighbours_drop_out_exactly():
    X, X_new, k = points(20), points(4, seed=1), kernel()
    y, noise = X[:, 1], torch.full((20,), 0.1).double()
    some = torch.tensor([[0, 5, 9]] * 4)
    padded = torch.tensor([[-1, 0, -1, 5, 9, -1]] * 4)
    a, b = (conditional_moments(k, X_new, X, y, noise, i) for i in (some, padded))
    assert torch.allclose(a.mean, b.mean, atol=1e-12) and torch.allclose(a.variance, b.variance, atol=1e-12)
    nothing = conditional_moments(k, X_new, X, y, noise, torch.full((4, 3), -1))
    assert torch.equal(nothing.mean, torch.zeros(4).double())
    assert torch.allclose(nothing.variance, k.prior_variance.expand(4))


def test_columns_of_values_are_carried_together():
    X, X_new, k = points(30), points(5, seed=1), kernel()
    noise, index = torch.full((30,), 0.1).double(), torch.arange(30).expand(5, 30)
    both = conditional_moments(k, X_new, X, X, noise, index).mean
    for q in (0, 1):
        one = conditional_moments(k, X_new, X, X[:, q].contiguous(), noise, index).mean
        assert torch.allclose(both[:, q], one, atol=1e-12)


def test_far_away_the_variance_is_the_priors():
    X, k = points(50), kernel()
    far = torch.full((1, 2), 1e4, dtype=torch.float64)
    c = conditional_moments(k, far, X, X[:, 0], torch.full((50,), 0.1).double(), torch.arange(50)[None])
    assert c.variance.item() == pytest.approx(k.prior_variance.item(), abs=1e-12)
    assert c.mean.item() == pytest.approx(0.0, abs=1e-12)


def exact_log_likelihood(k, X, y, noise):
    K = k(X, X) + torch.diag(noise)
    return torch.distributions.MultivariateNormal(torch.zeros(len(y)).double(), K).log_prob(y)


def on_all_sides(known, new, m):
    return neighbours.query(neighbours.build(known), new, m)


def vecchia(k, X, y, noise, m):
    index = torch.from_numpy(earlier(X.numpy(), m, on_all_sides))
    return conditional_log_density(k, X, y, noise, torch.arange(len(y)), index).sum()


@pytest.mark.agrees(
    methods=["geogp", "local-gp"],
    of="Vecchia log likelihood, every earlier row a neighbour",
    with_="the dense log evidence of 80 rows",
    tolerance=1e-8,
    source="Vecchia 1988; Katzfuss and Guinness 2021",
)
def test_vecchia_likelihood_converges_to_the_exact_one(tolerance):
    X, k = points(80), kernel(("matern12",))
    noise = torch.full((80,), 0.05).double()
    y = torch.linalg.cholesky(k(X, X) + torch.diag(noise)) @ torch.randn(
        80, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    exact = exact_log_likelihood(k, X, y, noise)
    assert abs((vecchia(k, X, y, noise, 79) - exact).item()) < tolerance
    # KL(exact || Vecchia) = (sum of log conditional variances - log det K) / 2: falls to 0 from above.
    log_det = torch.logdet(k(X, X) + torch.diag(noise))
    kl = []
    for m in (2, 8, 30, 79):
        index = torch.from_numpy(earlier(X.numpy(), m, on_all_sides))
        variance = conditional_moments(k, X, X, y, noise, index).variance + noise
        kl.append(0.5 * (variance.log().sum() - log_det).item())
    assert kl[0] > kl[1] > kl[2] > -tolerance
    assert kl[2] < 0.1 * kl[0] and abs(kl[3]) < tolerance


def test_fit_recovers_lengthscale_variance_and_noise():
    # 900 places, 3 visits each: the noise variance rests on 1,800 contrasts (sd of its log ~ sqrt(2 / 1800) ~ .03);
    # the domain holds about (2 / .25)^2 = 64 independent patches, so log v and log l carry an sd near sqrt(2 / 64).
    rng = np.random.default_rng(3)
    P = torch.from_numpy(rng.uniform(0, 2, (900, 2)))
    truth = LocalKernel(
        torch.full((1, 2), math.log(0.25), dtype=torch.float64),
        torch.zeros(1, dtype=torch.float64),
        ("matern32",),
    )
    f = torch.linalg.cholesky(truth(P, P) + 1e-9 * torch.eye(900)) @ torch.from_numpy(rng.normal(size=900))
    X, counts = P.repeat(3, 1), torch.from_numpy(rng.choice([1.0, 4.0, 30.0], 2700))
    y = f.repeat(3) + torch.from_numpy(rng.normal(size=2700)) * (0.05 + 0.4 / counts).sqrt()
    search = neighbours.build(X.numpy())
    index = neighbours.query(search, X.numpy(), 20)
    index[index == np.arange(2700)[:, None]] = neighbours.MISSING
    start = LocalKernel(
        torch.full((1, 2), math.log(0.6), dtype=torch.float64),
        torch.full((1,), -1.0, dtype=torch.float64),
        ("matern32",),
    )
    got = fit_local_gp(
        X,
        y,
        counts,
        [(torch.arange(2700), torch.from_numpy(index), None)],
        start,
        student=False,
        steps=150,
        learning_rate=0.08,
    )
    four_sd = 4 * math.sqrt(2 / 64)
    assert abs(got.kernel.log_lengthscale - math.log(0.25)).max() < four_sd
    assert (
        abs(got.kernel.log_variance.item()) < 2 * four_sd
    )  # variance and lengthscale trade against each other
    assert abs(math.log(got.s2 / 0.4)) < 4 * math.sqrt(2 / 900) + 0.1
    assert abs(math.log(got.tau2 / 0.05)) < 0.5


def test_fit_recovers_degrees_of_freedom():
    # The sd of log(nu) from n = 4,000 draws is about 1.4 / sqrt(n) * nu / 2 ~ .05 at nu = 4.
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.uniform(0, 2, (4000, 2)))
    y = torch.from_numpy(rng.standard_t(4.0, 4000) * 0.5)
    index = torch.from_numpy(rng.integers(0, 4000, (4000, 4)))
    start = LocalKernel(
        torch.full((1, 2), math.log(0.2), dtype=torch.float64),
        torch.full((1,), math.log(0.01), dtype=torch.float64),
        ("matern12",),
    )
    got = fit_local_gp(
        X,
        y,
        torch.ones(4000).double(),
        [(torch.arange(4000), index, None)],
        start,
        per_count=False,
        steps=200,
        batch=512,
        learning_rate=0.08,
    )
    assert 3.2 < got.degrees_of_freedom < 5.2


def crowd(n=120):
    """Places close together, so that every value has company, and a smooth surface on them."""
    rng = np.random.default_rng(2)
    X = torch.from_numpy(rng.uniform(0, 1.5, (n, 2)))
    y = torch.sin(X[:, 0]) + 0.05**0.5 * torch.from_numpy(rng.normal(size=n))
    return X, y, torch.full((n,), 0.05).double()


def test_one_wild_value_does_not_pull_its_surroundings():
    X, y, noise = crowd()
    wild = y.clone()
    wild[3] += 6.0
    place, index = X[3:4] + 0.02, torch.arange(120)[None]

    def mean(v, nu):
        return conditional_moments(kernel(), place, X, v, noise, index, nu).mean

    gaussian, student = ((mean(wild, nu) - mean(y, nu)).abs().item() for nu in (None, 4.0))
    assert gaussian > 0.5 and student < 0.2 * gaussian
    # From 30 degrees of freedom on observations are Gaussian, to the bit.
    assert torch.equal(mean(wild, 30.0), mean(wild, None))


# -- pieces of a neighbourhood --------------------------------------------------------------------------


@pytest.mark.parametrize("nu", [None, 4.0])
def test_a_neighbourhood_with_gaps_is_dense_algebra_on_those_that_are_there(nu):
    """Means, variances, weights, predictors and whiteners of neighbours some of which are missing."""
    X, X_new, k = (
        points(25, 3),
        points(5, 3, seed=1),
        kernel(("matern12", "matern52"), (0.4, 0.7, 0.9), time_axis=2),
    )
    y, noise = torch.sin(3 * X[:, 0]), torch.linspace(0.02, 0.4, 25).double()
    index = torch.rand(5, 25, generator=torch.Generator().manual_seed(2)).argsort(1)[:, :8]
    index[1, 2:4], index[3, :] = -1, -1
    seen = Observations(X, y, torch.ones(25), noise)
    got = conditional_moments(k, X_new, X, y, noise, index, nu)
    made = predictors(k, X_new, seen, index, nu)
    near = Neighbourhoods.among_rows(k, X, index)
    assert torch.equal(near.across, torch.zeros(5, 8).double()) and torch.equal(near.present, index >= 0)
    whitener = near.whitener(seen, nu)
    columns = near.of_neighbours(torch.stack([y, 2 * y], 1))
    for i in range(5):
        there = index[i] >= 0
        rows = index[i][there]
        K, across = k(X[rows], X[rows]), k(X_new[i][None], X[rows])[0]
        own = noise[rows]
        if nu is not None and len(rows):
            own = own / student_weights(K[None], own[None], y[rows][None], nu)[0]
        S = K + torch.diag(own)
        b = torch.linalg.solve(S, across)
        for weights in (got.weights[i], made.weights[i]):
            torch.testing.assert_close(weights[there], b, rtol=1e-6, atol=1e-8)
            assert (weights[~there] == 0).all()
        torch.testing.assert_close(got.mean[i], b @ y[rows], rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(got.variance[i], k.prior_variance - across @ b, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(got.covariance[i][there], across)
        torch.testing.assert_close(made.noise[i][there], own, rtol=1e-6, atol=1e-8)
        assert (made.noise[i][~there] == 0).all() and (got.covariance[i][~there] == 0).all()
        left = k.prior_variance - 2 * b @ across + b @ K @ b
        torch.testing.assert_close(made.left[i], left, rtol=1e-6, atol=1e-8)
        root = whitener[i][there][:, there]
        torch.testing.assert_close(root.T @ root, torch.linalg.inv(S), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(columns[i][there], torch.stack([y[rows], 2 * y[rows]], 1))
        assert (columns[i][~there] == 0).all()
    torch.testing.assert_close(made.of(y[:, None], index)[:, 0], got.mean, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(near.of_neighbours(y), columns[..., 0])


def test_a_variance_is_cut_at_nothing_and_a_bad_matrix_is_mended_or_refused():
    """Repeated places without noise: singular, so that rounding alone decides the sign."""
    X = points(6).repeat(2, 1)
    y, none = X[:, 0].contiguous(), torch.zeros(12).double()
    c = conditional_moments(kernel(), X, X, y, none, torch.arange(12).expand(12, 12))
    assert (c.variance >= 0).all() and c.variance.max() < 1e-6
    torch.testing.assert_close(c.mean, y, rtol=0, atol=1e-4)
    made = predictors(
        kernel(), X, Observations(X, y, torch.ones(12), none), torch.arange(12).expand(12, 12), None
    )
    assert (made.left >= 0).all() and made.left.max() < 1e-6
    with pytest.raises(NumericalFailure, match="neighbourhood's covariance"):
        factor(-torch.eye(3).double()[None])
    # One that cannot be factorised among others that can is not passed on as it came.
    K = torch.stack([torch.eye(3), torch.ones(3, 3)]).double()
    L = factor(K)
    torch.testing.assert_close(L @ L.mT, K, rtol=0, atol=1e-5)


@pytest.mark.parametrize("time_axis", [None, 0, 2])
@pytest.mark.parametrize("varying", [False, True])
def test_the_kernel_is_its_formula(time_axis, varying):
    """A sum of Matern correlations over space times an exponential one over time, entry by entry."""
    A, B = points(7, 3), points(5, 3, seed=4)
    k = kernel(("matern12", "matern32", "matern52"), (0.4, 0.7, 0.9), variance=0.6, time_axis=time_axis)
    bumps = Variation.flat(points(9)[:, :2], 3) if varying else None
    if bumps is not None:
        bumps = replace(
            bumps,
            lengthscale=torch.linspace(-0.4, 0.5, 3).double(),
            variance=torch.linspace(0.3, -0.2, 3).double(),
        )
    k = replace(k, variation=bumps)
    space = [d for d in range(3) if d != time_axis]
    assert k.space_axes == space and float(k.prior_variance) == pytest.approx(1.8)
    shapes = (lambda r: np.exp(-r), lambda r: (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r),
              lambda r: (1 + 5**0.5 * r + 5 * r**2 / 3) * np.exp(-(5**0.5) * r))  # fmt: skip
    expected = np.zeros((7, 5))
    stretch, factors = k._varied(A, B)
    for i, a in enumerate(A.numpy()):
        for j, b in enumerate(B.numpy()):
            for c, shape in enumerate(shapes):
                length = k.log_lengthscale[c].exp().numpy()
                r = np.sqrt((((a - b) / length)[space] ** 2).sum())
                r = r if stretch is None else r / np.sqrt(float(stretch[i, j]))
                lag = 0.0 if time_axis is None else abs(a - b)[time_axis] / length[time_axis]
                expected[i, j] += 0.6 * shape(r) * np.exp(-lag)
            expected[i, j] *= 1.0 if factors is None else float(factors[i, j])
    np.testing.assert_allclose(k(A, B).numpy(), expected, rtol=1e-10)
    taped = k(A.clone().requires_grad_(), B).detach()
    np.testing.assert_allclose(taped.numpy(), expected, rtol=1e-10)
    np.testing.assert_allclose(k(A, A).diagonal().numpy(), k.prior_at(A).expand(7).numpy(), rtol=1e-10)
    if not varying:
        each = sum(k.term(c)(A, B) for c in range(3))
        np.testing.assert_allclose(each.numpy(), expected, rtol=1e-10)
    if time_axis is not None:
        A[:, time_axis] = 0.3
        K, squares = k.at_one_time(A, B)
        torch.testing.assert_close(K, k(A, B))
        first, second = space[:2]
        torch.testing.assert_close(
            squares,
            (A[:, None, first] - B[None, :, first]) ** 2 + (A[:, None, second] - B[None, :, second]) ** 2,
        )


def test_far_apart_and_in_single_precision_it_is_as_good():
    k, far = kernel(("matern12",), (1.0, 1.0)), torch.tensor([[0.0, 0.0], [79.0, 0.0], [500.0, 0.0]]).double()
    K = k(far, far)
    assert K[0, 1] == pytest.approx(1.3 * math.exp(-79)) and 0 <= float(K[0, 2]) <= 1.3 * math.exp(-80) * (
        1 + 1e-9
    )
    single = k(far.float(), far.float())
    assert single.dtype == torch.float32 and torch.isfinite(single).all()
    torch.testing.assert_close(single.double(), K, rtol=1e-5, atol=1e-30)
