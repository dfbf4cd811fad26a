"""The panels of the dashboard, in their order on the page.

To add one, write a file with a `PANEL` in this folder and add a line to `PANELS`: no address, script or style is
edited. A panel that needs numbers asks `scene.atlas`.
"""

from app.dashboard.panels import about, chances, coverage, heading, history, likeness, numbers
from app.dashboard.panels.base import Panel, Scene

PANELS: dict[str, Panel] = {
    "heading": heading.PANEL,
    "coverage": coverage.PANEL,
    "about": about.PANEL,
    "numbers": numbers.PANEL,
    "chances": chances.PANEL,
    "history": history.PANEL,
    "likeness": likeness.PANEL,
}

__all__ = ["PANELS", "Panel", "Scene"]
