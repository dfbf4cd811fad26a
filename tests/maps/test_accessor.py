"""`import maps` registers `ds.geogp` and stays light."""

import subprocess
import sys

import maps  # noqa: F401


def test_the_accessor_draws_explores_and_writes(ds, region, tmp_path) -> None:
    assert "exceedance_100" in ds.geogp.layers
    assert ds.geogp.plot("pi_width", geometry=region).axes
    assert ds.geogp.explore(geometry=region, max_pixels=900).get_root().render()
    assert ds.geogp.to_cog(tmp_path, layers=["median"], geometry=region) == [tmp_path / "median.tif"]
    assert ds.geogp.to_netcdf(tmp_path / "p.nc", layers=["median"]).exists()
    manifest = ds.geogp.export(tmp_path / "out", ["netcdf"], layers=["median"])
    assert [f["path"] for f in manifest["files"]] == ["prediction.nc"]


def test_importing_maps_loads_nothing_heavy() -> None:
    code = "import sys, maps; print([m for m in ('matplotlib', 'folium', 'rasterio', 'torch', 'geopandas', 'scipy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
