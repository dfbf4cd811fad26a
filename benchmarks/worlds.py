"""Made-up worlds whose surface and noise are known everywhere: what intervals can be checked against.

- halcyon: the island of `data_pipelines.synthetic`, its median surface and its noise in log10 kbit/s
- matern: a draw from a stationary Matern-3/2 process of sd 1 on a square of 50 km, lengthscale 7.5 km

A world is seen with or without counts, and in one quarter or in eight. The tenth of the places that lies farthest
towards one corner is never measured.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_pipelines.synthetic import World

Array = NDArray[np.float64]
Surface = Callable[[Array, Array], Array]

#: Places judged inside the measured area, and in the corner.
N_INSIDE, N_CORNER = 1000, 300
#: Share of the places in the corner; rows a place where there is time.
CORNER, VISITS = 0.1, 4
#: Mean and sd of the logarithm of the counts: about a sixth are single measurements.
LOG_COUNTS = (1.2, 1.2)
#: Without counts every row is an average of so many.
CONSTANT_COUNT = 4.0
SIDE_M, LENGTH_M, LENGTH_YEARS, WAVES = 50_000.0, 7_500.0, 1.5, 3000
#: Noise variance of the Matern world: tau^2 + s^2 / n.
TAU2, S2 = 0.02, 0.5


@dataclass(frozen=True)
class Rows:
    """X (n, 2 or 3) metres and years, the surface (n,), noise sd (n,), what was observed (n,), counts (n,) or None."""

    X: Array
    surface: Array
    noise_sd: Array
    y: Array
    counts: Array | None


@dataclass(frozen=True)
class Sample:
    """Rows to fit; rows at new places among them (inside), and where nobody measured (corner)."""

    train: Rows
    inside: Rows
    corner: Rows


@dataclass(frozen=True)
class Truth:
    """A world: places (n, 2) in metres, its surface (X, years) -> (n,), its noise sd (X, counts) -> (n,)."""

    places: Callable[[np.random.Generator, int], Array]
    surface: Surface
    noise_sd: Surface


def halcyon(seed: int) -> Truth:
    """The island: half of its places in cities, half anywhere on land."""
    import shapely

    world = World(seed)
    land = shapely.Polygon(np.stack(world.to_km(*np.array(world.land().exterior.coords).T), 1))
    shapely.prepare(land)

    def places(rng: np.random.Generator, n: int) -> Array:
        west, south, east, north = land.bounds
        found = np.zeros((0, 2))
        while len(found) < n:
            anywhere = rng.uniform([west, south], [east, north], (n, 2))
            city = np.array([(c.x_km, c.y_km, c.radius_km) for c in world.cities])[
                rng.integers(0, len(world.cities), n)
            ]
            town = city[:, :2] + city[:, 2:] * rng.normal(0, 0.7, (n, 2))
            some = np.where(rng.uniform(size=(n, 1)) < 0.5, town, anywhere)
            found = np.concatenate([found, some[shapely.contains_xy(land, *some.T)]])
        return 1000.0 * found[:n]

    def degrees(P: Array) -> tuple[Array, Array]:
        return world.to_degrees(*(P.T / 1000.0))

    def surface(P: Array, years: Array) -> Array:
        quarters = np.array(world.quarters)[np.round(4 * (years - 2022.0)).astype(int)]
        return world.median_log10_kbps(*degrees(P), quarters)

    return Truth(places, surface, lambda P, counts: world.noise_sd(*degrees(P), counts))


def matern(seed: int) -> Truth:
    """A stationary process of sd 1: Matern-3/2 over space times Matern-3/2 over time, by 3,000 random waves.

    Frequencies are draws of the kernel's spectral density, a Student-t with 3 degrees of freedom (Rasmussen and
    Williams 2006, eq. 4.15); given them the surface is exactly Gaussian.
    """
    rng = np.random.default_rng([seed, 1])

    def frequencies(columns: int, length: float) -> Array:
        spread = np.sqrt(3.0 / rng.chisquare(3, (WAVES, 1)))
        return rng.standard_normal((WAVES, columns)) * spread / length

    over_space, over_time = frequencies(2, LENGTH_M), frequencies(1, LENGTH_YEARS)
    size = rng.standard_normal((2, WAVES)) / np.sqrt(WAVES)

    def surface(P: Array, years: Array) -> Array:
        parts = []
        for at in range(0, len(P), 2000):
            phase = P[at : at + 2000] @ over_space.T + (years[at : at + 2000, None] - 2022.0) @ over_time.T
            parts.append(np.cos(phase) @ size[0] + np.sin(phase) @ size[1])
        return np.concatenate(parts)

    return Truth(
        lambda rng, n: rng.uniform(0, SIDE_M, (n, 2)), surface, lambda P, counts: np.sqrt(TAU2 + S2 / counts)
    )


#: name -> seed -> the truth
WORLDS: dict[str, Callable[[int], Truth]] = {"halcyon": halcyon, "matern": matern}


def sample(world: str, n: int, seed: int, *, counts: bool, time: bool) -> Sample:
    """n rows of a world, drawn with `seed`, and 1,000 and 300 rows at new places.

    counts : each row is an average of its own number of measurements, which is told; else of 4, and it is not
    time : eight quarters, places measured in several of them; else one
    """
    truth = WORLDS[world](seed)
    rng = np.random.default_rng([seed, 2, int(counts), int(time)])
    direction = rng.choice([-1.0, 1.0], 2)
    # Ten new places for each one wanted in the corner, which is a tenth of all.
    pool = truth.places(rng, 12 * N_CORNER + 2 * N_INSIDE)
    middle, scale = pool.mean(0), pool.std(0)
    edge = float(np.quantile(((pool - middle) / scale) @ direction, 1 - CORNER))

    def in_corner(P: Array) -> NDArray[np.bool_]:
        return ((P - middle) / scale) @ direction > edge

    def rows(P: Array) -> Rows:
        years = 2022.0 + (rng.integers(0, 8, len(P)) / 4.0 if time else np.zeros(len(P)))
        n_i = np.maximum(1.0, np.floor(np.exp(rng.normal(*LOG_COUNTS, len(P)))))
        behind = n_i if counts else np.full(len(P), CONSTANT_COUNT)
        surface, sd = truth.surface(P, years), truth.noise_sd(P, behind)
        y = surface + sd * rng.standard_normal(len(P))
        X = np.column_stack([P, years]) if time else P
        return Rows(X, surface, sd, y, behind if counts else None)

    many = truth.places(rng, int(1.3 * n) + 100)
    seen = many[~in_corner(many)]
    seen = seen[rng.integers(0, max(1, n // VISITS), n)] if time else seen[:n]
    away = in_corner(pool)
    return Sample(rows(seen), rows(pool[~away][:N_INSIDE]), rows(pool[away][:N_CORNER]))
