"""What a panel is, and what it is shown of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from app.dashboard.atlas import Atlas
from app.dashboard.setting import Setting


@dataclass(frozen=True)
class Scene:
    """What stands on the page: the maps, their setting, and the marked place (latitude, longitude), if any."""

    atlas: Atlas
    setting: Setting
    at: tuple[float, float] | None

    @property
    def marked(self) -> tuple[float, float]:
        """The marked place, of panels that only show with one."""
        assert self.at is not None
        return self.at


Spot = Literal["top", "sidebar", "fold", "place", "tab"]


@dataclass(frozen=True)
class Panel:
    """One part of the page: it asks the scene for numbers and draws them with Streamlit.

    title : drawn above it, on its fold or on its tab; "" for none
    spot : "top" of the sidebar above the settings, "sidebar" below them, "fold" there but folded away;
        "place" below the map while a place in the region is marked, "tab" below that, one open at a time
    draw : with Streamlit's functions
    shows : whether it has anything to say of a scene

    Examples
    --------
    >>> import streamlit as st
    >>> panel = Panel("How high", "tab", lambda scene: st.metric("Latitude", scene.marked[0]))
    >>> panel.spot, panel.shows(Scene(None, None, (21.3, -157.9)))
    ('tab', True)
    """

    title: str
    spot: Spot
    draw: Callable[[Scene], None]
    shows: Callable[[Scene], bool] = lambda scene: True
