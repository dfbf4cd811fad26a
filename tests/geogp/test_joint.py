"""How a field's errors go together, against dense algebra: covariances of sums, sums over blocks, draws of the prior."""

import geogp  # noqa: F401  first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

from geogp.densities import matern
from geogp.field.earlier import earlier, nearest
from geogp.field.joint import FieldJoint, kernel_sums, prior_draws
from geogp.field.joint.kernel_sums import kernel_quadratic
from geogp.field.joint.prior_draws import PriorSampler, generations
from geogp.field.observations import Observations
from geogp.field.solve import predictors
from geogp.field.variation import Variation
from tests.geogp.test_local import kernel, points
from tests.others import Others

TWO = kernel(("matern12", "matern52"), (0.4, 0.7, 0.9), variance=0.3, time_axis=2)


# -- errors of predictions ------------------------------------------------------------------------------


@pytest.fixture
def world():
    """Six places, ten of twelve observations near one or another of them, weighed anew at each; one place with none."""
    X, C = points(12, 3), points(6, 3, seed=1)
    index = torch.rand(6, 10, generator=torch.Generator().manual_seed(2)).argsort(1)[:, :4]
    index[1, 2:], index[4, :] = -1, -1
    y, one = 4 * torch.cos(9 * X[:, 0]), torch.ones(12).double()
    seen = Observations(X, y, one, torch.linspace(0.05, 0.4, 12).double())
    made = predictors(TWO, C, seen, index, 4.0)
    common = torch.linspace(-0.3, 0.4, 12).double().reshape(6, 2)
    variance = np.linspace(0.9, 1.8, 6)
    return C, seen, index, made, common, variance


def written_out(C, seen, index, made, common, variance):
    """Covariance of the errors from the matrices of all observations."""
    B, noise = torch.zeros(6, 12).double(), torch.zeros(6, 12).double()
    for i in range(6):
        for j, row in enumerate(index[i]):
            if row >= 0:
                B[i, row], noise[i, row] = made.weights[i, j], made.noise[i, j]
    assert (noise.amax(0) > 1.1 * noise.where(noise > 0, torch.inf).amin(0)).any()  # weighed differently
    used = (B != 0).any(0)
    shared = torch.where(used, (B**2 * noise).sum(0) / (B**2).sum(0).where(used, 1.0), 0.0)
    S = TWO(C, C) - B @ TWO(seen.X, C) - TWO(C, seen.X) @ B.T + B @ TWO(seen.X, seen.X) @ B.T
    S = (S + B @ torch.diag(shared) @ B.T).numpy()
    torch.testing.assert_close(made.left, torch.from_numpy(S).diagonal() - B**2 @ shared)
    apart = variance - (common**2).sum(1).numpy()
    scale = np.sqrt(np.maximum(apart, 0.0) / S.diagonal())
    return scale[:, None] * S * scale + (common @ common.T).numpy()


def test_errors_go_together_as_the_matrices_of_all_observations_say(world):
    C, seen, index, made, common, variance = world
    expected = written_out(*world)
    joint = FieldJoint(TWO, seen, C, index, made, variance=variance, common=common)
    np.testing.assert_allclose(joint.dense(), expected, atol=1e-10)
    np.testing.assert_allclose(joint.dense().diagonal(), variance)
    W = np.random.default_rng(0).normal(size=(3, 6))
    np.testing.assert_allclose(joint.covariance(sparse.csr_array(W)), W @ expected @ W.T, atol=1e-10)
    neighbours = len(index[index >= 0].unique())
    assert joint.pairs == (6 + neighbours) ** 2 and neighbours < 12


def test_how_far_the_mean_walks_is_the_last_two_of_what_all_share_and_can_be_left_out(world):
    C, seen, index, made, common, variance = world
    common = torch.cat([torch.linspace(0.2, -0.1, 6).double()[:, None], common], dim=1)
    joint = FieldJoint(TWO, seen, C, index, made, variance=variance, common=common)
    np.testing.assert_allclose(joint.variance, variance)
    np.testing.assert_array_equal(joint.ahead, common[:, 1:])
    rest = joint.not_ahead()
    np.testing.assert_allclose(rest.dense(), joint.dense() - joint.ahead @ joint.ahead.T, atol=1e-12)
    np.testing.assert_allclose(rest.variance, rest.dense().diagonal())
    np.testing.assert_array_equal(joint.ahead, common[:, 1:])  # which is left as it was


def test_draws_of_errors_have_their_covariance(world):
    """A sample covariance of m draws has an sd of at most sqrt(2 / m) times the largest variance."""
    C, seen, index, made, common, variance = world
    joint = FieldJoint(TWO, seen, C, index, made, variance=variance, common=common)
    generator = torch.Generator().manual_seed(0)
    draws = np.concatenate([joint.draw(20_000, generator), joint.draw(20_000, generator)], axis=1)
    assert np.abs(np.cov(draws) - joint.dense()).max() < 5 * np.sqrt(2 / 40_000) * variance.max()
    assert np.abs(draws.mean(axis=1)).max() < 5 * np.sqrt(variance.max() / 40_000)


def test_a_place_that_is_known_but_for_what_all_share_errs_as_all_do(world):
    C, seen, index, made, common, variance = world
    variance = np.square(common.numpy()).sum(axis=1)
    variance[3] *= 0.9  # rounding may leave a little less
    joint = FieldJoint(TWO, seen, C, index, made, variance=variance, common=common)
    np.testing.assert_allclose(joint.dense(), common @ common.T, atol=1e-7)


def test_a_neighbour_without_a_weight_and_a_place_without_an_error_are_no_division_by_nothing(world):
    C, seen, index, made, common, variance = world
    made = replace(made, weights=torch.zeros_like(made.weights), left=torch.zeros_like(made.left))
    given = {"variance": variance * 0.0, "common": 0.0 * common}
    joint = FieldJoint(TWO, seen, C, index, made, **given)
    assert np.array_equal(joint.dense(), np.zeros((6, 6)))
    assert np.array_equal(joint.draw(2, torch.Generator().manual_seed(0)), np.zeros((6, 2)))


# -- sums over blocks -----------------------------------------------------------------------------------


def weights(n, seed=0):
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(4, n)) * (rng.uniform(size=(4, n)) < 0.3)
    W[:, : n // 5] = 0.0
    return sparse.csr_array(W)


@pytest.mark.parametrize("varying", [False, True])
def test_sums_over_blocks_are_those_over_the_matrix(monkeypatch, varying):
    monkeypatch.setattr(kernel_sums, "BLOCK", 7)
    X = points(90, 3, seed=3)
    bumps = replace(Variation.flat(X[:, :2], 3), lengthscale=torch.tensor([0.5, -0.2, 0.3]).double())
    k = replace(TWO, variation=bumps) if varying else TWO
    W = weights(90)
    expected = W @ (W @ k(X, X).numpy()).T
    found = kernel_quadratic(k, X, W)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert np.array_equal(found, found.T)
    np.testing.assert_allclose(kernel_quadratic(k, X.float(), W), expected, atol=1e-5)
    again = sparse.csr_array(np.repeat(W.toarray(), 2, axis=0))[::2]
    np.testing.assert_allclose(kernel_quadratic(k, X, again), expected, atol=1e-12)


@pytest.mark.parametrize(("time_axis", "over_time"), [(None, "matern12"), (2, "matern12"), (2, "matern32")])
@pytest.mark.parametrize("stretch", [0.0, 0.4, -0.4])
@pytest.mark.parametrize("negligible", [1e-9, 1e-3, 0.1])
def test_of_a_pair_of_blocks_those_terms_are_left_out_that_are_negligible_in_it(
    monkeypatch, negligible, stretch, time_axis, over_time
):
    """The largest correlation of two boxes, written out; which also bounds what each entry is off by."""
    monkeypatch.setattr(kernel_sums, "BLOCK", 5)
    X = points(40, 3, seed=4) * torch.tensor([16.0, 3.0, 2.0]).double()
    X[:, 2] += X[:, 0] / 4  # blocks lie apart in time, too
    zero = torch.zeros(1).double()
    bump = Variation(X[:1, :2].clone(), torch.full((1,), 10.0).double(), zero + stretch, zero)
    k = replace(TWO, variation=bump if stretch else None, time_axis=time_axis, over_time=over_time)
    if time_axis is None:
        k, X = replace(k, log_lengthscale=k.log_lengthscale[:, :2]), X[:, :2]
    factor = float(bump(X[:, :2])[0].exp().max())
    W = sparse.csr_array(np.eye(40))
    parts = kernel_sums._blocks(X[:, :2].numpy())
    assert sorted(np.concatenate(parts)) == list(range(40)) and max(map(len, parts)) <= 5
    expected, left_out = np.zeros((40, 40)), 0
    for one in parts:
        for other in parts:
            (low, high), (least, most) = ((X[r].amin(0), X[r].amax(0)) for r in (one, other))
            gap = torch.maximum(low - most, least - high).clamp_min(0.0)
            for c, name in enumerate(k.smoothness):
                away = gap / k.log_lengthscale[c].exp()
                over_time = matern(away[2:].sum(), k.over_time)
                largest = float(matern(away[:2].norm() / factor, name) * over_time)
                if largest > negligible:
                    expected[np.ix_(one, other)] += k.term(c)(X[one], X[other]).numpy()
                else:
                    left_out += 1
    np.testing.assert_allclose(kernel_quadratic(k, X, W, negligible=negligible), expected, atol=1e-12)
    assert left_out > 0
    full = k(X, X).numpy()
    assert np.abs(expected - full).max() <= negligible * full.max() * (1 + 1e-6)


def test_blocks_are_halved_at_the_median_of_the_widest_axis(monkeypatch):
    monkeypatch.setattr(kernel_sums, "BLOCK", 8)
    rng = np.random.default_rng(0)
    P = np.column_stack([rng.permutation(16) * 1.0, rng.permutation(16) * 10.0])
    parts = kernel_sums._blocks(P)
    assert sorted(map(len, parts)) == [8, 8]
    assert sorted(P[rows, 1].max() < 80 for rows in parts) == [False, True]
    assert kernel_sums._blocks(np.zeros((0, 2))) == []
    assert [len(rows) for rows in kernel_sums._blocks(np.zeros((8, 2)))] == [8]


# -- draws of the prior ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ancestors", [5, 60])
def test_a_term_is_drawn_as_vecchia_says(monkeypatch, ancestors):
    """What independent noise becomes has the covariance of the conditionals, written out; all ancestors give the kernel's."""
    monkeypatch.setattr(prior_draws, "POINTS_AT_ONCE", 11)
    k = kernel(("matern32", "matern12"), (0.4, 0.7, 0.9), time_axis=2)
    zero = torch.zeros(3).double()
    bumps = replace(Variation.flat(points(30)[:, :2], 3), variance=zero + torch.tensor([0.4, -0.3, 0.2]))
    k = replace(k, variation=bumps)
    X = points(60, 3, seed=5)
    X = torch.cat([X, X[:7]])  # some places twice
    sampler = PriorSampler(k, X, ancestors=ancestors)
    assert sampler.n_drawn == 60
    places = np.unique(X.numpy(), axis=0)
    order = np.random.default_rng(0).permutation(60)
    for c, (factor, at) in enumerate(zip(sampler.factors, sampler.drawn_as)):
        term = k.term(c)
        scaled = places[order] / term.log_lengthscale[0].exp().numpy()
        K = term(torch.from_numpy(places[order]), torch.from_numpy(places[order])).numpy()
        before, expected = earlier(scaled, min(ancestors, 59), nearest), np.zeros((60, 60))
        for j in range(60):
            near = before[j][before[j] >= 0]
            a = np.linalg.solve(K[np.ix_(near, near)], K[near, j])
            expected[j, :j] = expected[:j, j] = expected[:j, near] @ a
            expected[j, j] = K[j, j] - K[j, near] @ a + a @ expected[np.ix_(near, near)] @ a
        root = factor.drawn(torch.eye(60).double())[factor.place]
        np.testing.assert_allclose(root @ root.T, expected, atol=1e-7)
        if ancestors == 60:
            np.testing.assert_allclose(root @ root.T, K, atol=1e-6)
        root = factor.drawn(torch.eye(60).double())[at]
        if ancestors == 60:
            np.testing.assert_allclose(root @ root.T, term(X, X).numpy(), atol=1e-6)


def test_draws_are_made_some_at_once_and_those_of_one_place_are_one(monkeypatch):
    monkeypatch.setattr(prior_draws, "DRAWS_AT_ONCE", 4)
    X = torch.cat([points(20, 3), points(3, 3)])
    sampler = PriorSampler(TWO, X)
    f = sampler.draw(10, torch.Generator().manual_seed(1))
    assert f.shape == (23, 10) and np.array_equal(f[:3], f[20:])
    generator = torch.Generator().manual_seed(1)
    assert np.array_equal(f, np.concatenate([sampler.draw(m, generator) for m in (4, 4, 2)], axis=1))
    generator = torch.Generator().manual_seed(1)
    expected = np.zeros((23, 4))
    for factor, at in zip(sampler.factors, sampler.drawn_as):
        expected += factor.drawn(torch.randn(20, 4, generator=generator))[at]
    np.testing.assert_allclose(f[:, :4], expected)


def test_one_point_and_points_that_almost_coincide_are_drawn():
    for k in (TWO, TWO.term(1)):
        one = PriorSampler(k, points(1, 3)).draw(4000, torch.Generator().manual_seed(0))
        assert one.var() == pytest.approx(float(k.prior_variance), rel=5 * np.sqrt(2 / 4000))
    X = points(5, 3).repeat(3, 1)
    X[5:] += 1e-13 * torch.randn(10, 3, generator=torch.Generator().manual_seed(0)).double()
    f = PriorSampler(TWO, X).draw(50, torch.Generator().manual_seed(0))
    sd = float(TWO.prior_variance.sqrt())
    assert 0 < np.abs(f[:5] - f[5:10]).max() < 1e-3 * sd


def test_points_are_shared_among_workers_and_drawn_alike_whoever_works(monkeypatch):
    monkeypatch.setattr(prior_draws, "POINTS_AT_ONCE", 2)
    X, others = points(90, 3), Others()
    here, there = PriorSampler(TWO, X), PriorSampler(TWO, X, workers=others)
    assert len(others.done) == 2 * 3  # of each of two terms 45 lots, 16 of them together
    f, g = (sampler.draw(5, torch.Generator().manual_seed(1)) for sampler in (here, there))
    np.testing.assert_array_equal(f, g)


@pytest.mark.parametrize("together", [0.0, 0.1, 2.0])
def test_generations_are_the_longest_lines_of_ancestors(monkeypatch, together):
    monkeypatch.setattr(prior_draws, "TOGETHER", together)
    index = earlier(points(200).numpy(), 3, nearest)
    expected = []
    for ancestors in index:
        expected.append(max((expected[a] + 1 for a in ancestors if a >= 0), default=0))
    assert generations(index).tolist() == expected and max(expected) > 5
