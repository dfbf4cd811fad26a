"""Figures: they draw every layer, say what they show, and survive odd input. Arrays are compared, not pictures."""

import sys

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import LineCollection
from pyproj import Geod, Transformer

import maps  # noqa: F401
from maps.bands import bands
from maps.errors import InvalidInput
from maps.figures import map_figure, maps_figure, slice_figure, write_png


def words(figure) -> str:
    from matplotlib.text import Text

    return " | ".join(t.get_text() for t in figure.findobj(Text))


@pytest.mark.parametrize("layer", ["median", "pi_width", "exceedance_100", "explained", "latent_sd", "faded"])
def test_a_map_says_what_it_shows(ds, region, layer) -> None:
    figure = map_figure(
        ds, layer, geometry=region, places=[{"name": "Puako $x$", "lon": -157.7, "lat": 20.75}]
    )
    text = words(figure)
    assert "2023 Q4" in text and "5 tests" in text and "km" in text and "Puako $x$" in text
    assert ("95%" in text) == (
        layer in ("pi_width", "faded")
    )  # what does not change with the level does not name it
    unit = "Mbit/s" if layer in ("median", "pi_width", "faded") else ""
    assert unit in text
    figure.canvas.draw()


def test_names_stand_in_nobodys_way(ds, region) -> None:
    """Of two towns at one place the first; an area where it has room; and lines where they are."""
    towns = [{"name": name, "lon": -157.7, "lat": 20.75} for name in ("First", "Second")]
    areas = [
        {"name": "Wide", "lon": -157.0, "lat": 20.6, "kind": "area", "bounds": (-157.4, 20.3, -156.6, 20.9)},
        {
            "name": "Narrow",
            "lon": -156.6,
            "lat": 20.3,
            "kind": "area",
            "bounds": (-156.61, 20.29, -156.59, 20.31),
        },
    ]
    line = [(-157.4, 20.4), (-157.0, 20.8)]
    figure = map_figure(ds, "median", geometry=region, places=[*areas, *towns], lines=[line])
    text = words(figure)
    assert "First" in text and "Wide" in text and "Second" not in text and "Narrow" not in text
    (drawn,) = [c for c in figure.axes[0].collections if isinstance(c, LineCollection)]
    there = Transformer.from_crs(4326, ds["spatial_ref"].attrs["crs_wkt"], always_xy=True)
    np.testing.assert_allclose(drawn.get_segments()[0], np.column_stack(there.transform(*np.transpose(line))))
    with pytest.raises(InvalidInput, match="degrees"):
        map_figure(ds, "median", lines=[[(1e6, 2e6), (0, 0)]])


def test_the_picture_holds_the_painted_values(ds, region) -> None:
    from maps.colours import scales, table

    figure = map_figure(ds, "median", geometry=region)
    rgba = figure.axes[0].images[0].get_array()
    band = bands(ds, ["median"])[0]
    values = ds["median"].values
    assert rgba.shape == (150, 200, 4)
    assert 0.2 < (rgba[..., 3] > 0).mean() < 0.6
    brightest = np.unravel_index(np.nanargmax(values), (150, 200))
    top = scales(ds, [band])["level"]
    assert top.above and top.high < values.max()
    assert tuple(rgba[brightest][:3]) in {tuple(c) for c in table("batlow")}


def test_legend_is_the_same_for_all_layers_of_a_quantity(ds, region) -> None:
    def ticks(layer):
        return [t.get_text() for t in map_figure(ds, layer, geometry=region).axes[1].get_yticklabels()]

    assert ticks("median") == ticks("latent_median")
    assert ticks("lower") == ticks("upper") == ticks("latent_upper")


def test_a_kernel_slice_marks_its_reference(ds, region) -> None:
    kernel = ds[["median"]].rename(median="covariance").assign(correlation=ds["explained"] * 2 - 1)
    with pytest.raises(InvalidInput, match="reference"):
        slice_figure(kernel)
    figure = slice_figure(kernel.assign_attrs(reference_lon=-157.0, reference_lat=20.5), geometry=region)
    assert "★ 20.500° N, 157.000° W" in words(figure)
    slice_figure(kernel, reference=(-157.0, 20.5), layer="covariance").canvas.draw()


def test_several_layers_side_by_side(ds, region) -> None:
    figure = maps_figure(ds, ["median", "pi_width", "exceedance_25", "explained"], geometry=region)
    figure.canvas.draw()
    assert len([axes for axes in figure.axes if axes.images and len(axes.images[0].get_array()) > 1]) == 4
    assert "P(> 25 Mbit/s)" in words(figure) or "exceeds 25" in words(figure)


@pytest.mark.parametrize("centre", [(179.8, 52.0), (-150.0, 80.0), (0.0, 0.0)])
def test_maps_anywhere_tell_where_they_are(make, islands, centre) -> None:
    """Degrees stand where they belong, the bar is as long as it says on the ground, the arrow points north."""
    ds = make((60, 80), 4000.0, centre)
    figure = map_figure(ds, "median", geometry=islands(ds))
    axes = figure.axes[0]
    crs = ds["spatial_ref"].attrs["crs_wkt"]
    back = Transformer.from_crs(crs, "EPSG:4326", always_xy=True)
    west, east, (south, top) = *axes.get_xlim(), axes.get_ylim()
    marks = {t.get_text(): t.xy for t in axes.texts if "°" in t.get_text()}
    assert {place[0] == west for place in marks.values()} == {True, False}  # along both edges
    for text, (x, y) in marks.items():
        # Along an edge of 60 nodes a line crosses between the label and the next node.
        along = x > west
        node = (x + (east - west) / 59, y) if along else (x, y + (top - south) / 59)
        line = float(text.split("°")[0]) * (-1 if text[-1] in "WS" else 1)
        before, after = (
            (back.transform(*at)[0 if along else 1] - line + 180) % 360 - 180 for at in ((x, y), node)
        )
        assert before * after <= 0 and abs(before) < 0.2, text
    bar = next(t for t in axes.texts if t.get_text().endswith("km"))
    line = next(li for li in axes.lines if len(li.get_xdata()) == 4)
    ends = back.transform(np.array(line.get_xdata())[[1, 2]], np.array(line.get_ydata())[[1, 2]])
    metres = Geod(ellps="WGS84").line_length(*ends)
    assert metres == pytest.approx(1000 * float(bar.get_text().removesuffix(" km")), rel=0.03)
    arrow = next(t for t in axes.texts if t.get_text() == "N")
    lon, lat = back.transform(*arrow.xy)
    east, north = Transformer.from_crs("EPSG:4326", crs, always_xy=True).transform(lon, lat + 0.1)
    # The letter stands south of the arrow's tip.
    offset, towards = -np.array(arrow.xyann), np.array([east, north]) - arrow.xy
    assert offset @ towards > 0.999 * np.hypot(*offset) * np.hypot(*towards)


def test_maps_of_odd_data(ds, region) -> None:
    empty = ds.copy(deep=True)
    for name in empty.data_vars:
        empty[name].values[...] = np.nan
    for layer in ("median", "faded", "exceedance_25", "latent_sd"):
        figure = map_figure(empty, layer, geometry=region)
        figure.canvas.draw()
        assert not figure.axes[0].images[0].get_array()[..., 3].any()  # nothing is painted
        assert "no\nprediction" in words(figure)
    for part in (empty, ds.isel(y=slice(70, 71), x=slice(90, 91)), ds.isel(y=slice(70, 71))):
        figure = map_figure(part)
        figure.canvas.draw()
        assert figure.axes[0].images[0].get_array().shape[:2] == part["median"].shape
    half = ds.where(ds["x"] > 0)
    half["spatial_ref"] = ds["spatial_ref"]
    west, east = map_figure(half).axes[0].get_xlim()
    assert west > -20_000 and east > 90_000  # shows where there are values
    hostile = ds.assign_attrs(title="$\\frac{</script>", source="$x^$", method="`${a}`")
    for figure in (map_figure(hostile, "median"), maps_figure(hostile, ["median"])):
        figure.canvas.draw()
        assert "$\\frac{</script>" in words(figure)
    with pytest.raises(InvalidInput, match="faded"):
        map_figure(ds[["median"]], "faded")


def test_what_is_left_out_is_said(ds, region) -> None:
    note = "pictures leave out 3 parts of the region beyond 50 km of any data"
    plain, noted = (map_figure(ds, "explained", geometry=region, note=n) for n in ("", note))
    assert f"{note[:1].upper()}{note[1:]}." in words(noted) and "leave out" not in words(plain)
    box = [figure.axes[0].get_window_extent() for figure in (plain, noted)]
    assert box[0].width == pytest.approx(box[1].width)  # the line has room of its own
    assert note in words(maps_figure(ds, ["median"], geometry=region, note=note))


def test_a_large_lazy_map_is_thinned(make, Counter) -> None:
    counter = Counter()
    figure = map_figure(make((3000, 4000), 100.0, counter=counter), "median", max_pixels=50_000)
    assert figure.axes[0].images[0].get_array().shape[0] <= 250
    assert counter.pixels < 70_000


def test_png_is_written_atomically_and_deterministically(ds, region, tmp_path) -> None:
    path = write_png(map_figure(ds, geometry=region), tmp_path / "a" / "m.png")
    first = path.read_bytes()
    assert first.startswith(b"\x89PNG")
    with pytest.raises(InvalidInput, match="exists"):
        write_png(map_figure(ds), path)
    write_png(map_figure(ds, geometry=region), path, overwrite=True)
    assert path.read_bytes() == first
    assert [p.name for p in path.parent.iterdir()] == ["m.png"]


def test_no_global_pyplot_state(ds: xr.Dataset) -> None:
    map_figure(ds)
    if "matplotlib.pyplot" in sys.modules:
        assert sys.modules["matplotlib.pyplot"].get_fignums() == []


def test_the_frame_leaves_out_specks_far_away_and_says_so(make) -> None:
    from maps.render import frame

    shown = np.zeros((100, 400), bool)
    shown[40:80, 300:380] = True
    assert frame(shown)[0] == (40, 80, 300, 380)
    shown[5, 3] = True
    window, outlying = frame(shown)
    assert window == (40, 80, 300, 380) and outlying == pytest.approx(1 / 3201)
    shown[2:12, 3:13] = True  # three percent is no speck
    assert frame(shown) == ((2, 80, 3, 380), 0.0)
    assert frame(np.zeros((5, 7), bool)) == ((0, 5, 0, 7), 0.0)
    ds = make((100, 400)).where(xr.DataArray(np.pad(shown[40:80], ((40, 20), (0, 0))), dims=("y", "x")))
    assert "not shown" not in words(map_figure(ds))
    values = ds["median"].values
    values[5, 3] = 20.0
    ds["spatial_ref"] = make()["spatial_ref"]
    assert "Outlying parts, 0.03% of the area, are not shown" in words(
        map_figure(ds[["median", "spatial_ref"]])
    )


def test_several_maps_name_the_level_where_one_of_them_has_it(ds, region) -> None:
    assert "95%" in words(maps_figure(ds, ["median", "pi_width"], geometry=region))
    assert "95%" not in words(maps_figure(ds, ["median", "exceedance_100"], geometry=region))


def test_a_map_of_the_surface_says_at_which_count(ds, region) -> None:
    text = words(map_figure(ds.assign_attrs(reference_count=9), "latent_sd", geometry=region))
    assert "the level of tile averages of 9 tests" in text and "5 tests" not in text
    assert "new tile averages of 5 tests" in words(map_figure(ds, "median", geometry=region))


def shown(figure, part: str) -> list[str]:
    """Texts of a figure with such words, which all lie on the paper."""
    from matplotlib.text import Text

    texts = [t for t in figure.findobj(Text) if part in t.get_text()]
    paper, renderer = figure.bbox, figure.canvas.get_renderer()
    for text in texts:
        box = text.get_window_extent(renderer)
        assert box.x0 >= 0 and box.x1 <= paper.x1 and box.y0 >= 0 and box.y1 <= paper.y1, text.get_text()
    return [t.get_text() for t in texts]


def test_long_words_take_further_lines(ds, region) -> None:
    """A heading, what the map is of and whose it is stand whole on the paper, and the map keeps its width."""
    title = "Download speed: posterior median, prediction intervals and exceedance probability of all that was asked"
    source = "Speedtest by Ookla Global Fixed and Mobile Network Performance Maps (CC BY-NC-SA 4.0); GeoGP method geogp"
    usual = map_figure(ds, "median", geometry=region)
    long = ds.assign_attrs(
        title=title, source=source, target_title="download speed over all of the archipelago " * 2
    )
    figure = map_figure(long, "exceedance_25", geometry=region, note="a note")
    texts = words(figure).replace(" | ", " ")
    assert "…" not in texts and title.split()[-1] in texts and source.split()[-1] in texts
    for part in ("Probability", "Mbit/s", "asked", "Source", "geogp", "A note."):
        assert shown(figure, part), part
    box = [f.axes[0].get_window_extent() for f in (usual, figure)]
    assert box[0].width == pytest.approx(box[1].width) and box[0].height == pytest.approx(box[1].height)
    texts = [t.get_text() for t in map_figure(ds.assign_attrs(title="x" * 9000)).texts]
    assert any(text.endswith("…") for text in texts) and max(map(len, texts)) < 300


def test_names_and_lines_are_credited_where_they_are_drawn(ds, region) -> None:
    places, whose = [{"name": "Puako", "lon": -157.7, "lat": 20.75}], "GeoNames, CC BY 4.0"
    said = f"Names and lines: {whose}."
    for figure in (map_figure, maps_figure):
        assert shown(figure(ds, geometry=region, places=places, credit=whose), said)
        assert said not in words(figure(ds, geometry=region, credit=whose))  # none is drawn
    kernel = ds[["median"]].rename(median="covariance").assign(correlation=ds["explained"])
    assert said in words(slice_figure(kernel, reference=(-157.0, 20.5), places=places, credit=whose))


def test_names_keep_clear_of_degrees_bar_and_arrow(ds, region) -> None:
    """An area whose name would stand on any of them has none."""
    from matplotlib.text import Text

    plain = map_figure(ds, "median", geometry=region)
    axes, renderer = plain.axes[0], plain.canvas.get_renderer()
    marks = [
        t for t in axes.findobj(Text) if t.get_text().endswith((" W", " N", " km")) or t.get_text() == "N"
    ]
    back = Transformer.from_crs(ds["spatial_ref"].attrs["crs_wkt"], 4326, always_xy=True)
    assert len(marks) >= 5
    for mark in marks:
        box = mark.get_window_extent(renderer)
        middle = axes.transData.inverted().transform(((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2))
        lon, lat = back.transform(*middle)
        area = {
            "name": "Xy",
            "lon": lon,
            "lat": lat,
            "kind": "area",
            "bounds": (lon - 1, lat - 1, lon + 1, lat + 1),
        }
        assert "Xy" not in words(map_figure(ds, "median", geometry=region, places=[area])), mark.get_text()
