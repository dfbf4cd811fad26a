"""The dashboard's pages beside the map, by their address, in the order of the bar.

To add one, write a file with a `draw` of an atlas in this folder, and add a line here and its title to `TITLES` of
`app/dashboard/paths.py`.
"""

from collections.abc import Callable

from app.dashboard.atlas import Atlas
from app.dashboard.sheets import areas, compare, data, methods, train

SHEETS: dict[str, Callable[[Atlas], None]] = {
    "areas": areas.draw,
    "compare": compare.draw,
    "data": data.draw,
    "methods": methods.draw,
    "train": train.draw,
}
