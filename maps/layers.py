"""What can be drawn: one entry per layer of a prediction Dataset.

Layers of one *quantity* share a unit, a scale and one legend, so that the eye can compare them.
To add a layer, add an entry to `LAYERS`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from maps.errors import InvalidInput


@dataclass(frozen=True)
class Layer:
    """How one Dataset variable is named, explained and coloured.

    `title` and `about` may use {target}, {of}, {level}, {tail}, {unit} and {threshold}; `short` is for a narrow list.
    """

    title: str
    short: str
    about: str
    quantity: str  # layers of one quantity share a legend
    colours: str  # a cmcrameri map
    scale: str  # "log" or "linear"
    group: str  # heading in a list of layers
    limits: tuple[float, float] | None = None  # fixed ends of the legend, or None: from the data


LAYERS: dict[str, Layer] = {
    "median": Layer(
        "Median {target}",
        "Median",
        "half of new {of} lie above this value",
        "level",
        "batlow",
        "log",
        "What to expect",
    ),
    "mean": Layer(
        "Mean {target}", "Mean", "the average of new {of}", "level", "batlow", "log", "What to expect"
    ),
    "lower": Layer(
        "Lower end of the {level} prediction interval",
        "Lower bound",
        "{tail} of new {of} fall below this",
        "level",
        "batlow",
        "log",
        "How sure",
    ),
    "upper": Layer(
        "Upper end of the {level} prediction interval",
        "Upper bound",
        "{tail} of new {of} lie above this",
        "level",
        "batlow",
        "log",
        "How sure",
    ),
    "pi_width": Layer(
        "Width of the {level} prediction interval",
        "Interval width",
        "upper minus lower end, for new {of}",
        "width",
        "lajolla_r",
        "log",
        "How sure",
    ),
    "latent_median": Layer(
        "Median of the {target} surface",
        "Surface median",
        "the surface itself, without measurement noise",
        "level",
        "batlow",
        "log",
        "The surface itself",
    ),
    "latent_lower": Layer(
        "Lower end of the surface's {level} credible interval",
        "Surface lower",
        "for the surface itself, not for a new measurement",
        "level",
        "batlow",
        "log",
        "The surface itself",
    ),
    "latent_upper": Layer(
        "Upper end of the surface's {level} credible interval",
        "Surface upper",
        "for the surface itself, not for a new measurement",
        "level",
        "batlow",
        "log",
        "The surface itself",
    ),
    "latent_sd": Layer(
        "Standard deviation of the surface",
        "Surface sd",
        "how well the surface is known, on the model's scale (log10 for speeds)",
        "sd",
        "lajolla_r",
        "linear",
        "The surface itself",
    ),
    "noise_sd": Layer(
        "Standard deviation of the noise",
        "Noise sd",
        "scatter of new {of} about the surface, on the model's scale (log10 for speeds)",
        "sd",
        "lajolla_r",
        "linear",
        "How sure",
    ),
    "explained": Layer(
        "Share explained by the data",
        "Explained by data",
        "1 - latent variance / prior variance: 1 where the map is data, 0 where it is only the prior",
        "share",
        "davos_r",
        "linear",
        "How sure",
        (0.0, 1.0),
    ),
    "exceedance": Layer(
        "Probability that {target} exceeds {threshold} {unit}",
        "P(> {threshold} {unit})",
        "for new {of}",
        "probability",
        "vik_r",
        "linear",
        "How likely",
        (0.0, 1.0),
    ),
    "covariance": Layer(
        "Kernel slice: covariance with the reference point",
        "Covariance",
        "k(x, reference): how the model thinks the surface here varies with the reference point",
        "covariance",
        "vik",
        "linear",
        "Kernel slice",
    ),
    "correlation": Layer(
        "Kernel slice: correlation with the reference point",
        "Correlation",
        "k(x, reference) / sd(x) sd(reference): what the model thinks is similar to the reference point",
        "correlation",
        "vik",
        "linear",
        "Kernel slice",
        (-1.0, 1.0),
    ),
}

TARGETS: dict[str, str] = {
    "download": "download speed",
    "upload": "upload speed",
    "latency": "latency",
    "tests": "number of tests",
    "value": "value",
}


@dataclass(frozen=True)
class Band:
    """One drawable plane: a layer, and for `exceedance` one of its thresholds."""

    name: str  # file stem: "median", "exceedance_25"
    key: str  # entry of LAYERS
    index: int | None  # position along `threshold`, or None
    threshold: float | None
    title: str
    short: str
    about: str
    unit: str  # as in the Dataset's attributes ("1" for a pure number)

    @property
    def layer(self) -> Layer:
        return LAYERS[self.key]

    @property
    def unit_text(self) -> str:
        """The unit as people read it: nothing for a pure number."""
        return "" if self.unit in ("1", "") else self.unit

    def of(self, ds: xr.Dataset) -> xr.DataArray:
        """The (y, x) plane of this band, still lazy."""
        plane = ds[self.key]
        return plane if self.index is None else plane.isel(threshold=self.index)


def number(value: float) -> str:
    """`value` with three significant digits and no exponent below a billion: 90, 0.37, 1250.

    >>> number(90.04), number(0.0372), number(1249.6)
    ('90', '0.0372', '1250')
    """
    if not np.isfinite(value):
        return "no value"
    if value == 0 or not 1e-6 < abs(value) < 1e9:
        return f"{value:.3g}"
    decimals = max(0, 2 - int(np.floor(np.log10(abs(value)))))
    return np.format_float_positional(round(float(value), decimals), trim="-")


def level_text(ds: xr.Dataset) -> str:
    """`95%` from the attribute `level` = 0.95."""
    return f"{number(100 * float(ds.attrs.get('level', 0.95)))}%"


def target_text(ds: xr.Dataset) -> str:
    """`download speed` from the attribute `target` = "download"."""
    target = str(ds.attrs.get("target", "value"))
    return TARGETS.get(target, target)


def subtitle(ds: xr.Dataset) -> str:
    """What the map is a map of: quarter, tests per tile, level.

    >>> subtitle(xr.Dataset(attrs={"quarter": "2023Q4", "tests": 5, "level": 0.95}))
    '2023 Q4 · new tile averages of 5 tests · 95% intervals'
    """
    parts = []
    quarter = str(ds.attrs.get("quarter", "") or "")
    if quarter:
        parts.append(quarter.replace("Q", " Q"))
    if ds.attrs.get("tests") is not None:
        parts.append(f"new {_of(ds)}")
    parts.append(f"{level_text(ds)} intervals")
    return " · ".join(parts)


def _of(ds: xr.Dataset) -> str:
    tests = ds.attrs.get("tests")
    if ds.attrs.get("target") == "tests":
        return "tile counts"
    if tests is None or ds.attrs.get("target") == "value":
        return "measurements"
    count = number(float(tests))
    return f"tile averages of {count} test{'' if count == '1' else 's'}"


def bands(ds: xr.Dataset, layers: Iterable[str] | None = None) -> list[Band]:
    """The drawable planes of `ds`, in the order of `LAYERS`, or those named.

    Parameters
    ----------
    ds : prediction Dataset; `exceedance` has a leading dimension `threshold`
    layers : names of `LAYERS`, or one threshold as `exceedance_25`; None for all that `ds` holds

    Raises
    ------
    InvalidInput : a name is unknown or `ds` does not hold it, or there is nothing to draw

    Examples
    --------
    >>> ds = xr.Dataset({"median": (("y", "x"), np.ones((2, 2)), {"units": "Mbit/s"})})
    >>> [(b.name, b.unit) for b in bands(ds)]
    [('median', 'Mbit/s')]
    """
    available = [band for key in LAYERS if key in ds.data_vars for band in _planes(ds, key)]
    if layers is None:
        chosen = available
    else:
        chosen = []
        for name in [layers] if isinstance(layers, str) else layers:
            found = [band for band in available if name in (band.name, band.key)]
            if not found:
                have = ", ".join(dict.fromkeys(band.name for band in available)) or "none"
                raise InvalidInput(f"There is no layer {name!r} in this prediction; it holds: {have}.")
            chosen += [band for band in found if band not in chosen]
    if not chosen:
        raise InvalidInput(
            f"Nothing to draw: the Dataset has variables {sorted(map(str, ds.data_vars))}, "
            f"and a layer is one of {', '.join(LAYERS)}."
        )
    return chosen


def _planes(ds: xr.Dataset, key: str) -> Sequence[Band]:
    layer, variable = LAYERS[key], ds[key]
    expected = ("threshold", "y", "x") if key == "exceedance" else ("y", "x")
    if variable.dims != expected:
        raise InvalidInput(f"Layer {key!r} must have dimensions {expected}; it has {variable.dims}.")
    unit = str(variable.attrs.get("units", "1"))
    words = {
        "target": target_text(ds),
        "of": _of(ds),
        "level": level_text(ds),
        "tail": f"{number(50 * (1 - float(ds.attrs.get('level', 0.95))))}%",
        "unit": "" if ds.attrs.get("target_unit") == "1" else str(ds.attrs.get("target_unit", "")),
        "threshold": "",
    }
    if key != "exceedance":
        return [_band(key, key, None, None, layer, words, unit)]
    planes = []
    for index, threshold in enumerate(np.atleast_1d(ds["threshold"].values).astype(float)):
        text = np.format_float_positional(threshold, trim="-")
        words["threshold"] = text
        planes.append(_band(f"{key}_{text}", key, index, float(threshold), layer, words, unit))
    return planes


def _band(
    name: str,
    key: str,
    index: int | None,
    threshold: float | None,
    layer: Layer,
    words: dict[str, str],
    unit: str,
) -> Band:
    def fill(text: str) -> str:  # one pass, so that braces in a word stay what they are
        if not words["unit"]:
            text = text.replace(" {unit}", "")
        return re.sub(r"\{(\w+)\}", lambda m: words.get(m[1], m[0]), text)

    return Band(name, key, index, threshold, fill(layer.title), fill(layer.short), fill(layer.about), unit)
