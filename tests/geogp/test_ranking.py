"""Ranks, percentiles and comparisons of areas against closed forms and known truths."""

import numpy as np
import pytest
import torch
from scipy import sparse, stats

from geogp.areas import Surface, p_below, ranked
from geogp.engines.joint import DenseJoint
from geogp.errors import InvalidInput
from geogp.transforms import Identity, Log10


def world(seed, areas=30):
    """Means (A,) and covariance (A, A) of areas that err together."""
    rng = np.random.default_rng(seed)
    L = rng.standard_normal((areas, areas)) * 0.1
    return rng.normal(0, 0.7, areas), L @ L.T + 0.15 * np.ones((areas, areas)) + 0.02 * np.eye(areas)


@pytest.mark.parametrize("seed", range(3))
def test_ranks_hold_what_they_promise(seed):
    """Truths drawn from the same posterior lie in the intervals, and among the worst as often as said."""
    m, C = world(seed)
    rng = np.random.default_rng(100 + seed)
    found = ranked(rng.multivariate_normal(m, C, 2000).T, 5, level=0.9)
    truths = rng.multivariate_normal(m, C, 2000).T
    place = stats.rankdata(truths, axis=0)
    inside = (place >= found.lower[:, None]) & (place <= found.upper[:, None])
    assert inside.mean() > 0.9 - 0.01  # ranks are whole: intervals hold at least so much
    assert found.p_worst.sum() == pytest.approx(5)
    np.testing.assert_allclose(found.p_worst, (place <= 5).mean(axis=1), atol=5 * np.sqrt(0.5 / 2000))
    assert (found.lower <= found.rank).all() and (found.rank <= found.upper).all()


def test_where_high_is_bad_the_highest_is_first_and_unknown_areas_have_no_rank():
    draws = np.array([[1.0, 1.0], [np.nan, np.nan], [3.0, 4.0]])
    assert ranked(draws, 1).rank.tolist()[::2] == [1.0, 2.0]
    found = ranked(draws, 1, lowest_first=False)
    assert found.rank.tolist()[::2] == [2.0, 1.0] and np.isnan(found.rank[1]) and np.isnan(found.p_worst[1])
    with pytest.raises(InvalidInput, match="1 or more"):
        ranked(draws, 0)


def test_one_area_below_another_is_the_gaussian_of_their_difference():
    m, C = world(0, 4)
    draws = np.random.default_rng(0).multivariate_normal(m, C, 20_000).T
    exact = stats.norm.cdf((m[1] - m[0]) / np.sqrt(C[0, 0] + C[1, 1] - 2 * C[0, 1]))
    assert p_below(draws, 0, 1) == pytest.approx(exact, abs=4 * 0.5 / np.sqrt(20_000))
    assert p_below(draws, 0, 1) + p_below(draws, 1, 0) == pytest.approx(1.0)


@pytest.mark.parametrize("transform", [Identity(), Log10()])
def test_percentiles_are_those_of_all_draws_together(transform):
    rng = np.random.default_rng(0)
    n = 40
    L = rng.standard_normal((n, n)) * 0.1
    S = torch.as_tensor(L @ L.T + 0.01 * np.eye(n))
    location = rng.normal(1.0, 0.5, n)
    found = Surface(
        location,
        np.sqrt(S.diagonal().numpy()),
        1.0,
        DenseJoint(S, S.diagonal()),
        transform,
    )
    W = rng.uniform(size=(3, n)) * (rng.uniform(size=(3, n)) < 0.4)
    W = sparse.csr_array(np.vstack([W / W.sum(axis=1, keepdims=True), np.zeros((1, n))]))
    p = (0.1, 0.5, 0.9)
    q = found.percentiles(W, p)
    assert q.shape == (3, 4) and np.isnan(q[:, 3]).all()
    weights, draws = W.toarray(), np.hstack(list(found.batches(4000)))
    for i in range(3):
        for area in range(3):
            assert ((draws < q[i, area]).mean(axis=1) @ weights[area]) == pytest.approx(p[i], abs=0.01)
