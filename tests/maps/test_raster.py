"""Files: what is written reads back equal, valid, masked, atomic, and in bounded memory."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import rasterio
import shapely
import xarray as xr
from pyproj import CRS
from rio_cogeo.cogeo import cog_validate

from maps.atomic import sha256
from maps.errors import InvalidInput
from maps.grid import Window, geobox_of
from maps.raster import export, write_cog, write_cogs, write_netcdf
from maps.reader import open_cogs, open_export
from maps.region import Mask
from maps.sinks import SINKS


def inside_of(ds: xr.Dataset, region: dict) -> np.ndarray:
    return Mask(geobox_of(ds), region).inside(Window(0, ds.sizes["y"], 0, ds.sizes["x"]))


@pytest.fixture(scope="module")
def done(make, islands, Counter, tmp_path_factory) -> SimpleNamespace:
    """All formats of a lazy prediction of 350 x 550 pixels, written once, in windows of 256."""
    counter = Counter()
    lazy = make((350, 550), 500.0, counter=counter)
    region = islands(lazy)
    folder = tmp_path_factory.mktemp("export")
    seen: list[tuple[int, int]] = []
    manifest = export(
        lazy,
        folder,
        list(SINKS),
        geometry=region,
        max_memory=2**26,
        progress=lambda i, n: seen.append((i, n)),
    )
    ds = make((350, 550), 500.0)
    return SimpleNamespace(
        ds=ds,
        region=region,
        folder=folder,
        manifest=manifest,
        counter=counter,
        seen=seen,
        inside=inside_of(ds, region),
    )


def test_each_window_is_computed_once_and_only_inside(done) -> None:
    """One pass for four formats; windows without a pixel inside are never computed."""
    windows = done.counter.windows
    assert len(windows) == len(set(windows))
    covered = np.zeros(done.inside.shape, int)
    for y0, y1, x0, x1 in windows:
        covered[y0:y1, x0:x1] += 1
        assert done.inside[y0:y1, x0:x1].any()
    assert covered.max() == 1
    assert (covered[done.inside] == 1).all()
    assert done.counter.pixels < done.inside.size
    assert done.counter.largest <= 256 * 256
    assert done.seen[-1][0] == done.seen[-1][1] == len(done.seen)


@pytest.mark.parametrize("name", ["median", "pi_width", "latent_sd", "exceedance_25", "exceedance_100"])
def test_cogs_are_valid_and_hold_the_values(done, name: str) -> None:
    path = done.folder / f"{name}.tif"
    valid, problems, warnings = cog_validate(path, strict=True)
    assert valid and not problems and not warnings
    truth = (
        done.ds["exceedance"].sel(threshold=float(name.split("_")[1])) if "exceed" in name else done.ds[name]
    )
    with rasterio.open(path) as src:
        values = src.read(1)
        assert src.dtypes == ("float32",) and np.isnan(src.nodata)
        assert src.overviews(1) and src.count == 1
        assert src.descriptions[0] and src.units[0] == truth.attrs["units"]
        tags = src.tags()
        assert (tags["quarter"], tags["tests"], tags["level"], tags["unit"]) == (
            "2023Q4",
            "5",
            "0.95",
            truth.attrs["units"],
        )
        assert CRS.from_wkt(src.crs.to_wkt()).equals(
            CRS.from_wkt(done.ds["spatial_ref"].attrs["crs_wkt"]), ignore_axis_order=True
        )
        assert src.transform.to_gdal() == pytest.approx(geobox_of(done.ds).affine.to_gdal())
        small = src.read(1, out_shape=(175, 275))
    np.testing.assert_array_equal(np.isfinite(values), done.inside)
    np.testing.assert_array_equal(values[done.inside], truth.values[done.inside])
    assert np.isin(small[np.isfinite(small)], values).all()  # overviews hold pixels, not averages of them


def checked(*paths: Path) -> str:
    """What compliance-checker says of files; fails unless it is content."""
    command = [Path(sys.executable).with_name("compliance-checker"), "--test=cf:1.8", *paths]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout
    return result.stdout


def test_netcdf_passes_the_cf_checker(done) -> None:
    assert "All tests passed" in checked(done.folder / "prediction.nc")


@pytest.mark.slow
def test_netcdf_passes_the_cf_checker_in_other_crs(make, tmp_path) -> None:
    codes, files = (4326, 32604, 5070, 2263), []
    for epsg in codes:
        crs, ds = CRS.from_epsg(epsg), make((20, 30))
        step = 0.01 if crs.is_geographic else 1000.0
        x, y = 100 + np.arange(30) * step, 40 - np.arange(20) * step
        ds = ds.assign_coords(
            x=("x", x), y=("y", y), spatial_ref=((), np.int32(0), {"crs_wkt": crs.to_wkt()})
        )
        ds["median"].attrs.clear()
        files.append(write_netcdf(ds, tmp_path / f"{epsg}.nc"))
    assert checked(*files).count("All tests passed") == len(codes)


def test_web_mercator_is_cfs_mercator(make, tmp_path) -> None:
    """compliance-checker 6.1 asks Mercator for an attribute per letter of a name, so it is not asked here."""
    crs, ds = CRS.from_epsg(3857), make((20, 30))
    ds = ds.assign_coords(spatial_ref=((), np.int32(0), {"crs_wkt": crs.to_wkt()}))
    with xr.open_dataset(write_netcdf(ds, tmp_path / "p.nc"), engine="h5netcdf") as again:
        attrs = again["spatial_ref"].attrs
        assert attrs["grid_mapping_name"] == "mercator" and attrs["longitude_of_projection_origin"] == 0
        assert CRS.from_wkt(attrs["crs_wkt"]) == crs


@pytest.mark.parametrize("kind", ["prediction.nc", "prediction.zarr"])
def test_arrays_read_back_equal(done, kind: str) -> None:
    engine = "h5netcdf" if kind.endswith("nc") else "zarr"
    with xr.open_dataset(done.folder / kind, engine=engine, chunks=None) as again:
        for name, variable in done.ds.data_vars.items():
            assert again[name].dims == variable.dims and again[name].dtype == np.float32
            np.testing.assert_array_equal(again[name].values, np.where(done.inside, variable.values, np.nan))
            assert again[name].attrs["units"] == variable.attrs["units"]
        assert again["spatial_ref"].dtype == np.int32
        assert again["spatial_ref"].attrs["grid_mapping_name"] == "lambert_azimuthal_equal_area"
        assert again["x"].attrs["standard_name"] == "projection_x_coordinate"
        assert again.attrs["Conventions"] == "CF-1.8" and again.attrs["tests"] == 5
        assert geobox_of(again).affine.to_gdal() == pytest.approx(geobox_of(done.ds).affine.to_gdal())


def test_gdal_places_the_netcdf_where_the_cog_is(done) -> None:
    if "netCDF" not in rasterio.drivers.raster_driver_extensions().values():
        pytest.skip("this GDAL reads no NetCDF")
    with (
        rasterio.open(f"netcdf:{done.folder / 'prediction.nc'}:median") as a,
        rasterio.open(done.folder / "median.tif") as b,
    ):
        assert a.transform.almost_equals(b.transform)


def test_geoparquet_has_one_point_per_pixel_inside(done) -> None:
    table = pq.read_table(done.folder / "prediction.parquet")
    assert table.num_rows == done.inside.sum()
    geo = json.loads(table.schema.metadata[b"geo"])
    assert geo["columns"]["geometry"]["encoding"] == "WKB" and "crs" not in geo["columns"]["geometry"]
    points = shapely.from_wkb(table["geometry"].to_numpy())
    np.testing.assert_allclose(shapely.get_x(points), table["lon"].to_numpy())
    np.testing.assert_allclose(shapely.get_y(points), table["lat"].to_numpy())
    row = table.slice(1234, 1).to_pylist()[0]
    here = done.ds["median"].sel(x=row["x"], y=row["y"])
    assert row["median"] == here.item()


def test_manifest_names_every_file_with_its_hash(done) -> None:
    assert json.loads((done.folder / "manifest.json").read_text()) == done.manifest
    assert {p.name for p in done.folder.iterdir()} == {f["path"] for f in done.manifest["files"]} | {
        "manifest.json"
    }
    for entry in done.manifest["files"]:
        path = done.folder / entry["path"]
        if path.is_file():
            assert entry["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
            assert entry["bytes"] == path.stat().st_size
    assert done.manifest["quarter"] == "2023Q4" and done.manifest["schema"] == 1


@pytest.mark.parametrize("formats", [["netcdf"], ["zarr"], ["cog"]])
def test_an_export_opens_as_the_dataset_it_came_from(ds, region, tmp_path, formats) -> None:
    export(ds, tmp_path, formats, geometry=region)
    again = open_export(tmp_path)
    keep = inside_of(ds, region)
    assert set(again.data_vars) >= set(ds.data_vars)
    for name in ds.data_vars:
        np.testing.assert_array_equal(again[name].values, np.where(keep, ds[name].values, np.nan))
        step = again[name].isel(y=slice(1, None, 7), x=slice(2, None, 9)).values
        np.testing.assert_array_equal(step, again[name].values[..., 1::7, 2::9])
    for name in ("quarter", "target", "target_unit", "level", "tests"):
        assert again.attrs[name] == ds.attrs[name]
    assert again["exceedance"].isel(threshold=1).shape == (150, 200)
    again.close()


def test_a_folder_that_is_no_export_is_refused(ds, tmp_path) -> None:
    with pytest.raises(InvalidInput, match=r"no manifest\.json"):
        open_export(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InvalidInput, match="not a manifest"):
        open_export(tmp_path)
    export(ds, tmp_path, ["cog"], layers=["median"], overwrite=True)
    (tmp_path / "median.tif").unlink()
    with pytest.raises(InvalidInput, match="not there"):
        open_export(tmp_path)
    with pytest.raises(InvalidInput, match="No COG"):
        open_cogs([])


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"files":' * 100_000, "9" * 5000, "[]", "7", '{"files": 7}', '{"files": [7]}', '{"files": [{"kind": "cog"}]}',
     '{"files": [{"kind": "cog", "path": "' + 5000 * "a" + '"}]}', '{"files": [{"kind": "cog", "path": 7}]}', '{"files": [{"kind": "cog", "path": "a\\u0000b"}]}', "\xff"],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_a_manifest_of_others_is_refused_in_a_sentence(tmp_path, text) -> None:
    (tmp_path / "manifest.json").write_text(text, "latin-1")
    with pytest.raises(InvalidInput, match=r"manifest\.json is not a manifest of an export"):
        open_export(tmp_path)


@pytest.mark.parametrize("kind", ["netcdf", "zarr", "cog"])
def test_what_a_manifest_names_lies_in_its_folder_and_is_what_it_says(tmp_path, kind) -> None:
    """It was opened wherever it lay, and what was something else met the reader with its library's own error."""
    folder, outside = tmp_path / "export", tmp_path / "secret"
    folder.mkdir()
    outside.write_text("secret")
    (folder / "link").symlink_to(outside)
    for path in ("../secret", str(outside), "link"):
        (folder / "manifest.json").write_text(json.dumps({"files": [{"kind": kind, "path": path}]}))
        with pytest.raises(InvalidInput, match="leads out of the folder; export again"):
            open_export(folder)
    (folder / "a").mkdir() if kind == "zarr" else (folder / "a").write_text("[" * 100_000)
    if kind == "zarr":
        (folder / "a" / "zarr.json").write_text("[" * 100_000)
    entry = {"kind": kind, "path": "a", "sha256": sha256(folder / "a")}
    (folder / "manifest.json").write_text(json.dumps({"files": [entry]}))
    with pytest.raises(InvalidInput, match=r"export/a cannot be read \(.*export again") as caught:
        open_export(folder)
    assert len(str(caught.value)) < 400


def test_layers_and_single_thresholds_can_be_chosen(ds, tmp_path) -> None:
    paths = write_cogs(ds, tmp_path, layers=["median", "exceedance_100"])
    assert [p.name for p in paths] == ["median.tif", "exceedance_100.tif"]
    write_netcdf(ds, tmp_path / "one.nc", layers=["exceedance_100"])
    with xr.open_dataset(tmp_path / "one.nc", engine="h5netcdf") as again:
        assert again["threshold"].values.tolist() == [100.0]
        np.testing.assert_array_equal(again["exceedance"][0], ds["exceedance"][1])


def test_a_kernel_slice_is_one_file_of_two_bands(ds, tmp_path) -> None:
    kernel = ds[["median"]].rename(median="covariance").assign(correlation=ds["explained"])
    path = write_cog(kernel, tmp_path / "slice.tif", layers=["covariance", "correlation"])
    assert cog_validate(path, strict=True)[0]
    with rasterio.open(path) as src:
        assert [src.tags(i)["layer"] for i in (1, 2)] == ["covariance", "correlation"]
        np.testing.assert_array_equal(src.read(2), ds["explained"].values)
    with pytest.raises(InvalidInput, match="exists"):
        write_cog(kernel, path)


@pytest.mark.parametrize("max_error", [0.05, 0.5])
def test_max_error_bounds_the_loss_and_saves_room(ds, region, tmp_path, max_error) -> None:
    names = ["median", "exceedance_25"]
    exact = write_cogs(ds, tmp_path / "exact", layers=names, geometry=region)
    small = write_cogs(ds, tmp_path / "small", layers=names, geometry=region, max_error=max_error)
    for path, limit in zip(small, (max_error, 5e-4), strict=True):
        with rasterio.open(path) as a, rasterio.open(tmp_path / "exact" / path.name) as b:
            lossy, lossless = a.read(1), b.read(1)
        np.testing.assert_array_equal(np.isnan(lossy), np.isnan(lossless))
        assert np.nanmax(np.abs(lossy - lossless)) <= limit * (1 + 1e-5)
        assert cog_validate(path, strict=True)[0]
    assert sum(p.stat().st_size for p in small) < sum(p.stat().st_size for p in exact)
    with pytest.raises(InvalidInput, match="max_error"):
        write_cogs(ds, tmp_path / "x", max_error=-1)
    assert not (tmp_path / "x").exists()


WRITERS = {
    "netcdf": lambda ds, folder, **o: write_netcdf(ds, folder / "a.nc", **o),
    "zarr": lambda ds, folder, **o: export(ds, folder, ["zarr"], **o),
    "geoparquet": lambda ds, folder, **o: export(ds, folder, ["geoparquet"], **o),
    "cog": lambda ds, folder, **o: write_cogs(ds, folder, layers=["median", "mean"], **o),
    "export": lambda ds, folder, **o: export(ds, folder, list(SINKS), layers=["median", "exceedance"], **o),
}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", WRITERS)
def test_existing_outputs_are_refused_then_replaced(ds, tmp_path, name) -> None:
    WRITERS[name](ds, tmp_path)
    before = contents(tmp_path)
    with pytest.raises(InvalidInput, match=r"exists.*overwrite"):
        WRITERS[name](ds * 2, tmp_path)
    assert contents(tmp_path) == before
    WRITERS[name]((ds * 2).assign_attrs(ds.attrs), tmp_path, overwrite=True)
    assert contents(tmp_path).keys() >= {k for k in before if "zarr" not in k}
    assert contents(tmp_path) != before


@pytest.mark.parametrize("name", WRITERS)
def test_an_interruption_leaves_nothing_half_written(make, Counter, tmp_path, name) -> None:
    """Ctrl-C in the second window: no file, no temporary folder; an older export stays whole."""
    lazy = make((1030, 60), 500.0, counter=Counter(fail_after=1))
    with pytest.raises(KeyboardInterrupt):
        WRITERS[name](lazy, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    WRITERS[name](make(), tmp_path)
    before = contents(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        WRITERS[name](make((1030, 60), 500.0, counter=Counter(fail_after=1)), tmp_path, overwrite=True)
    assert contents(tmp_path) == before


def test_bad_requests_are_one_sentence_and_write_nothing(ds, region, tmp_path) -> None:
    cases = [
        (lambda: export(ds, tmp_path / "o", ["jpeg"]), "no format 'jpeg'"),
        (lambda: export(ds, tmp_path / "o", []), "No format"),
        (
            lambda: export(ds, tmp_path / "o", ["shp"]),
            "no format 'shp'; choose from cog, netcdf, zarr, geoparquet, h3, gpkg",
        ),
        (lambda: export(ds, tmp_path / "o", layers=["x"]), "no layer 'x'"),
        (lambda: export(ds, tmp_path / "o", geometry={"type": "Point", "coordinates": [0, 0]}), "Polygon"),
    ]
    for call, message in cases:
        with pytest.raises(InvalidInput, match=message) as error:
            call()
        assert "\n" not in str(error.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="Cannot write"):
        export(ds, tmp_path / "file" / "o")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_an_all_nan_layer_and_a_single_pixel(ds, tmp_path) -> None:
    empty = ds.copy(deep=True)
    empty["median"].values[...] = np.nan
    export(empty, tmp_path / "empty", list(SINKS), layers=["median"])
    with rasterio.open(tmp_path / "empty" / "median.tif") as src:
        assert np.isnan(src.read(1)).all()
    assert pq.read_metadata(tmp_path / "empty" / "prediction.parquet").num_rows == 0
    one = ds.isel(y=slice(70, 71), x=slice(90, 91))
    export(one, tmp_path / "one", list(SINKS))
    assert cog_validate(tmp_path / "one" / "median.tif", strict=True)[0]
    with rasterio.open(tmp_path / "one" / "median.tif") as src:
        assert src.read(1)[0, 0] == one["median"].item()
        assert src.xy(0, 0) == pytest.approx((one["x"].item(), one["y"].item()))


def test_small_memory_means_small_windows(make, Counter, tmp_path) -> None:
    counter = Counter()
    export(make((300, 300), counter=counter), tmp_path, ["cog"], max_memory=4 * 2**20)
    assert counter.largest <= 128 * 128 and counter.pixels == 300 * 300


@pytest.mark.slow
def test_a_huge_grid_with_a_small_region(tmp_path) -> None:
    """20,000 x 20,000 pixels, 1% inside: below 1 GiB, measured in a process of its own."""
    script = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("world", {str(Path(__file__).with_name("conftest.py"))!r})
world = importlib.util.module_from_spec(spec); sys.modules["world"] = world; spec.loader.exec_module(world)
from maps.raster import export
counter = world.Counter()
ds = world.make((20_000, 20_000), 50.0, counter=counter)
ring = [[-157.4, 20.5], [-156.4, 20.5], [-156.4, 20.9], [-157.4, 20.9], [-157.4, 20.5]]
export(ds, {str(tmp_path / "huge")!r}, ["cog", "netcdf"], layers=["median", "exceedance_100"],
       geometry={{"type": "Polygon", "coordinates": [ring]}}, max_memory=2**30)
# VmHWM, not ru_maxrss: the latter starts at the size of the process that started this one.
print(counter.pixels, next(s.split()[1] for s in open("/proc/self/status") if s.startswith("VmHWM")))
"""
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=280, check=True
    )
    pixels, peak_kb = map(int, result.stdout.split())
    assert pixels < 0.02 * 20_000**2
    assert peak_kb < 1024**2
    assert cog_validate(tmp_path / "huge" / "median.tif", strict=True)[0]


# -- reading any raster -----------------------------------------------------------------------------


def _write_image(path, values, *, transform, crs="EPSG:4326", **options):
    import rasterio

    profile = {
        "driver": "GTiff",
        "count": values.shape[0],
        "height": values.shape[1],
        "width": values.shape[2],
    }
    with rasterio.open(
        path, "w", **profile, dtype=values.dtype, transform=transform, crs=crs, **options
    ) as target:
        target.write(values)
        target.units = tuple("m" for _ in values)
    return path


def test_any_raster_is_an_array_with_its_place(tmp_path):
    from affine import Affine

    from maps import open_raster

    values = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    path = _write_image(tmp_path / "a.tif", values, transform=Affine(1, 0, 10, 0, -1, 50), nodata=5)
    da = open_raster(path)
    assert da.dims == ("y", "x") and da.x.values.tolist() == [10.5, 11.5, 12.5, 13.5]
    assert da.y.values.tolist() == [49.5, 48.5, 47.5] and da.attrs["units"] == "m"
    assert np.isnan(da.values[1, 1]) and da.values[0].tolist() == [0, 1, 2, 3]
    assert "4326" in da["spatial_ref"].attrs["crs_wkt"]
    assert open_raster(path, band=2).values[0, 0] == 12
    cut = open_raster(path, bounds=(12.2, 47.1, 12.8, 47.9))  # one pixel, and one more around it
    assert cut.x.values.tolist() == [11.5, 12.5, 13.5] and cut.y.values.tolist() == [48.5, 47.5]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"band": 3}, "no band 3"),
        ({"bounds": (100.0, 0.0, 101.0, 1.0)}, "does not meet"),
        ({"crs": None}, "no CRS"),
        ({"rotation": 10.0}, "rotated"),
        ({"text": True}, "cannot be read"),
    ],
)
def test_what_is_no_raster_of_the_place_is_refused(tmp_path, change, words):
    from affine import Affine

    from maps import open_raster
    from maps.errors import InvalidInput

    path = tmp_path / "a.tif"
    if "text" in change:
        path.write_text("no raster")
    else:
        transform = Affine(1, 0, 10, 0, -1, 50) * Affine.rotation(change.get("rotation", 0.0))
        _write_image(
            path, np.ones((1, 3, 4), np.float32), transform=transform, crs=change.get("crs", "EPSG:4326")
        )
    with pytest.raises(InvalidInput, match=words):
        open_raster(path, **{k: v for k, v in change.items() if k in ("band", "bounds")})
