"""A layer is one entry: added by a module of its own, it is in lists, figures, pages, exports and help."""

import base64
import importlib
import json
import re
import sys
from collections.abc import Iterator
from html import unescape

import numpy as np
import pytest
import rasterio
import xarray as xr

from app.cli import main
from maps.bands import bands, complete
from maps.figures import map_figure
from maps.layers import LAYERS, available, listed
from maps.packing import unpack
from maps.raster import export
from maps.reader import open_export
from maps.web import html_map

ADDED = '''
"""Two layers that follow from a prediction's variables."""
from maps.layers import LAYERS, Layer

LAYERS["factor"] = Layer(
    title="Ratio of the ends of the {level} prediction interval",
    short="How sure, as a factor",
    about="upper divided by lower end, for new {of}",
    quantity="factor", colours="lajolla_r", scale="log", group="A group of its own", heading="times",
    listed=15, by_level=True, derive=lambda lower, upper: upper / lower,
)
LAYERS["shortfall"] = Layer(
    title="Probability that {target} stays below {threshold} {unit}",
    short="P(< {threshold} {unit})",
    about="for new {of}",
    quantity="probability", colours="vik", scale="linear", group="How likely", limits=(0.0, 1.0),
    heading="probability", steps=1001, by_threshold=True, derive=lambda exceedance: 1 - exceedance,
)
'''


@pytest.fixture
def added(tmp_path, monkeypatch) -> Iterator[None]:
    """The package `geogp_more` lies on the path and is imported; the registry is as before afterwards."""
    package = tmp_path / "path" / "geogp_more"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(ADDED)
    monkeypatch.syspath_prepend(package.parent)
    before = dict(LAYERS)
    importlib.import_module("geogp_more")
    yield
    del sys.modules["geogp_more"]
    LAYERS.clear()
    LAYERS.update(before)


@pytest.mark.usefixtures("added")
def test_it_is_in_every_list(ds: xr.Dataset, capsys) -> None:
    names = [band.name for band in bands(ds)]
    assert names[-3:] == ["factor", "shortfall_25", "shortfall_100"] and names == ds.geogp.layers
    assert listed()[:3] == ["median", "factor", "pi_width"] and "shortfall" not in listed()
    assert available(["lower", "upper"])[-1] == "factor" and "factor" not in available(["lower"])
    assert main(["export", "--help"]) == 0
    assert re.search(r"exceedance,\W+either_missed,\W+factor,\W+shortfall", capsys.readouterr().out)


@pytest.mark.usefixtures("added")
def test_a_figure_and_a_page_show_it(ds: xr.Dataset, region) -> None:
    figure = map_figure(ds, "factor", geometry=region)
    texts = [t.get_text() for t in figure.texts]
    assert "Ratio of the ends of the 95% prediction interval" in texts and "times" in texts
    text = html_map(ds, geometry=region, max_pixels=4_000)
    spec = json.loads(unescape(re.search(r'id="geogp-data">(.*?)</script>', text)[1]))
    layers = {layer["id"]: layer for layer in spec["layers"]}
    assert layers["factor"]["group"] == "A group of its own"
    planes = unpack(base64.b64decode(spec["data"][0]))[1]
    assert "factor" in planes
    assert not [name for name in planes if name.startswith("shortfall")]  # it is in no short list
    assert layers["exceedance"]["planes"] == {"25": "exceedance_25", "100": "exceedance_100"}


@pytest.mark.usefixtures("added")
def test_a_page_of_named_layers_holds_no_other(ds: xr.Dataset) -> None:
    text = html_map(ds, layers=["lower", "upper"], max_pixels=900)
    assert '"id":"lower"' in text and '"id":"factor"' not in text


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("formats", [["cog"], ["netcdf"], ["zarr"]])
def test_files_hold_it_and_open_again(ds: xr.Dataset, tmp_path, formats) -> None:
    names = ["factor", "shortfall"]
    manifest = export(ds, tmp_path / "out", formats, layers=[*names, "exceedance_100"])
    assert set(manifest["files"][-1]["layers"]) <= {
        "factor",
        "shortfall_25",
        "shortfall_100",
        "exceedance_100",
    }
    factor = (ds["upper"] / ds["lower"]).values
    with open_export(tmp_path / "out") as again:
        np.testing.assert_allclose(again["factor"].values, factor, rtol=1e-6)
        np.testing.assert_allclose(again["shortfall"].values, 1 - ds["exceedance"].values, atol=1e-7)
        np.testing.assert_array_equal(
            again["exceedance"].sel(threshold=100.0).values, ds["exceedance"].sel(threshold=100.0).values
        )
        assert again["factor"].attrs["units"] == again["shortfall"].attrs["units"] == "1"
    if formats == ["cog"]:
        with rasterio.open(tmp_path / "out" / "factor.tif") as src:
            assert src.descriptions[0] == "Ratio of the ends of the 95% prediction interval"


@pytest.mark.usefixtures("added")
def test_it_is_computed_by_window_when_read(make, Counter, tmp_path) -> None:
    counter = Counter()
    whole = complete(make((1200, 1600), 250.0, counter=counter))
    assert counter.windows == []
    assert whole["factor"].attrs == {
        "units": "1",
        "long_name": "Ratio of the ends of the 95% prediction interval",
        "grid_mapping": "spatial_ref",
        "level": 0.95,
    }
    assert (
        whole["shortfall"].attrs["long_name"] == "Probability that download speed stays below the threshold"
    )
    corner = whole["factor"].isel(y=slice(10, 30), x=slice(5, 400, 7))
    expected = make((1200, 1600), 250.0).isel(y=slice(10, 30), x=slice(5, 400, 7))
    np.testing.assert_allclose(corner.values, (expected["upper"] / expected["lower"]).values, rtol=1e-6)
    row = whole["shortfall"].isel(threshold=1, y=slice(7, 8), x=slice(None, None, -160))
    assert row.values.shape == (1, 10)
    counter.windows.clear()
    counter.largest = 0
    export(whole, tmp_path, ["netcdf"], layers=["factor"])
    assert 0 < counter.largest <= 512 * 512
