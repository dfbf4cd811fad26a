"""Rasters as predictors: the pixel a place lies in, in any CRS, on the target's scale."""

import json

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from pyproj import CRS, Transformer

import geogp
from geogp.rasters import Raster

VALUES = np.arange(1.0, 13.0).reshape(3, 4)


def array(values=VALUES, epsg=None):
    coords = {"y": [50.0, 40.0, 30.0], "x": [5.0, 15.0, 25.0, 35.0]}
    da = xr.DataArray(values, coords=coords, dims=("y", "x"))
    if epsg:
        da = da.assign_coords(spatial_ref=xr.DataArray(0, attrs={"crs_wkt": CRS.from_epsg(epsg).to_wkt()}))
    return da


@given(i=st.integers(0, 2), j=st.integers(0, 3), u=st.floats(-0.49, 0.49), v=st.floats(-0.49, 0.49))
def test_a_place_has_the_value_of_its_pixel(i, j, u, v):
    place = np.array([[5.0 + 10.0 * (j + u), 50.0 - 10.0 * (i + v)]])
    for da in (array(), array().isel(y=slice(None, None, -1)), array().transpose("x", "y")):
        assert Raster.of(da)(place)[0] == VALUES[i, j]


def test_outside_and_in_gaps_there_is_none():
    values = VALUES.copy()
    values[1, 1] = np.nan
    raster = Raster.of(array(values))
    places = np.array([[15.0, 40.0], [-0.1, 40.0], [5.0, 55.1], [40.1, 40.0], [5.0, 24.9], [5.0, 40.0]])
    assert np.isnan(raster(places)).tolist() == [True, True, True, True, True, False]
    filled = raster.filled(1.0)
    assert filled(places[:1])[0] in (VALUES[0, 1], VALUES[2, 1], VALUES[1, 0], VALUES[1, 2])
    known = np.isfinite(values)
    assert np.array_equal(filled.values[known], values[known]) and np.isnan(raster(places[:1]))[0]
    far = Raster.of(array(np.where(np.arange(4) == 0, VALUES, np.nan))).filled(1.0)
    assert np.isfinite(far(np.array([[15.0, 40.0]])))[0] and np.isnan(far(np.array([[25.0, 40.0]])))[0]


def test_places_in_another_crs_and_another_column():
    da = array(epsg=4326)  # degrees: x 0..40 E, y 25..55 N
    metres = CRS.from_epsg(3035)
    x, y = Transformer.from_crs(4326, metres, always_xy=True).transform([14.0, 26.0], [48.0, 33.0])
    raster = Raster.of(da, columns=(1, 2), from_crs=metres.to_wkt())
    assert raster(np.column_stack([[9.0, 9.0], x, y])).tolist() == [VALUES[0, 1], VALUES[2, 2]]


def test_values_on_the_targets_scale_and_back_from_its_state():
    raster = Raster.of(array(), scale="download")
    place = np.array([[15.0, 40.0]])
    assert raster(place)[0] == np.log10(6.0 * 1000.0)
    tensors, facts = raster.state()
    again = Raster.from_state(tensors, json.loads(json.dumps(facts)))
    assert again(place)[0] == raster(place)[0] and torch.equal(tensors["values"], torch.from_numpy(VALUES))
    with pytest.raises(geogp.InvalidInput, match="positive"):
        Raster.of(array(-VALUES), scale="download")(place)


def test_whole_numbers_keep_their_value_and_single_precision_its_bits():
    place = np.array([[15.0, 40.0]])
    assert Raster.of(array(VALUES.astype(np.int16)))(place)[0] == 6.0
    single = Raster.of(array((VALUES / 3.0).astype(np.float32)))
    assert single.values.dtype == np.float32 and single(place)[0] == float(np.float32(2.0))


def test_a_raster_without_a_crs_cannot_be_placed():
    with pytest.raises(geogp.InvalidInput, match="no CRS"):
        Raster.of(array(), from_crs=CRS.from_epsg(3035).to_wkt())
