"""Excursion sets against brute force: every subset of a few places, its probability by integration."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from geogp.areas import Surface, excursion
from geogp.errors import InvalidInput
from geogp.transforms import Identity


@dataclass
class Known:
    """Joint errors of a covariance."""

    C: np.ndarray

    @property
    def pairs(self) -> float:
        return float(self.C.size)

    def draw(self, n_samples: int, generator: torch.Generator) -> np.ndarray:
        noise = torch.randn(len(self.C), n_samples, generator=generator, dtype=torch.float64)
        return np.linalg.cholesky(self.C) @ noise.numpy()


def made(seed: int, n: int = 7, length: float = 1.0) -> tuple[Surface, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 3, n))
    sd = rng.uniform(0.5, 1.5, n)
    C = sd[:, None] * sd * np.exp(-np.abs(x[:, None] - x) / length)
    mean = 1.0 + 1.5 * np.sin(2 * x)
    return Surface(mean, sd, 1.0, Known(C), Identity()), mean, C


def all_exceed(mean: np.ndarray, C: np.ndarray, chosen: list[int], u: float, side: float) -> float:
    part = np.ix_(chosen, chosen)
    law = multivariate_normal(-side * mean[chosen], C[part], seed=0)
    return float(law.cdf(np.full(len(chosen), -side * u)))


def largest(mean: np.ndarray, C: np.ndarray, u: float, side: float, level: float) -> int:
    """How many places the largest set has that exceeds u as a whole with this probability."""
    for size in range(len(mean), 0, -1):
        sets = itertools.combinations(range(len(mean)), size)
        if any(all_exceed(mean, C, list(one), u, side) >= level for one in sets):
            return size
    return 0


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_set_is_the_largest_of_its_probability(seed, above) -> None:
    found, mean, C = made(seed)
    side, u, n = (1.0 if above else -1.0), 0.3, 20_000
    got = excursion(found, u, above=above, n_samples=n)
    order = np.argsort(-got.marginal)
    want = [all_exceed(mean, C, order[: i + 1].tolist(), u, side) for i in range(len(mean))]
    np.testing.assert_allclose(got.function[order], want, atol=4 * 0.5 / np.sqrt(n) + 1e-4)
    assert (np.diff(got.function[order]) <= 0).all()
    assert (got.function <= got.marginal + 4 * 0.5 / np.sqrt(n)).all()
    chance = 4 * 0.5 / np.sqrt(n)
    for level in (0.5, 0.8):
        inside = got.inside(level)
        # The family may miss the very largest set by a place; never is it beyond it but for Monte Carlo error.
        assert (
            largest(mean, C, u, side, level + chance) - 1
            <= inside.sum()
            <= largest(mean, C, u, side, level - chance)
        )
        if inside.any():
            assert all_exceed(mean, C, np.flatnonzero(inside).tolist(), u, side) >= level - chance


def test_of_errors_all_alike_the_set_is_that_of_single_places() -> None:
    """Errors that are one and the same: all exceed where the worst does."""
    mean = np.linspace(0.0, 3.0, 9)
    found = Surface(mean, np.ones(9), 1.0, Known(np.ones((9, 9)) + 1e-12 * np.eye(9)), Identity())
    got = excursion(found, 0.5, n_samples=20_000)
    np.testing.assert_allclose(got.function, got.marginal, atol=4 * 0.5 / np.sqrt(20_000))


def test_nonsense_is_refused() -> None:
    found = made(0)[0]
    with pytest.raises(InvalidInput, match="at least 100"):
        excursion(found, 0.0, n_samples=10)
    with pytest.raises(InvalidInput, match="must be a number"):
        excursion(found, float("nan"))
    with pytest.raises(InvalidInput, match="level"):
        excursion(found, 0.0, n_samples=100).inside(2.0)
