"""Polygons made valid in bounded time."""

import numpy as np
import shapely
from shapely.geometry.base import BaseGeometry

from data_pipelines.errors import InvalidInput

#: Places where the rings of one polygon may cross; a second's repair. GEOS needs the square of their number.
MOST_CROSSINGS = 1000
#: Segments, drawn at random, that stand for all when crossings are counted.
LOOKED_AT = 50_000


def repaired(shape: BaseGeometry, name: str) -> BaseGeometry:
    """The same (multi)polygon, valid; one that is valid comes back as it is.

    Parameters
    ----------
    name : what to call it when it is refused

    Raises
    ------
    InvalidInput
        Its rings cross in more than `MOST_CROSSINGS` places.

    Notes
    -----
    Cost: N log N of N vertices; a ring of 600 random points alone would keep GEOS busy for minutes.
    """
    if shapely.is_valid(shape):
        return shape
    if (about := crossings(shape)) > MOST_CROSSINGS:
        raise InvalidInput(
            f"{name} has a polygon whose edges cross in some {about:,} places, more than {MOST_CROSSINGS:,}; "
            "it encloses no place: repair it, or give another file."
        )
    return shapely.make_valid(shape)


def crossings(shape: BaseGeometry, seed: int = 0) -> int:
    """How often edges cross: exact up to `LOOKED_AT` edges and `MOST_CROSSINGS` places, an estimate beyond.

    Examples
    --------
    >>> crossings(shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)]))
    1
    """
    rings = shapely.get_rings(shapely.get_parts(shape))
    xy, ring = shapely.get_coordinates(rings, return_index=True)
    ends = np.stack([xy[:-1], xy[1:]], axis=1)[ring[:-1] == ring[1:]]
    ends = ends[np.isfinite(ends).all(axis=(1, 2))]
    edges = shapely.linestrings(ends)
    tree = shapely.STRtree(edges)
    order = np.random.default_rng(seed).permutation(len(edges))[:LOOKED_AT]
    seen, size, found = 0, 1, 0
    while seen < len(order) and found <= 2 * MOST_CROSSINGS:
        found += len(tree.query(edges[order[seen : seen + size]], predicate="crosses")[0])
        seen, size = min(seen + size, len(order)), 2 * size
    return round(found / 2 * len(edges) / max(seen, 1))
