"""Perceptual, colour-blind-safe colours, one scale per quantity, and a value-suppressing palette.

The maps are Fabio Crameri's (batlow, lajolla, vik, davos): even steps in lightness, readable by colour-blind eyes
and in grey. The value-suppressing palette follows Correll, Moritz and Heer (2018): the wider the interval, the
fewer value classes are told apart and the paler they are, so that a badly known value cannot look like a fact.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Num, UInt8
from numpy.typing import NDArray

from maps.bands import Band, colours_of, complete
from maps.errors import InvalidInput
from maps.layers import LAYERS, Layer
from maps.words import number

GREY = (222, 222, 222)  # where a value-suppressing palette gives up
FADED = "faded"  # the median under a value-suppressing palette, named where a layer is
NO_SUPPORT = "#c9ced6"  # hatch lines: inside the region, but the map says nothing

#: Ends of a log scale this near have ticks at even steps: those of a decade may have none between.
NARROW = 4.0


@dataclass(frozen=True)
class Scale:
    """The ends of a legend and how values run between them.

    Examples
    --------
    >>> scale = Scale(10.0, 1000.0, "log")
    >>> scale.fraction(np.array([10.0, 100.0, 5000.0])).tolist()
    [0.0, 0.5, 1.0]
    >>> scale.ticks()
    [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]
    >>> Scale(15.0, 25.0, "log").ticks()
    [16.0, 18.0, 20.0, 22.0, 24.0]
    """

    low: float
    high: float
    kind: str = "linear"
    below: bool = False  # some values lie below `low`, drawn in its colour
    above: bool = False

    def fraction(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Position of `values` between the ends, clipped to [0, 1]; NaN stays NaN."""
        v = np.asarray(values, dtype=np.float32)
        if self.kind == "log":
            with np.errstate(divide="ignore", invalid="ignore"):
                t = np.log(np.maximum(v, np.float32(self.low)) / self.low) / np.log(self.high / self.low)
        else:
            t = (v - self.low) / (self.high - self.low)
        return np.clip(t, 0, 1).astype(np.float32)

    def value(self, fraction: float) -> float:
        """The value at a position: the inverse of `fraction`."""
        if self.kind == "log":
            return float(self.low * (self.high / self.low) ** fraction)
        return float(self.low + fraction * (self.high - self.low))

    def labels(self, most: int = 8) -> list[tuple[float, str]]:
        """(position, text) of both ends and of the ticks between; an end covers all values beyond it: `≤5`, `≥500`, where
        there are any."""
        ticks = [(float(self.fraction(np.array(tick))), number(tick)) for tick in self.ticks(most)]
        apart = 1.0 / most
        between = [(at, text) for at, text in ticks if apart < at < 1 - apart]
        low, high = number(self.low), number(self.high)
        return [
            (0.0, f"≤{low}" if self.below else low),
            *between,
            (1.0, f"≥{high}" if self.above else high),
        ]

    def ticks(self, most: int = 8) -> list[float]:
        """At most `most` round values between the ends."""
        if self.kind == "log" and self.high > NARROW * self.low:
            decades = range(int(np.floor(np.log10(self.low))) - 1, int(np.ceil(np.log10(self.high))) + 1)
            for steps in ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
                ticks = [_round(s * 10.0**d) for d in decades for s in steps]
                ticks = [t for t in ticks if self.low * (1 - 1e-9) <= t <= self.high * (1 + 1e-9)]
                if len(ticks) <= most:
                    return ticks if len(ticks) > 1 else [self.low, self.high]
            return ticks[:: -(-len(ticks) // most)]
        step = _nice((self.high - self.low) / max(most - 2, 1))
        first = int(np.ceil(self.low / step - 1e-9))
        last = int(np.floor(self.high / step + 1e-9))
        return [_round(i * step) for i in range(first, last + 1)]


def _round(value: float) -> float:
    return float(f"{value:.12g}")


def _nice(value: float, up: bool = True) -> float:
    """The nearest of 1, 2, 5 x 10^k not below `value` (or not above it)."""
    decade = 10.0 ** np.floor(np.log10(value))
    steps = [1.0, 2.0, 5.0, 10.0]
    if up:
        return _round(decade * next(s for s in steps if s * decade >= value * (1 - 1e-9)))
    return _round(decade * next(s for s in reversed(steps) if s * decade <= value * (1 + 1e-9)))


def _log_scale(low: float, high: float) -> Scale:
    """A log scale over low..high with round ends, at least a factor of 1.5 long."""
    ends = [_round_out(low, up=False), _round_out(max(high, 1.5 * low))]
    return Scale(ends[0], ends[1], "log")


def _round_out(value: float, up: bool = True) -> float:
    """The nearest round number not below `value` (or not above it), at most a fifth to a third off.

    >>> _round_out(131.0), _round_out(131.0, up=False)
    (150.0, 120.0)
    """
    decade = 10.0 ** np.floor(np.log10(value))
    steps = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
    if up:
        return _round(decade * next(s for s in steps if s * decade >= value * (1 - 1e-9)))
    return _round(decade * next(s for s in reversed(steps) if s * decade <= value * (1 + 1e-9)))


def _near(value: float) -> float:
    """The nearest of 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 7 x 10^k, in ratio: steps that two maps are likely to share."""
    if value <= 0:
        return 0.0
    decade = 10.0 ** np.floor(np.log10(value))
    return _round(
        min((s * decade for s in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 7, 10)), key=lambda s: abs(np.log(s / value)))
    )


def scales(
    ds: xr.Dataset, planes: Iterable[Band], limits: Mapping[str, tuple[float, float]] | None = None
) -> dict[str, Scale]:
    """One scale per quantity, shared by all layers of that quantity in `ds`.

    Parameters
    ----------
    ds : Dataset that fits in memory (what is drawn); every layer of a quantity counts, drawn or not
    planes : the bands to be drawn
    limits : quantity ("level", "width", "sd", ..) -> (low, high), to hold legends fixed between maps

    Returns
    -------
    quantity -> `Scale`; the ends are 2nd and 98th percentiles over the layers of the quantity, rounded outwards
    """
    limits, planes = limits or {}, list(planes)
    if any(band.key not in ds.data_vars for band in planes):
        ds = complete(ds)
    quantities = {layer.quantity for layer in LAYERS.values()}
    if unknown := set(limits) - quantities:
        raise InvalidInput(
            f"There is no quantity {min(unknown)!r} to limit; choose from {', '.join(sorted(quantities))}."
        )
    result: dict[str, Scale] = {}
    for band in planes:
        quantity, layer = band.layer.quantity, band.layer
        if quantity in result:
            continue
        pair = limits.get(quantity, layer.limits)
        parts = {
            key: _finite(ds[key].values)
            for key, other in LAYERS.items()
            if other.quantity == quantity and key in ds.data_vars
        }
        if pair is None:
            scale = _from_values(parts, layer)
        elif not pair[0] < pair[1]:
            raise InvalidInput(f"The legend of {quantity!r} must run from low to high; got {pair}.")
        else:
            scale = Scale(float(pair[0]), float(pair[1]), layer.scale if pair[0] > 0 else "linear")
        below = any((v < scale.low).any() for v in parts.values())
        above = any((v > scale.high).any() for v in parts.values())
        result[quantity] = replace(scale, below=below, above=above)
    return result


def fitted(values: Num[np.ndarray, " n"], kind: str = "linear") -> Scale:
    """A scale whose round ends leave out about 2% of values at either side, marked where any lie beyond.

    >>> fitted(np.geomspace(1.2, 90, 500), "log")
    Scale(low=1.2, high=100.0, kind='log', below=False, above=False)
    """
    v = _finite(values)
    if not v.size:
        return Scale(1.0, 10.0, "log") if kind == "log" else Scale(0.0, 1.0)
    low, high = (float(q) for q in np.percentile(v, (2, 98)))
    if kind == "log" and low > 0:
        scale = _log_scale(low, high)
    else:
        step = _nice((high - low) / 6 or abs(low) * 0.1 or 1.0)
        low, high = np.floor(low / step + 1e-9) * step, np.ceil(high / step - 1e-9) * step
        scale = Scale(_round(low), _round(high if high > low else low + step))
    return replace(scale, below=bool((v < scale.low).any()), above=bool((v > scale.high).any()))


def _finite(values: NDArray[Any]) -> NDArray[np.float64]:
    v = np.asarray(values, dtype=np.float64).ravel()
    return v[np.isfinite(v)]


def _from_values(parts: Mapping[str, NDArray[np.float64]], layer: Layer) -> Scale:
    kind, parts = layer.scale, {key: v for key, v in parts.items() if v.size}
    if not parts:
        return Scale(1.0, 10.0, "log") if kind == "log" else Scale(0.0, 1.0)
    if layer.about_zero:
        end = _nice(max(np.abs(v).max() for v in parts.values()) or 1.0)
        return Scale(-end, end)
    low = min(float(np.percentile(v, 2)) for v in parts.values())
    high = max(float(np.percentile(v, 98)) for v in parts.values())
    central = [v for key, v in parts.items() if LAYERS[key].central]
    if any((v < 0.0).any() for v in central):
        kind = "linear"  # as temperatures are, whose ratios mean nothing
    if kind == "log" and low == 0 and min(v.min() for v in parts.values()) >= 0:
        low = high / 1000  # counts, whose intervals reach down to 0
    if kind == "log" and low > 0:
        if central:
            low = max(low, min(float(np.percentile(v, 2)) for v in central))
            high = max(float(np.percentile(v, 98)) for v in central)
        return _log_scale(low, high)
    if layer.from_zero:
        low = 0.0
    if high <= low:
        pad = abs(low) * 0.1 or 0.5
        low, high = low - pad, high + pad
    step = _nice((high - low) / 6)
    return Scale(_round(np.floor(low / step + 1e-9) * step), _round(np.ceil(high / step - 1e-9) * step))


@cache
def table(name: str) -> UInt8[np.ndarray, "256 3"]:
    """The 256 colours of a cmcrameri map, (256, 3).

    Raises
    ------
    InvalidInput : there is no such map
    """
    from cmcrameri import cm

    if name not in cm.cmaps:
        raise InvalidInput(f"There is no colour map {name!r}; cmcrameri has batlow, vik, davos and others.")
    return np.round(cm.cmaps[name](np.linspace(0, 1, 256))[:, :3] * 255).astype(np.uint8)


def paint(values: Num[np.ndarray, "H W"], scale: Scale, name: str) -> UInt8[np.ndarray, "H W 4"]:
    """`values` (H, W) as RGBA (H, W, 4); NaN is transparent."""
    t = scale.fraction(values)
    known = np.isfinite(t)
    index = np.where(known, t * 255 + 0.5, 0).astype(np.uint8)
    rgba = np.empty((*t.shape, 4), np.uint8)
    rgba[..., :3] = table(name)[index]
    rgba[..., 3] = np.where(known, 255, 0)
    return rgba


@dataclass(frozen=True)
class Suppressing:
    """Colours for a value and the width of its interval: 8, 4, 2 and 1 value classes as the interval widens.

    Width is told as a factor either way on a log scale (see `factor`; an interval of 50 to 100 Mbit/s and one of
    100 to 200 are equally wide), else as upper - lower.

    `edges` are the three widths at which the number of classes halves.
    """

    value: Scale
    edges: tuple[float, float, float]
    ratio: bool
    name: str

    rows = 4  # of the palette: widths told apart

    def width(
        self,
        median: Num[np.ndarray, " *shape"],
        lower: Num[np.ndarray, " *shape"],
        upper: Num[np.ndarray, " *shape"],
    ) -> Float[np.ndarray, " *shape"]:
        return (factor(median, lower, upper) if self.ratio else upper - lower).astype(np.float32)

    def colour(self, row: int, bin_: int) -> tuple[int, int, int]:
        """The colour of value class `bin_` of the 2^(3 - row) classes in a row: the wider, the fewer."""
        classes = 2 ** (self.rows - 1 - row)
        base = table(self.name)[int(255 * (bin_ + 0.5) / classes)].astype(float)
        mixed = base + (np.array(GREY) - base) * (row / (self.rows - 1)) ** 0.8 * 0.9
        r, g, b = (round(c) for c in mixed)
        return r, g, b

    def palette(self) -> list[list[tuple[int, int, int]]]:
        """`palette[row][class]`: 8, 4, 2, 1 colours."""
        return [[self.colour(row, b) for b in range(2 ** (self.rows - 1 - row))] for row in range(self.rows)]

    def paint(
        self, median: Num[np.ndarray, "H W"], lower: Num[np.ndarray, "H W"], upper: Num[np.ndarray, "H W"]
    ) -> UInt8[np.ndarray, "H W 4"]:
        """RGBA (H, W, 4); NaN is transparent."""
        t, width = self.value.fraction(median), self.width(median, lower, upper)
        known = np.isfinite(t) & np.isfinite(width)
        row = np.digitize(np.where(known, width, 0), self.edges)
        colours = np.zeros((self.rows, 8, 3), np.uint8)
        for k, classes_of in enumerate(self.palette()):
            colours[k, : len(classes_of)] = classes_of
        classes = 2 ** (self.rows - 1 - row)
        bin_ = np.minimum((np.where(known, t, 0) * classes).astype(int), classes - 1)
        rgba = np.empty((*t.shape, 4), np.uint8)
        rgba[..., :3] = colours[row, bin_]
        rgba[..., 3] = np.where(known, 255, 0)
        return rgba

    def edge_texts(self) -> list[str]:
        """The widths between the rows in words: a factor either way, `×3`, or a plain number."""
        return [f"×{number(e)}" if self.ratio else number(e) for e in self.edges]


def factor(
    median: Num[np.ndarray, " *shape"], lower: Num[np.ndarray, " *shape"], upper: Num[np.ndarray, " *shape"]
) -> Float[np.ndarray, " *shape"]:
    """How sure, as a factor either way: the interval lies between the median divided by it and the median times it. The
    larger of the two that reach its ends; infinite where it reaches down to 0.

    >>> factor(np.array([157.0]), np.array([9.8125]), np.array([423.9]))
    array([16.])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.maximum(upper / median, median / lower)
    return np.where(np.asarray(lower) > 0, found, np.where(np.isnan(found), np.nan, np.inf))


def suppressing(ds: xr.Dataset, value: Scale) -> Suppressing | None:
    """A value-suppressing palette for `median` of a Dataset in memory, or None without its interval.

    The edges are round numbers near the quartiles of the width, so each row is in use.
    """
    if not {"median", "lower", "upper"} <= set(map(str, ds.data_vars)):
        return None
    median, lower, upper = (ds[name].values for name in ("median", "lower", "upper"))
    known = np.isfinite(lower) & np.isfinite(upper)
    ratio = value.kind == "log" and bool((lower[known] > 0).all())
    width = (factor(median, lower, upper) if ratio else upper - lower)[known]
    width = width[np.isfinite(width)]
    if width.size == 0:
        return Suppressing(value, (2.0, 4.0, 8.0), ratio, colours_of(ds, "median"))
    edges: list[float] = []
    for q in np.percentile(width, (25, 50, 75)):
        edge = _near(float(q))
        while edges and edge <= edges[-1]:  # strictly rising even when the width is the same everywhere
            edge = _near(edge * 1.2) if edge > 0 else 1.0
        edges.append(edge)
    return Suppressing(value, (edges[0], edges[1], edges[2]), ratio, colours_of(ds, "median"))
