"""How many basis functions a kernel needs: figure 1 of the low-rank paper."""

import numpy as np
from numpy.typing import NDArray

from geogp.diagnostics import fourier_rank_needed, kl_bound, kl_of_truncation, rank_needed
from geogp.reproduce.result import Line, Panel, Result

Array = NDArray[np.float64]
NOISE, EPSILON = 1.0, 0.01
#: That of the figure's Gaussian kernel, exp(-2 pi^2 d^2) = exp(-d^2 / (2 l^2)), and so of the Matern-1/2 beside it.
LENGTHSCALE = 1.0 / (2.0 * np.pi)


def gaussian_inputs(n: int, d: int, rng: np.random.Generator) -> Array:
    """The figure's inputs of the Gaussian kernel: N(0, I / 16^2)."""
    return rng.standard_normal((n, d)) / 16.0


def squared_distances(X: Array) -> Array:
    """(n, n)."""
    size = np.square(X).sum(1)
    return np.maximum(size[:, None] + size - 2 * X @ X.T, 0.0)


def gaussian_kl(K: Array, low: Array, noise: float) -> float:
    """KL(N(0, K + s I) || N(0, low + s I)) by dense algebra. O(n^3)."""
    eye = noise * np.eye(len(K))
    P, Q = K + eye, low + eye
    return float(
        0.5 * (np.trace(np.linalg.solve(Q, P)) - len(K) + np.linalg.slogdet(Q)[1] - np.linalg.slogdet(P)[1])
    )


def fourier_rank(X: Array, K: Array, n: int, rng: np.random.Generator) -> int:
    """The least even number of random Fourier features of exp(-2 pi^2 d^2) that brings the divergence to .01 n,
    by doubling and then bisecting (each with its own frequencies, drawn once)."""
    most = 4 * n
    frequencies = rng.standard_normal((most // 2, X.shape[1]))

    def divergence(rank: int) -> float:
        phase = 2 * np.pi * X @ frequencies[: rank // 2].T
        Phi = np.concatenate([np.cos(phase), np.sin(phase)], 1) * np.sqrt(2.0 / rank)
        return gaussian_kl(K, Phi @ Phi.T, NOISE)

    high = 2
    while divergence(high) > EPSILON * n:
        if high >= most:
            return most
        high = min(2 * high, most)
    low = high // 2
    while high - low > max(2, high // 20):
        middle = (low + high) // 4 * 2
        low, high = (low, middle) if divergence(middle) <= EPSILON * n else (middle, high)
    return high


def lowrank_fig1(*, quick: bool = False, seed: int = 0) -> Result:
    """Rank needed for KL <= .01 N by dimension, with Fourier features and with Mercer truncation."""
    n = 200 if quick else 1000
    rows: list[list] = []
    for d in (1, 2) if quick else (1, 2, 3, 4, 5):
        rng = np.random.default_rng(seed)
        X = gaussian_inputs(n, d, rng)
        K = np.exp(-2 * np.pi**2 * squared_distances(X))
        values = np.maximum(np.linalg.eigvalsh(K)[::-1], 0.0) / n
        mercer = rank_needed(kl_of_truncation(values, n, NOISE), n, EPSILON)
        bound = rank_needed(kl_bound(values, n, NOISE, largest=1.0), n, EPSILON)
        fourier = fourier_rank(X, K, n, rng)
        promised = fourier_rank_needed(values, n, NOISE, epsilon=EPSILON)
        U = rng.uniform(-(3**0.5) / 16, 3**0.5 / 16, (n, d))
        matern = np.exp(-np.sqrt(squared_distances(U)) / LENGTHSCALE)
        tail = np.maximum(np.linalg.eigvalsh(matern)[::-1], 0.0) / n
        rough = rank_needed(kl_of_truncation(tail, n, NOISE), n, EPSILON)
        rows.append([d, n, mercer, bound, fourier, promised, rough])
    x = [float(r[0]) for r in rows]
    lines = [
        Line(label, x, [float(r[at]) for r in rows])
        for label, at in (("Gaussian, Mercer", 2), ("Gaussian, Fourier", 4), ("Matern-1/2, Mercer", 6))
    ]
    notes = [
        f"N = {n} here, 5,000 in the paper; sigma^2 = 1, epsilon = .01. The paper shows curves, no numbers. Its claims: "
        "the rank grows with D; Mercer truncation needs less than Fourier features; Gaussian less than Matern-1/2.",
        "The Matern-1/2 kernel's lengthscale is not printed: the Gaussian's here, 1 / (2 pi). Bounds: theorem 3 (delta = .1); for plain Fourier "
        "features by proposition 1 (theorem 2 samples other frequencies and is smaller).",
    ]
    columns = [
        "D", "N", "Mercer rank", "theorem 3's bound", "Fourier rank", "Fourier bound", "Matern-1/2 rank",
    ]  # fmt: skip
    title = "how-good-are-low-rank-approximations, figure 1: rank for KL <= .01 N"
    return Result(
        "lowrank-fig1", title, columns, rows, notes, [Panel("rank needed", "D", "rank", lines, log_y=True)]
    )
