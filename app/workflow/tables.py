"""Tables of places and areas as files that people open: GeoParquet, GeoPackage, CSV, by the suffix of their name."""

import io
import json
import re
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
    import pandas as pd

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
    """Write a table whole or not at all, read back before it gets its name; a CSV leaves the geometry out and is `inert`.

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
            inert(table.drop(columns=table.geometry.name)).to_csv(temporary, index=False)
            again: Any = pd.read_csv(temporary, dtype=str)
        elif kind == "gpkg":
            about = json.dumps({"schema": 1, **facts, "created": now()})
            # By way of memory: GDAL does not say that a disk is full, but which of its statements failed.
            written = io.BytesIO()
            with in_gdal():
                table.to_file(
                    written, driver="GPKG", layer=layer, layer_metadata={"geogp": about}, index=False
                )
            temporary.write_bytes(written.getbuffer())
            again = geopandas.read_file(temporary, layer=layer)
        else:
            # A box beside each shape lets readers skip what they do not ask for; a column of that name is the people's own.
            boxes = "bbox" not in table.columns
            table.to_parquet(temporary, index=False, write_covering_bbox=boxes, schema_version="1.1.0")
            _told(temporary, facts)
            again = geopandas.read_parquet(temporary)
        if len(again) != len(table):
            raise OSError(f"{path.name} could not be read back after writing; check the disk.")


#: Text that a spreadsheet takes for a formula: a sign at its head, unless it heads a number or degrees.
_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.,\s°'\"NSEW]*$)")


def inert(frame: "pd.DataFrame") -> "pd.DataFrame":
    """A frame whose texts no spreadsheet computes: an apostrophe before those that begin like a formula.

    Examples
    --------
    >>> import pandas as pd
    >>> inert(pd.DataFrame({"name": ["=1+1", "-5.2", "+cmd()", "Hilo", None]}))["name"].tolist()[:4]
    ["'=1+1", '-5.2', "'+cmd()", 'Hilo']
    """

    def quoted(cell: Any) -> Any:
        return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell

    # By place, for two columns may have one name.
    columns = [column if column.dtype.kind in "biufc" else column.map(quoted) for _, column in frame.items()]
    out = frame.copy(deep=False)
    for at, column in enumerate(columns):
        out.isetitem(at, column)
    return out.set_axis([quoted(name) for name in frame.columns], axis=1)


def _told(path: Path, facts: Mapping[str, Any]) -> None:
    """The facts in a Parquet file's metadata."""
    import pyarrow.parquet as pq

    whole = pq.read_table(path)
    about = {b"geogp": json.dumps({"schema": 1, **facts, "created": now()}).encode()}
    pq.write_table(
        whole.replace_schema_metadata({**whole.schema.metadata, **about}), path, compression="zstd"
    )


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
