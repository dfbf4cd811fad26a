"""Diagnostics agree with dense formulas and say nothing where nothing is wrong."""

import geogp  # first: it sets OMP_WAIT_POLICY before torch loads

# isort: split
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geogp import diagnostics as D

pytestmark = pytest.mark.filterwarnings("ignore::geogp.errors.NotDistanceAware")
RNG = np.random.default_rng(0)
X = RNG.uniform(0, 10, (400, 2))
Y = np.sin(X[:, 0]) + 0.3 * RNG.standard_normal(400)


@pytest.fixture(scope="module")
def model():
    return geogp.GPRegressor(method="sv-rbf", epochs=120, rank=25).fit(X, Y)


def gaussian_kl(P, Q):
    inverse = np.linalg.inv(Q)
    return 0.5 * (np.trace(inverse @ P) - len(P) + np.linalg.slogdet(Q)[1] - np.linalg.slogdet(P)[1])


def test_the_curve_is_the_divergence_of_dense_matrices():
    d = np.abs(X[:60, :1] - X[:60, 0])
    K, s = np.exp(-0.5 * (d / 1.5) ** 2), 0.4
    values, U = np.linalg.eigh(K)
    values, U = np.maximum(values[::-1], 0), U[:, ::-1]
    curve = D.kl_of_truncation(values / 60, 60, s)
    for r in (0, 1, 4, 9):
        K_r = (U[:, :r] * values[:r]) @ U[:, :r].T
        dense = gaussian_kl(K + s * np.eye(60), K_r + s * np.eye(60))
        assert curve[r] == pytest.approx(dense, abs=1e-8)
    bound = D.kl_bound(values / 60, 60, s, largest=1.0)
    assert (bound >= curve - 1e-9).all()
    assert (np.diff(curve) <= 1e-12).all() and (np.diff(bound) <= 1e-9).all()
    assert D.rank_needed(curve, 60) <= D.rank_needed(bound, 60)


def test_fourier_features_at_the_rank_needed_keep_the_promise():
    n, s, epsilon = 40, 8.0, 0.05
    x = RNG.uniform(0, 3, (n, 1))
    K = np.exp(-0.5 * (x - x.T) ** 2)
    values = np.linalg.eigvalsh(K)[::-1] / n
    r = D.fourier_rank_needed(values, n, s, epsilon=epsilon)
    w = RNG.standard_normal(r // 2)
    Phi = np.concatenate([np.cos(x * w), np.sin(x * w)], 1) / np.sqrt(r // 2)
    assert gaussian_kl(K + s * np.eye(n), Phi @ Phi.T + s * np.eye(n)) <= epsilon * n


@given(st.lists(st.floats(0.0, 1e3), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_the_effective_rank_lies_between_one_and_the_rank(values):
    rank = D.effective_rank(values)
    assert rank == 0.0 if sum(values) <= 1e-300 else 1.0 - 1e-9 <= rank <= len(values) + 1e-9


def test_eigenvalues_with_features_are_those_of_the_kernel_matrix(model):
    values = D.eigenvalues(model, X)
    Phi = model.engine_.features(torch.as_tensor(X)).double()
    dense = torch.linalg.eigvalsh(Phi @ Phi.T / len(X)).flip(0)[: len(values)]
    assert np.allclose(values, dense, atol=1e-6)
    assert D.effective_rank(values) > 3


def test_a_collapsed_basis_is_reported():
    with pytest.warns(D.RankCollapse, match="collapsed"):
        assert D.warn_of_collapse([5.0, 0.01, 0.001])
    assert not D.warn_of_collapse([1.0, 0.5, 0.3])


def test_one_basis_function_has_collapsed():
    single = geogp.GPRegressor(method="dbk-silu", rank=1, epochs=5, hidden=8).fit(X, Y)
    with pytest.warns(D.RankCollapse):
        report = D.report(single, X, Y)
    assert report["rank_collapsed"]


def test_the_report_is_plain_and_complete(model):
    report = D.report(model, X, Y)
    json.dumps(report, allow_nan=False)
    assert report["variance_shares"]["latent"] + report["variance_shares"]["noise"] == pytest.approx(1.0)
    assert 0 < report["variance_shares"]["latent"] < 0.5  # noise sd .3 on 400 rows
    assert sum(report["reliability"]["pit"]) == pytest.approx(1.0)
    assert report["centred_quantile_metric"] < 0.25  # after 120 steps the noise is still on its way
    r = report["reliability"]
    assert all(low <= high for low, high in zip(r["low"], r["high"]))
    assert report["rank_needed"]["exact"] <= report["rank_needed"]["bound"] <= 25


def test_the_index_tells_a_stationary_kernel_from_one_that_is_not(model):
    refs = X[:4]
    assert D.non_stationarity(model, refs, reach=2.0) < 1e-6
    deep = geogp.GPRegressor(method="dbk-silu", epochs=60, rank=16, hidden=16).fit(X, Y)
    assert 0.05 < D.non_stationarity(deep, refs, reach=2.0) <= 1.0
    with pytest.raises(geogp.InvalidInput, match="two rows"):
        D.non_stationarity(model, refs[:1], reach=1.0)


def test_methods_without_features_have_eigenvalues_too():
    small = X[:60]

    class Exact:
        class engine_:
            @staticmethod
            def features(A):
                return None

            @staticmethod
            def prior_covariance(A, B):
                return torch.exp(-0.5 * torch.cdist(A, B) ** 2)

    values = D.eigenvalues(Exact(), small)
    K = np.exp(-0.5 * ((small[:, None] - small) ** 2).sum(-1))
    assert np.allclose(values, np.maximum(np.linalg.eigvalsh(K)[::-1], 0) / 60, atol=1e-9)
