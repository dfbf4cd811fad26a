"""The dashboard of one run: maps, values in words at the pointer, kernel slices at a click; no outside request.

`serve` is imported on first use, so that naming the package stays light.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.dashboard.server import serve

__all__ = ["serve"]


def __getattr__(name: str) -> Any:
    if name == "serve":
        return importlib.import_module("app.dashboard.server").serve
    raise AttributeError(f"module 'app.dashboard' has no attribute {name!r}")
