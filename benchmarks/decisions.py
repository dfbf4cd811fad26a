"""What a table of areas decides on made-up worlds whose truth is known: means, shares of two targets together, ranks.

Two targets are measured at the same places; their surfaces and their noises go together. Each gets a model of its own,
what their errors share is learned from rows that both held out, and squares of the ground are asked for what
`geogp areas --with` prints. How many of the 95% intervals hold the truth is what comes back.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import norm, rankdata

from benchmarks.worlds import LOG_COUNTS, SIDE_M, WORLDS
from geogp.areas import Surface, cross_correlation, draws_together, ranked, surface
from geogp.estimator import GPRegressor

Array = NDArray[np.float64]

#: Squares along the longer side of the ground; points along a side of each; draws.
SQUARES, POINTS, DRAWS = 7, 14, 400
#: How the two surfaces and the two noises of a place go together; rows held out to learn it from.
SURFACES, NOISES, HELD_OUT = 0.7, 0.5, 0.2
#: Shares of the ground on which each target alone misses its limit; a square has at least so many points of the ground.
LIMITS, LEAST = (0.3, 0.2), 50
LEVEL = 0.95


def decided(world: str, seed: int, rows: int, options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Shares of the squares' 95% intervals that hold the truth, by what they are of, in one world.

    Parameters
    ----------
    rows : measured, of which a fifth is held out
    options : of the fits, for quick trials
    """
    first, other = WORLDS[world](seed), WORLDS["matern"](seed + 1000)
    rng = np.random.default_rng([seed, 11])
    pool = first.places(rng, 4000)
    when = np.full(len(pool), 2022.0)
    values = first.surface(pool, when)
    middle, sd = values.mean(), values.std()

    # As many lengthscales across as the first world is wide in its own: what is finer than rows is noise to any model.
    low, extent = pool.min(axis=0), float(np.ptp(pool, axis=0).max())

    def surfaces(P: Array) -> tuple[Array, Array]:
        f = first.surface(P, np.full(len(P), 2022.0))
        g = other.surface((P - low) * SIDE_M / extent, np.full(len(P), 2022.0))
        return f, middle + SURFACES * (f - middle) + np.sqrt(1 - SURFACES**2) * sd * g

    P = pool[rng.permutation(len(pool))[:rows]]
    e = rng.standard_normal((2, rows))
    e[1] = NOISES * e[0] + np.sqrt(1 - NOISES**2) * e[1]
    counts = np.maximum(1.0, np.floor(np.exp(rng.normal(*LOG_COUNTS, rows))))
    noise = first.noise_sd(P, counts)
    observed = [f + noise * some for f, some in zip(surfaces(P), e, strict=True)]
    kept = np.arange(rows) >= HELD_OUT * rows
    models = [
        GPRegressor(random_state=seed, target_transform="identity", options=options).fit(
            P[kept], y[kept], counts=counts[kept]
        )
        for y in observed
    ]
    z, shares = zip(
        *[_residuals(m, P[~kept], y[~kept], counts[~kept]) for m, y in zip(models, observed, strict=True)],
        strict=True,
    )
    together = cross_correlation(*z, *shares)
    Q, W = _squares(pool)
    truth = surfaces(Q)
    limits = [float(np.quantile(f, c)) for f, c in zip(truth, LIMITS, strict=True)]
    found = [surface(m, Q) for m in models]
    held = _held(found, together.surface, truth, limits, W)
    return {"rows": rows, "squares": W.shape[0], "correlation": together.surface, **held}


def _residuals(model: GPRegressor, X: Array, y: Array, counts: Array) -> tuple[Array, Array]:
    """Normal scores (n,) of held-out rows, and the surface's share (n,) of each predictive variance."""
    m = model.moments(X, counts)
    scores = norm.ppf(np.clip(model.predictive(X, counts).cdf(y), 1e-9, 1 - 1e-9))
    return scores, (m.latent_variance / (m.latent_variance + m.noise_variance)).double().numpy()


def _held(
    found: Sequence[Surface],
    correlation: float,
    truth: Sequence[Array],
    limits: Sequence[float],
    W: sparse.csr_array,
) -> dict[str, float]:
    """Share of the areas, rows of W (A, N), whose interval holds what is true of them."""
    means, one, either = [], [], []
    for a, b in draws_together(*found, correlation, DRAWS):
        means.append(W @ a)
        one.append(W @ (a < limits[0]).astype(float))
        either.append(W @ ((a < limits[0]) | (b < limits[1])).astype(float))
    mean, share = np.concatenate(means, axis=1), np.concatenate(either, axis=1)
    true = W @ truth[0]
    missed = W @ ((truth[0] < limits[0]) | (truth[1] < limits[1])).astype(float)
    ranks, place = ranked(mean, 1, level=LEVEL), rankdata(true)
    return {
        "means": _holding(mean, true),
        "shares": _holding(np.concatenate(one, axis=1), W @ (truth[0] < limits[0]).astype(float)),
        "joint_shares": _holding(share, missed),
        "ranks": float(((ranks.lower <= place) & (place <= ranks.upper)).mean()),
        "ranks_wide": float((ranks.upper - ranks.lower).mean()),
    }


def _holding(draws: Array, true: Array) -> float:
    low, high = np.quantile(draws, [0.5 * (1 - LEVEL), 0.5 * (1 + LEVEL)], axis=1)
    return float(((low <= true) & (true <= high)).mean())


def _squares(pool: Array) -> tuple[Array, sparse.csr_array]:
    """Points (N, 2) of the ground within reach of the places, and the squares that hold them: weights (A, N)."""
    from scipy.spatial import cKDTree

    low, high = pool.min(axis=0), pool.max(axis=0)
    side = (high - low).max() / SQUARES
    axes = [np.arange(low[d] + 0.5 * side / POINTS, high[d], side / POINTS) for d in range(2)]
    Q = np.column_stack([v.ravel() for v in np.meshgrid(*axes)])
    # The ground is where places are drawn: a coast is not known here.
    Q = Q[cKDTree(pool).query(Q)[0] < 0.35 * side]
    square = np.unique(np.floor((Q - low) / side).astype(int), axis=0, return_inverse=True)[1].ravel()
    n = np.bincount(square)
    enough = n[square] >= LEAST
    Q, square = Q[enough], np.unique(square[enough], return_inverse=True)[1].ravel()
    weights = 1.0 / np.bincount(square)[square]
    return Q, sparse.csr_array((weights, (square, np.arange(len(Q)))))
