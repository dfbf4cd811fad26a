"""`ds.geogp`: draw, explore and export a prediction Dataset."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray as xr

if TYPE_CHECKING:
    import folium
    from matplotlib.figure import Figure


@xr.register_dataset_accessor("geogp")
class GeogpAccessor:
    """Maps of a prediction Dataset; everything heavy is imported inside."""

    def __init__(self, ds: xr.Dataset) -> None:
        self._ds = ds

    @property
    def layers(self) -> list[str]:
        """Names of what can be drawn: `median`, .., `exceedance_25`."""
        from maps.bands import bands

        return [band.name for band in bands(self._ds)]

    def plot(
        self, layer: str = "median", *, geometry: Mapping[str, Any] | None = None, **options: Any
    ) -> "Figure":
        """A matplotlib figure of one layer; options as `maps.figures.map_figure`."""
        from maps.figures import map_figure

        return map_figure(self._ds, layer, geometry=geometry, **options)

    def explore(self, *, geometry: Mapping[str, Any] | None = None, **options: Any) -> "folium.Map":
        """A folium map with layer switch, legend and read-out, without any outside request.

        Options as `maps.web.folium_map`.
        """
        from maps.web import folium_map

        return folium_map(self._ds, geometry=geometry, **options)

    def at(self, lon: float, lat: float) -> xr.Dataset:
        """All variables at the pixel that holds a place (degrees), in memory.

        Raises
        ------
        InvalidInput
            a place outside the map, or a map without CRS.

        Examples
        --------
        >>> import maps
        >>> here = ds.geogp.at(*ds.geogp.centre)
        >>> here["median"].shape
        ()
        """
        from maps.grid import geobox_of, pixel_of

        row, col = pixel_of(geobox_of(self._ds), lon, lat)
        return self._ds.isel(y=row, x=col).load()

    @property
    def centre(self) -> tuple[float, float]:
        """Longitude and latitude of the middle of the map."""
        from pyproj import Transformer

        from maps.grid import geobox_of, wkt_of

        box = geobox_of(self._ds)
        x, y = box.affine * (box.shape[1] / 2, box.shape[0] / 2)
        lon, lat = Transformer.from_crs(wkt_of(box), "EPSG:4326", always_xy=True).transform(x, y)
        return float(lon), float(lat)

    def to_cog(
        self, folder: str | Path, *, layers: Iterable[str] | None = None, **options: Any
    ) -> list[Path]:
        """One Cloud-Optimized GeoTIFF per layer; options as `maps.raster.write_cogs`."""
        from maps.raster import write_cogs

        return write_cogs(self._ds, folder, layers=layers, **options)

    def to_netcdf(self, path: str | Path, *, layers: Iterable[str] | None = None, **options: Any) -> Path:
        """A CF-1.8 NetCDF file; options as `maps.raster.write_netcdf`."""
        from maps.raster import write_netcdf

        return write_netcdf(self._ds, path, layers=layers, **options)

    def export(
        self, folder: str | Path, formats: Iterable[str] = ("cog", "netcdf"), **options: Any
    ) -> dict[str, Any]:
        """All formats in one pass with a manifest; options as `maps.raster.export`."""
        from maps.raster import export

        return export(self._ds, folder, list(formats), **options)
