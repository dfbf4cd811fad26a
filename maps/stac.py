"""What catalogues know of an export: a STAC Item that names each of its files."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from pyproj import CRS, Transformer

from maps.clock import now
from maps.sinks.base import Job, Output

NAME = "item.json"
#: Kind of a file -> media type and role of its asset.
MEDIA: dict[str, tuple[str, str]] = {
    "cog": ("image/tiff; application=geotiff; profile=cloud-optimized", "data"),
    "netcdf": ("application/x-netcdf", "data"),
    "zarr": ("application/vnd.zarr; version=3; profile=multiscales", "data"),
    "geoparquet": ("application/vnd.apache.parquet", "data"),
    "h3": ("application/vnd.apache.parquet", "data"),
    "gpkg": ("application/geopackage+sqlite3", "data"),
    "csv": ("text/csv", "data"),
    "metadata": ("application/csvm+json", "metadata"),
    "style": ("application/xml", "metadata"),
    "pmtiles": ("application/vnd.pmtiles", "visual"),
    "figure": ("image/png", "overview"),
    "html": ("text/html", "visual"),
}


def item(job: Job, outputs: Sequence[Output]) -> dict[str, Any]:
    """The STAC Item (1.1, with the projection extension) of what was rendered and written.

    Notes
    -----
    Its time is the quarter of the map, else that of writing. Statistics of a band are those in its file.
    """
    import pystac
    from pystac.extensions.projection import ProjectionExtension

    attrs = job.attrs
    shape, bbox = _footprint(job)
    when = _quarter(str(attrs.get("quarter", "")))
    made = now()
    known = {k: _plain(attrs[k]) for k in ("method", "target", "level", "tests", "calibration") if k in attrs}
    found = pystac.Item(
        id=_slug("-".join(str(attrs[k]) for k in ("title", "quarter") if attrs.get(k)) or "geogp"),
        geometry=shape,
        bbox=bbox,
        datetime=None if when else made,
        properties={
            "title": str(attrs.get("title", "GeoGP prediction")),
            "created": made.isoformat().replace("+00:00", "Z"),
            "license": _licence(attrs.get("license")),
            **{f"geogp:{k}": v for k, v in known.items()},
        },
        start_datetime=when[0] if when else None,
        end_datetime=when[1] if when else None,
    )
    if attrs.get("comment"):
        found.properties["description"] = str(attrs["comment"])
    if attrs.get("source"):
        found.properties["providers"] = [{"name": str(attrs["source"]), "roles": ["producer", "processor"]}]
    if str(attrs.get("references", "")).startswith("http"):
        found.add_link(pystac.Link("cite-as", str(attrs["references"])))
    projection = ProjectionExtension.ext(found, add_if_missing=True)
    authority = CRS.from_wkt(job.crs_wkt).to_authority()
    projection.apply(
        code=":".join(authority) if authority else None,
        wkt2=None if authority else job.crs_wkt,
        shape=list(job.shape),
        transform=[float(v) for v in tuple(job.geobox.affine)[:6]],
        bbox=[float(v) for v in job.geobox.boundingbox],
    )
    bands = {band.name: band for band in job.bands}
    for output in outputs:
        media, role = MEDIA.get(output.kind, ("application/octet-stream", "data"))
        about = [bands[name] for name in output.layers if name in bands]
        asset = pystac.Asset(
            f"./{output.name}", about[0].title if len(about) == 1 else None, None, media, [role]
        )
        if role == "data" and about:
            statistics = _statistics(output.path) if output.kind == "cog" else [None] * len(about)
            asset.extra_fields["bands"] = [
                {
                    "name": b.name,
                    "description": b.title,
                    "unit": b.unit,
                    "data_type": "float32",
                    "nodata": "nan",
                    **({"statistics": s} if s else {}),
                }
                for b, s in zip(about, statistics)
            ]
        found.add_asset(output.name, asset)
    found.add_link(pystac.Link("self", f"./{NAME}", "application/geo+json"))
    return found.to_dict(include_self_link=False, transform_hrefs=False)


def _footprint(job: Job) -> tuple[dict[str, Any], list[float]]:
    """The grid's outline as GeoJSON in degrees, cut at 180 degrees, and its W, S, E, N; W > E across it."""
    import shapely

    height, width = job.shape
    steps = np.linspace(0, 1, 21)
    ring = (
        [(t, 0) for t in steps]
        + [(1, t) for t in steps]
        + [(1 - t, 1) for t in steps]
        + [(0, 1 - t) for t in steps]
    )
    xy = np.array([job.geobox.affine * (u * width, v * height) for u, v in ring])
    to_lonlat = Transformer.from_crs(CRS.from_wkt(job.crs_wkt), "EPSG:4326", always_xy=True)
    lon, lat = (np.asarray(v) for v in to_lonlat.transform(xy[:, 0], xy[:, 1]))
    good = np.isfinite(lon) & np.isfinite(lat)
    if good.sum() < 4:  # the map goes beyond what its CRS has of the Earth, on all sides
        return shapely.geometry.mapping(shapely.box(-180, -90, 180, 90)), [-180.0, -90.0, 180.0, 90.0]
    lon = np.unwrap(lon[good], period=360)
    lon -= 360 * np.floor((lon.mean() + 180) / 360)
    lonlat = np.column_stack([lon, lat[good]])
    if polar := abs(lon[-1] - lon[0]) > 180:  # the outline goes round a pole, which the grid holds
        back = np.linspace(lon[-1], lon[0], 9)
        lonlat = np.vstack([lonlat, np.column_stack([back, np.full(9, np.copysign(90.0, lat[good].mean()))])])
    outline = shapely.make_valid(shapely.Polygon(lonlat))
    west, south, east, north = outline.bounds
    if west >= -180 and east <= 180:
        return shapely.geometry.mapping(outline), [west, south, east, north]
    parts = [
        shapely.transform(
            shapely.intersection(outline, shapely.box(360 * k - 180, -90, 360 * k + 180, 90)),
            lambda xy, k=k: xy - [360 * k, 0],
        )
        for k in (-1, 0, 1)
    ]
    whole = shapely.union_all([part for part in parts if part.area > 0])
    turn = [-180.0, 180.0] if polar else [(v + 180) % 360 - 180 for v in (west, east)]
    return shapely.geometry.mapping(whole), [turn[0], south, turn[1], north]


def _quarter(text: str) -> tuple[datetime, datetime] | None:
    """First and last second of a quarter, or of all from one to another.

    Examples
    --------
    >>> [v.isoformat() for v in _quarter("2019Q4 to 2023Q4")]
    ['2019-10-01T00:00:00+00:00', '2023-12-31T23:59:59+00:00']
    """
    named = re.findall(r"(\d{4})Q([1-4])", text)
    if not named:
        return None
    (first, q), (last, r) = named[0], named[-1]
    after = datetime(int(last) + int(r) // 4, int(r) % 4 * 3 + 1, 1, tzinfo=UTC)
    return datetime(int(first), 3 * int(q) - 2, 1, tzinfo=UTC), datetime.fromtimestamp(
        after.timestamp() - 1, UTC
    )


def _licence(words: Any) -> str:
    """A licence as SPDX writes it; "other" where it is none.

    Examples
    --------
    >>> _licence("CC BY-NC-SA 4.0"), _licence("ask the office"), _licence(None)
    ('CC-BY-NC-SA-4.0', 'other', 'other')
    """
    text = str(words or "").strip().replace("CC BY", "CC-BY").replace(" ", "-")
    return text if re.fullmatch(r"(CC0|CC-BY|ODbL|MIT|Apache|PDDL)[\w.-]*", text) else "other"


def _statistics(path: Path) -> list[dict[str, float] | None]:
    """Of each band of a raster, what it says of itself."""
    import rasterio

    with rasterio.open(path) as src:
        tags = [src.tags(i) for i in src.indexes]
    names = {"minimum": "MINIMUM", "maximum": "MAXIMUM", "mean": "MEAN", "stddev": "STDDEV"}
    return [
        {k: float(t[f"STATISTICS_{v}"]) for k, v in names.items()} if "STATISTICS_MEAN" in t else None
        for t in tags
    ]


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-").lower()


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
