"""The satellite comparison of Heaton et al. (2019): its grid, cloud-shaped held-out sets, its five scores.

The truth of the satellite test set is not in the data folder, so a test set is cut out of the training rows:
the real cloud mask (the places to predict) is laid over the grid again, and the training rows under it are held
out. It is moved by a whole number of cells drawn from a seeded generator, wrapping at the edges (the first move
that hides between 15% and 25% of the training rows), or mirrored. What remains has both gaps, the real one and
the other one, so the task is harder than the published one: rows are fewer and gaps join.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from geogp.predictive import Predictive
from geogp.scores import interval_score

Array = NDArray[np.float64]
SHARE = (0.15, 0.25)
#: Metres in a degree: longitude and latitude are used as they are, as in the published comparison.
DEGREE_M = 111_320.0


@dataclass(frozen=True)
class Scene:
    """X (n, 2) in metres and y (n,), to train on and to predict."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array


def simulated(folder: Path) -> Scene:
    """The simulated set as published, truth included."""
    train, test = (pq.read_table(folder / f"simulated_{part}.parquet") for part in ("train", "test"))
    return Scene(
        _metres(train),
        train["y"].to_numpy().astype(float),
        _metres(test),
        test["y"].to_numpy().astype(float),
    )


def satellite(folder: Path, mask: str = "moved") -> Scene:
    """The satellite training rows, split by a mask of `MASKS`, or their "warmest" fifth held out."""
    train, clouds = (
        pq.read_table(folder / f"satellite_{part}.parquet") for part in ("train", "test_locations")
    )
    X, X_clouds = _metres(train), _metres(clouds)
    y = train["y"].to_numpy().astype(float)
    held = warmest_mask(X, X_clouds, y) if mask == "warmest" else MASKS[mask](X, X_clouds)
    return Scene(X[~held], y[~held], X[held], y[held])


def moved_mask(X: Array, X_clouds: Array, seed: int = 0) -> NDArray[np.bool_]:
    """Rows of X that lie under the clouds once these have moved: (n,).

    Raises
    ------
    ValueError
        when no move among 1,000 hides between 15% and 25% of the rows.
    """
    mask, cell = _grid(X, X_clouds)
    rng = np.random.default_rng(seed)
    for _ in range(1000):
        move = [int(rng.integers(0, n)) for n in mask.shape]
        held = np.roll(mask, move, axis=(0, 1))[cell]
        if SHARE[0] <= held.mean() <= SHARE[1]:
            return held
    raise ValueError("no move of the cloud mask hides between 15% and 25% of the training rows.")


def mirrored_mask(X: Array, X_clouds: Array, axes: tuple[int, ...]) -> NDArray[np.bool_]:
    """Rows of X that lie under the clouds once these are mirrored: (n,).

    axes : 0 exchanges east and west, 1 north and south; both turn the mask by 180 degrees
    """
    mask, cell = _grid(X, X_clouds)
    return np.flip(mask, axes)[cell]


def strip_mask(X: Array, X_clouds: Array, *, axis: int, side: int, width: int = 100) -> NDArray[np.bool_]:
    """Rows of X on the outermost `width` cells of the grid: (n,); side 1 is east or north, 0 west or south."""
    mask, cell = _grid(X, X_clouds)
    at = cell[axis]
    return at >= mask.shape[axis] - width if side else at < width


def warmest_mask(
    X: Array, X_clouds: Array, y: Array, share: float = 0.2, blur: float = 15.0
) -> NDArray[np.bool_]:
    """The warmest contiguous region of about `share` of the rows of X, by y (n,) blurred over `blur` cells: (n,)."""
    from scipy.ndimage import gaussian_filter, label

    mask, cell = _grid(X, X_clouds)
    total, weight = np.zeros(mask.shape), np.zeros(mask.shape)
    total[cell], weight[cell] = y, 1.0
    level = gaussian_filter(total, blur) / np.maximum(gaussian_filter(weight, blur), 1e-9)

    def largest(threshold: float) -> NDArray[np.bool_]:
        part = label(level >= threshold)[0][cell]
        return part == np.argmax(np.bincount(part)[1:]) + 1 if part.any() else np.zeros(len(y), dtype=bool)

    low, high = float(level.min()), float(level.max())
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if largest(middle).mean() < share else (middle, high)
    return largest(low)


def corner(folder: Path) -> Scene:
    """The simulated training set plus a plane of twice its sd from corner to corner; a corner of a quarter of the rows
    is held out."""
    train = pq.read_table(folder / "simulated_train.parquet")
    X, y = _metres(train), train["y"].to_numpy().astype(float)
    place = (X - X.min(0)) / np.ptp(X, axis=0)
    y = y + 2.0 * y.std() * place.sum(1)
    held = (place > 0.5).all(1)
    return Scene(X[~held], y[~held], X[held], y[held])


#: name -> function of (training places, cloudy places) that marks the rows to hold out.
MASKS: dict[str, Callable[[Array, Array], NDArray[np.bool_]]] = {
    "moved": moved_mask,
    "east-west": partial(mirrored_mask, axes=(0,)),
    "north-south": partial(mirrored_mask, axes=(1,)),
    "rotated": partial(mirrored_mask, axes=(0, 1)),
    "east": partial(strip_mask, axis=0, side=1),
    "south": partial(strip_mask, axis=1, side=0),
}


def _grid(X: Array, X_clouds: Array) -> tuple[NDArray[np.bool_], tuple[NDArray, NDArray]]:
    """The cloud mask on the grid of all places, and the cell of each row of X on it."""
    east, north = (np.unique(np.concatenate([X[:, d], X_clouds[:, d]]).round(3)) for d in (0, 1))

    def cells(P: Array) -> tuple[NDArray, NDArray]:
        return np.searchsorted(east, P[:, 0].round(3)), np.searchsorted(north, P[:, 1].round(3))

    mask = np.zeros((len(east), len(north)), dtype=bool)
    mask[cells(X_clouds)] = True
    return mask, cells(X)


def published_scores(predictive: Predictive, y: Array) -> dict[str, float]:
    """MAE and RMSE of the mean, Gaussian CRPS from mean and sd, INT and CVG of the 95% interval.

    Source: Heaton et al. (2019), section 4.2.
    """
    mean, sd = predictive.mean(), predictive.sd()
    lower, upper = predictive.interval(0.95)
    return {
        "mae": float(np.abs(y - mean).mean()),
        "rmse": float(np.sqrt(np.square(y - mean).mean())),
        "crps": float(Predictive(mean, sd).crps(y).mean()),
        "int": float(interval_score(y, lower, upper, 0.95).mean()),
        "cvg": float(((y >= lower) & (y <= upper)).mean()),
    }


def _metres(table) -> Array:
    return DEGREE_M * np.column_stack([table["lon"].to_numpy(), table["lat"].to_numpy()])
