"""Layers: names, units, words; legends shared within a quantity."""

import numpy as np
import pytest
import xarray as xr

from maps.bands import bands
from maps.colours import Scale, paint, scales, suppressing, table
from maps.errors import InvalidInput
from maps.layers import LAYERS, listed
from maps.words import number, subtitle


def test_every_variable_of_a_prediction_is_a_layer(ds: xr.Dataset) -> None:
    names = [b.name for b in bands(ds)]
    assert {"median", "pi_width", "latent_sd", "exceedance_25", "exceedance_100"} <= set(names)
    derived = {key for key, layer in LAYERS.items() if layer.derive is not None}
    assert {b.key for b in bands(ds)} - derived == set(map(str, ds.data_vars))


def test_a_band_carries_unit_threshold_and_words(ds: xr.Dataset) -> None:
    band = bands(ds, ["exceedance_100"])[0]
    assert (band.threshold, band.index, band.unit_text) == (100.0, 1, "")
    assert band.title == "Probability that download speed exceeds 100 Mbit/s"
    assert bands(ds, ["median"])[0].unit_text == "Mbit/s"
    assert "2.5%" in bands(ds, ["lower"])[0].about
    assert band.of(ds).dims == ("y", "x")


def test_a_wrong_name_is_told_what_there_is(ds: xr.Dataset) -> None:
    with pytest.raises(InvalidInput, match=r"no layer 'speed'.*median"):
        bands(ds, ["speed"])
    with pytest.raises(InvalidInput, match="Nothing to draw"):
        bands(xr.Dataset({"other": (("y", "x"), np.ones((2, 2)))}))


def test_braces_in_a_target_are_left_alone(make) -> None:
    assert "{of}" in bands(make(target_title="{x}{of}"), ["median"])[0].title


@pytest.mark.parametrize("key", LAYERS)
def test_every_layer_has_a_colour_map_and_words(key: str) -> None:
    layer = LAYERS[key]
    assert table(layer.colours).shape == (256, 3)
    assert layer.title and layer.short and layer.about and layer.group
    assert layer.scale in ("log", "linear")


def test_layers_of_a_quantity_agree_on_its_legend() -> None:
    fields = ("scale", "limits", "from_zero", "about_zero", "heading", "steps")
    for name in {layer.quantity for layer in LAYERS.values()}:
        alike = {tuple(getattr(a, f) for f in fields) for a in LAYERS.values() if a.quantity == name}
        assert len(alike) == 1, name


@pytest.mark.parametrize("key", LAYERS)
def test_a_derived_layer_changes_with_what_it_needs(key: str) -> None:
    """Or a list would serve a stale picture, or a plane of no threshold."""
    layer = LAYERS[key]
    assert set(layer.needs) <= set(LAYERS)
    assert layer.by_level >= any(LAYERS[name].by_level for name in layer.needs)


def test_the_short_lists_are_what_they_were() -> None:
    known = [
        "median",
        "pi_width",
        "exceedance",
        "lower",
        "upper",
        "explained",
        "latent_median",
        "latent_sd",
        "noise_sd",
        "mean",
    ]
    assert [key for key in listed() if key in known] == known  # a further layer stands where it likes
    assert {key for key in known if not LAYERS[key].embedded} == {"mean", "latent_median"}
    level = {"lower", "upper", "pi_width", "latent_lower", "latent_upper"}
    level |= {"change_lower", "change_upper", "excursion_set"}
    variables = {key for key, layer in LAYERS.items() if layer.derive is None}
    assert {key for key in variables if LAYERS[key].by_level} == level


#: target attributes -> its title, what a new observation is called, with and without tests, and P(>)'s colours
WORDS = {
    ("download speed", "tile averages", "higher"): ("tile averages of 5 tests", "measurements", "vik_r"),
    ("latency", "tile averages", "lower"): ("tile averages of 5 tests", "measurements", "vik"),
    ("number of tests", "tile counts", "higher"): ("tile counts", "tile counts", "vik_r"),
    ("value", "measurements", ""): ("measurements", "measurements", "devon_r"),
}


@pytest.mark.parametrize("target", WORDS)
def test_a_target_brings_its_words_and_colours(make, target) -> None:
    title, noun, better = target
    with_tests, without, colours = WORDS[target]
    ds = make(target_title=title, target_noun=noun, target_better=better, target_colours="oslo")
    planes = {band.name: band for band in bands(ds)}
    assert planes["exceedance_25"].title == f"Probability that {title} exceeds 25 Mbit/s"
    assert planes["exceedance_25"].about == f"for new {with_tests}"
    assert planes["exceedance_25"].colours == colours
    assert planes["upper"].colours == "oslo" and planes["pi_width"].colours == "lajolla_r"
    assert suppressing(ds, Scale(5, 500, "log")).name == "oslo"
    del ds.attrs["tests"]
    assert bands(ds, ["median"])[0].about == f"half of new {without} lie above this value"


def test_a_dataset_that_names_no_target_still_has_words(make) -> None:
    ds = make()
    for name in ("target_title", "target_noun", "target_better", "target_colours"):
        del ds.attrs[name]
    planes = {band.name: band for band in bands(ds)}
    assert planes["median"].title == "Median download" and planes["median"].colours == "batlow"
    assert planes["median"].about == "half of new tile averages of 5 tests lie above this value"
    assert planes["exceedance_25"].colours == "vik_r"


def test_an_unknown_colour_map_is_said() -> None:
    with pytest.raises(InvalidInput, match="no colour map '__doc__'"):
        table("__doc__")


def test_one_legend_for_all_layers_of_a_quantity(ds: xr.Dataset) -> None:
    alone = scales(ds, bands(ds, ["median"]))["level"]
    together = scales(ds, bands(ds))["level"]
    assert alone == together and alone.kind == "log"
    assert scales(ds, bands(ds), {"level": (10, 1000)})["level"].high == 1000
    with pytest.raises(InvalidInput, match="low to high"):
        scales(ds, bands(ds), {"level": (10, 10)})


@pytest.mark.parametrize("scale", [Scale(2, 700, "log"), Scale(-3, 8), Scale(0, 1), Scale(130, 180, "log")])
def test_scale_and_its_inverse_agree(scale: Scale) -> None:
    for t in (0.0, 0.3, 1.0):
        assert scale.fraction(np.array(scale.value(t))) == pytest.approx(t, abs=1e-5)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 9 and all(scale.low <= t <= scale.high for t in ticks)


def test_paint_is_transparent_where_there_is_no_value() -> None:
    rgba = paint(np.array([[np.nan, 5.0, 1e9]]), Scale(1, 10, "log"), "batlow")
    assert rgba[0, :, 3].tolist() == [0, 255, 255]
    assert (rgba[0, 2, :3] == table("batlow")[-1]).all()


def test_the_wider_the_interval_the_fewer_classes(ds: xr.Dataset) -> None:
    palette = suppressing(ds, Scale(5, 500, "log"))
    assert palette is not None
    assert [len(row) for row in palette.palette()] == [8, 4, 2, 1]
    spread = [np.ptp([sum(c) for c in row]) for row in palette.palette()]
    assert spread == sorted(spread, reverse=True)
    values = np.array([[10.0, 400.0]])
    narrow = palette.paint(values, values / 1.1, values * 1.1)
    wide = palette.paint(values, values / 100, values * 100)
    assert (narrow[0, 0] != narrow[0, 1]).any()
    assert (wide[0, 0] == wide[0, 1]).all()


def test_legends_of_odd_data(ds: xr.Dataset) -> None:
    flat = ds.copy(deep=True)
    for name in flat.data_vars:
        flat[name].values[...] = np.nan
    assert scales(flat, bands(flat))["level"].low > 0
    assert suppressing(flat, Scale(1, 10, "log")) is not None
    for name in flat.data_vars:
        flat[name].values[...] = 0.0
    for scale in scales(flat, bands(flat)).values():
        assert scale.low < scale.high


def test_words() -> None:
    assert [number(v) for v in (0, 90.04, 1249.6, 0.0372, np.nan)] == [
        "0",
        "90",
        "1250",
        "0.0372",
        "no value",
    ]
    assert subtitle(xr.Dataset(attrs={"quarter": "2023Q4", "tests": 1})) == (
        "2023 Q4 · new tile averages of 1 test · 95% intervals"
    )


def test_counts_have_no_unit_and_keep_their_log_scale():
    """Intervals that reach down to 0 must not flatten the median; a pure number is not written as `1`."""
    rng = np.random.default_rng(0)
    median = np.exp(rng.normal(2, 1, (20, 20)))
    ds = xr.Dataset(
        {
            "median": (("y", "x"), median, {"units": "1"}),
            "lower": (("y", "x"), np.zeros((20, 20)), {"units": "1"}),
            "upper": (("y", "x"), 9 * median, {"units": "1"}),
            "exceedance": (("threshold", "y", "x"), rng.uniform(size=(1, 20, 20)), {"units": "1"}),
        },
        coords={"threshold": [10.0]},
        attrs={
            "target": "tests",
            "target_unit": "1",
            "target_title": "number of tests",
            "target_noun": "tile counts",
        },
    )
    planes = {b.name: b for b in bands(ds)}
    assert planes["exceedance_10"].title == "Probability that number of tests exceeds 10"
    assert planes["exceedance_10"].short == "P(> 10)" and "tile counts" in planes["median"].about
    level, ends = (scales(ds, planes.values())[name] for name in ("level", "ends"))
    assert level.kind == "log" and 0.1 < level.low < 3 and level.below
    assert ends.kind == "log" and 0 < ends.low < level.low and ends.below
    depth = ds.assign(lower=ds["lower"] - 1.0)  # a value that may be negative stays on a linear scale
    assert scales(depth, planes.values())["ends"].kind == "linear"


def test_what_is_below_zero_anywhere_has_no_ratios(ds: xr.Dataset) -> None:
    """As temperatures on a few summits, fewer than the scale leaves out at its ends."""
    planes = list(bands(ds, ["median"]))
    assert scales(ds, planes)["level"].kind == "log"
    summit = ds.copy(deep=True)
    summit["median"].values.flat[np.flatnonzero(np.isfinite(summit["median"].values))[0]] = -0.5
    assert scales(summit, planes)["level"].kind == "linear"


def test_what_to_expect_fills_its_legend_however_wide_the_intervals(ds: xr.Dataset) -> None:
    """A region of fast towns is not one colour because its intervals begin at next to nothing."""
    narrow = ds.assign(median=100 + ds["median"] * 0 + np.linspace(0, 100, ds.sizes["x"]))
    narrow["mean"] = narrow["latent_median"] = narrow["median"]
    scale = scales(narrow, bands(narrow, ["median"]))["level"]
    assert (scale.low, scale.high) == (100.0, 200.0)
    assert [text for _, text in scale.labels()][:: len(scale.labels()) - 1] == ["100", "200"]
    beyond = narrow.assign(median=narrow["median"].where(ds["x"] < ds["x"].max(), 900.0))
    assert scales(beyond, bands(beyond, ["median"]))["level"].labels()[-1] == (1.0, "≥200")
