"""The planes of a Dataset that can be drawn: the layers it holds and those that follow, with words and colours."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import xarray as xr

from maps.derived import computed
from maps.errors import InvalidInput
from maps.layers import ENDS, GROUPS, LAYERS, VALUES, Layer, available
from maps.words import (
    exact,
    level_text,
    new_text,
    place_text,
    scale_text,
    surface_text,
    tail_text,
    target_text,
    target_unit,
)

#: Of layers whose colours would judge, where nobody said which values are better: one hue from little to much. Both ends
#: of neutral maps with two hues (broc, cork) are nearly black, and probabilities are mostly near 0 or 1.
UNJUDGED = "devon_r"


@dataclass(frozen=True)
class Band:
    """One drawable plane: a layer, and for one `by_threshold` one of its thresholds."""

    name: str  # file stem: "median", "exceedance_25"
    key: str  # entry of LAYERS
    index: int | None  # position along `threshold`, or None
    threshold: float | None
    title: str
    short: str
    about: str
    unit: str  # as in the Dataset's attributes ("1" for a pure number)
    colours: str  # a cmcrameri map

    @property
    def layer(self) -> Layer:
        return LAYERS[self.key]

    @property
    def unit_text(self) -> str:
        """The unit as people read it: nothing for a pure number."""
        return "" if self.unit in ("1", "") else self.unit

    def of(self, ds: xr.Dataset) -> xr.DataArray:
        """The (y, x) plane of this band, still lazy."""
        plane = (ds if self.key in ds.data_vars else complete(ds))[self.key]
        return plane if self.index is None else plane.isel(threshold=self.index)


def bands(ds: xr.Dataset, layers: Iterable[str] | None = None, *, derive: bool = True) -> list[Band]:
    """The drawable planes of `ds`, in the order of `LAYERS`, or those named.

    Parameters
    ----------
    ds : prediction Dataset; `exceedance` has a leading dimension `threshold`
    layers : names of `LAYERS`, or one threshold as `exceedance_25`; None for all that `ds` holds
    derive : also those that can be computed from what `ds` holds

    Raises
    ------
    InvalidInput : a name is unknown or `ds` does not hold it, or there is nothing to draw

    Examples
    --------
    >>> ds = xr.Dataset({"median": (("y", "x"), np.ones((2, 2)), {"units": "Mbit/s"})})
    >>> [(b.name, b.unit) for b in bands(ds)]
    [('median', 'Mbit/s')]
    """
    if "quarter" in ds.dims:
        first = ds["quarter"].values[0]
        raise InvalidInput(
            f"The Dataset holds {ds.sizes['quarter']} quarters; choose one of them, as ds.sel(quarter='{first}')."
        )
    if derive:
        ds = complete(ds)
    planes = [band for key in LAYERS if key in ds.data_vars for band in _planes(ds, key)]
    if layers is None:
        chosen = planes
    else:
        chosen = []
        for name in [layers] if isinstance(layers, str) else layers:
            found = [band for band in planes if name in (band.name, band.key)]
            if not found:
                have = ", ".join(dict.fromkeys(band.name for band in planes)) or "none"
                raise InvalidInput(f"There is no layer {name!r} in this prediction; it holds: {have}.")
            chosen += [band for band in found if band not in chosen]
    if not chosen:
        raise InvalidInput(
            f"Nothing to draw: the Dataset has variables {sorted(map(str, ds.data_vars))}, "
            f"and a layer is one of {', '.join(LAYERS)}."
        )
    return chosen


def complete(ds: xr.Dataset) -> xr.Dataset:
    """`ds` with every derived layer that it does not hold yet; they are computed when they are read."""
    for key in available(ds.data_vars):
        layer = LAYERS[key]
        if key not in ds.data_vars and layer.derive is not None:
            attrs = {"units": layer.unit, "long_name": long_name(ds, key), "grid_mapping": "spatial_ref"}
            if layer.unit == "target":
                attrs["units"] = str(ds.attrs.get("target_unit", "1"))
            if layer.by_level and "level" in ds.attrs:
                attrs["level"] = ds.attrs["level"]
            sources = [ds[name].variable for name in layer.needs]
            ds = ds.assign({key: computed(layer.derive, sources, layer.dims, attrs)})
    return ds


def list_order(band: Band) -> tuple[int, float]:
    """What a list of layers is sorted by: group, then place in the short list."""
    groups = list(dict.fromkeys((*GROUPS, *(layer.group for layer in LAYERS.values()))))
    place = band.layer.listed
    return groups.index(band.layer.group), float("inf") if place is None else place


def subject(shown: Iterable[Band], *, faded: bool = False) -> dict[str, bool]:
    """What a caption says of bands that are shown together, as keywords of `maps.words.subtitle`: the level where any
    changes with it (`faded`: the interval is shown as paleness), new measurements where any describes them.

    >>> ds = xr.Dataset({"explained": (("y", "x"), np.ones((2, 2)), {"units": "1"})})
    >>> subject(bands(ds))
    {'intervals': False, 'new': False}
    """
    layers = [band.layer for band in shown]
    return {
        "intervals": faded or any(layer.by_level for layer in layers),
        "new": not all(layer.of_surface for layer in layers),
    }


def colours_of(ds: xr.Dataset, key: str) -> str:
    """The colours of a layer for the target of `ds`.

    >>> latency = xr.Dataset(attrs={"target_better": "lower", "target_colours": "oslo"})
    >>> [colours_of(latency, key) for key in ("median", "pi_width", "exceedance")]
    ['oslo', 'lajolla_r', 'vik']
    >>> colours_of(xr.Dataset(attrs={"target_better": ""}), "exceedance")
    'devon_r'
    """
    layer, name = LAYERS[key], LAYERS[key].colours
    if layer.quantity in (VALUES, ENDS):
        name = str(ds.attrs.get("target_colours") or name)
    better = ds.attrs.get("target_better")
    if layer.judged and better == "lower":
        name = name.removesuffix("_r") if name.endswith("_r") else f"{name}_r"
    # The change counts what rises as improved where nobody said which is better.
    return UNJUDGED if (layer.judged or key == "improved") and better == "" else name


def long_name(ds: xr.Dataset, key: str) -> str:
    """The title of a layer for a file, without a threshold's number."""
    return _fill(LAYERS[key].title, {**_words(ds), "threshold": "the threshold", "unit": ""})


def count_open(ds: xr.Dataset) -> str:
    """What new measurements are called, whatever their number: `tile averages of {tests}`.

    >>> count_open(xr.Dataset(attrs={"tests": 5})), count_open(xr.Dataset())
    ('tile averages of {tests}', 'measurements')
    """
    if ds.attrs.get("tests") is None:
        return new_text(ds)
    return new_text(ds.assign_attrs(tests=1.0)).replace("1 test", "{tests}")


def templates(ds: xr.Dataset, layer: Layer) -> tuple[str, str, str]:
    """Title, short title and explanation of a layer with places for {level}, {tail}, {threshold} and {tests}.

    >>> ds = xr.Dataset(attrs={"tests": 5, "target_unit": "ms", "target_title": "latency"})
    >>> templates(ds, LAYERS["exceedance"])[:2]
    ('Probability that latency exceeds {threshold} ms', 'P(> {threshold} ms)')
    >>> templates(ds, LAYERS["upper"])[2]
    '{tail} of new tile averages of {tests} lie above this'
    """
    words = _words(ds)
    words["of"] = count_open(ds)
    words["place"] = place_text(ds)
    words |= {name: f"{{{name}}}" for name in ("level", "tail", "threshold")}
    title, short, about = (_fill(text, words) for text in (layer.title, layer.short, layer.about))
    return title, short, about


def _planes(ds: xr.Dataset, key: str) -> list[Band]:
    layer, variable = LAYERS[key], ds[key]
    if variable.dims != layer.dims:
        raise InvalidInput(f"Layer {key!r} must have dimensions {layer.dims}; it has {variable.dims}.")
    unit, colours, words = str(variable.attrs.get("units", "1")), colours_of(ds, key), _words(ds)

    def band(name: str, index: int | None, threshold: float | None) -> Band:
        title, short, about = (_fill(text, words) for text in (layer.title, layer.short, layer.about))
        return Band(name, key, index, threshold, title, short, about, unit, colours)

    if not layer.by_threshold:
        return [band(key, None, None)]
    planes = []
    for index, threshold in enumerate(np.atleast_1d(ds["threshold"].values).astype(float)):
        words["threshold"] = exact(threshold)
        name = np.format_float_positional(threshold, trim="-")
        planes.append(band(f"{key}_{name}", index, float(threshold)))
    return planes


def _words(ds: xr.Dataset) -> dict[str, str]:
    return {
        "target": target_text(ds),
        "of": new_text(ds),
        "surface": surface_text(ds),
        "scale": scale_text(ds),
        "level": level_text(ds),
        "tail": tail_text(ds),
        "unit": target_unit(ds),
        "threshold": "",
        "improved": "risen" if ds.attrs.get("target_better") == "" else "improved",
    }


def _fill(text: str, words: dict[str, str]) -> str:
    """One pass, so that braces in a word stay what they are."""
    if not words["unit"]:
        text = text.replace(" {unit}", "")
    return re.sub(r"\{(\w+)\}", lambda m: words.get(m[1], m[0]), text)
