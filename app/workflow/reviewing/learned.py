"""Figures of what a run's kernel learned: its strongest basis functions, and what it takes to be alike."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import shapely
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from app.errors import InvalidInput
from app.workflow.drawing import near
from app.workflow.grids import Grid
from app.workflow.pixels import pixels_of
from app.workflow.polygons import Ground
from app.workflow.reviewing.held_out import INK, SOFT, Picture
from geogp.run import Run

Array = NDArray[np.float64]

#: Functions drawn; neighbours that say how densely and how straight places lie.
DRAWN, NEIGHBOURS = 6, 16
OUTSIDE = "#dde3e9"
#: A window ends where the correlation has fallen to this, on the average over all directions.
ALIKE = 0.1


def basis_functions(run: Run, grid: Grid, quarter: str | None) -> Picture | None:
    """The strongest functions of a learned basis over the ground; None for a kernel without one.

    A basis is known up to a rotation, so its principal components over the pixels are drawn: of all ways to
    write the same kernel as a sum, the one whose first functions hold most of the prior variance.
    """
    pixels = pixels_of(run, grid, "the basis functions", jointly=False)
    X = torch.as_tensor(run.inputs(pixels.xy, quarter))
    if run.model.engine_.features(X[:1]) is None:
        return None
    phi = run.model.engine_.features(X)
    assert phi is not None  # of one place it was not
    F = phi.double().numpy()
    values, vectors = np.linalg.eigh(F.T @ F / len(F))
    # Of all of it: a residual beside the basis has a part of its own.
    total = float(run.model.engine_.moments(X).prior_variance.double().mean())
    order = np.argsort(values)[::-1][:DRAWN]
    if not total > 0:
        return None
    _, (rows, columns), _ = near(run, grid)
    shape = (rows.stop - rows.start, columns.stop - columns.start)
    height = 3.0 * np.clip(shape[0] / shape[1], 0.3, 1.6) + 0.35
    figure = Figure(figsize=(9.4, 2 * height), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    for i, k in enumerate(order):
        z = F @ vectors[:, k]
        most = float(np.quantile(np.abs(z), 0.99)) or 1.0
        axes = figure.add_subplot(2, 3, i + 1)
        axes.imshow(
            pixels.plane(z)[rows, columns], cmap="PuOr", vmin=-most, vmax=most, interpolation="nearest"
        )
        axes.set_title(f"{100 * values[k] / total:.0f}% of the prior variance", size=9, color=INK)
        axes.set(xticks=[], yticks=[])
        for side in axes.spines.values():
            side.set_color(SOFT)
    share = 100 * float(values[order].sum()) / total
    return Picture.of(
        figure,
        f"The {len(order)} strongest functions that the method learned to add up, of {F.shape[1]}, as principal components over the "
        f"ground; the surface is a sum of such. Together they hold {share:.0f}% of its prior variance; orange and violet are of opposite sign.",
    )


def slices(run: Run, far_from: tuple[Array, Array], quarter: str | None) -> Picture | None:
    """The learned kernel around a place in town, one along a line of measured places, and one far from all.

    Each window is as wide as what the place is like: a kernel of some kilometres is a speck on the map of a state. None for
    a method without a kernel to show.

    Parameters
    ----------
    far_from : places of the ground (n, 2) in the run's plane, and metres (n,) of each from the nearest data
    """
    ground, named = Ground.of(run), standing(run.support.positions_m, *far_from)
    if not run.target.of_averages:  # a survey of a lagoon has neither city nor road
        named = {words.split(",")[0]: xy for words, xy in named.items()}
    shapely.prepare(ground.outline)
    left, bottom, right, top = ground.outline.bounds
    whole = 0.5 * max(right - left, top - bottom)
    shown = []
    try:
        for xy in named.values():
            half = _reach(run, xy, whole, quarter)
            shown.append((_window(run, ground, xy, half, 100, quarter), half))
    except InvalidInput:  # a method without a kernel to show
        return None
    figure = Figure(figsize=(9.4, 3.3), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    row, places = figure.subplots(1, len(named), squeeze=False)[0], []
    metre = run.crs.axis_info[0].unit_conversion_factor
    for axes, (words, xy), (plane, half) in zip(row, named.items(), shown, strict=True):
        km = half * metre / 1000
        picture = axes.imshow(
            plane,
            cmap="RdBu_r",
            vmin=-1,
            vmax=1,
            extent=(-km, km, -km, km),
            origin="lower",
            interpolation="nearest",
        )
        axes.set_facecolor(OUTSIDE)
        axes.plot(0, 0, marker="*", color=INK, markersize=9, markeredgecolor="white")
        axes.set_title(words.split(",")[0], size=9, color=INK)
        axes.set_xlabel("km", size=8)
        axes.tick_params(labelsize=7, colors=INK)
        lon, lat = (float(v[0]) for v in run.to_degrees(xy[None]))
        places.append(f"{words} ({lat:.2f}, {lon:.2f})")
    figure.colorbar(picture, ax=row.tolist(), shrink=0.7, aspect=25).ax.tick_params(labelsize=7)
    return Picture.of(
        figure,
        f"Kernel slices: what the model takes to vary together with the place at the star, as correlation: {'; '.join(places)}.",
    )


def _reach(run: Run, xy: Array, most: float, quarter: str | None) -> float:
    """How far around a place the kernel reaches, in units of the plane, between a thousandth of `most` and `most`."""
    radii = np.geomspace(most / 1000, most, 40)
    angles = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    around = np.column_stack([np.cos(angles), np.sin(angles)])
    P = (xy + radii[:, None, None] * around).reshape(-1, 2)
    X, x_ref = (torch.as_tensor(run.inputs(places, quarter)) for places in (P, xy[None]))
    alike = run.model.engine_.prior_slice(X, x_ref)[1].double().abs().numpy().reshape(len(radii), -1).mean(1)
    beyond = np.flatnonzero(alike < ALIKE)
    return float(radii[beyond[0]]) if len(beyond) else most


def _window(run: Run, ground: Ground, xy: Array, half: float, n: int, quarter: str | None) -> Array:
    """Prior correlation with a place in a square around it, n by n, south first; NaN outside the region."""
    offset = half * (2 * (np.arange(n) + 0.5) / n - 1)
    east, north = np.meshgrid(xy[0] + offset, xy[1] + offset)
    P = np.column_stack([east.ravel(), north.ravel()])
    inside = shapely.contains_xy(ground.outline, *P.T) & ground.reached(P)
    out = np.full(len(P), np.nan)
    if inside.any():
        X, x_ref = (torch.as_tensor(run.inputs(places, quarter)) for places in (P[inside], xy[None]))
        out[inside] = run.model.engine_.prior_slice(X, x_ref)[1].double().numpy()
    return out.reshape(n, n)


def standing(places: Array, ground: Array, far: Array) -> Mapping[str, Array]:
    """Three places (2,) by what they stand for: where places lie densest, where they lie in a line, and in the wild.

    Parameters
    ----------
    places : (N, 2) measured
    ground : (n, 2) of the region, and metres `far` (n,) of each from the nearest data
    """
    out: dict[str, Any] = {}
    k = min(NEIGHBOURS, len(places))
    if k >= 4:
        tree = cKDTree(places)
        many = min(max(k, len(places) // 20), 6 * k)
        out["where data are densest, as in a city"] = places[np.argmin(tree.query(places, k=[many])[0][:, 0])]
        distance, at = tree.query(places, k=k)
        reach = distance[:, -1]
        # Of the sparser half, without the loneliest, whose neighbours lie in a line only by chance.
        some = np.flatnonzero((reach >= np.median(reach)) & (reach <= np.quantile(reach, 0.9)))
        centred = places[at[some]] - places[at[some]].mean(axis=1, keepdims=True)
        across, along = np.linalg.eigvalsh(centred.transpose(0, 2, 1) @ centred).T
        out["where data lie in a line, as along a road"] = places[some[np.argmin(across / along)]]
    out["farthest from data, in the wild"] = ground[np.argmax(far)]
    return out
