"""Maps: a prediction Dataset becomes something to look at.

`import maps` registers the accessor `ds.geogp` (`plot`, `explore`, `to_cog`, `to_netcdf`, `export`); what draws and
writes is imported when first used.
"""

from maps.accessor import GeogpAccessor
from maps.errors import InvalidInput
from maps.reader import open_export, open_raster

__all__ = ["GeogpAccessor", "InvalidInput", "open_export", "open_raster"]
