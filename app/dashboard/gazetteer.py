"""Names beyond those that a page brings with it, of a large region: of the part in sight, and all that can be searched."""

import unicodedata
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from app.dashboard.setting import window
from app.workflow import naming
from app.workflow.page import PageGrid

#: Answers to a search, and letters that are looked at.
MOST, LETTERS = 7, 60
#: Pixels of a page larger than this draw counties as angles.
COARSE_M = 1000.0
#: Parts of a page that are remembered.
KEPT = 200


def folded(text: str) -> str:
    """As it is compared: without accents and apostrophes, in small letters; `folded` of page.js.

    >>> folded(" Kāneʻohe ")
    'kaneohe'
    """
    plain = "".join(c for c in unicodedata.normalize("NFD", text) if not "\u0300" <= c <= "\u036f")
    return plain.translate(dict.fromkeys(map(ord, "'ʻ‘’`"))).lower().strip()


class Gazetteer:
    """Towns and lines of a page that its script asks for when it needs them.

    Parameters
    ----------
    page : the run's page
    brought : names and lines beside the region's own
    """

    def __init__(self, page: PageGrid, brought: Sequence[naming.Brought] = ()):
        self.page, self.brought = page, list(brought)
        self._closer = lru_cache(KEPT)(lambda box: naming.closer(page, box, self.brought))

    def has_more(self, places: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a part of the page has more towns or finer lines than the page."""
        towns = sum(place["kind"] == "town" for place in places)
        return towns >= naming.MOST or abs(self.page.geobox.affine.a) > COARSE_M

    def closer(self, params: Mapping[str, str]) -> dict[str, Any]:
        """places and lines of the part of a page in `box`, W,S,E,N.

        Raises
        ------
        InvalidInput
            a window that is none.
        """
        found = self._closer(window(params))
        return {"places": found.places, "lines": found.lines}

    def find(self, text: str) -> list[dict[str, Any]]:
        """Towns of that name, those it is the beginning of, those with such a word: the largest of each first."""
        asked = folded(text[:LETTERS])
        if len(asked) < 2:
            return []

        def rank(names: tuple[str, ...]) -> float:
            name, *also = names
            if name == asked:
                return 0.0
            if asked in also:
                return 0.5
            if any(other.startswith(asked) for other in names):
                return 1.0
            return 2.0 if " " + asked in name else 3.0

        ranked = sorted(((rank(names), k) for k, (names, _) in enumerate(self._all)), key=lambda at: at)
        return [self._all[k][1] for how, k in ranked[:MOST] if how < 3]

    @cached_property
    def _all(self) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
        """All towns, the largest first, with their names as they are compared."""
        found = naming.towns(self.page, most=None)
        return [((folded(t["name"]), *map(folded, t["also"])), t) for t in found]
