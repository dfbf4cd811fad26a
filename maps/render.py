"""The one pass over a prediction: every window computed once, for all layers and all formats."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import xarray as xr
from jaxtyping import Bool
from numpy.typing import NDArray

from maps.bands import bands, complete
from maps.errors import InvalidInput
from maps.grid import BLOCK, Window, geobox_of, windows
from maps.layers import LAYERS
from maps.region import Mask
from maps.sinks.base import Job, Output, Sink
from maps.sinks.journal import Journal

MAX_MEMORY = 2 * 2**30  # bytes

Progress = Callable[[int, int], None]
Planes = Mapping[str, NDArray[np.float32]]


class Pending(Protocol):
    """Planes of a window, (bands, rows, columns), that somebody else computes; anything outside the region."""

    def result(self) -> NDArray[np.float32]: ...
    def done(self) -> bool: ...
    def cancel(self) -> object: ...


@dataclass(frozen=True)
class Elsewhere:
    """Who computes windows instead of this process.

    begin : begins a window
    ahead : how many may be begun before the first of them is waited for
    """

    begin: Callable[[Window], Pending]
    ahead: Callable[[], int]


def job_of(ds: xr.Dataset, layers: Iterable[str] | None = None, max_memory: int = MAX_MEMORY) -> Job:
    """Grid, bands and window side for a Dataset.

    The side is 512 pixels, halved while a window of all variables (held about four times: computed, masked,
    compressed, cached) would take more than a quarter of `max_memory`.
    """
    ds = complete(ds)
    chosen = tuple(bands(ds, layers))
    side = BLOCK
    while side > 32 and len(chosen) * 4 * side * side * 4 > max_memory / 4:
        side //= 2
    return Job(ds, geobox_of(ds), chosen, side)


def render(
    ds: xr.Dataset,
    sinks: Sequence[Sink],
    *,
    geometry: Mapping[str, Any] | None = None,
    layers: Iterable[str] | None = None,
    all_touched: bool = False,
    max_memory: int = MAX_MEMORY,
    progress: Progress | None = None,
    journal: Journal | None = None,
    elsewhere: Elsewhere | None = None,
) -> list[Output]:
    """Compute a lazy Dataset window by window and hand every window to every sink.

    A window without a pixel inside the region is never computed; one with some is computed only over the
    bounding box of those pixels. All variables of a window are loaded together, so a model is run once.

    Parameters
    ----------
    ds : prediction Dataset, dims (y, x), lazy or in memory
    sinks : what takes the windows; see `maps.sinks`
    geometry : GeoJSON polygon in EPSG:4326; pixels outside become NaN. None keeps all
    layers : names of layers or bands; None for all in `ds`
    all_touched : take every pixel the region touches instead of those whose centre is inside
    max_memory : bytes; bounds the window and GDAL's cache
    progress : called with (windows done, windows with a pixel inside)
    journal : windows of an interrupted attempt, and where those of this one are kept
    elsewhere : computes the windows that the journal has not; None for this process. Sinks take them in the same order

    Returns
    -------
    outputs of all sinks, under their temporary names

    Raises
    ------
    InvalidInput : unknown layer, unusable region, or region and grid do not overlap

    Notes
    -----
    Time is that of computing the pixels inside; memory that of one window, whatever the size of the grid, and of as many
    masks as windows are begun elsewhere.
    """
    import rasterio

    job = job_of(ds, layers, max_memory)
    mask = Mask(job.geobox, geometry, all_touched)
    variables = job.ds[list(job.variables)]
    # Inside, so that what GDAL says of a failure goes to its log, not to people.
    with rasterio.Env(GDAL_CACHEMAX=_cache_megabytes(max_memory)):
        try:
            for sink in sinks:
                sink.begin(job)
            todo = [w for w in windows(job.shape, job.side) if mask.touches(w)]
            for done, (window, inside, planes) in enumerate(
                _rendered(todo, mask, variables, job, journal, elsewhere), 1
            ):
                if planes is not None:
                    for sink in sinks:
                        sink.write(window, planes, inside)
                if progress is not None:
                    progress(done, len(todo))
            return [output for sink in sinks for output in sink.finish()]
        except BaseException:
            for sink in sinks:
                sink.abort()
            raise


def _cache_megabytes(max_memory: int) -> int:
    """GDAL's block cache: an eighth of the memory, between 16 and 256 MB."""
    return int(min(256, max(16, max_memory / 8 / 2**20)))


def _tighten(window: Window, inside: NDArray[np.bool_]) -> tuple[Window, NDArray[np.bool_]]:
    """The window cut to the bounding box of the pixels inside; as it is where there are none."""
    if not inside.any():
        return window, inside
    rows, cols = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    r0, r1, c0, c1 = int(rows[0]), int(rows[-1]) + 1, int(cols[0]), int(cols[-1]) + 1
    cut = Window(window.y0 + r0, window.y0 + r1, window.x0 + c0, window.x0 + c1)
    return cut, inside[r0:r1, c0:c1]


def _rendered(
    todo: Iterable[Window],
    mask: Mask,
    variables: xr.Dataset,
    job: Job,
    journal: Journal | None,
    elsewhere: Elsewhere | None,
) -> Iterator[tuple[Window, NDArray[np.bool_], Planes | None]]:
    """(window cut to its pixels inside, these, planes) of each window in order; no planes where no pixel is inside."""
    if elsewhere is None:
        for window in todo:
            tight, inside = _tighten(window, mask.inside(window))
            planes: Planes | None = None
            if inside.any():
                planes = None if journal is None else journal.known(tight, job)
                if planes is None:
                    planes = computed = _masked(values_of(variables, tight, job), job, inside)
                    if journal is not None:
                        journal.keep(tight, computed, job)
            yield tight, inside, planes
        return
    waiting: deque[_Begun] = deque()
    try:
        for window in todo:
            waiting.append(_begun(window, mask, job, journal, elsewhere))
            while len(waiting) > elsewhere.ahead():
                yield _ended(waiting, job, journal)
        while waiting:
            yield _ended(waiting, job, journal)
    finally:
        for left in waiting:  # of those that somebody stopped, what is there need not be computed again
            with suppress(Exception):
                if left.pending is not None and left.pending.done():
                    _keep(left, job, journal)
            with suppress(Exception):
                if left.pending is not None:
                    left.pending.cancel()


@dataclass(frozen=True)
class _Begun:
    """A window on its way: none pending where an earlier attempt knows it, or no pixel is inside."""

    window: Window
    inside: NDArray[np.bool_]
    pending: Pending | None


def _begun(window: Window, mask: Mask, job: Job, journal: Journal | None, elsewhere: Elsewhere) -> _Begun:
    tight, inside = _tighten(window, mask.inside(window))
    known = not inside.any() or (journal is not None and journal.known(tight, job) is not None)
    return _Begun(tight, inside, None if known else elsewhere.begin(tight))


def _ended(
    waiting: "deque[_Begun]", job: Job, journal: Journal | None
) -> tuple[Window, NDArray[np.bool_], Planes | None]:
    """The first of those on their way; it stays among them until it is there."""
    first = waiting[0]
    planes: Planes | None = None
    if first.pending is not None:
        planes = _keep(first, job, journal)
    elif journal is not None and first.inside.any():
        planes = journal.known(first.window, job)
        assert planes is not None  # it was there, and nobody else writes in a journal
    waiting.popleft()
    return first.window, first.inside, planes


def _keep(begun: _Begun, job: Job, journal: Journal | None) -> Planes:
    assert begun.pending is not None
    planes = _masked(begun.pending.result(), job, begun.inside)
    if journal is not None:
        journal.keep(begun.window, planes, job)
    return planes


def values_of(ds: xr.Dataset, window: Window, job: Job) -> NDArray[np.float32]:
    """A window of all bands: (bands, rows, columns)."""
    rows, cols = window.slices
    part = ds.isel(y=rows, x=cols).load()
    return np.stack([np.asarray(band.of(part).values, dtype=np.float32) for band in job.bands])


def _masked(values: NDArray[np.float32], job: Job, inside: NDArray[np.bool_]) -> Planes:
    kept = np.where(inside, values, np.float32(np.nan))
    return {band.name: plane for band, plane in zip(job.bands, kept)}


class MemorySink(Sink):
    """Keeps the rendered planes as a Dataset in memory: for figures and pages, which are small."""

    def __init__(self) -> None:
        self.result = xr.Dataset()
        self.inside = np.zeros((0, 0), dtype=bool)

    @classmethod
    def names(cls, bands: tuple[Any, ...]) -> list[str]:
        return []

    def begin(self, job: Job) -> None:
        self.job = job
        self.inside = np.zeros(job.shape, dtype=bool)
        self._values = {
            key: np.full([job.sizes[dim] for dim in LAYERS[key].dims], np.nan, np.float32)
            for key in job.variables
        }

    def write(
        self, window: Window, planes: Mapping[str, NDArray[np.float32]], inside: NDArray[np.bool_]
    ) -> None:
        self.inside[window.slices] = inside
        for band in self.job.bands:
            self._values[band.key][self.job.place(band, window)] = planes[band.name]

    def finish(self) -> list[Output]:
        ds = self.job.ds
        coords = {name: ds[name] for name in ("y", "x", "spatial_ref") if name in ds.variables}
        if self.job.thresholds:
            coords["threshold"] = xr.DataArray(np.array(self.job.thresholds), dims="threshold")
        data = {key: (LAYERS[key].dims, values, dict(ds[key].attrs)) for key, values in self._values.items()}
        self.result = xr.Dataset(data, coords, dict(ds.attrs))
        return []


def thin(ds: xr.Dataset, max_pixels: int) -> xr.Dataset:
    """Every k-th row and column, so that at most about `max_pixels` remain.

    Every value kept is the model's own at that pixel: intervals and probabilities are never averaged.
    """
    if not max_pixels >= 1:
        raise InvalidInput(f"max_pixels must be 1 or more; got {max_pixels!r}.")
    height, width = ds.sizes["y"], ds.sizes["x"]
    step = int(np.ceil(np.sqrt(height * width / max_pixels))) if height * width > max_pixels else 1

    def every(size: int) -> slice:
        k = min(step, max(1, size // 2))
        return slice(min(k // 2, size - 1), None, k)

    return ds.isel(y=every(height), x=every(width))


def in_memory(
    ds: xr.Dataset,
    *,
    geometry: Mapping[str, Any] | None = None,
    layers: Iterable[str] | None = None,
    max_pixels: int = 1_000_000,
) -> tuple[xr.Dataset, Bool[np.ndarray, "H W"]]:
    """A thinned copy of a lazy Dataset for drawing, and which of its pixels lie inside the region."""
    small = thin(ds, max_pixels)
    sink = MemorySink()
    render(small, [sink], geometry=geometry, layers=layers)
    return sink.result, sink.inside


def bleed(ds: xr.Dataset, inside: Bool[np.ndarray, "H W"]) -> xr.Dataset:
    """For drawing: every pixel next to the region takes its nearest neighbour inside, so that a picture
    clipped at the region's line has no teeth. Values inside stay as they are; files never see this."""
    from scipy.ndimage import distance_transform_edt

    if inside.all() or not inside.any():
        return ds
    distance, (rows, cols) = distance_transform_edt(~inside, return_indices=True)
    rim = ~inside & (distance < 1.5)
    filled = ds.copy()
    for name, variable in ds.data_vars.items():
        values = variable.values.copy()
        values[..., rim] = values[..., rows[rim], cols[rim]]
        filled[name] = variable.copy(data=values)
    return filled


OUTLYING = 0.005  # share of pixels that may lie outside the frame when that at least halves it


def frame(shown: Bool[np.ndarray, "H W"]) -> tuple[Window, float]:
    """The window a map opens on, and the share of the pixels shown that lies outside it.

    The bounding box of the pixels shown; but when leaving out half a percent of them or less makes it half as
    large (Hawaii's far islets, the end of the Aleutians), the box of the rest. All, when nothing is shown.
    """
    height, width = shown.shape
    if not shown.any():
        return Window(0, height, 0, width), 0.0

    def box(part: NDArray[np.bool_], y: int = 0, x: int = 0) -> Window:
        rows, cols = np.flatnonzero(part.any(axis=1)), np.flatnonzero(part.any(axis=0))
        return Window(y + int(rows[0]), y + int(rows[-1]) + 1, x + int(cols[0]), x + int(cols[-1]) + 1)

    def central(counts: NDArray[Any]) -> tuple[int, int]:
        share = np.cumsum(counts) / counts.sum()
        low, high = (
            int(np.searchsorted(share, OUTLYING / 4)),
            int(np.searchsorted(share, 1 - OUTLYING / 4)) + 1,
        )
        pad = -(-(high - low) // 20)
        return max(0, low - pad), min(counts.size, high + pad)

    whole = box(shown)
    y0, y1 = central(shown.sum(axis=1))
    x0, x1 = central(shown.sum(axis=0))
    inner = box(shown[y0:y1, x0:x1], y0, x0)
    if 2 * np.prod(inner.shape) > np.prod(whole.shape):
        return whole, 0.0
    return inner, float(1 - shown[inner.slices].sum() / shown.sum())
