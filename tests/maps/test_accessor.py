"""`import maps` registers `ds.geogp` and stays light."""

import subprocess
import sys

import numpy as np
import pytest
import shapely

import maps  # noqa: F401
from maps.errors import InvalidInput


def test_the_accessor_draws_explores_and_writes(ds, region, tmp_path) -> None:
    assert "exceedance_100" in ds.geogp.layers
    assert ds.geogp.plot("pi_width", geometry=region).axes
    assert ds.geogp.explore(geometry=region, max_pixels=900).get_root().render()
    assert ds.geogp.to_cog(tmp_path, layers=["median"], geometry=region) == [tmp_path / "median.tif"]
    assert ds.geogp.to_netcdf(tmp_path / "p.nc", layers=["median"]).exists()
    manifest = ds.geogp.export(tmp_path / "out", ["netcdf"], layers=["median"])
    assert [f["path"] for f in manifest["files"]] == ["prediction.nc", "item.json"]


def test_importing_maps_loads_nothing_heavy() -> None:
    code = "import sys, maps; print([m for m in ('matplotlib', 'folium', 'rasterio', 'torch', 'geopandas', 'scipy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_notebook_sees_the_picture(ds, region) -> None:
    """Not only its repr, though pyplot was never imported."""
    png = ds.geogp.plot("pi_width")._repr_png_()
    assert png.startswith(b"\x89PNG") and len(png) > 10_000
    assert len(ds._repr_html_()) < 50_000


def test_a_map_goes_into_given_axes_and_takes_shapely(ds, region) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots(1, 2)
    assert ds.geogp.plot("median", ax=axes[1], geometry=shapely.geometry.shape(region)) is figure
    assert axes[1].images or axes[1].collections
    assert not axes[0].images


def test_a_place_is_read_off_the_map(ds) -> None:
    lon, lat = ds.geogp.centre
    here = ds.geogp.at(lon, lat)
    rows, cols = ds.sizes["y"], ds.sizes["x"]
    near = ds["median"].values[rows // 2 - 1 : rows // 2 + 2, cols // 2 - 1 : cols // 2 + 2]
    assert float(here["median"]) in near or np.isnan(near).any()
    with pytest.raises(InvalidInput, match="outside the map"):
        ds.geogp.at(lon + 90, lat)
