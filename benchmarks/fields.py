"""Made-up fields drawn exactly, and kriging that knows how: the least error that anyone can have.

A field is a Gaussian process of known covariance, columns of known form whose weights are not told, and noise of known
sd. Of each so many rows are seen; its surface is asked at `ASKED` places. `best` is the posterior given the true
covariance and noise, the columns' weights under a flat prior (universal kriging: Rasmussen and Williams 2006, eq. 2.41).

Places are metres in a square of 100 km; times are years; the surface's sd is about 1.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky
from scipy.spatial.distance import cdist

Array = NDArray[np.float64]
Kernel = Callable[[Array, Array], Array]

SIDE_M, LENGTH_M, NOISE_SD = 100_000.0, 20_000.0, 0.3
#: Places asked for; quarters of a table of many times.
ASKED, QUARTERS = 400, 8
FIRST_YEAR, LAST_YEAR = 2022.0, 2022.0 + (QUARTERS - 1) / 4


@dataclass(frozen=True)
class Field:
    """How a field is made: `title` says it in words.

    rows : (rng, n) -> X (n, 2 or 3, covariates behind); asked : (rng, X) -> new places, in the same columns
    kernel : prior covariance of the surface between two sets of rows
    columns : X -> (n, p), and `weights` of them that nobody tells
    counts : (rng, surface) -> (n,), None where rows have none; noise_sd : (X, counts) -> (n,)
    """

    title: str
    rows: Callable[[np.random.Generator, int], Array]
    asked: Callable[[np.random.Generator, Array], Array]
    kernel: Kernel
    columns: Callable[[Array], Array] = lambda X: np.ones((len(X), 1))
    weights: tuple[float, ...] = (0.0,)
    counts: Callable[[np.random.Generator, Array], Array] | None = None
    noise_sd: Callable[[Array, Array | None], Array] = lambda X, counts: np.full(len(X), NOISE_SD)
    time: bool = False


@dataclass(frozen=True)
class Draw:
    """Rows X, their noise sd (n,), values (n,) and counts (n,) or None; the places asked for and what is true there."""

    X: Array
    noise_sd: Array
    y: Array
    counts: Array | None
    asked: Array
    surface: Array
    asked_noise_sd: Array
    asked_y: Array
    asked_counts: Array | None


def draw(field: Field, n: int, seed: int) -> Draw:
    """One draw of a field, the same for the same seed: surface, counts and noise at n rows (of panels as many as divide
    evenly) and at those asked for."""
    rng = np.random.default_rng([seed, n])
    X = field.rows(rng, n)
    n = len(X)
    both = np.concatenate([X, field.asked(rng, X)])
    K = field.kernel(both, both)
    K[np.diag_indices_from(K)] += 1e-10
    surface = cholesky(K, lower=True) @ rng.standard_normal(len(both)) + field.columns(both) @ field.weights
    counts = None if field.counts is None else field.counts(rng, surface)
    noise_sd = field.noise_sd(both, counts)
    y = surface + noise_sd * rng.standard_normal(len(both))
    told, new = (None, None) if counts is None else (counts[:n], counts[n:])
    return Draw(X, noise_sd[:n], y[:n], told, both[n:], surface[n:], noise_sd[n:], y[n:], new)


def best(field: Field, drawn: Draw) -> tuple[Array, Array]:
    """Mean and sd (m,) of the surface where it is asked, of one who knows the kernel and the noise. O(n^3)."""
    K = field.kernel(drawn.X, drawn.X)
    K[np.diag_indices_from(K)] += drawn.noise_sd**2
    factor = (cholesky(K, lower=True), True)
    F, f = field.columns(drawn.X), field.columns(drawn.asked)
    k = field.kernel(drawn.asked, drawn.X)
    solved, solved_F = cho_solve(factor, k.T), cho_solve(factor, F)
    information = F.T @ solved_F
    weights = np.linalg.solve(information, solved_F.T @ drawn.y)
    mean = f @ weights + solved.T @ (drawn.y - F @ weights)
    left = f - solved.T @ F
    own = np.array([field.kernel(row[None], row[None])[0, 0] for row in drawn.asked])
    variance = own - (k * solved.T).sum(axis=1) + (left * np.linalg.solve(information, left.T).T).sum(axis=1)
    return mean, np.sqrt(variance)


# -- kernels --------------------------------------------------------------------------------------------


def matern(nu: float, length_m: float = LENGTH_M, *, ratio: float = 1.0) -> Kernel:
    """Matérn over space with nu of 1/2, 3/2, 5/2 or infinity (Gaussian); `ratio` times as long towards the north-east.

    The geometric mean of both lengths stays.
    """
    turned = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2.0)
    scale = turned / (length_m * np.array([[np.sqrt(ratio)], [1.0 / np.sqrt(ratio)]]))

    def kernel(A: Array, B: Array) -> Array:
        return correlation(nu, cdist(A[:, :2] @ scale.T, B[:, :2] @ scale.T))

    return kernel


def correlation(nu: float, distance: Array) -> Array:
    """A Matérn of lengthscale 1."""
    if np.isinf(nu):
        return np.exp(-0.5 * distance**2)
    d = np.sqrt(2.0 * nu) * distance
    polynomial = {0.5: 1.0, 1.5: 1.0 + d, 2.5: 1.0 + d + d**2 / 3.0}[nu]
    return polynomial * np.exp(-d)


def over_time(nu: float, years: float) -> Kernel:
    """The same over time alone."""
    return lambda A, B: correlation(nu, np.abs(A[:, 2:3] - B[None, :, 2]) / years)


def walk(step_sd: float) -> Kernel:
    """A common random walk, 0 before the first quarter, of that sd a quarter."""
    return lambda A, B: step_sd**2 * 4.0 * (np.minimum(A[:, 2:3], B[None, :, 2]) - FIRST_YEAR + 0.25)


def same_place(sd: float) -> Kernel:
    """What lasts at a place and nowhere else."""
    return lambda A, B: sd**2 * (cdist(A[:, :2], B[:, :2]) == 0.0)


def times(a: Kernel, b: Kernel) -> Kernel:
    """The product of two."""
    return lambda A, B: a(A, B) * b(A, B)


def plus(a: Kernel, b: Kernel) -> Kernel:
    """The sum of two."""
    return lambda A, B: a(A, B) + b(A, B)


def nothing(A: Array, B: Array) -> Array:
    """No surface."""
    return np.zeros((len(A), len(B)))


# -- places ---------------------------------------------------------------------------------------------


def anywhere(rng: np.random.Generator, n: int) -> Array:
    """Places drawn evenly from the square."""
    return rng.uniform(0.0, SIDE_M, (n, 2))


def among(rng: np.random.Generator, X: Array) -> Array:
    """New places in the square, at times of the rows, with covariates as theirs."""
    rest = X[rng.integers(0, len(X), ASKED), 2:]
    return np.column_stack([anywhere(rng, ASKED), rest])


def next_door(rng: np.random.Generator, X: Array) -> Array:
    """Places in the square east of it."""
    return anywhere(rng, ASKED) + [SIDE_M, 0.0]


def towns(rng: np.random.Generator, n: int) -> Array:
    """Nine of ten places in eight towns of 3 km, the others anywhere."""
    P = anywhere(rng, n)
    town = anywhere(rng, 8)[rng.integers(0, 8, n)] + rng.normal(0.0, 3_000.0, (n, 2))
    return np.where(rng.uniform(size=(n, 1)) < 0.9, town, P)


def repeated(rng: np.random.Generator, n: int) -> Array:
    """Ten rows at each place."""
    return np.repeat(anywhere(rng, n // 10), 10, axis=0)


def with_covariates(columns: int) -> Callable[[np.random.Generator, int], Array]:
    """Places and so many covariates, which vary by themselves."""
    return lambda rng, n: np.column_stack([anywhere(rng, n), rng.standard_normal((n, columns))])


def panel(quarters: tuple[int, ...] = tuple(range(QUARTERS))) -> Callable[[np.random.Generator, int], Array]:
    """Places measured in each of these quarters."""

    def rows(rng: np.random.Generator, n: int) -> Array:
        years = FIRST_YEAR + np.array(quarters) / 4.0
        places = anywhere(rng, n // len(years))
        return np.column_stack([np.repeat(places, len(years), axis=0), np.tile(years, len(places))])

    return rows


def once(rng: np.random.Generator, n: int) -> Array:
    """Places measured in one quarter each."""
    return np.column_stack([anywhere(rng, n), FIRST_YEAR + rng.integers(0, QUARTERS, n) / 4.0])


def at_time(year: float) -> Callable[[np.random.Generator, Array], Array]:
    """Places of the rows, each at most once, at that time."""

    def asked(rng: np.random.Generator, X: Array) -> Array:
        places = rng.permutation(np.unique(X[:, :2], axis=0))[:ASKED]
        return np.column_stack([places, np.full(len(places), year)])

    return asked


# -- what columns, counts and noise do --------------------------------------------------------------------


def plane(X: Array) -> Array:
    """A constant and a slope to the east and to the north."""
    return np.column_stack([np.ones(len(X)), X[:, :2] / SIDE_M])


def one_covariate(X: Array) -> Array:
    """A constant and the first covariate."""
    return np.column_stack([np.ones(len(X)), X[:, 2]])


def trend(X: Array) -> Array:
    """A constant and a line in time."""
    return np.column_stack([np.ones(len(X)), X[:, 2] - FIRST_YEAR])


def season(X: Array) -> Array:
    """A constant and a wave a year."""
    phase = 2.0 * np.pi * X[:, 2]
    return np.column_stack([np.ones(len(X)), np.cos(phase), np.sin(phase)])


def step(X: Array) -> Array:
    """A constant, and another from the second half of the times on."""
    return np.column_stack([np.ones(len(X)), X[:, 2] > (FIRST_YEAR + LAST_YEAR) / 2])


def free_counts(rng: np.random.Generator, surface: Array) -> Array:
    """Counts that have nothing to do with the surface, half of them below 6."""
    return np.ceil(np.exp(1.7 + 1.4 * rng.standard_normal(len(surface))))


def following_counts(rng: np.random.Generator, surface: Array) -> Array:
    """Tests are many where the surface is high."""
    return np.ceil(np.exp(1.5 + 1.2 * surface + 0.7 * rng.standard_normal(len(surface))))


def by_count(X: Array, counts: Array | None) -> Array:
    """Noise of an average: a part that stays, and one of single measurements."""
    assert counts is not None
    return np.sqrt(0.1**2 + 1.0 / counts)


def loud_in_the_east(X: Array, counts: Array | None) -> Array:
    """Noise sd from .1 in the west to .9 in the east, evenly on the logarithm."""
    return 0.1 * 9.0 ** (X[:, 0] / SIDE_M)


def noise_with_an_edge(X: Array, counts: Array | None) -> Array:
    """Noise sd .15 in the west, .8 in the east."""
    return np.where(X[:, 0] < SIDE_M / 2, 0.15, 0.8)


def loud_quarter(X: Array, counts: Array | None) -> Array:
    """Noise sd three times as large in the fourth quarter."""
    return np.where(np.isclose(X[:, 2], FIRST_YEAR + 0.75), 3.0, 1.0) * NOISE_SD


PANEL = times(matern(1.5), over_time(1.5, 1.5))
MISSING = tuple(q for q in range(QUARTERS) if q != 4)
#: name -> how it is made. Those of one time, then those of many.
FIELDS: dict[str, Field] = {
    "plain": Field("Matérn 3/2, a fifth of the side long", anywhere, among, matern(1.5)),
    "rough": Field("exponential", anywhere, among, matern(0.5)),
    "smooth": Field("Matérn 5/2", anywhere, among, matern(2.5)),
    "gaussian": Field("Gaussian, next to no noise", anywhere, among, matern(np.inf),
                      noise_sd=lambda X, counts: np.full(len(X), 0.05)),
    "short": Field("exponential, 7% of the side long", anywhere, among, matern(0.5, 7_000.0)),
    "wide": Field("Matérn 3/2, a whole side long", anywhere, among, matern(1.5, SIDE_M)),
    "turned-5": Field("five times as long along a diagonal", anywhere, among, matern(1.5, ratio=5.0)),
    "turned-10": Field("ten times", anywhere, among, matern(1.5, ratio=10.0)),
    "slope": Field("a plane alone, asked in the next square", anywhere, next_door, nothing, plane, (0.0, 3.0, 1.0)),
    "slope-field": Field("a plane and a field, there", anywhere, next_door, matern(1.5), plane, (0.0, 3.0, 1.0)),
    "beyond": Field("no plane, there", anywhere, next_door, matern(1.5)),
    "nothing": Field("noise alone", anywhere, among, nothing, noise_sd=lambda X, counts: np.ones(len(X))),
    "counts": Field("noise by count", anywhere, among, matern(1.5), counts=free_counts, noise_sd=by_count),
    "counts-following": Field("counts high where the surface is", anywhere, among, matern(1.5),
                              counts=following_counts, noise_sd=by_count),
    "loud": Field("ever louder to the east", anywhere, among, matern(1.5), noise_sd=loud_in_the_east),
    "edge": Field("five times as loud in the east", anywhere, among, matern(1.5), noise_sd=noise_with_an_edge),
    "towns": Field("rows in eight towns, asked anywhere", towns, among, matern(1.5)),
    "repeated": Field("ten rows a place", repeated, among, matern(1.5)),
    "covariate": Field("a covariate's line and a field", with_covariates(1), among, matern(1.5), one_covariate, (0.0, 1.0)),
    "idle": Field("four covariates that do nothing", with_covariates(4), among, matern(1.5)),
    "panel": Field("new places", panel(), among, PANEL, time=True),
    "once": Field("places seen once, new ones", once, among, PANEL, time=True),
    "still": Field("a surface that never changes, new places", panel(), among, matern(1.5), time=True),
    "fresh": Field("another surface each quarter, new places", panel(), among,
                   times(matern(1.5), over_time(0.5, 0.02)), time=True),
    "stations": Field("what lasts at a place, new places", panel(), among,
                      plus(PANEL, same_place(0.6)), time=True),
    "loud-quarter": Field("one quarter three times as loud, new places", panel(), among, PANEL, noise_sd=loud_quarter,
                          time=True),
    "walk": Field("a common walk, new places", panel(), among, plus(PANEL, walk(0.4)), time=True),
    "step": Field("a common step halfway, new places", panel(), among, PANEL, step, (0.0, 1.5), time=True),
    "missing": Field("a quarter that is missing, known places", panel(MISSING), at_time(FIRST_YEAR + 1.0), PANEL,
                     time=True),
    "ahead": Field("a quarter ahead, known places", panel(), at_time(LAST_YEAR + 0.25), PANEL, time=True),
    "trend-ahead": Field("a line, a year ahead", panel(), at_time(LAST_YEAR + 1.0), PANEL, trend, (0.0, 0.8), time=True),
    "season-ahead": Field("a season, half a year ahead", panel(), at_time(LAST_YEAR + 0.5), PANEL, season,
                          (0.0, 1.0, 0.5), time=True),
    "walk-ahead": Field("a common walk, a quarter ahead", panel(), at_time(LAST_YEAR + 0.25), plus(PANEL, walk(0.4)),
                        time=True),
}  # fmt: skip
