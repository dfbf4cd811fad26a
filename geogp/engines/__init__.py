"""What carries a method: one class for each way of holding a Gaussian process. One file each."""

from geogp.engines.base import Engine, Hooks, Plan
from geogp.engines.closed_form import ClosedFormEngine
from geogp.engines.lowrank import LowRankEngine

ENGINES: dict[str, type[Engine]] = {
    "lowrank": LowRankEngine,
    "closed_form": ClosedFormEngine,
}

__all__ = ["ENGINES", "Engine", "Hooks", "Plan"]
