"""Tables of places and areas as files that people open: GeoParquet, GeoPackage, CSV, by the suffix of their name."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely

from app.errors import InvalidInput
from app.workflow.outputs import now
from data_pipelines.atomic import atomic_path
from maps.clock import in_gdal

if TYPE_CHECKING:
    import geopandas

#: Suffix of a table -> its kind in a manifest.
KINDS = {".parquet": "geoparquet", ".gpkg": "gpkg", ".csv": "csv"}


def kind_of(path: Path) -> str:
    """What a table is written as.

    Raises
    ------
    InvalidInput

    Examples
    --------
    >>> kind_of(Path("areas.gpkg"))
    'gpkg'
    """
    if path.suffix.lower() not in KINDS:
        raise InvalidInput(
            f"A table is written as .parquet, .gpkg or .csv; name the output so, not {path.name}."
        )
    return KINDS[path.suffix.lower()]


def write_table(
    table: "geopandas.GeoDataFrame", path: Path, facts: Mapping[str, Any], *, overwrite: bool, layer: str
) -> None:
    """Write a table whole or not at all, read back before it gets its name; a CSV leaves the geometry out.

    Parameters
    ----------
    facts : kept in the file's own metadata under "geogp" (not in a CSV, which has none)
    layer : name of a GeoPackage's layer
    """
    import geopandas
    import pandas as pd

    kind = kind_of(path)
    with atomic_path(path, overwrite=overwrite) as temporary:
        if kind == "csv":
            table.drop(columns=table.geometry.name).to_csv(temporary, index=False)
            again: Any = pd.read_csv(temporary, dtype=str)
        elif kind == "gpkg":
            about = json.dumps({"schema": 1, **facts, "created": now()})
            with in_gdal():
                table.to_file(
                    temporary, driver="GPKG", layer=layer, layer_metadata={"geogp": about}, index=False
                )
            again = geopandas.read_file(temporary, layer=layer)
        else:
            table.to_parquet(temporary, index=False)
            _told(temporary, facts)
            again = geopandas.read_parquet(temporary)
        if len(again) != len(table):
            raise OSError(f"{path.name} could not be read back after writing; check the disk.")


def _told(path: Path, facts: Mapping[str, Any]) -> None:
    """The facts in a Parquet file's metadata."""
    import pyarrow.parquet as pq

    whole = pq.read_table(path)
    about = {b"geogp": json.dumps({"schema": 1, **facts, "created": now()}).encode()}
    pq.write_table(whole.replace_schema_metadata({**whole.schema.metadata, **about}), path)


def plain(value: Any) -> Any:
    """A cell as JSON has it.

    Examples
    --------
    >>> plain(np.float64("nan")), plain(np.int64(3)), plain("x")
    (None, 3, 'x')
    """
    if isinstance(value, shapely.Geometry):
        return None
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)
