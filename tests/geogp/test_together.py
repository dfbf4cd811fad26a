"""Two targets at once: what their errors share, joint draws, and the chance that either misses."""

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from scipy.stats import multivariate_normal

from geogp import GPRegressor
from geogp.areas import Surface, cross_correlation, draws_together, either_below, missed, surface
from geogp.engines.joint import DenseJoint
from geogp.errors import InvalidInput
from geogp.transforms import Identity


@pytest.mark.parametrize("r", [-0.9, -0.3, 0.0, 0.5, 0.95])
def test_the_chance_of_either_is_that_of_the_bivariate_normal(r) -> None:
    h, k = np.random.default_rng(0).normal(0, 1.5, (2, 40))
    law = multivariate_normal([0, 0], [[1, r], [r, 1]], allow_singular=False)
    want = [ndtr(a) + ndtr(b) - law.cdf([a, b]) for a, b in zip(h, k)]
    np.testing.assert_allclose(either_below(h, k, r), want, atol=2e-6)
    with pytest.raises(InvalidInput, match="correlation"):
        either_below(h, k, 1.0)


@pytest.mark.parametrize("truth", [(0.8, 0.2), (0.1, 0.7), (-0.4, 0.5)])
def test_what_surfaces_and_noises_share_is_told_apart(truth) -> None:
    """Rows with much and with little surface in their variance; the sd that it gives itself is honest."""
    errors = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        share_a, share_b = rng.uniform(0.05, 0.95, (2, 4000)) ** 2
        parts = [rng.multivariate_normal([0, 0], [[1, r], [r, 1]], 4000).T for r in truth]
        z = [
            np.sqrt(s) * parts[0][i] + np.sqrt(1 - s) * parts[1][i] for i, s in enumerate((share_a, share_b))
        ]
        found = cross_correlation(*z, share_a, share_b)
        errors.append(
            [(found.surface - truth[0]) / found.surface_sd, (found.noise - truth[1]) / found.noise_sd]
        )
    assert np.abs(np.mean(errors, axis=0)).max() < 1.0 and 0.5 < np.std(errors) < 1.6
    with pytest.raises(InvalidInput, match="share 9 rows"):
        cross_correlation(*np.ones((4, 9)))
    with pytest.raises(InvalidInput, match="share 1 row to learn from"):
        cross_correlation(*np.ones((4, 1)))


def test_draws_keep_each_surfaces_own_law_and_share_what_they_should() -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 10, (150, 2))
    models = [
        GPRegressor("local-gp", options={"steps": 20, "n_targets": 300, "metric": False}).fit(
            X, np.sin(X[:, i]) + 0.5 * rng.standard_normal(150)
        )
        for i in (0, 1)
    ]
    at = rng.uniform(0, 10, (12, 2))
    a, b = (surface(model, at) for model in models)
    r, n = 0.6, 1500
    y_a, y_b = (np.concatenate(parts, axis=1) for parts in zip(*draws_together(a, b, r, n)))
    np.testing.assert_array_equal(y_a[:, :64], next(a.batches(n)))  # the first run's own draws
    for y, s, model in zip((y_a, y_b), (a, b), models):
        np.testing.assert_allclose(
            y.mean(1), model.predict(at, latent=True), atol=5 * s.scale.max() / np.sqrt(n)
        )
        np.testing.assert_allclose(y.std(1), s.scale, rtol=5 / np.sqrt(2 * n))
    shared = [np.corrcoef(p, q)[0, 1] for p, q in zip(y_a, y_b)]
    np.testing.assert_allclose(shared, r, atol=5 * (1 - r**2) / np.sqrt(n))
    limits = 0.2, 0.1
    drawn = (missed(y_a, limits[0], "higher") | missed(y_b, limits[1], "lower")).mean(1)
    h, k = (limits[0] - a.location) / a.scale, -(limits[1] - b.location) / b.scale
    np.testing.assert_allclose(either_below(h, k, -r), drawn, atol=5 * 0.5 / np.sqrt(n))


@pytest.mark.parametrize("r", [-0.5, 0.0, 0.8])
def test_joint_shares_hold_known_truths_as_often_as_they_say(r) -> None:
    """Truths drawn from two posteriors of one kernel whose errors are correlated with r: 95% intervals of what misses
    either limit hold 95% of them, and those that take the two for independent do not."""
    rng = np.random.default_rng(3)
    n, areas = 240, 6
    x = np.linspace(0, 12, n)
    S = 0.3 * np.exp(-np.abs(x[:, None] - x) / 1.5)
    variance = torch.as_tensor(S.diagonal().copy())
    m = np.sin(x), np.cos(0.7 * x)
    a, b = (
        Surface(v, S.diagonal() ** 0.5, 1.0, DenseJoint(torch.as_tensor(S), variance), Identity()) for v in m
    )
    W = np.kron(np.eye(areas), np.full((1, n // areas), areas / n))
    L = np.linalg.cholesky(S + 1e-10 * np.eye(n))
    e = np.einsum("ij,kjl->kil", L, rng.standard_normal((2, n, 1500)))
    truths = m[0][:, None] + e[0], m[1][:, None] + r * e[0] + np.sqrt(1 - r**2) * e[1]
    true = W @ (missed(truths[0], -0.3, "higher") | missed(truths[1], -0.4, "higher"))

    def held(correlation: float) -> float:
        draws = draws_together(a, b, correlation, 1500)
        share = np.concatenate([W @ (missed(p, -0.3, "") | missed(q, -0.4, "")) for p, q in draws], axis=1)
        low, high = np.quantile(share, [0.025, 0.975], axis=1)[:, :, None]
        return float(((low <= true) & (true <= high)).mean())

    # Shares are whole points of 40, so that an end may be met exactly.
    assert 0.94 < held(r) < 0.985
    if r > 0.5:
        assert held(-r) < held(r) - 0.02
