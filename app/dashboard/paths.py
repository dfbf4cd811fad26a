"""Where what is: the map at the root, Streamlit's pages below `PAGES`, what the map asks for below `OURS`."""

from typing import Any

PAGES, OURS = "/pages", "/geogp"
#: Streamlit's pages: address -> title in the bar of the map.
TITLES = {
    "place": "This place",
    "areas": "Areas",
    "compare": "Compare",
    "data": "Data",
    "methods": "Methods",
    "train": "Train",
}
#: What else Streamlit answers below `PAGES`.
STREAMLIT = ("", "_stcore", "static", "media", "component", "favicon.png", "favicon.ico", "manifest.json")


def pages() -> list[dict[str, Any]]:
    """Links of the bar: the map, and pages that need no marked place."""
    linked = [{"name": title, "href": f"{PAGES}/{name}"} for name, title in TITLES.items() if name != "place"]
    return [{"name": "Map", "href": "/", "here": True}, *linked] if linked else []


def known(path: str) -> bool:
    """Whether there is anything at a path; Streamlit itself would answer every one with its page.

    >>> known("/"), known("/pages/place"), known("/pages/_stcore/health"), known("/wp-admin"), known("/pages/nothing")
    (True, True, True, False, False)
    """
    if path == "/" or path.startswith(f"{OURS}/"):
        return True
    if path != PAGES and not path.startswith(f"{PAGES}/"):
        return False
    parts = path.removeprefix(PAGES).lstrip("/").split("/")
    # The script of a page may name its files from the page's own address.
    if len(parts) > 1 and parts[0] in TITLES:
        parts = parts[1:]
    return parts[0] in TITLES or parts[0] in STREAMLIT
